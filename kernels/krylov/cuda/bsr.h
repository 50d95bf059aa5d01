// A square sparse matrix by rows on a device whose unknowns come in nodes of b, laid out for y = A
// x (node_product.h): one column index for each block of b x b entries.
//
// Blocks are stored in SELL slices of 32 nodes (sell.h, one thread a node): in step k thread r of a
// slice has block k of node r; the b² entries of a step follow one another, each for all threads.
// Sorts nodes, where slices would be mostly padding, by length within windows of 1024.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/dia.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// The arrays as kernels see them. Padding blocks of a slice are 0, in the row's last column, or, in
// an empty row, in the column of the row's number: x is read there, so that an x_j that is not
// finite may make the sum not a number.
template <class Value>
struct BsrRef {
  using ValueType = Value;
  struct Row {
    int32_t count;
    int64_t begin;   // the slice's first block
    int32_t thread;  // 0 .. 31 within the slice
  };

  int32_t nodes;
  int32_t groups;        // number of warps that share the blocks of 32 nodes
  int32_t square;        // entries of a block
  bool streams;          // blocks are larger than the caches
  const int32_t* order;  // nodes in the order of the slices; null: their own order
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

// The matrix. Value: double or float, as the entries are stored; arithmetic is double. A value
// beyond float's range becomes an infinity there. Belongs to one context; not thread-safe.
template <class Value>
class Bsr {
 public:
  // From a canonical CSC on the device, with values; neither is kept. `by_rows`: its columns are
  // the rows of A, as for a symmetric A. Nothing where A has no full blocks of 2 or 3
  // (kernels/sparse/cuda/blocks.h), or where this layout takes more bytes than one index an entry.
  // Throws CudaFault::kOutOfMemory. Waits for the device.
  static std::optional<Bsr> Make(Context& context, const PatternRef& pattern, const double* values,
                                 bool by_rows, const DiaTuning& tuning = tuning::kDia);

  // Sets new values, by columns, for the same pattern: on the context's stream, without a wait.
  void UpdateValues(const Context& context, const PatternRef& pattern, const double* values) {
    FillValues(context, pattern, values, /*by_rows=*/false);
  }

  int64_t n() const { return nodes_ * node_; }
  int64_t nnz() const { return nnz_; }
  // Device bytes that this holds.
  int64_t bytes() const;
  // Bytes that a product must move: every entry, the structure, x and y once.
  int64_t bytes_per_product() const;

  int node() const { return node_; }      // unknowns a node
  int blocks() const { return blocks_; }  // a product's grid
  BsrRef<Value> ref() const;

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
