// A square sparse matrix of few diagonals on a device, laid out for y = A x (node_product.h):
// no column indices (DIA: Saad 2003, section 3.4), and by diagonals of nodes where unknowns come in
// nodes of b.
//
// A node has b rows. The b x b blocks of the k-th diagonal stand entry by entry, each entry node by
// node: (k b² + row b + column) · stride + node of the row. Of a matrix that equals its transpose
// the diagonals on and above the main one are stored alone: row i reads those under it from row
// i − d, which the second-level cache still has.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/dia_tuning.h"
#include "kernels/sparse/cuda/offsets.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {

inline constexpr int kNodeResident = 4;  // blocks at once on a multiprocessor, at least

// A block of a node's rows, for a product: its values Stride() apart.
template <class Value>
struct Block {
  const Value* values;
  int32_t column;  // node
  bool in;         // there is one
};

// What kernels read. What A lacks on a diagonal is stored as 0, so that a row's sum has 0 · x_j for
// it, which is not a number where x_j is none, or infinite; beyond the ends of a diagonal nothing
// is read, of the values or of x.
template <class Value>
struct DiaRef {
  using ValueType = Value;
  struct Row {
    int32_t count;
  };
  // Kernels ask for up to 9 diagonals at a time, up to 8 apart, and look beyond the last one: at
  // some that no node has.
  static constexpr int kPlaces = kMaxDiagonals + 64;
  static constexpr int32_t kNone = INT32_MAX;

  int32_t nodes;
  int32_t diagonals;  // that A has
  int32_t groups;     // of warps that share the diagonals of 32 nodes
  bool streams;       // values are larger than what caches keep
  int64_t stride;
  int32_t offset[kPlaces];       // column less row, in nodes; ascending
  const Value* values[kPlaces];  // of the first entry of the blocks on a diagonal, by their rows

  __device__ int64_t NodeAt(int64_t place) const { return place; }
  __device__ Row RowAt(int32_t) const { return {diagonals}; }
  __device__ int64_t Stride() const { return stride; }
  __device__ bool IsMirror(int) const { return false; }
  __device__ Block<Value> BlockAt(const Row&, int32_t node, int d) const {
    const uint32_t column = static_cast<uint32_t>(node) + static_cast<uint32_t>(offset[d]);
    return {values[d] + node, static_cast<int32_t>(column), column < static_cast<uint32_t>(nodes)};
  }
};

// The same where the blocks under the main diagonal are those above, transposed.
template <class Value>
struct HalfDiaRef : DiaRef<Value> {
  __device__ bool IsMirror(int d) const { return d < this->diagonals / 2; }
};

// Value: double or float, as the entries are stored; arithmetic is double. A value beyond float's
// range becomes an infinity there. Of one context; not thread-safe.
template <class Value>
class Dia {
 public:
  // From a canonical CSC on the device, with values; neither is kept. `order`: what its columns
  // are. None where the matrix has more than kMaxDiagonals diagonals, or where this layout costs
  // more than the bytes of that by rows (csr.h). Throws CudaFault::kOutOfMemory. Waits for the
  // device.
  static std::optional<Dia> Make(Context& context, const PatternRef& pattern, const double* values,
                                 Order order, const DiaTuning& tuning = tuning::kDia);

  // New values for the same pattern, by columns. False where this holds half of a symmetric matrix
  // and they are not symmetric: its values are then worth nothing. Waits for the device.
  bool UpdateValues(Context& context, const PatternRef& pattern, const double* values);

  int64_t n() const { return int64_t{ref_.nodes} * node_; }
  int64_t nnz() const { return nnz_; }
  // Of the device, that this holds.
  int64_t bytes() const;
  // What a product must move: every value that is stored, x and y once.
  int64_t bytes_per_product() const;

  int node() const { return node_; }  // unknowns of one
  bool is_half() const { return half_; }
  int blocks() const { return blocks_; }  // of a product's grid
  const DiaRef<Value>& ref() const { return ref_; }

 private:
  // Whether the entries of many columns are on the diagonals; before there is room for values.
  bool MayFit(Context& context, const PatternRef& pattern, Order order) const;
  // What does not fit, 0: nothing.
  int32_t Fill(Context& context, const PatternRef& pattern, const double* values, Order order);

  int64_t nnz_ = 0;
  int node_ = 1, blocks_ = 1;
  bool half_ = false;
  Buffer<Value> values_;
  DiaRef<Value> ref_{};
};

}  // namespace spaid::cuda
