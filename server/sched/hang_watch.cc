#include "server/sched/hang_watch.h"

#include <algorithm>
#include <utility>

namespace spaid::server {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kShortestTick = std::chrono::milliseconds(1);
constexpr nanoseconds kLongestTick = std::chrono::seconds(1);
constexpr double kLongestLimitNs = 1e18;  // 30 years

}  // namespace

HangWatch::HangWatch(HangLimits limits)
    : limits_(limits), tick_(std::clamp(limits.floor / 16, kShortestTick, kLongestTick)) {}

void HangWatch::Begin(size_t thread, std::function<bool()> alive, double predicted_ms,
                      TimePoint now) {
  if (!on()) return;
  const double of_prediction_ns = std::min(limits_.factor * predicted_ms * 1e6, kLongestLimitNs);
  threads_[thread] = {.alive = std::move(alive),
                      .limit = std::max(limits_.floor, nanoseconds(int64_t(of_prediction_ns))),
                      .silent = nanoseconds(0),
                      .last = now};
}

void HangWatch::End(size_t thread) { threads_.erase(thread); }

std::vector<HangWatch::Hung> HangWatch::Tick(TimePoint now) {
  std::vector<Hung> hung;
  for (auto it = threads_.begin(); it != threads_.end();) {
    Watched& watched = it->second;
    const nanoseconds passed = now - std::exchange(watched.last, now);
    if (watched.alive && watched.alive()) {
      watched.silent = nanoseconds(0);
    } else {
      watched.silent += std::min(passed, 2 * tick_);
    }
    if (watched.silent < watched.limit) {
      ++it;
    } else {
      hung.push_back({it->first, watched.silent});
      it = threads_.erase(it);
    }
  }
  return hung;
}

}  // namespace spaid::server
