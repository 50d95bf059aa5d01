// Sparse products by rows on a device, with the host's bits (kernels/sparse/products.h).
//
//   RowMatrix ap = Multiply(context, a, p, RowOrder::kAsFound);          // A P
//   std::optional<RowMatrix> c = MultiplyUpTo(context, most, r, ap);     // R (A P); nothing:
//   larger MultiplyOn(context, r, ap, *c);                                      // other values,
//   C's pattern
//
// A few lanes have a row of C and take one entry of A's row after another, each lane entries of
// B's row, so that an entry of C is summed in ascending order of the inner index whatever the
// lanes do. Sums are in hash tables in shared memory (Nagasaka, Nukada, Matsuoka, ICPP 2017); a
// row too long for them has sums in global memory, one for each column.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/products.h"

namespace spaid::cuda {

using kernels::RowOrder;

// Holds a matrix of any shape by rows: column j of `Matrix` is row j, of `n` rows.
struct RowMatrix : Matrix {
  int64_t columns = 0;
  int64_t longest = 0;  // entries of the longest row; 0: not known
  int64_t empty = 0;    // rows without entries
};

// Makes row pointers of the entries that each of the n rows has, and room for them. Waits for the
// device.
void SizeRows(Context& context, const Buffer<int32_t>& entries, RowMatrix& to);
// The same without the room.
void PointRows(Context& context, const Buffer<int32_t>& entries, RowMatrix& to);
// The same as the first of two matrices, with one wait, in which `too` is copied to the host.
void SizeRows(Context& context, const Buffer<int32_t>& of_one, RowMatrix& one,
              const Buffer<int32_t>& of_other, RowMatrix& other, const HostCopy& too);

// Copies a matrix by rows, of n_cols rows, to the device; `values` as in UploadMatrix. Waits.
RowMatrix UploadRows(Context& context, const kernels::PatternView& rows, const double* values);
// Copies it back, with its values. Waits.
kernels::CscMatrix DownloadRows(const Context& context, const RowMatrix& rows);

// Returns C = A B. Rows of A ascend, those of B need not; those of C do, but with kAsFound, where
// their order is another in every run. The values have the bits of the host's Multiply. Scratch: 8
// bytes a row of C, and for rows of over 2,048 entries 8 1/8 bytes for each column of C, for as
// many rows at once as a quarter of the free memory and 4 bytes an entry of A and B have room for,
// one at least. Waits for the device for the entries of C: once, where rows are about as long as
// their number of products tells. Throws Failure.
RowMatrix Multiply(Context& context, const RowMatrix& a, const RowMatrix& b,
                   RowOrder order = RowOrder::kAscending);

// The same where C has no more than so many entries; nothing where it has more, and then its
// entries have been counted alone.
std::optional<RowMatrix> MultiplyUpTo(Context& context, int64_t most_entries, const RowMatrix& a,
                                      const RowMatrix& b, RowOrder order = RowOrder::kAscending);

// The same in two steps: C but for its columns and values, then these. Where `counted` has room
// already, it is filled by the row pointers, from wherever they begin.
RowMatrix CountProduct(Context& context, const RowMatrix& a, const RowMatrix& b);
void FillProduct(Context& context, const RowMatrix& a, const RowMatrix& b, RowMatrix& counted,
                 RowOrder order = RowOrder::kAscending);

// Writes the values of C = A B into `c`, which Multiply made of matrices of these patterns, in
// either order of its rows. Does not wait but where rows are too long for shared memory.
void MultiplyOn(Context& context, const RowMatrix& a, const RowMatrix& b, RowMatrix& c);

// Returns Aᵀ by rows; scratch as SortByRows (transpose.h). Waits for the device.
RowMatrix Transpose(Context& context, const RowMatrix& a);

}  // namespace spaid::cuda
