// Writes the final report of `spaidctl solve`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/convergence_plot.h"
#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// The contents of a report, borrowed.
struct SolveReport {
  const SolveArgs& args;
  const SolveResult& result;  // with at least one right-hand side
  int64_t n = 0, nnz = 0;
  std::optional<MatrixInfo> info;        // fetched if it is needed
  std::optional<Error> diagnosis_error;  // why that failed
  std::vector<double> targets = {};      // the relative residual asked for, per right-hand side
};

// Returns the right-hand side that did worst: not converged before converged, then by residual.
const SolveResult::Rhs& WorstRhs(const SolveResult& result);

nlohmann::json SolveJson(const SolveReport& report);
std::string SolveText(const SolveReport& report, bool color);
// Makes the plot, which borrows the result's histories.
ConvergencePlot SolvePlot(const SolveReport& report);

}  // namespace spaid::cli
