// Patterns of matrices by rows on a device that are kept for other values on them, as the host's
// kernels/amg/shared_matrix.h keeps them, but that each matrix has its own copy.
//
//   const RowMatrix pattern = CopyPattern(context, c);
//   RowMatrix again = OnPattern(context, pattern);
//   MultiplyOn(context, a2, b2, again);
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Returns a copy without values.
RowMatrix CopyPattern(Context& context, const RowMatrix& of);
// Returns the matrix without its values.
RowMatrix PatternOf(RowMatrix of);
// Returns a matrix on a copy of a pattern, with room for values; `pattern` may have some.
RowMatrix OnPattern(Context& context, const RowMatrix& pattern);

// Holds the pattern of Aᵀ, and which entry of A each of its entries is; 2^31 of them at most.
struct Transposition {
  RowMatrix pattern;  // without values
  Buffer<int32_t> from;
};

// Returns Aᵀ by rows; its pattern, and whence its values come, go to `kept`. Scratch: as Transpose.
// Waits for the device.
RowMatrix Transpose(Context& context, const RowMatrix& a, Transposition& kept);
// The same of other values. Does not wait.
RowMatrix TransposeOn(Context& context, const RowMatrix& a, const Transposition& kept);

// Returns the bytes of the arena that it holds.
template <class T>
int64_t HeldBytes(const Buffer<T>& of) {
  return Arena::Rounded(of.size() * static_cast<int64_t>(sizeof(T)));
}
int64_t HeldBytes(const RowMatrix& of);
int64_t HeldBytes(const Transposition& of);

}  // namespace spaid::cuda
