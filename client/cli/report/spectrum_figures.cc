// Ritz values.
#include <algorithm>
#include <cmath>

#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/svg.h"
#include "client/cli/residual_series.h"

namespace spaid::cli {
namespace {

constexpr double kRounding = 1e-10;  // of the largest magnitude, in an imaginary part
constexpr double kNothing = 1e-18;   // of it, in a magnitude: drawn at the edge

double Largest(const RitzValues& ritz) {
  return ritz.values.empty() ? 0 : std::abs(ritz.values.back().value);
}

}  // namespace

bool IsComplex(const RitzValues& ritz) {
  return std::any_of(ritz.values.begin(), ritz.values.end(), [&](const RitzValue& v) {
    return std::abs(v.value.imag()) > kRounding * Largest(ritz);
  });
}

std::string MagnitudeFigure(std::span<const SpectrumRow> rows) {
  constexpr double kWidth = 640, kLeft = 12, kRight = 620, kRow = 38;
  std::vector<Residual> points;
  for (const SpectrumRow& row : rows) {
    for (const RitzValue& v : row.ritz->values) {
      const double magnitude = std::abs(v.value);
      if (magnitude > kNothing * Largest(*row.ritz)) {
        points.push_back({.relative_residual = magnitude});
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
  for (const int power : DecadeTicks(decades, 12)) {
    const double at = x(std::pow(10.0, power));
    svg.Line(at, 4, at, bottom, power == 0 ? "one" : "grid");
    svg.Power(at, bottom + 17, power, Anchor::kMiddle);
  }
  double y = 0;
  for (const SpectrumRow& row : rows) {
    svg.Text(kLeft, y + 15, row.name);
    const double middle = y + 27;
    for (const RitzValue& v : row.ritz->values) {
      const double at = x(std::abs(v.value));
      if (v.value.real() < 0) {
        svg.Path("M" + FormatFixed(at - 4, 2) + " " + FormatFixed(middle - 3.5, 2) + "h8l-4 7.5z",
                 v.settled ? "full c1" : "end c1");
      } else {
        svg.Circle(at, middle, 3.2, v.settled ? "full c0" : "end c0");
      }
    }
    y += kRow;
  }
  svg.Line(kLeft, bottom, kRight, bottom, "axis");
  svg.Text((kLeft + kRight) / 2, bottom + 36, "|θ|", Anchor::kMiddle, "soft");
  return svg.Take();
}

std::string PlaneFigure(const SpectrumRow& row) {
  constexpr double kWidth = 300, kHeight = 270, kPad = 22, kTop = 22;
  // Both axes are alike, and zero is always seen.
  double low = 0, high = 0, up = 0;
  for (const RitzValue& v : row.ritz->values) {
    low = std::min(low, v.value.real());
    high = std::max(high, v.value.real());
    up = std::max(up, std::abs(v.value.imag()));
  }
  const double width = kWidth - 2 * kPad, height = kHeight - kTop - 2 * kPad;
  double unit = std::max((high - low) / width, 2 * up / height);
  if (!(unit > 0) || !std::isfinite(unit)) unit = 1 / width;
  const double centre = (low + high) / 2;
  const double middle = kTop + kPad + height / 2;
  const auto x = [&](double re) { return kWidth / 2 + (re - centre) / unit; };
  const auto y = [&](double im) { return middle - im / unit; };
  Svg svg(kWidth, kHeight, "Ritz values of " + row.name + " in the complex plane");
  svg.Text(2, 12, row.name);
  svg.Line(4, middle, kWidth - 4, middle, "axis");
  svg.Line(x(0), kTop, x(0), kHeight - 4, "axis");
  svg.Text(x(0) + 3, kHeight - 6, "0", Anchor::kStart, "soft");
  if (low <= 1 && 1 <= high && x(1) - x(0) > 24) {
    svg.Line(x(1), middle - 5, x(1), middle + 5, "axis");
    svg.Text(x(1), middle + 17, "1", Anchor::kMiddle, "soft");
  }
  if (up > 0) {
    svg.Text(x(0) + 5, y(up) - 4, FormatResidual(up) + " i", Anchor::kStart, "soft");
  }
  svg.Text(kWidth - 4, middle - 6, FormatResidual(centre + (kWidth / 2 - 4) * unit), Anchor::kEnd,
           "soft");
  for (const RitzValue& v : row.ritz->values) {
    svg.Circle(x(v.value.real()), y(v.value.imag()), 2.8, v.settled ? "full c0" : "end c0");
  }
  return svg.Take();
}

}  // namespace spaid::cli
