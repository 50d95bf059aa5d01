// A square sparse matrix by rows on a device whose unknowns come in nodes of b, laid out for y = A
// x (node_product.h): one column index a block of b x b entries (block SELL).
//
// Slices of 32 nodes, block by block (sell.h, one thread a node): in step k a slice's thread
// r has block k of node r, entry by entry, each entry thread by thread. Where slices would be
// mostly ends of rows, the nodes are put in the order of their lengths, 256 by 256.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/dia.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// What kernels read. A slice's blocks beyond the end of a row are 0, of the row's last column, or,
// of an empty row, the row's number: x is read there, so that a sum with an x_j that is not finite
// may be none.
template <class Value>
struct NodeRowsRef {
  using ValueType = Value;
  struct Row {
    int32_t count;
    int64_t begin;   // of the slice's blocks
    int32_t thread;  // of the slice
  };

  int32_t nodes;
  int32_t groups;        // of warps that share the blocks of 32 nodes
  int32_t square;        // entries of a block
  bool streams;          // blocks are larger than what caches keep
  const int32_t* order;  // of the nodes in slices; null: as they are
  const Slice* slice;
  const int32_t* cols;
  const Value* values;

  __device__ int64_t NodeAt(int64_t place) const { return cuda::RowAt(order, place); }
  __device__ Row RowAt(int32_t place) const {
    const Slice own = slice[place / 32];
    return {own.steps, own.begin, place % 32};
  }
  __device__ int64_t Stride() const { return 32; }
  __device__ bool IsMirror(int) const { return false; }
  __device__ Block<Value> BlockAt(const Row& row, int32_t, int k) const {
    const bool in = k < row.count;
    const int64_t step = row.begin + (in ? 32 * k : 0);
    return {values + step * square + row.thread, in ? cols[step + row.thread] : 0, in};
  }
};

// Value: double or float, as the entries are stored; arithmetic is double. A value beyond float's
// range becomes an infinity there. Of one context; not thread-safe.
template <class Value>
class NodeRows {
 public:
  // From a canonical CSC on the device, with values; neither is kept. `by_rows`: its columns are
  // the rows of A, as they are of a symmetric one. None where blocks of 2 or 3 are not whole
  // (kernels/sparse/cuda/blocks.h), or where this layout takes more bytes than an index for each
  // entry. Throws CudaFault::kOutOfMemory. Waits for the device.
  static std::optional<NodeRows> Make(Context& context, const PatternRef& pattern,
                                      const double* values, bool by_rows,
                                      const DiaTuning& tuning = tuning::kDia);

  // New values for the same pattern, by columns: on the context's stream, without a wait.
  void UpdateValues(const Context& context, const PatternRef& pattern, const double* values) {
    FillValues(context, pattern, values, /*by_rows=*/false);
  }

  int64_t n() const { return nodes_ * node_; }
  int64_t nnz() const { return nnz_; }
  // Of the device, that this holds.
  int64_t bytes() const;
  // What a product must move: every entry, the structure, x and y once.
  int64_t bytes_per_product() const;

  int node() const { return node_; }      // unknowns of one
  int blocks() const { return blocks_; }  // of a product's grid
  NodeRowsRef<Value> ref() const;

 private:
  void FillValues(const Context& context, const PatternRef& pattern, const double* values,
                  bool by_rows);

  int64_t nodes_ = 0, nnz_ = 0;
  int node_ = 1, groups_ = 1, blocks_ = 1;
  bool streams_ = false;
  Buffer<int32_t> order_;
  Buffer<Slice> slices_;
  Buffer<int32_t> cols_;
  Buffer<Value> values_;
};

}  // namespace spaid::cuda
