// A running solve as its residuals tell it: where it is, how quickly it goes, how far it has to go.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

// Of several right-hand sides, solved one after the other or some at once, this is about the one
// that is furthest; of those that are level, the first. The points of each are limited in number:
// older ones are decimated.
class ResidualTrack {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The relative residual asked for of each right-hand side; empty: not known, nor their number.
  explicit ResidualTrack(std::vector<double> targets = {}) : targets_(std::move(targets)) {}

  // Residuals in the order in which they came; `now` is when.
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

  // Iterations per second over the last seconds, as they were heard of here. Nothing where that is
  // too short to tell.
  std::optional<double> Rate() const;
  // Iterations to the target, by the slope of the last quarter of the iterations. Nothing where the
  // residual does not fall there, does so less than it scatters, or falls at another rate than over
  // the last half: then no straight line tells what comes.
  std::optional<int64_t> ToGo() const;

  // "iteration 412, residual 3.2e-05, asked for 1.0e-08, 1,240 it/s, about 620 to go", as much of
  // it as `columns` holds, and where there are several, which right-hand side. ASCII.
  std::string Status(int columns, bool with_target = true) const;

 private:
  struct Mark {
    Time time;
    int32_t iteration = 0;
  };
  std::vector<double> targets_;
  std::map<int32_t, std::vector<Residual>> points_;  // of those that are solved at once
  int32_t rhs_ = 0;
  std::deque<Mark> marks_;  // of the last seconds
};

}  // namespace spaid::cli
