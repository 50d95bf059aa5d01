// One rising count over the steps of a computation, each with a progress of its own.
//
//   StepProgress progress(caller.progress, Stage::kPlan, n);
//   context.progress = &progress;
//   progress.NextStep(0.3);  // what is reported now takes the count from 0 to 0.3 n
//   progress.NextStep(1);    // ... from there to n
#pragma once

#include <cstdint>

#include "kernels/base/context.h"

namespace spaid::kernels {

class StepProgress final : public ProgressSink {
 public:
  // `sink`, which may be null, is told of `n` units of `stage`, whatever the steps are called.
  StepProgress(ProgressSink* sink, Stage stage, int64_t n) : sink_(sink), stage_(stage), n_(n) {}
  // The next step takes the count from where the last one ended to `share` of all: about that of
  // its time.
  void NextStep(double share) {
    from_ = to_;
    to_ = share;
  }
  void OnProgress(Stage, int64_t done, int64_t total) override {
    const double part = static_cast<double>(done) / static_cast<double>(total);
    const auto units =
        done >= total && to_ == 1
            ? n_
            : static_cast<int64_t>(static_cast<double>(n_) * (from_ + (to_ - from_) * part));
    if (sink_ == nullptr || units <= last_) return;  // a step of several passes begins again
    last_ = units;
    sink_->OnProgress(stage_, units, n_);
  }
  void OnResidual(const ResidualPoint&) override {}

 private:
  ProgressSink* const sink_;
  const Stage stage_;
  const int64_t n_;
  double from_ = 0, to_ = 0;
  int64_t last_ = 0;
};

}  // namespace spaid::kernels
