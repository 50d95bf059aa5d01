#include "client/cpp/retry.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>

#include "client/cpp/errors.h"

namespace spaid::internal {
namespace {

constexpr int kMostLost = 1;  // after which an attempt is repeated

bool MayRepeat(const Error& error, int lost, Repeat repeat) {
  if (error.code == Code::kResourceExhausted) return error.retry_after.has_value();
  if (error.code != Code::kUnavailable) return false;
  if (!LostInMidCall(error) || repeat == Repeat::kFollow) return true;
  return repeat == Repeat::kSafe && lost <= kMostLost;
}

}  // namespace

bool LostInMidCall(const Error& error) {
  // A retry delay comes only with a refusal; without a connection nothing was sent at all.
  return error.code == Code::kUnavailable && !error.retry_after && error.reason != kUnreachable;
}

std::optional<std::chrono::milliseconds> NextDelay(const RetryPolicy& policy, int attempt, int lost,
                                                   const Error& error, Repeat repeat,
                                                   double jitter) {
  if (attempt >= policy.max_attempts || !MayRepeat(error, lost, repeat)) return std::nullopt;
  if (error.retry_after && *error.retry_after > policy.max_server_delay) return std::nullopt;
  const double full = std::min(
      static_cast<double>(policy.max_delay.count()),
      std::ldexp(static_cast<double>(policy.first_delay.count()), std::min(attempt - 1, 30)));
  const std::chrono::milliseconds own(std::llround(full * (0.5 + 0.5 * jitter)));
  if (!error.retry_after) return own;
  // The server's delay is a lower bound; the jitter on top keeps its clients from coming back at
  // once.
  return *error.retry_after + own / 4;
}

double Jitter() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::generate_canonical<double, 32>(generator);
}

bool SleepUnlessStopped(std::chrono::milliseconds delay, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, delay, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace spaid::internal
