#include "kernels/engine/stall_watch.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace spaid::kernels {

StallWatch::StallWatch(bool symmetric, double rtol, std::function<Look()> first_look,
                       int64_t budget, ProgressSink* next, const StopToken& stop,
                       Numbering numbering)
    : symmetric_(symmetric),
      rtol_(rtol),
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
    look_ = ask_first_look_ != nullptr ? kLeastLook : first_look_.first;
    best_ = {{0, 1.0}};
  }
  if (point.relative_residual < best_.back().second) {
    best_.emplace_back(point.iteration, point.relative_residual);
  }
  if (look_ == 0 || point.iteration < look_) return;
  const bool in_sight = InSight(point.iteration);
  // The answer takes a prediction, which a solve that ends soon does without.
  if (!in_sight && ask_first_look_ != nullptr) {
    first_look_ = std::exchange(ask_first_look_, nullptr)();
    const int64_t looked = std::exchange(look_, first_look_.first);
    if (look_ == 0 || look_ > looked) return;
  }
  if (!in_sight && !InSight(point.iteration)) {  // the answer may let more pass
    stalled_ = true;
    own_.Request(StopReason::kCancelled);
  }
  look_ *= 2;
}

double StallWatch::BestUntil(int64_t iteration) const {
  const auto after =
      std::upper_bound(best_.begin(), best_.end(), iteration,
                       [](int64_t i, const auto& reached) { return i < reached.first; });
  return std::prev(after)->second;
}

double StallWatch::Foretold(int64_t iteration) const {
  const double half = BestUntil(iteration / 2), last = best_.back().second;
  if (last <= rtol_) return 0;
  double brought = std::log(half / last);
  const double before = std::log(BestUntil(iteration / 4) / half);
  // The first iterations fall faster than those that follow, however soon the solve ends.
  const bool settled = symmetric_ && iteration >= 2 * kLeastLook && before > 0;
  const double growth = settled ? std::clamp(brought / before, kLeastGrowth, 2.0) : 2.0;
  double needed = std::log(last / rtol_);
  if (brought <= 0) return std::numeric_limits<double>::infinity();
  auto at = static_cast<double>(iteration);
  for (brought *= growth; brought < needed; brought *= growth) {
    needed -= brought;
    at *= 2;
  }
  return at * (1 + needed / brought) - static_cast<double>(iteration);
}

bool StallWatch::InSight(int64_t iteration) const {
  const auto done = static_cast<double>(iteration);
  return Foretold(iteration) <=
         std::min(std::max(kPatience * done, first_look_.let_pass), budget_ - done);
}

}  // namespace spaid::kernels
