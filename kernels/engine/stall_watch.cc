#include "kernels/engine/stall_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spaid::kernels {

StallWatch::StallWatch(double rtol, std::function<int64_t()> first_look, int64_t budget,
                       ProgressSink* next, const StopToken& stop, Numbering numbering)
    : rtol_(rtol),
      ask_first_look_(std::move(first_look)),
      budget_(static_cast<double>(budget)),
      next_(next),
      numbering_(std::move(numbering)),
      own_(stop) {}

void StallWatch::OnProgress(Stage stage, int64_t done, int64_t total) {
  if (next_ != nullptr) next_->OnProgress(stage, done, total);
}

void StallWatch::OnResidual(const ResidualPoint& point) {
  if (next_ != nullptr) {
    ResidualPoint told = point;
    const auto k = static_cast<size_t>(point.rhs);
    if (k < numbering_.rhs.size()) {
      told.rhs = numbering_.rhs[k];
      told.iteration += static_cast<int32_t>(numbering_.before[k]);
      told.relative_residual *= numbering_.unit[k];
    }
    next_->OnResidual(told);
  }
  if (ask_first_look_ != nullptr && point.iteration >= kLeastLook) {
    first_look_ = look_ = std::exchange(ask_first_look_, nullptr)();
  }
  if (point.rhs != rhs_) {
    rhs_ = point.rhs;
    look_ = first_look_;
    best_ = best_at_half_ = 1;
  }
  if (point.relative_residual < best_) best_ = point.relative_residual;
  const bool asked = ask_first_look_ == nullptr;
  if (point.iteration <= (asked ? look_ : kLeastLook) / 2) best_at_half_ = best_;
  if (!asked || look_ == 0 || point.iteration < look_) return;
  const double rate = std::log(best_at_half_ / best_) / (static_cast<double>(look_) / 2);
  const double needed = std::log(best_ / rtol_);
  const auto done = static_cast<double>(point.iteration);
  if (needed > rate * std::min(kPatience * done, budget_ - done)) {
    stalled_ = true;
    own_.Request(StopReason::kCancelled);
  }
  best_at_half_ = best_;
  look_ *= 2;
}

}  // namespace spaid::kernels
