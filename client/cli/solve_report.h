// What `spaidctl solve` says at its end.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/convergence_plot.h"
#include "client/cpp/spaid/client.h"

namespace spaid::cli {

// Borrows what it reports on.
struct SolveReport {
  const SolveArgs& args;
  const SolveResult& result;  // of at least one right-hand side
  int64_t n = 0, nnz = 0;
  std::optional<MatrixInfo> info;        // fetched where it is needed
  std::optional<Error> diagnosis_error;  // why it could not be
  std::vector<double> targets = {};      // the relative residual asked for of each right-hand side
};

// The right-hand side that did worst: not converged before converged, then by residual.
const SolveResult::Rhs& WorstRhs(const SolveResult& result);

nlohmann::json SolveJson(const SolveReport& report);
std::string SolveText(const SolveReport& report, bool color);
// Borrows the result's histories.
ConvergencePlot SolvePlot(const SolveReport& report);

}  // namespace spaid::cli
