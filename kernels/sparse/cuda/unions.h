// Unions of index lists, column by column: a symbolic product, with more lists where one asks for
// them.
#pragma once

#include <cstdint>

#include "kernels/sparse/cuda/pattern.h"

namespace spaid::cuda {

struct List {
  const int32_t* data;
  int64_t size;
};

// Column k of the result: the union of the factor's columns that column k of `left` names, and of
// row k of A.
struct Unions {
  int64_t n;
  const int64_t* left_ptr;  // null: column k names start[k] alone
  const int32_t* left_idx;
  const int32_t* start;  // null: k
  const int64_t* factor_ptr;
  const int32_t* factor_idx;
  const int64_t* rows_ptr;  // null: no rows of A
  const int32_t* rows_idx;

  __device__ int64_t Named(int64_t k) const {
    return left_ptr != nullptr ? left_ptr[k + 1] - left_ptr[k] : 1;
  }
  __device__ int64_t Lists(int64_t k) const { return Named(k) + (rows_ptr != nullptr ? 1 : 0); }
  __device__ List At(int64_t k, int64_t i) const {
    if (rows_ptr != nullptr && i == Named(k)) {
      return {rows_idx + rows_ptr[k], rows_ptr[k + 1] - rows_ptr[k]};
    }
    const int64_t j = left_ptr != nullptr ? left_idx[left_ptr[k] + i]
                      : start != nullptr  ? start[k]
                                          : k;
    return {factor_idx + factor_ptr[j], factor_ptr[j + 1] - factor_ptr[j]};
  }
};

// The pattern whose columns are those unions, each ascending, of at most `max_nnz` entries (0: as
// many as there are). Errors: as MakePattern.
DevicePattern Unite(Context& context, const Unions& unions, int64_t max_nnz, const Caller& caller);

// out.col_ptr: from counts, and a last 0, to pointers; then room for the entries, unless those are
// more than `max_nnz` (PatternTooLarge). Waits for the device.
void AllocateCounted(Context& context, int64_t max_nnz, DevicePattern& out);

}  // namespace spaid::cuda
