// Sparsity patterns for M. Every pattern returned is canonical.
#pragma once

#include <optional>

#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/split.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Host bytes that an entry of the pattern costs until M can be applied: the index here (4), M by
// columns (12), M by rows (12), and what is left for vectors and rounding (4).
inline constexpr int64_t kBytesPerPatternEntry = 32;

inline constexpr int kMaxPatternPower = 16;

// How the pattern of M comes from A: base (A itself, its threshold pattern, or `user`), then the
// row matching, then the power, then ensure_row.
struct PatternOptions {
  // p of (E + |base|)^p, 1 .. kMaxPatternPower.
  int power = 1;
  // Threshold pattern [HybridSPAI]: entry kept where |a_ij| > (1 - τ) max_i |a_ij| of its column,
  // 0 <= τ <= 1, the diagonal always. Unset: every stored entry of A is in the pattern. Not used
  // with a pattern of the user.
  std::optional<double> keep_tau = std::nullopt;
  // J_k grows by {j : a_kj stored}: cures e_k outside the reach of J_k.
  bool ensure_row = false;
  // A maximum-matching row permutation Q of A first (rows and columns that the matching leaves over
  // are paired in ascending order): the pattern is that of P(Q base) Q, P the power, so that column
  // k belongs to the column matched to row k and reaches row k even where the diagonal is zero.
  bool row_match = false;
  // Upper bound on nnz of the result; over it: RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE. 0: as many
  // entries as the machine's memory holds at kBytesPerPatternEntry; a larger bound counts as 0.
  int64_t max_nnz = 0;

  bool operator==(const PatternOptions&) const = default;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("pattern_power", self.power, OptionRange{1, kMaxPatternPower});
    visit("keep_tau", self.keep_tau, kFraction);
    visit("ensure_row", self.ensure_row, kFlag);
    visit("row_match", self.row_match, kFlag);
    visit("max_nnz", self.max_nnz, OptionRange{0});
  }
};

// The errors of the arguments that BuildPattern names, without building anything.
Status CheckPattern(const PatternView& a, const PatternView* user, const PatternOptions& options);

// `a`: square. `user`: replaces A's pattern as the base; same size; may be null. The power's factor
// is E + |base| too. Products are counted in 64 bits. Stops through `context`. Errors:
// INVALID_ARGUMENT/BAD_PATTERN_POWER, /BAD_KEEP_TAU, /PATTERN_SIZE_MISMATCH;
// RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE; stop statuses.
Result<Pattern> BuildPattern(const CscView& a, const PatternView* user,
                             const PatternOptions& options, const Context& context);

// Columns [columns.begin, columns.end) of (E + |base|)^p, p = options.power; the others are empty.
// `base` square; of its columns those are read that a column of the result reaches by p − 1 steps.
// Reads power and max_nnz of the options, the latter as a bound on these columns alone. Errors:
// RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE; stop statuses.
Result<Pattern> PowerPattern(const PatternView& base, const PatternOptions& options,
                             IndexRange columns, const Context& context);

// The threshold pattern of a block of columns, [0] of which is column `first` of the whole matrix:
// PatternOptions.keep_tau. Errors: stop statuses.
Result<Pattern> ThresholdPattern(const CscView& a, double tau, int64_t first,
                                 const Context& context);

// How many entries BuildPattern may return: options.max_nnz, or what the machine's memory holds.
struct PatternLimit {
  int64_t nnz = 0;
  bool own = false;  // max_nnz
};
// `base`: A's pattern (a threshold may make it smaller) or the user's.
PatternLimit LimitPattern(const PatternView& base, const PatternOptions& options);
// RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE.
Status PatternTooLarge(int64_t at_least, const PatternLimit& limit);

// Returns the entries of the longest column; 0 where there is none.
int64_t LongestColumn(const PatternView& a, int threads);

// nnz of what BuildPattern would return, counted without building it: scratch of O(n) per thread.
// Pattern alone: keep_tau is checked but not applied, so the count is then an upper bound. Over a
// set max_nnz the count ends early, with a lower bound over max_nnz. Errors: as BuildPattern.
Result<int64_t> CountPattern(const PatternView& a, const PatternView* user,
                             const PatternOptions& options, const Context& context);

// Row matched to each column of a maximum bipartite matching of the stored entries
// (row_of_column[j], -1 where unmatched). Hopcroft-Karp, O(√n nnz), one thread, 24 n bytes of
// scratch. Errors: stop statuses.
Result<Array<int32_t>> MaximumMatching(const PatternView& a, const Context& context);
// The same without a stop.
Array<int32_t> MaximumMatching(const PatternView& a);

// Column matched to each row of a square matrix by a matching (row_of_column[j], -1 where
// unmatched); the rows and columns that it leaves over are paired in ascending order.
Array<int32_t> ColumnsOfRows(const Array<int32_t>& row_of_column);

// The same for a maximum matching: PatternOptions.row_match. Errors: stop statuses.
Result<Array<int32_t>> RowPermutation(const PatternView& a, const Context& context);

// Drops m_ij with |m_ij| < δ max_i |m_ij| of its column; the diagonal stays. 0 <= δ <= 1; no
// re-solve. Explicit zeros are dropped for any δ > 0. Returns a new matrix, the same for any number
// of threads; reports no progress. Errors: stop statuses.
Result<CscMatrix> PostFilter(const CscView& m, double delta, const Context& context);
// The same on the calling thread, without a stop.
CscMatrix PostFilter(const CscView& m, double delta);

// Hashes the structure of A; not cryptographic.
uint64_t HashPattern(const PatternView& a, int threads);

// INVALID_ARGUMENT/PLAN_MISMATCH unless `a` has the pattern that a plan was made for: that of size
// n, with nnz entries and this HashPattern.
Status CheckPlanPattern(const PatternView& a, int64_t n, int64_t nnz, uint64_t hash, int threads);

}  // namespace spaid::kernels
