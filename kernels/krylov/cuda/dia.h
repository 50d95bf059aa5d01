// A square sparse matrix of few diagonals on a device, laid out for y = A x (node_product.h):
// without column indices (DIA: Saad 2003, section 3.4), and by diagonals of blocks where unknowns
// come in nodes of b.
//
// A node has b rows. Entry (row, column) of the block of node i on the k-th diagonal is stored at
// (k b² + row b + column) · stride + i. Where A equals its transpose, only the diagonals on and
// above the main one are stored: row i reads those below it from row i − d, which the second-level
// cache still has.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/dia_tuning.h"
#include "kernels/sparse/cuda/offsets.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {

inline constexpr int kNodeResident = 4;  // blocks at once on a multiprocessor, at least

// A block of a node's rows in a product; consecutive values are Stride() apart.
template <class Value>
struct Block {
  const Value* values;
  int32_t column;  // node
  bool in;         // there is one
};

// The arrays as kernels see them. Entries that A lacks on a diagonal are stored as 0, so that 0 ·
// x_j enters the row's sum, which is not a number where x_j is not finite; beyond the ends of a
// diagonal neither values nor x are read.
template <class Value>
struct DiaRef {
  using ValueType = Value;
  struct Row {
    int32_t count;
  };
  // Kernels load up to 9 diagonals at a time, up to 8 apart, and so beyond the last one: the places
  // there have offsets at which no node has a neighbour.
  static constexpr int kPlaces = kMaxDiagonals + 64;
  static constexpr int32_t kNone = INT32_MAX;

  int32_t nodes;
  int32_t diagonals;  // number of A's diagonals
  int32_t groups;     // number of warps that share the diagonals of 32 nodes
  bool streams;       // values are larger than the caches
  int64_t stride;
  int32_t offset[kPlaces];       // column less row, in nodes; ascending
  const Value* values[kPlaces];  // each diagonal's first entry of its blocks, by row node

  __device__ int64_t NodeAt(int64_t place) const { return place; }
  __device__ Row RowAt(int32_t) const { return {diagonals}; }
  __device__ int64_t Stride() const { return stride; }
  __device__ bool IsMirror(int) const { return false; }
  __device__ Block<Value> BlockAt(const Row&, int32_t node, int d) const {
    const uint32_t column = static_cast<uint32_t>(node) + static_cast<uint32_t>(offset[d]);
    return {values[d] + node, static_cast<int32_t>(column), column < static_cast<uint32_t>(nodes)};
  }
};

// The same where only the upper half is stored: blocks below the main diagonal are those above it,
// transposed.
template <class Value>
struct HalfDiaRef : DiaRef<Value> {
  __device__ bool IsMirror(int d) const { return d < this->diagonals / 2; }
};

// The matrix. Value: double or float, as the entries are stored; arithmetic is double. A value
// beyond float's range becomes an infinity there. Belongs to one context; not thread-safe.
template <class Value>
class Dia {
 public:
  // From a canonical CSC on the device, with values; neither is kept. `order`: whether its columns
  // are A's columns, rows or both. Nothing where the matrix has more than kMaxDiagonals diagonals,
  // or where this layout costs more than the bytes of that by rows (csr.h). Throws
  // CudaFault::kOutOfMemory. Waits for the device.
  static std::optional<Dia> Make(Context& context, const PatternRef& pattern, const double* values,
                                 Order order, const DiaTuning& tuning = tuning::kDia);

  // Sets new values, by columns, for the same pattern. False where this holds half of a symmetric
  // matrix and they are not symmetric: its values are then invalid. Waits for the device.
  bool UpdateValues(Context& context, const PatternRef& pattern, const double* values);

  int64_t n() const { return int64_t{ref_.nodes} * node_; }
  int64_t nnz() const { return nnz_; }
  // Device bytes that this holds.
  int64_t bytes() const;
  // Bytes that a product must move: every value that is stored, x and y once.
  int64_t bytes_per_product() const;

  int node() const { return node_; }  // unknowns a node
  bool is_half() const { return half_; }
  int blocks() const { return blocks_; }  // a product's grid
  const DiaRef<Value>& ref() const { return ref_; }

 private:
  // Whether the entries of a sample of columns lie on the diagonals: checked before values get
  // memory.
  bool MayFit(Context& context, const PatternRef& pattern, Order order) const;
  // Returns flags of what does not fit; 0: all does.
  int32_t Fill(Context& context, const PatternRef& pattern, const double* values, Order order);

  int64_t nnz_ = 0;
  int node_ = 1, blocks_ = 1;
  bool half_ = false;
  Buffer<Value> values_;
  DiaRef<Value> ref_{};
};

}  // namespace spaid::cuda
