// Puts unknowns that touch each other side by side, and tells beforehand whether that pays.
//
//   if (LookAtLocality(a, threads).scattered()) {
//     auto order = ReverseCuthillMcKee(a, context);
//     auto b = PermuteSymmetric(a, *order, context);   // b_kl = a(order[k], order[l])
//   }
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// How a product with the matrix goes through its vector.
struct Locality {
  double mean_distance = 0;  // of |i − j|, over the entries looked at
  int64_t bandwidth = 0;     // largest |i − j|, over the same
  // Share of entries that are far from the diagonal (kFarRows) and begin a cache line of which the
  // column before had none: 0 on grids, whose far entries go ahead row by row, near 1 on a mesh in
  // random order.
  double scattered_share = 0;

  // Enough of them wait for memory for a reordering to pay. It need not help: a graph without good
  // separators is scattered in any order, so look again after it.
  bool scattered() const { return scattered_share > 0.25; }
};

// Rows so near to the diagonal are in a core's own cache: 512 KiB of a vector on either side.
inline constexpr int64_t kFarRows = int64_t{1} << 16;

// `a`: square, canonical. Columns are looked at by runs of neighbours, 2^20 entries or so in all,
// the same ones always: milliseconds. Thread-safe.
Locality LookAtLocality(const PatternView& a, int threads = 1);

// Old index at each new place. `a`: square, canonical; where the pattern is not symmetric, that of
// A + Aᵀ counts. Breadth first from a pseudo-peripheral node of each component, neighbours by
// degree, then all reversed (Cuthill, McKee 1969; George, Liu, ACM TOMS 5 (1979) 284); components
// in the order of their first nodes. O(nnz log(longest column)) time. The transpose takes the
// context's threads, the search one; the result is the same for any number. Scratch: 4 bytes an
// entry for the transpose, as many as A's pattern and its transpose have together where it is not
// symmetric, 12 bytes a row. Thread-safe. Errors: stop statuses.
Result<Array<int32_t>> ReverseCuthillMcKee(const PatternView& a, const Context& context);

// P A Pᵀ: entry (k, l) is a(order[k], order[l]). `a`: square, canonical; `order`: a permutation of
// its indices. The same for any number of threads. Thread-safe. Errors: stop statuses.
Result<CscMatrix> PermuteSymmetric(const CscView& a, std::span<const int32_t> order,
                                   const Context& context);

}  // namespace spaid::kernels
