#include "client/cpp/call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client/cpp/affinity.h"
#include "client/cpp/errors.h"

namespace spaid::internal {
namespace {

// Longer timeouts mean "no hurry"; adding them to the clock could overflow.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

std::optional<Error> SetLimit(std::optional<std::chrono::milliseconds> limit, const char* field,
                              google::protobuf::Duration* (v1::JobLimits::*mutable_field)(),
                              v1::JobLimits& limits) {
  if (!limit) return std::nullopt;
  if (limit->count() <= 0) {
    return MakeError(Code::kInvalidArgument, kBadOption,
                     std::string(field) + " is " + std::to_string(limit->count()) +
                         " ms; it must be positive, or unset for no limit",
                     field);
  }
  google::protobuf::Duration& duration = *(limits.*mutable_field)();
  duration.set_seconds(limit->count() / 1000);
  duration.set_nanos(static_cast<int32_t>(limit->count() % 1000 * 1'000'000));
  return std::nullopt;
}

}  // namespace

Call::Call(const CallOptions& options) : options_(&options) {
  if (options.timeout && *options.timeout < kLongestTimeout) {
    deadline_ = std::chrono::system_clock::now() + *options.timeout;
  }
}

bool Call::WouldPass(std::chrono::milliseconds wait) const {
  return deadline_ && std::chrono::system_clock::now() + wait >= *deadline_;
}

Error Call::Stopped() const {
  return MakeError(Code::kCancelled, kStopRequested, "the caller asked to stop");
}

Error Call::TimedOut() const {
  return MakeError(Code::kDeadlineExceeded, kTimeout,
                   "the call's timeout of " + std::to_string(options_->timeout->count()) +
                       " ms passed; give it more time, or detach the job and watch it",
                   "timeout");
}

void Call::Report(const Progress& progress) const {
  if (options_->on_progress) options_->on_progress(progress);
}

void Call::ReportTransfer(Stage stage, int64_t done, int64_t total) const {
  if (!options_->on_progress) return;
  Progress progress;
  progress.kind = Progress::Kind::kTransfer;
  progress.stage = stage;
  progress.done = done;
  progress.total = total;
  options_->on_progress(progress);
}

std::optional<Error> CheckTrace(const std::string& parent, const std::string& state) {
  bool good = parent.size() == 55;
  for (size_t k = 0; good && k < parent.size(); ++k) {
    const bool dash = k == 2 || k == 35 || k == 52;
    good = dash ? parent[k] == '-'
                : (parent[k] >= '0' && parent[k] <= '9') || (parent[k] >= 'a' && parent[k] <= 'f');
  }
  constexpr size_t kMaxState = 512;  // that everybody passes on
  if (state.size() > kMaxState ||
      !std::all_of(state.begin(), state.end(), [](char c) { return c >= ' ' && c <= '~'; })) {
    return MakeError(Code::kInvalidArgument, kBadOption,
                     "tracestate has more than 512 characters, or some that a header cannot hold",
                     "tracestate");
  }
  if (good || parent.empty()) return std::nullopt;
  return MakeError(Code::kInvalidArgument, kBadOption,
                   "traceparent is not 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower "
                   "case; see W3C Trace Context",
                   "traceparent");
}

std::optional<Error> Call::CheckRoute() const {
  const std::string& affinity = options_->affinity;
  if (affinity.empty() || IsAffinity(affinity)) {
    return CheckTrace(options_->traceparent, options_->tracestate);
  }
  return MakeError(Code::kInvalidArgument, kBadOption,
                   "affinity is '" + affinity +
                       "'; it is 8 lower-case hex digits, those of AffinityOf, or empty",
                   "affinity");
}

Expected<v1::JobLimits> Call::Limits() const {
  v1::JobLimits limits;
  if (auto error =
          SetLimit(options_->max_queue, "max_queue", &v1::JobLimits::mutable_max_queue, limits)) {
    return *std::move(error);
  }
  if (auto error =
          SetLimit(options_->max_run, "max_run", &v1::JobLimits::mutable_max_run, limits)) {
    return *std::move(error);
  }
  return limits;
}

}  // namespace spaid::internal
