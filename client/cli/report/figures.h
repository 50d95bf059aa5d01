// Draws the figures of a report, each as an SVG of bounded size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/cli/report/pattern.h"
#include "client/cli/report/ritz.h"
#include "client/cpp/spaid/types.h"

namespace spaid::cli {

constexpr int kSpyCells = 160;         // per side, at most
constexpr int kSpyShades = 5;          // of cells that have entries
constexpr size_t kColouredCurves = 8;  // the others are grey

// Returns the shade of a cell, 0 the lightest: by the logarithm of its count.
int SpyShade(int64_t count, int64_t most);
std::string SpyFigure(const PatternRaster& raster);

// Rows as bars; columns as a second bar where any bin has other counts of them.
std::string LengthFigure(const PatternLengths& lengths);
bool ColumnsDiffer(const PatternLengths& lengths);

// How a solve went, borrowed.
struct Curve {
  std::span<const Residual> history;
  bool converged = false;
  int64_t iterations = 0;
  double true_relative_residual = 0;
  double setup_ms = 0, iterate_ms = 0;  // of M; of the iterations
};
enum class CurveAxis { kIterations, kTime };
// The first kColouredCurves have a colour and their number, from 1 on, at their end. The axis ends
// with the last of those that converged (of all of those, where none did), and residuals above 100
// are drawn at the top. By time, iterations are spread evenly over
// `iterate_ms`, after `setup_ms`.
std::string ConvergenceFigure(std::span<const Curve> curves, CurveAxis axis, double tolerance);

// Quantiles of column residuals at 0, 10, 25, 50, 75, 90, 99, 100 %.
struct QuantileRow {
  std::string name;
  std::vector<double> quantiles;
};
std::string QuantileFigure(std::span<const QuantileRow> rows);

struct SpectrumRow {
  std::string name;
  const RitzValues* ritz = nullptr;
  double scale = 1;  // that values are divided by where magnitudes are drawn
};
// Magnitudes of Ritz values on one logarithmic axis, a line for each operator; the sign of the real
// part by form and colour.
std::string MagnitudeFigure(std::span<const SpectrumRow> rows);
// Ritz values in the complex plane, both axes linear and alike.
std::string PlaneFigure(const SpectrumRow& row);

}  // namespace spaid::cli
