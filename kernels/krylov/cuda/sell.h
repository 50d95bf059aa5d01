// How rows are cut into slices (SELL: Kreutzer, Hager, Wellein, Fehske, Bishop 2014), for layouts
// by rows (csr.h, bsr.h). A slice has the 32 / t rows of 32 threads, t threads a
// row, and as many steps as its longest row needs: in step k thread r t + e has entry t k + e of
// row r.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/csr_tuning.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {

struct alignas(16) Slice {
  int64_t begin;   // of its entries; a multiple of 32
  int32_t steps;   // of 32 entries
  uint32_t apart;  // bit r: the slice's row r stands apart, or is none
};

// A by rows, as a CSR: where it is copied from.
struct CsrRef {
  int64_t n;
  const int64_t* row_ptr;
  const int32_t* cols;
  __device__ int64_t Length(int64_t i) const { return row_ptr[i + 1] - row_ptr[i]; }
};

// The row at a place among slices; `order` null: as they are.
__device__ inline int64_t RowAt(const int32_t* order, int64_t place) {
  return order != nullptr ? order[place] : place;
}

// Entries of a pattern, waited for.
int64_t CountEntries(const Context& context, const PatternRef& a);

// Each 256 rows, the longest first, those of equal length as they were.
void OrderByLength(const Context& context, const CsrRef& a, const Buffer<int32_t>& order);

// The slices of all rows, in this order (null: as they are), at their places, and the entries that
// they have; `apart`, of n elements, gets 1 for each row that stands apart, which is none where
// tuning.apart_cost and max_steps are beyond all rows. Waits for the device.
int64_t CutSlices(Context& context, const CsrRef& a, const int32_t* order, int threads_a_row,
                  const RowsTuning& tuning, const Buffer<Slice>& slices,
                  const Buffer<int32_t>& apart);

// The columns of all slices; beyond the end of a row its last one, or, of an empty row, its number.
// And, where `from` is not null, the values of A's entries, there 0.
template <class From, class Value>
void FillSlices(const Context& context, const CsrRef& a, const From* from, const int32_t* order,
                int threads_a_row, const Buffer<Slice>& slices, const Buffer<int32_t>& cols,
                const Buffer<Value>& values);

}  // namespace spaid::cuda
