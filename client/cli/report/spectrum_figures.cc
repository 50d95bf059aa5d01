// Ritz values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/svg.h"
#include "client/cli/residual_series.h"

namespace spaid::cli {
namespace {

constexpr double kNothing = 1e-18;  // of the largest magnitude: drawn at the edge

double Largest(const RitzValues& ritz) {
  return ritz.values.empty() ? 0 : std::abs(ritz.values.back().value);
}

double LeastReal(const RitzValues& ritz) {
  double least = std::numeric_limits<double>::infinity();
  for (const RitzValue& v : ritz.values) least = std::min(least, v.value.real());
  return least;
}

}  // namespace

std::string MagnitudeFigure(std::span<const SpectrumRow> rows) {
  constexpr double kWidth = 460, kLeft = 12, kRight = 446, kRow = 38;
  std::vector<Residual> points;
  for (const SpectrumRow& row : rows) {
    for (const RitzValue& v : row.ritz->values) {
      const double magnitude = std::abs(v.value);
      if (magnitude > kNothing * Largest(*row.ritz)) {
        points.push_back({.relative_residual = magnitude / row.scale});
      }
    }
  }
  const std::span<const Residual> all = points;
  const DecadeAxis decades = MakeDecadeAxis({&all, 1}, 0);
  const double bottom = kRow * static_cast<double>(rows.size()) + 6;
  const auto x = [&](double value) {
    return kLeft + (kRight - kLeft) * (1 - decades.Place(value));
  };
  Svg svg(kWidth, bottom + 40, "magnitudes of Ritz values, for each operator");
  for (const int power : DecadeTicks(decades, 8)) {
    const double at = x(std::pow(10.0, power));
    svg.Line(at, 4, at, bottom, power == 0 ? "one" : "grid");
    svg.Power(at, bottom + 17, power, Anchor::kMiddle);
  }
  double y = 0;
  for (const SpectrumRow& row : rows) {
    svg.Text(kLeft, y + 15, row.name);
    const double middle = y + 27;
    for (const RitzValue& v : row.ritz->values) {
      const double at = x(std::abs(v.value) / row.scale);
      if (v.value.real() < 0) {
        svg.Path("M" + FormatFixed(at - 4, 2) + " " + FormatFixed(middle - 3.5, 2) + "h8l-4 7.5z",
                 v.settled ? "full c1" : "end c1");
      } else {
        svg.Circle(at, middle, 2.8, v.settled ? "full c0" : "end c0");
      }
    }
    y += kRow;
  }
  svg.Line(kLeft, bottom, kRight, bottom, "axis");
  svg.Text((kLeft + kRight) / 2, bottom + 36, "|θ|", Anchor::kMiddle, "soft");
  return svg.Take();
}

std::string PlaneFigure(const SpectrumRow& row) {
  constexpr double kWidth = 300, kMostHeight = 200, kPad = 16, kTop = 26;
  // Both axes are alike, and zero is always seen.
  double low = 0, high = 0, up = 0;
  for (const RitzValue& v : row.ritz->values) {
    low = std::min(low, v.value.real());
    high = std::max(high, v.value.real());
    up = std::max(up, std::abs(v.value.imag()));
  }
  const double width = kWidth - 2 * kPad;
  double unit = std::max((high - low) / width, 2 * up / kMostHeight);
  if (!(unit > 0) || !std::isfinite(unit)) unit = 1 / width;
  const double half = std::clamp(up / unit, 20.0, kMostHeight / 2);
  const double centre = (low + high) / 2, middle = kTop + half + 8, bottom = middle + half + 8;
  const auto x = [&](double re) { return kWidth / 2 + (re - centre) / unit; };
  Svg svg(kWidth, bottom + 32, "Ritz values of " + row.name + " in the complex plane");
  svg.Text(2, 12, row.name);
  svg.Line(4, middle, kWidth - 4, middle, "axis");
  svg.Line(x(0), kTop, x(0), bottom, "axis");
  svg.Text(x(0), bottom + 12, "0", Anchor::kMiddle, "soft");
  if (low <= 1 && 1 <= high && x(1) - x(0) > 24) {
    svg.Line(x(1), kTop, x(1), bottom, "one");
    svg.Text(x(1), bottom + 12, "1", Anchor::kMiddle, "soft");
  }
  svg.Text(2, bottom + 29,
           "Re θ from " + FormatResidual(LeastReal(*row.ritz)) + " to " + FormatResidual(high) +
               ", |Im θ| ≤ " + FormatResidual(up),
           Anchor::kStart, "soft");
  for (const RitzValue& v : row.ritz->values) {
    svg.Circle(x(v.value.real()), middle - v.value.imag() / unit, 2.6,
               v.settled ? "full c0" : "end c0");
  }
  return svg.Take();
}

}  // namespace spaid::cli
