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
  if (point.rhs != rhs_) {
    rhs_ = point.rhs;
    look_ = ask_first_look_ != nullptr ? kLeastLook : first_look_;
    best_ = best_at_half_ = 1;
  }
  if (point.relative_residual < best_) best_ = point.relative_residual;
  if (point.iteration <= look_ / 2) best_at_half_ = best_;
  if (look_ == 0 || point.iteration < look_) return;
  const bool in_sight = InSight(point.iteration);
  // The answer takes a prediction, which a solve that ends soon does without.
  if (!in_sight && ask_first_look_ != nullptr) {
    first_look_ = std::exchange(ask_first_look_, nullptr)();
    const int64_t looked = std::exchange(look_, first_look_);
    if (point.iteration <= look_ / 2) best_at_half_ = best_;
    if (look_ == 0 || look_ > looked) return;
  }
  if (!in_sight) {
    stalled_ = true;
    own_.Request(StopReason::kCancelled);
  }
  best_at_half_ = best_;
  look_ *= 2;
}

// By what the last half of the iterations brought.
bool StallWatch::InSight(int64_t iteration) const {
  const double rate = std::log(best_at_half_ / best_) / (static_cast<double>(look_) / 2);
  const double needed = std::log(best_ / rtol_);
  const auto done = static_cast<double>(iteration);
  return needed <= rate * std::min(kPatience * done, budget_ - done);
}

}  // namespace spaid::kernels
