// Prepares residual histories for drawing: fewer points, an axis by powers of ten, round ticks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// Returns true if a value has a place on a logarithmic axis: finite and above 0.
bool OnLogAxis(double value);

// Returns about `limit` of the points (at least 8), in their order: the first, the last, and from
// each stretch between them the smallest, the largest and the first that is not OnLogAxis, so that
// no peak and no breakdown is lost. Returns all of them if they are that few.
std::vector<Residual> Decimate(std::span<const Residual> points, size_t limit);

// An axis from 10^bottom to 10^top.
struct DecadeAxis {
  int top = 0, bottom = -1;
  bool has_target = false;  // the target lies on it

  // Returns the place of a value between the top, 0, and the bottom, 1, clamped. Zero is at the
  // bottom.
  double Place(double value) const;
};
// Makes an axis that holds all points that are OnLogAxis (none: one decade below 1) and the target
// (not OnLogAxis: none), unless that is so far below them that nothing else would be seen.
DecadeAxis MakeDecadeAxis(std::span<const std::span<const Residual>> curves, double target);

// Returns the powers of ten to label, the highest first: multiples of 1, 2, 3, 5, 10, … decades, at
// most `most` (at least 2).
std::vector<int> DecadeTicks(const DecadeAxis& axis, int most);
// Returns the iterations to label: 0 and multiples of 1, 2 or 5 times a power of ten up to `last`,
// at most `most` (at least 2).
std::vector<int64_t> IterationTicks(int64_t last, int most);

// Returns the target of |b - Ax| / |b| for each column of b (n rows): rtol, or atol / |b| if that
// is larger.
std::vector<double> RelativeTargets(std::span<const double> b, int64_t n, double rtol, double atol);

}  // namespace spaid::cli
