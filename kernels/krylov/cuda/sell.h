// SELL slices (sliced ELLPACK: Kreutzer, Hager, Wellein, Fehske, Bishop 2014), for layouts by rows
// (csr.h, bsr.h). A slice has the 32 / t rows of a warp's 32 threads, t threads a row, and is
// padded to its longest row: in step k thread r t + e has entry t k + e of row r.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/csr_tuning.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {

struct alignas(16) Slice {
  int64_t begin;   // first entry; a multiple of 32
  int32_t steps;   // of 32 entries
  uint32_t apart;  // bit r: row r of the slice is stored apart from it (csr.h), or does not exist
};

// The pattern of A in plain CSR, from which layouts are made.
struct CsrArrays {
  int64_t n;
  const int64_t* row_ptr;
  const int32_t* cols;
  int64_t columns = n;
  __device__ int64_t Length(int64_t i) const { return row_ptr[i + 1] - row_ptr[i]; }
};

// The row at a position in the slices; `order` null: the rows' own order.
__device__ inline int64_t RowAt(const int32_t* order, int64_t place) {
  return order != nullptr ? order[place] : place;
}

// The number of entries of a pattern. Waits for the device.
int64_t CountEntries(const Context& context, const PatternRef& a);

// Sorts each window of so many rows, kMostWindow at most, by length, the longest first; stable.
inline constexpr int kMostWindow = 1024;
void OrderByLength(const Context& context, const CsrArrays& a, int window,
                   const Buffer<int32_t>& order);

// Cuts all rows, in this order (null: their own), into slices; returns how many entries the slices
// store, padding included. `apart`, of n elements, gets 1 for each row that is stored apart: none
// where tuning.apart_cost and max_steps exceed all rows. Waits for the device.
int64_t CutSlices(Context& context, const CsrArrays& a, const int32_t* order, int threads_a_row,
                  const CsrTuning& tuning, const Buffer<Slice>& slices,
                  const Buffer<int32_t>& apart);

// Fills the columns of all slices: padding repeats the row's last column, or, in an empty row, has
// the row's number, or the last column where there are not so many. Where `from` is not null, the
// values of A's entries too; those of padding are 0.
template <class From, class Value>
void FillSlices(const Context& context, const CsrArrays& a, const From* from, const int32_t* order,
                int threads_a_row, const Buffer<Slice>& slices, const Buffer<int32_t>& cols,
                const Buffer<Value>& values);

}  // namespace spaid::cuda
