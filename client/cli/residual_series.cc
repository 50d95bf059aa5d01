#include "client/cli/residual_series.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace spaid::cli {
namespace {

// A target as far below the points as this, and further than twice their own span, is left out.
constexpr int kFarTarget = 16;

}  // namespace

bool OnLogAxis(double value) { return std::isfinite(value) && value > 0; }

std::vector<Residual> Decimate(std::span<const Residual> points, size_t limit) {
  limit = std::max<size_t>(limit, 8);
  if (points.size() <= limit) return {points.begin(), points.end()};
  const std::span<const Residual> inner = points.subspan(1, points.size() - 2);
  const size_t stretches = (limit - 2) / 2;
  std::vector<Residual> kept = {points.front()};
  for (size_t stretch = 0; stretch < stretches; ++stretch) {
    const size_t begin = inner.size() * stretch / stretches;
    const size_t end = inner.size() * (stretch + 1) / stretches;
    constexpr size_t kNone = std::numeric_limits<size_t>::max();
    size_t smallest = kNone, largest = kNone, off = kNone;
    for (size_t i = begin; i < end; ++i) {
      const double value = inner[i].relative_residual;
      if (!OnLogAxis(value)) {
        if (off == kNone) off = i;
        continue;
      }
      if (smallest == kNone || value < inner[smallest].relative_residual) smallest = i;
      if (largest == kNone || value > inner[largest].relative_residual) largest = i;
    }
    std::array<size_t, 3> chosen = {smallest, largest, off};
    std::sort(chosen.begin(), chosen.end());
    for (size_t k = 0; k < chosen.size() && chosen[k] != kNone; ++k) {
      if (k == 0 || chosen[k] != chosen[k - 1]) kept.push_back(inner[chosen[k]]);
    }
  }
  kept.push_back(points.back());
  return kept;
}

double DecadeAxis::Place(double value) const {
  if (value <= 0) return 1;
  return std::clamp((top - std::log10(value)) / (top - bottom), 0.0, 1.0);
}

DecadeAxis MakeDecadeAxis(std::span<const std::span<const Residual>> curves, double target) {
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  for (const std::span<const Residual> curve : curves) {
    for (const Residual& point : curve) {
      if (!OnLogAxis(point.relative_residual)) continue;
      smallest = std::min(smallest, point.relative_residual);
      largest = std::max(largest, point.relative_residual);
    }
  }
  DecadeAxis axis;
  if (largest > 0) {
    axis.top = static_cast<int>(std::ceil(std::log10(largest)));
    axis.bottom = static_cast<int>(std::floor(std::log10(smallest)));
  }
  if (OnLogAxis(target)) {
    const int high = static_cast<int>(std::ceil(std::log10(target)));
    const int low = high - 1;  // not on the edge, where its line would hide in the axis
    if (axis.bottom - low <= std::max(kFarTarget, 2 * (axis.top - axis.bottom))) {
      axis.has_target = true;
      axis.bottom = std::min(axis.bottom, low);
      axis.top = std::max(axis.top, high);
    }
  }
  if (axis.top == axis.bottom) --axis.bottom;
  return axis;
}

std::vector<int> DecadeTicks(const DecadeAxis& axis, int most) {
  most = std::max(most, 2);
  std::vector<int> ticks;
  for (const int step : {1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000}) {
    ticks.clear();
    // Rounded up to a multiple, for negative numbers, too.
    const int lowest = static_cast<int>(std::ceil(static_cast<double>(axis.bottom) / step)) * step;
    for (int power = lowest; power <= axis.top; power += step) ticks.push_back(power);
    if (static_cast<int>(ticks.size()) <= most) break;
  }
  std::reverse(ticks.begin(), ticks.end());
  return ticks;
}

std::vector<int64_t> IterationTicks(int64_t last, int most) {
  most = std::max(most, 2);
  int64_t step = 1;
  for (int64_t power = 1; last / step + 1 > most; power *= 10) {
    for (const int64_t factor : {1, 2, 5}) {
      step = factor * power;
      if (last / step + 1 <= most) break;
    }
  }
  std::vector<int64_t> ticks;
  for (int64_t at = 0; at <= last; at += step) ticks.push_back(at);
  return ticks;
}

std::vector<double> RelativeTargets(std::span<const double> b, int64_t n, double rtol,
                                    double atol) {
  const size_t count = n > 0 ? b.size() / static_cast<size_t>(n) : 0;
  if (atol <= 0) return std::vector<double>(count, rtol);
  std::vector<double> targets;
  for (size_t base = 0; base < count * static_cast<size_t>(n); base += static_cast<size_t>(n)) {
    double norm = 0;
    for (int64_t i = 0; i < n; ++i) norm = std::hypot(norm, b[base + static_cast<size_t>(i)]);
    targets.push_back(norm > 0 ? std::max(rtol, atol / norm) : rtol);
  }
  return targets;
}

}  // namespace spaid::cli
