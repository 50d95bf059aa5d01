// The convergence plot of --plot: residuals over iterations as an SVG for a report.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

constexpr size_t kPlotLegend = 8;          // curves with a colour and a line in the legend
constexpr size_t kPlotCurvePoints = 2000;  // about as many of a curve are drawn,
constexpr size_t kPlotPoints = 40000;      // and of all of them

struct PlotCurve {
  std::string name;  // in the legend
  std::span<const Residual> history;
  std::optional<Residual> end;  // the true residual, recomputed; drawn as a circle
};

// Borrows the histories. Texts are plain UTF-8; what is not is replaced.
struct ConvergencePlot {
  std::string title, subtitle, caption;
  std::vector<PlotCurve> curves;  // beyond kPlotLegend: in grey, and counted below the legend
  double tolerance = 0;           // a broken line; 0: none
};

// On a logarithmic axis zero is drawn at the bottom, with a triangle, and what is not finite leaves
// a gap, with a cross at the top.
std::string ConvergenceSvg(const ConvergencePlot& plot);

// Writes it to `path` (also .gz), as --out writes: the file is there when all of it is.
std::optional<Error> WritePlot(const std::string& path, const ConvergencePlot& plot);

// An outcome's count as the place of a curve's end.
int32_t PlotIteration(int64_t iterations);

// As a report names them: "BiCGSTAB", "GMRES(50)"; "static SPAI, p = 2" (0: not told), "Jacobi".
std::string MethodTitle(Method method, int64_t restart);
std::string EngineTitle(Engine engine, int pattern_power, int block_size);
// "converged", "not converged (STAGNATED)".
std::string OutcomeTitle(Outcome outcome);

}  // namespace spaid::cli
