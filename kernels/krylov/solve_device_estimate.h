// The memory that a solve takes of a CUDA device, known before it is there.
#pragma once

#include <cstdint>

#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

// Right-hand sides that one solve takes, at most.
inline constexpr int kMostCudaColumns = 4;

// How many right-hand sides the next block takes, of `n_rhs` >= 1 that are left.
int32_t CudaColumnsFor(Method method, int64_t n_rhs);

// Device bytes of a solve of `n_rhs` right-hand sides, at most: A and M, of `nnz_m` entries, in the
// largest of their layouts, the one by rows, the scratch for laying one of them out, and the
// vectors, with the basis of GMRES. The bytes for one right-hand side suffice for all, in smaller
// blocks.
int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                         const SolveOptions& options);

}  // namespace spaid::kernels
