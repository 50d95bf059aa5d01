// CG, BiCGSTAB and GMRES(m), right-preconditioned (CG symmetric), fp64.
//
//   SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8};
//   Result<SolveResult> r = Solve(a, &m, b, x0, options, context);
//   if (r->rhs[0].outcome == Outcome::kConverged) use(r->x);
//
// A solve that does not converge is not an error: the outcome says how it ended, the best iterate
// and its recomputed residual come back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

enum class Method { kAuto, kCg, kBicgstab, kGmres };

enum class Outcome {
  kConverged,  // ‖b − A x‖ ≤ max(rtol ‖b‖, atol), recomputed in fp64
  kMaxIterations,
  kStagnated,   // the true residual stopped falling although the recursion went on
  kBreakdown,   // a denominator of the method vanished
  kIndefinite,  // CG met pᵀAp ≤ 0 or rᵀMr ≤ 0
  kNonFinite,
  kTimeLimit,
  kCancelled,
};

// A square operator that multiplies one vector at a time. Thread-safe.
class LinearOperator {
 public:
  virtual ~LinearOperator() = default;
  virtual int64_t n() const = 0;
  // y = Op x; x and y are n, not overlapping.
  virtual void Apply(std::span<const double> x, std::span<double> y, int threads) const = 0;
  // Bytes one application must move at the least.
  virtual int64_t bytes_per_apply() const = 0;
};

struct SolveOptions {
  Method method = Method::kBicgstab;  // kAuto is resolved by the engine
  double rtol = 1e-8;                 // > 0, or 0 with atol > 0; finite
  double atol = 0;                    // >= 0
  int64_t max_iterations =
      10000;                 // 1 .. 2^31 - 1; a BiCGSTAB iteration is two products, counted once
  int64_t restart = 50;      // m of GMRES(m); >= 1
  bool keep_history = true;  // false: residuals go to the progress sink alone
};

// Of GMRES: the columns that a cycle has at most, for a matrix of n.
inline int64_t RestartLength(const SolveOptions& options, int64_t n) {
  return std::min({options.restart, options.max_iterations, n});
}

struct RhsResult {
  Outcome outcome = Outcome::kMaxIterations;
  int64_t iterations = 0;
  double true_residual = 0;           // ‖b − A x‖₂, recomputed
  double true_relative_residual = 0;  // the same / ‖b‖₂ (0 for b = 0 and x = 0)
  std::string detail;                 // for people: what happened, where
  // With keep_history: every iteration, iteration 0 first; over 100,000 points every second one
  // goes, and so on.
  std::vector<ResidualPoint> history;
};

struct SolveResult {
  Array<double> x;  // n x n_rhs, column-major: the best iterate of each
  std::vector<RhsResult> rhs;
  double solve_ms = 0;
};

// b: n x n_rhs column-major. x0: empty (zero) or n x n_rhs. `m` may be null (no preconditioner).
// Right-hand sides are solved one after the other; b = 0 gives x = 0, kConverged. Beside the result
// a solve takes some ten vectors of n, GMRES restart + 6, once for all right-hand sides.
// Results are the same bits for any number of threads.
// Errors: INVALID_ARGUMENT/BAD_TOLERANCE, /BAD_MAX_ITERATIONS, /BAD_RESTART, /METHOD_NOT_RESOLVED,
// /PRECONDITIONER_SIZE_MISMATCH, /RHS_LENGTH_MISMATCH, /NON_FINITE_VALUE (field rhs or
// initial_guess, first index); RESOURCE_EXHAUSTED/BASIS_TOO_LARGE where the basis of GMRES would
// take over half of the usable memory. A stop is not an error here: outcome kCancelled or
// kTimeLimit.
Result<SolveResult> Solve(const LinearOperator& a, const LinearOperator* m,
                          std::span<const double> b, std::span<const double> x0,
                          const SolveOptions& options, const Context& context);

}  // namespace spaid::kernels
