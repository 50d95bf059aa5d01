// Draws the convergence plot of --plot: residuals over iterations as an SVG for a report.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

constexpr size_t kPlotLegend = 8;          // curves with a colour and a line in the legend
constexpr size_t kPlotCurvePoints = 2000;  // points drawn per curve, about
constexpr size_t kPlotPoints = 40000;      // points drawn in all, about

struct PlotCurve {
  std::string name;  // in the legend
  std::span<const Residual> history;
  std::optional<Residual> end;  // the true residual, recomputed; drawn as a circle
};

// The contents of a plot. Borrows the histories. Texts are plain UTF-8; other bytes are replaced.
struct ConvergencePlot {
  std::string title, subtitle, caption;
  std::vector<PlotCurve> curves;  // beyond kPlotLegend: in grey, and counted below the legend
  double tolerance = 0;           // a broken line; 0: none
};

// Returns the plot as SVG. On the logarithmic axis zero is drawn at the bottom, with a triangle;
// values that are not finite leave a gap, with a cross at the top.
std::string ConvergenceSvg(const ConvergencePlot& plot);

// Writes the plot to `path` (also .gz); the file appears when it is complete, as with --out.
std::optional<Error> WritePlot(const std::string& path, const ConvergencePlot& plot);

// Converts an outcome's count of iterations to the place of a curve's end.
int32_t PlotIteration(int64_t iterations);

// Return names for reports: "BiCGSTAB", "GMRES(50)", "GMRES(50+)" where cycles grow; "static SPAI,
// p = 2" (0: without p), "Jacobi".
std::string MethodTitle(Method method, const SolveOptions& options);
std::string EngineTitle(Engine engine, int pattern_power, int block_size);
// Returns "converged" or, for example, "not converged (STAGNATED)".
std::string OutcomeTitle(Outcome outcome);

}  // namespace spaid::cli
