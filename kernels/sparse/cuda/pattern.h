// The pattern of M, made on a device: the same as BuildPattern's (kernels/sparse/pattern.h), entry
// by entry.
//
// A power is a sequence of symbolic products by columns (Gustavson 1978): column k of (E +
// |B|)^(q+1) is the union of the columns of E + |B| that column k of (E + |B|)^q names. Each
// product counts, sums, then fills what was counted: no column is padded. A column is collected in
// a hash table of shared memory, by a warp or by a block; those that neither holds, in a bitmap of
// n bits in global memory, one a block.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/pattern.h"

namespace spaid::cuda {

// A canonical n x n pattern by columns.
struct DevicePattern {
  int64_t n = 0, nnz = 0;
  Buffer<int64_t> col_ptr;  // n + 1
  Buffer<int32_t> row_idx;  // nnz
  PatternRef a;             // where it is that of A itself: A's arrays, and none of its own

  bool is_of_a() const { return a.col_ptr != nullptr; }
  PatternRef ref() const { return is_of_a() ? a : PatternRef{n, col_ptr.get(), row_idx.get()}; }
};

// The pattern would have `nnz` entries at least, more than the options allow.
struct PatternTooLarge {
  int64_t nnz;
};

// As BuildPattern of kernels/sparse/pattern.h. Where the pattern is A's, it refers to `a`, which
// must outlive it. A threshold needs the values of `a`. `base`: in place of A's pattern, on the
// host; may be null. `there`: the same on the device, which is taken; null: it is uploaded.
// `match`: n, the column matched to each row; empty: none is. `max_nnz`: 0: as many as there are.
// Beside its result it holds E + |base| and, of a power over 2, the power before; of the scratch,
// 16 bytes a column and one bitmap at the least. Throws PatternTooLarge before the entries are
// allocated; the Refusal of `caller`; CudaFault::kOutOfMemory.
DevicePattern MakePattern(Context& context, const Matrix& a, const kernels::PatternView* base,
                          DevicePattern* there, const kernels::PatternOptions& options,
                          std::span<const int32_t> match, int64_t max_nnz, const Caller& caller);

}  // namespace spaid::cuda
