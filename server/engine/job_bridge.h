// Connects a computation with the job that it is: progress and residuals go out, stops and turns
// come in.
//
//   JobBridge bridge(job, threads, at.turn);
//   auto result = engine.Solve(..., bridge.context(device));
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/krylov/krylov.h"
#include "server/engine/convert.h"
#include "server/engine/reuse.h"
#include "server/sched/job.h"
#include "server/sched/scheduler.h"

namespace spaid::server {

// `job` and `turn` outlive it, and it what computes with context().
class JobBridge : public kernels::ProgressSink, public kernels::Turn {
 public:
  JobBridge(Job& job, int threads, JobTurn* turn = nullptr)
      : job_(job), threads_(threads), turn_(turn) {
    // The hook owns its part of the stop state: it may outlive this bridge by a moment.
    job_.SetStopHook([source = source_](StopCause cause) mutable {
      const bool time = cause == StopCause::kMaxRun || cause == StopCause::kDeadline;
      source.Request(time ? kernels::StopReason::kTimeLimit : kernels::StopReason::kCancelled);
    });
  }
  ~JobBridge() override { job_.SetStopHook(nullptr); }
  JobBridge(const JobBridge&) = delete;
  JobBridge& operator=(const JobBridge&) = delete;

  kernels::Context context(int device = 0) {
    return {.stop = source_.token(), .progress = this, .threads = threads_, .device = device};
  }

  void OnProgress(kernels::Stage stage, int64_t done, int64_t total) override {
    job_.ReportProgress(ToProto(stage), done, total);
  }
  void OnResidual(const kernels::ResidualPoint& point) override {
    // Right-hand sides come one after the other.
    if (point.rhs > rhs_) OnProgress(kernels::Stage::kSolve, rhs_ = point.rhs, rhs_count_);
    if (leg_ == nullptr) {
      job_.ReportResidual(point.rhs, point.iteration, point.relative_residual);
    } else if (point.iteration > 0 || leg_->before == 0) {  // else the last leg's end, again
      job_.ReportResidual(leg_->rhs[static_cast<size_t>(point.rhs)],
                          static_cast<int32_t>(leg_->before + point.iteration),
                          point.relative_residual);
    }
  }

  kernels::Turn* turn() { return turn_ != nullptr ? this : nullptr; }
  bool Over() const override { return turn_->Over(); }
  void Yield() override { turn_->Yield(); }

  // `leg`: borrowed; null: these are all right-hand sides of the job, from the beginning.
  void BeginSolve(int64_t rhs_count, const SolveLeg* leg = nullptr) {
    rhs_count_ = rhs_count;
    leg_ = leg;
    OnProgress(kernels::Stage::kSolve, 0, rhs_count_);
  }
  void EndSolve() { OnProgress(kernels::Stage::kSolve, rhs_count_, rhs_count_); }

 private:
  Job& job_;
  const int threads_;
  JobTurn* const turn_;
  int64_t rhs_ = 0, rhs_count_ = 0;
  const SolveLeg* leg_ = nullptr;
  kernels::StopSource source_;
};

}  // namespace spaid::server
