// Rows of an adaptive G that repeat another one, as nearly all do where A has constant coefficients
// on a grid. Growth of row i reads rows of A, those of i and of every index that joins, and the
// diagonal entries of what these rows name; and it does not change under a shift of the indices,
// ties included. So where all that the growth of row i has read is found again, shifted by d and
// bit for bit, row i + d of G is row i, shifted, bit for bit: it is copied. The same holds for rows
// of least-squares problems (GrowthRules), whose columns follow those that may join. Internal to
// this room and its tests.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/fsai/row_growth.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {

// A row that others may be copied from.
struct GrownRow {
  int32_t row = 0;                // counted from the first that is grown
  std::vector<RowEntry> entries;  // as RowGrower::Grow has them
  std::vector<double> ratios;
  RowOutcome outcome;
  std::vector<int32_t> lacked;  // LackedColumns::asked
};

// Returns for each row one with the same entries, bit for bit, at the same distances, and the same
// diagonal entries at their indices: the first of these rows, possibly itself. Empty where more
// than one row in fsai_tuning::kRowsPerClass is unlike all before it, or seems so by a sample: too
// little repeats to be worth a search. Rows are found by `hash_bits` (1 .. 64) of a hash, and
// compared.
Array<int32_t> LikeRows(const CscView& a, std::span<const double> diagonal, int hash_bits,
                        int threads);

// The indices that row i, which is `row` of the matrix, begins with: those of its column of
// `initial` before the first one that is not below it. `initial` may be null: none.
std::span<const int32_t> StartOfRow(const PatternView* initial, int64_t i, int64_t row);

// The result of a search: for each row the index in `grown` of the one to copy; -1: it is to be
// grown.
struct RepeatedRows {
  Array<int32_t> source;  // one for each, or empty: none
  std::vector<GrownRow> grown;
};

// Grows a few rows and finds those that repeat them, in rounds: of rows that are alike as far as is
// known one is grown, the others are compared with all that it has read, and those that differ
// there are grouped by how they differ. `like`: by LikeRows, not empty; rows from `first_row` on
// are grown, of these the ones of which `wanted` is not 0 (empty: all of them); `initial`: as for
// Growing; `grow`: (GrownRow with `row` set, worker), false: in vain.
// `found` is the same for any number of threads. Returns why it stopped; `found` is invalid then,
// and where `grow` returned false.
StopReason FindRepeats(const Array<int32_t>& like, int64_t first_row,
                       std::span<const uint8_t> wanted, const PatternView* initial,
                       const Context& context,
                       const std::function<bool(GrownRow&, int worker)>& grow, RepeatedRows& found);

}  // namespace spaid::kernels
