// Sparsity patterns for M. Every pattern returned is canonical.
#pragma once

#include <optional>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// How the pattern of M comes from A: base (A itself, its threshold pattern, or `user`), then the
// row matching, then the power, then ensure_row.
struct PatternOptions {
  // p of (E + |base|)^p, >= 1.
  int power = 1;
  // Threshold pattern [HybridSPAI]: entry kept where |a_ij| > (1 - τ) max_i |a_ij| of its column,
  // 0 <= τ <= 1, the diagonal always. Unset: every stored entry of A is in the pattern.
  std::optional<double> keep_tau;
  // J_k grows by {j : a_kj stored}: cures e_k outside the reach of J_k (engines.md section 1).
  bool ensure_row = false;
  // A maximum-matching row permutation first: column k takes the base pattern of the column matched
  // to row k, so that M is an approximate inverse of A even where its diagonal is zero.
  bool row_match = false;
  // Upper bound on nnz of the result; over it: RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE. 0: none.
  int64_t max_nnz = 0;
};

// `a`: square. `user`: replaces A's pattern as the base; same size; may be null. The power's factor is
// E + |base| too. Products are counted in 64 bits. Stops through `context`.
// Errors: INVALID_ARGUMENT/BAD_PATTERN_POWER, /BAD_KEEP_TAU, /PATTERN_SIZE_MISMATCH; stop statuses.
Result<Pattern> BuildPattern(const CscView& a, const PatternView* user,
                             const PatternOptions& options, const Context& context);

// Row matched to each column of a maximum bipartite matching of the stored entries
// (row_of_column[j], -1 where unmatched). Hopcroft-Karp, O(√n nnz).
Array<int32_t> MaximumMatching(const PatternView& a);

// Drops m_ij with |m_ij| < δ max_i |m_ij| of its column; the diagonal stays. 0 <= δ <= 1; no re-solve.
// Explicit zeros are dropped for any δ > 0. Returns a new matrix.
CscMatrix PostFilter(const CscView& m, double delta);

}  // namespace spaid::kernels
