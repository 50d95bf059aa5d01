// A look at some columns of A, and at how much of a diagonal entry the entries before it explain:
// what FSAI gains over Jacobi there. Where it is much, Jacobi is slow.
#pragma once

#include <cstdint>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct LocalSample {
  int64_t columns = 0;  // looked at
  // Mean over them of −ln |ψ_i / a_ii|, ψ_i = a_ii − A[i,P] A[P,P]⁻¹ A[P,i], P = {j < i : a_ji
  // stored}, its last kMaxLocalSize members: minus the logarithm of static FSAI's Kaporin reduction
  // where A is symmetric positive definite. Each at most ln 10⁶: no diagonal entry, say.
  double gain = 0;
  // Mean of ln² |ψ_i / a_ii| where that is over 1, else of 0: where it is large, the diagonal says
  // little.
  double growth = 0;
  double entries = 0;         // mean of |P|
  bool negative_psi = false;  // some ψ_i / a_ii < 0, by more than rounding: A is not definite
  // Median and lowest tenth of 1 − Σ_{i≠j} |a_ij| / |a_jj| over those columns that have other
  // entries; 1: none has.
  double dominance = 1, low_dominance = 1;
  // Means of J, the entries of a column k, and of all entries in the columns J: static SPAI's local
  // problem.
  double local_columns = 0, local_entries = 0;
};

inline constexpr int64_t kMaxLocalSize = 16;

// The k-th column, k = 0, 1, ..., to look at of `n`: multiples of the golden section, spread evenly
// wherever they end, and in step with no block of unknowns.
int64_t SampledColumn(int64_t n, int64_t k);

// Up to 256 columns, fewer where they are long: about one product's work,
// half of it where A is `symmetric`. `a` canonical, square,
// with values. The same for every call. Thread-safe.
LocalSample SampleLocally(const CscView& a, bool symmetric);

}  // namespace spaid::kernels
