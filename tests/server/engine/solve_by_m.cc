#include "tests/server/engine/solve_by_m.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace spaid::server {
namespace {

double Diagonal(const kernels::CscView& a, size_t j) {
  for (auto p = static_cast<size_t>(a.col_ptr[j]); p < static_cast<size_t>(a.col_ptr[j + 1]); ++p) {
    if (a.row_idx[p] == static_cast<int32_t>(j)) return a.values[p];
  }
  return 0;
}

}  // namespace

kernels::SolveResult SolveByM(const kernels::Engine::SolveCase& c, const kernels::Context& context,
                              const kernels::Status& held, bool breaks) {
  using kernels::Outcome;
  const auto n = static_cast<size_t>(c.a.n_cols);
  double times = 1;
  for (size_t j = 0; j < n && c.preconditioner != nullptr; ++j) {
    const double am = Diagonal(c.a, j) * c.preconditioner->matrix().values[j];
    times = std::max({times, am, 1 / am});
  }
  kernels::SolveResult result;
  result.x.resize(c.b.size());
  result.solve_ms = 1;
  result.figures.iterate_ms = 2;
  result.m_storage = kernels::Storage::kFp64;
  for (size_t r = 0; r < c.b.size() / n; ++r) {
    // Relative residuals fall from `from` by 1 / (10 times) an iteration.
    double from = 0, b_norm = 0;
    std::vector<double> guess(n, 0.0);
    for (size_t j = 0; j < n; ++j) {
      const double b = c.b[r * n + j];
      if (!c.x0.empty()) guess[j] = c.x0[r * n + j];
      from += std::pow(b - Diagonal(c.a, j) * guess[j], 2);
      b_norm += b * b;
    }
    from = std::sqrt(from / b_norm);
    const auto needed = static_cast<int64_t>(std::ceil(from * 10 * times - 1e-6));
    kernels::RhsResult rhs;
    rhs.iterations = held.ok() ? std::min(needed, c.options.max_iterations) : 0;
    if (breaks) rhs.iterations = std::min<int64_t>(rhs.iterations, 1);
    const double left =
        needed > 0 ? static_cast<double>(needed - rhs.iterations) / static_cast<double>(needed) : 0;
    for (size_t j = 0; j < n; ++j) {
      const double x = c.b[r * n + j] / Diagonal(c.a, j);
      result.x[r * n + j] = x + left * (guess[j] - x);
    }
    for (int32_t i = 0; i <= rhs.iterations && context.progress != nullptr; ++i) {
      const double share = needed > 0 ? static_cast<double>(i) / static_cast<double>(needed) : 1;
      context.progress->OnResidual({static_cast<int32_t>(r), i, from * (1 - share)});
    }
    rhs.true_relative_residual = from * left;
    rhs.true_residual = rhs.true_relative_residual * std::sqrt(b_norm);
    rhs.outcome = !held.ok()                 ? Outcome::kCancelled
                  : breaks                   ? Outcome::kBreakdown
                  : needed <= rhs.iterations ? Outcome::kConverged
                                             : Outcome::kMaxIterations;
    result.figures.iterations += rhs.iterations;
    result.rhs.push_back(std::move(rhs));
  }
  return result;
}

}  // namespace spaid::server
