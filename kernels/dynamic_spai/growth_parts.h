// Parts of the growth of dynamic SPAI that all devices share. Internal to this room, to kernels/mpi
// and to the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {

// The rows that columns begin with: for each of the `n` from `first` on itself, then the other rows
// of `initial`, which may be null, ascending.
Pattern DynamicStarts(const PatternView* initial, int64_t n, int64_t first = 0);

GrowthRules DynamicRules(const DynamicSpaiOptions& options);

// FAILED_PRECONDITION/ZERO_COLUMN where all values of a column are zero, or there are none (index:
// the first, where that of `a` has the number `begin`).
Status CheckColumnValues(const CscView& a, int threads, int64_t begin = 0);

// The figures of `n` columns that have grown: `log_by_step` sums of RowBatch's, `gram` flops and
// entries of all of B̂, `longest` the most entries of a column.
DynamicSpaiQuality SummariseGrowth(const RowTally& tally, std::vector<double> log_by_step,
                                   int64_t n, int64_t longest, int64_t gram_nnz, double gram_flops);

// Sizes that the memory of growth depends on: of A, or of the part of it that is here, of B̂ and M.
struct GrowthSizes {
  int64_t n = 0, nnz_a = 0;
  int64_t gram_nnz = 0, gram_longest = 0;            // of B̂, and of a column of it
  int64_t initial = 0, nnz_m = 0, longest_of_m = 0;  // of M: entries that it begins and ends with
};
// Bytes of B̂ and growth, all that is there at once.
double GrowthBytes(const GrowthSizes& sizes, const DynamicSpaiOptions& options, int threads);

// Grows the columns of grown.m whose only row is −1, which a device has left to the host, and adds
// them to its figures, in which they have no part yet. How many there were. Errors: those of
// GrowDynamicSpai. Throws std::bad_alloc.
Result<int64_t> GrowLeftColumns(const CscView& a, const PatternView* initial,
                                const DynamicSpaiOptions& options, const Context& context,
                                DynamicSpaiPattern& grown);

}  // namespace spaid::kernels
