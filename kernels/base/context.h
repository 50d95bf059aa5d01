// Arguments of every long computation: how to stop it, where to report progress, how many threads
// it may use. Deadlines and cancellation reach the innermost loop through it.
//
//   StopSource source;
//   Context context{.stop = source.token(), .threads = 2};
//   ... engine->Build(plan, a, context) ...   // another thread:
//   source.Request(StopReason::kCancelled)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/status.h"

namespace spaid::kernels {

// Why a computation was asked to stop.
enum class StopReason : int { kNone = 0, kCancelled, kTimeLimit };

// Observes a StopSource. A default-constructed token never stops. Copyable; thread-safe.
class StopToken {
 public:
  StopToken() = default;
  // Costs one relaxed load, and a clock read where a time limit is set: call it per batch of
  // columns or per iteration, not per entry.
  StopReason Poll() const;
  bool stop_requested() const { return Poll() != StopReason::kNone; }

 private:
  friend class StopSource;
  struct State {
    std::atomic<int> reason{0};
    std::atomic<int64_t> deadline_ns{0};  // steady clock; 0: none
    std::shared_ptr<const State> outer;   // its stop is this one's, too; may be null
  };
  explicit StopToken(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Requests the stop; the first reason wins. Thread-safe.
class StopSource {
 public:
  StopSource() : state_(std::make_shared<StopToken::State>()) {}
  // Stops what `outer` stops, too.
  explicit StopSource(const StopToken& outer) : StopSource() { state_->outer = outer.state_; }
  void Request(StopReason reason);
  // From `when` on, tokens answer kTimeLimit.
  void SetTimeLimit(std::chrono::steady_clock::time_point when);
  StopToken token() const { return StopToken(state_); }

 private:
  std::shared_ptr<StopToken::State> state_;
};

inline StopReason StopToken::Poll() const {
  for (const State* state = state_.get(); state != nullptr; state = state->outer.get()) {
    if (int r = state->reason.load(std::memory_order_relaxed)) return static_cast<StopReason>(r);
    const int64_t deadline = state->deadline_ns.load(std::memory_order_relaxed);
    if (deadline != 0 &&
        std::chrono::steady_clock::now().time_since_epoch() >= std::chrono::nanoseconds(deadline)) {
      return StopReason::kTimeLimit;
    }
  }
  return StopReason::kNone;
}

inline void StopSource::Request(StopReason reason) {
  int expected = 0;
  state_->reason.compare_exchange_strong(expected, static_cast<int>(reason),
                                         std::memory_order_relaxed);
}

inline void StopSource::SetTimeLimit(std::chrono::steady_clock::time_point when) {
  state_->deadline_ns.store(
      std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count(),
      std::memory_order_relaxed);
}

enum class Stage { kPlan, kBuild, kAssemble, kSolve };

// One residual of one right-hand side: ‖b − A x‖₂ / ‖b‖₂ as the recursion has it (not recomputed).
struct ResidualPoint {
  int32_t rhs = 0;
  int32_t iteration = 0;
  double relative_residual = 0;
};

// Receives progress. Called from the computing threads, one call at a time, at a rate bounded by
// the computation (each batch of columns, each residual check). Must return quickly and not throw.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // `done` of `total` units of `stage` (columns for build stages).
  virtual void OnProgress(Stage stage, int64_t done, int64_t total) = 0;
  virtual void OnResidual(const ResidualPoint& point) = 0;
};

class CopyAhead;
class ResultSink;

struct Context {
  StopToken stop = {};
  ProgressSink* progress = nullptr;  // borrowed; may be null
  int threads = 0;                   // 0: all cores
  int device = 0;                    // of plans and builds: index in Engine::Devices()
  // CUDA devices that share a plan and its builds, `device` first, each but once; empty: it alone.
  std::vector<int> devices = {};
  // Is shown M while a build makes it (result_sink.h); borrowed; may be null.
  ResultSink* result = nullptr;
  // Has the beginning of A's values on a device already (copy_ahead.h); borrowed; may be null.
  CopyAhead* ahead = nullptr;
};

// The Status of a computation that gave up: CANCELLED/CANCELLED or DEADLINE_EXCEEDED/TIME_LIMIT.
Status StopStatus(StopReason reason, std::string_view what);

}  // namespace spaid::kernels
