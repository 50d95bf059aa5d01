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

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"

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
class PatternTooLarge : public Failure {
 public:
  explicit PatternTooLarge(int64_t at_least)
      : Failure(kSpaidCudaPatternTooLarge,
                "the pattern has " + std::to_string(at_least) + " entries or more"),
        nnz(at_least) {}
  const int64_t nnz;
};

// Where the pattern is A's, it refers to `a`, which must outlive it.
// `base`: in place of A's pattern, on the host; may be null. `there`: the same on the device, which
// is copied; null: it is uploaded. A threshold (options.keep_tau >= 0) needs the values of `a`.
// Beside its result it holds E + |base| and, of a power over 2, the power before; of the scratch,
// 16 bytes a column and one bitmap at the least. Throws PatternTooLarge before the entries are
// allocated; kSpaidCudaStopped; kSpaidCudaOutOfMemory.
DevicePattern MakePattern(Context& context, const Matrix& a, const SpaidCudaCsc* base,
                          const PatternRef* there, const SpaidCudaPatternOptions& options);

}  // namespace spaid::cuda
