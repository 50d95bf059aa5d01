// Approximates spectra by Ritz values: eigenvalues of the projection onto a Krylov space.
#pragma once

#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

namespace spaid::cli {

// Computes y = Op x; both have the operator's length, and do not overlap.
using Operator = std::function<void(std::span<const double> x, std::span<double> y)>;

struct RitzOptions {
  int steps = 60;     // at most; never more than n
  uint64_t seed = 1;  // of the start vector, whose entries are uniform in [-1, 1)
  int64_t basis_bytes = int64_t{512} << 20;
  std::chrono::steady_clock::duration time_limit = std::chrono::seconds(10);  // looked at each step
  std::stop_token stop = {};
};

// Why the process ended. kInvariant: the Krylov space is mapped into itself, and its values are
// eigenvalues to rounding. kNotFinite: a product, or the projection's eigenvalues, are no numbers.
enum class RitzEnd { kSteps, kInvariant, kMemory, kTime, kStopped, kNotFinite };

struct RitzValue {
  std::complex<double> value;
  // The residual of the Ritz pair is below 1e-3 of the value's magnitude: of a symmetric operator,
  // an eigenvalue is as near.
  bool settled = false;
};

struct RitzValues {
  std::vector<RitzValue> values = {};  // by magnitude
  int steps = 0;
  bool symmetric = false;  // by Lanczos; else by Arnoldi
  RitzEnd end = RitzEnd::kSteps;
};

// Runs Lanczos for an operator that is symmetric in exact arithmetic: `values` are real. The basis
// is orthogonalised in full (twice, by classical Gram-Schmidt), so that no value comes twice by
// rounding; of a multiple eigenvalue there is one copy. Saad, Numerical Methods for Large
// Eigenvalue Problems, chapter 6. Thread-safe where `op` is.
RitzValues Lanczos(const Operator& op, int64_t n, const RitzOptions& options);

// Runs Arnoldi for any operator, orthogonalised in the same way.
RitzValues Arnoldi(const Operator& op, int64_t n, const RitzOptions& options);

}  // namespace spaid::cli
