// The parts of a solve around its iterations, on host and device: checks of the input, blocks of
// right-hand sides, those that are zero, and those whose squares would leave the range of fp64.
#pragma once

#include <functional>

#include "kernels/krylov/judge.h"
#include "kernels/krylov/vectors.h"

namespace spaid::kernels::krylov {

// One right-hand side, b not zero, x set to the initial guess.
struct Task {
  System system;
  Terms terms;
  RhsResult* out;
};

// Solves each of them: fills x and the outcome.
using Conduct = std::function<Status(std::span<const Task>)>;

// `a`: for the rare product on the host. `m_n`: the size of the preconditioner; that of A where
// there is none. `at_once`: right-hand sides that `conduct` is given at a time, at most. Errors: as
// Solve, and those of `conduct`.
Result<SolveResult> SolveEach(const LinearOperator& a, int64_t m_n, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, Team* team, size_t at_once,
                              const Conduct& conduct);

// The basis of GMRES is the one thing here whose size a number in the request decides.
// RESOURCE_EXHAUSTED/BASIS_TOO_LARGE where it would take more than `usable` bytes.
Status CheckBasis(int64_t n, const SolveOptions& options, double usable);

}  // namespace spaid::kernels::krylov
