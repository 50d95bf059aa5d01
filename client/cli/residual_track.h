// Follows a running solve by its residuals: where it is, how quickly it goes, how far it has to go.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// With several right-hand sides, solved one after the other or some at once, it follows the one
// that is furthest; among equals the first. The points of each are limited in number: older ones
// are decimated.
class ResidualTrack {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `targets`: the relative residual asked for, per right-hand side; empty: not known, nor their
  // number.
  explicit ResidualTrack(std::vector<double> targets = {}) : targets_(std::move(targets)) {}

  // Adds residuals in the order in which they came; `now`: when they came.
  void Add(std::span<const Residual> residuals, Time now);
  void Clear();

  bool empty() const { return points().empty(); }
  const std::vector<Residual>& points() const {
    static const std::vector<Residual> kNone;
    const auto found = points_.find(rhs_);
    return found == points_.end() ? kNone : found->second;
  }
  int32_t rhs() const { return rhs_; }
  int32_t rhs_count() const { return static_cast<int32_t>(targets_.size()); }
  double target() const;  // 0: not known

  // Returns the iterations per second over the last seconds, as seen here; nothing if that is too
  // short to tell.
  std::optional<double> Rate() const;
  // Returns the iterations to the target, by the slope of the last quarter of the iterations.
  // Nothing if the residual does not fall there, falls less than it scatters, or falls at another
  // rate than over the last half: then no straight line predicts it.
  std::optional<int64_t> ToGo() const;

  // Returns "iteration 412, residual 3.2e-05, asked for 1.0e-08, 1,240 it/s, about 620 to go", as
  // much of it as `columns` holds, and the number of the right-hand side if there are several.
  // ASCII.
  std::string Status(int columns, bool with_target = true) const;

 private:
  struct Mark {
    Time time;
    int32_t iteration = 0;
  };
  std::vector<double> targets_;
  std::map<int32_t, std::vector<Residual>> points_;  // by right-hand side solved at present
  int32_t rhs_ = 0;
  std::deque<Mark> marks_;  // the last seconds
};

}  // namespace spaid::cli
