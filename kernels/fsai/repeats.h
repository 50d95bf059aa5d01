// Rows of an adaptive G that repeat another one, as nearly all do where A has constant coefficients
// on a grid. Growth of row i reads rows of A, those of i and of every index that joins, and the
// diagonal entries of what these rows name; and it does not change under a shift of the indices,
// ties included. So where what growth of row i has read is there again, shifted by d and bit for
// bit, row i + d of G is row i, shifted, bit for bit: it is copied. Internal to this room and its
// tests. The same of rows of least-squares problems (GrowthRules), whose columns stand behind those
// that may join.
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
};

// Of each row another with the same entries, bit for bit, at the same distances, and the same
// diagonal entries at their indices; of rows alike the same one, itself where there is none before.
// Empty where more than one row in fsai_tuning::kRowsPerClass is unlike all before, or by a sample
// it seems so: what repeats is not worth a search. Rows are found by `hash_bits` (1 .. 64) of a
// hash, and compared.
Array<int32_t> LikeRows(const CscView& a, std::span<const double> diagonal, int hash_bits,
                        int threads);

// What row i begins with, which is `row` of the matrix: of its column of `initial` all before the
// first index that is not below it. `initial` may be null: nothing.
std::span<const int32_t> StartOfRow(const PatternView* initial, int64_t i, int64_t row);

// What was found: of each row the place among `grown` of the one to copy, or -1: it is to be grown.
struct RepeatedRows {
  Array<int32_t> source;  // one for each, or empty: none
  std::vector<GrownRow> grown;
};

// Grows a few rows and finds those that repeat them, in rounds: of rows that are alike as far as is
// known one is grown, the others are compared with what it read, and those that differ there are
// sorted by how. `like`: of LikeRows, not empty; rows from `first_row` on are grown; `initial`: as
// Growing has it; `grow`: (GrownRow of which `row` is set, worker), false: in vain. In `found`: the
// same for any number of threads. Returns why it stopped; what was found is of no use then, nor
// where `grow` said false.
StopReason FindRepeats(const Array<int32_t>& like, int64_t first_row, const PatternView* initial,
                       const Context& context,
                       const std::function<bool(GrownRow&, int worker)>& grow, RepeatedRows& found);

}  // namespace spaid::kernels
