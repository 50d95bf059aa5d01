// Internal to this room and to kernels/mpi.
#pragma once

#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/row_batches.h"

namespace spaid::kernels {

// BuildFsai where options.adaptive is not set.
Result<FsaiResult> BuildStaticFsai(const CscView& a, const PatternView* user,
                                   const FsaiOptions& options, const Context& context);

// The end of an adaptive build: options.post_filter on rows that have grown, and the figures that
// are not those of steps. `result`: with g_rows and psi_ratio. Throws std::bad_alloc.
StopReason FinishGrown(const SymmetricMatrix& a, int64_t nnz_a, const FsaiOptions& options,
                       const Context& context, RowTally tally, FsaiResult& result);

// Sizes that the memory of a build depends on: of A, or of the part of it that is here, and of G.
struct FsaiSizes {
  int64_t n = 0, nnz_a = 0, longest_column = 0;  // of A
  int64_t nnz_g = 0, longest_row = 0;            // of G
};
// Bytes of a build and its result beside A, at most.
int64_t FsaiBytes(const FsaiSizes& sizes, const FsaiOptions& options, int threads);

}  // namespace spaid::kernels
