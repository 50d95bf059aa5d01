#include <algorithm>
#include <limits>

#include "kernels/krylov/cuda/bsr.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/sparse/cuda/blocks.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Nodes that are sorted together. Elasticity on a mesh stores 1.025 times its blocks for 1.083 by
// windows of 256; rows of y are written further apart, which is little beside the blocks.
constexpr int kWindow = kMostWindow;

int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

// The pattern of nodes of a matrix whose blocks are full.
__global__ void NodePatternKernel(PatternRef a, int node, int64_t* col_ptr, int32_t* row_idx) {
  const int64_t nodes = a.n / node, warps = int64_t{gridDim.x} * kWarps;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t c = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; c <= nodes; c += warps) {
    const int64_t first = a.col_ptr[c * node], to = first / (node * node);
    if (lane == 0) col_ptr[c] = to;
    if (c == nodes) continue;
    const int64_t count = (a.col_ptr[c * node + 1] - first) / node;
    for (int64_t p = lane; p < count; p += 32) row_idx[to + p] = a.row_idx[first + p * node] / node;
  }
}

// One warp fills a slice, one thread a node's row of blocks. `by_rows`: the pattern's columns are
// A's rows.
template <class Value>
__global__ void BlockValuesKernel(PatternRef a, const double* from, bool by_rows, int node,
                                  const int32_t* order, int64_t slices, const Slice* slices_at,
                                  const int32_t* cols, Value* values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t nodes = a.n / node, warps = int64_t{gridDim.x} * kWarps;
  for (int64_t s = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; s < slices; s += warps) {
    const Slice slice = slices_at[s];
    const bool is_row = s * 32 + lane < nodes;
    const int64_t row = RowAt(order, min(s * 32 + lane, nodes - 1));
    for (int k = 0; k < slice.steps; ++k) {
      const int64_t at = slice.begin + 32 * int64_t{k} + lane;
      const int32_t column = cols[at];
      // Columns ascend in a row; after its end the last one is repeated.
      const bool beyond = !is_row || (k > 0 && cols[at - 32] == column);
      Value* const to = values + (slice.begin + 32 * int64_t{k}) * node * node + lane;
      for (int r = 0; r < node; ++r) {
        for (int c = 0; c < node; ++c) {
          double value = 0;
          if (!beyond) {
            value = by_rows ? from[a.col_ptr[row * node + r] + int64_t{k} * node + c]
                            : EntryAt(a, from, row * node + r, column * node + c);
          }
          to[32 * (r * node + c)] = static_cast<Value>(value);
        }
      }
    }
  }
}

}  // namespace

template <class Value>
std::optional<Bsr<Value>> Bsr<Value>::Make(Context& context, const PatternRef& pattern,
                                           const double* values, bool by_rows,
                                           const DiaTuning& tuning) {
  Bsr made;
  made.node_ = HasWholeBlocks(context, pattern, 3)   ? 3
               : HasWholeBlocks(context, pattern, 2) ? 2
                                                     : 0;
  made.nnz_ = CountEntries(context, pattern);
  if (made.node_ == 0 || made.nnz_ == 0) return std::nullopt;
  const int64_t nodes = made.nodes_ = pattern.n / made.node_;
  const int64_t square = int64_t{made.node_} * made.node_, nnz = made.nnz_ / square;

  const Buffer<int64_t> col_ptr(context, nodes + 1);
  const Buffer<int32_t> row_idx(context, nnz);
  NodePatternKernel<<<Blocks(context, nodes + 1, kWarps), kThreads, 0, context.stream>>>(
      pattern, made.node_, col_ptr.get(), row_idx.get());
  CheckLaunch("NodePatternKernel");
  CsrArrays a{nodes, col_ptr.get(), row_idx.get()};
  ByRows<Value> sorted;
  if (!by_rows) {
    sorted = SortByRows<Value>(context, {nodes, col_ptr.get(), row_idx.get()}, nnz, nullptr);
    a.row_ptr = sorted.row_ptr.get();
    a.cols = sorted.cols.get();
  }

  // No row is stored apart: matrices with rows so much longer are laid out by rows of entries.
  CsrTuning all = tuning::kCsr;
  all.apart_cost = all.max_steps = std::numeric_limits<int32_t>::max();
  made.slices_ = Buffer<Slice>(context, (nodes + 31) / 32);
  const Buffer<int32_t> apart(context, nodes);
  int64_t stored = CutSlices(context, a, nullptr, 1, all, made.slices_, apart);
  if (static_cast<double>(stored) > all.order_at * static_cast<double>(nnz)) {
    made.order_ = Buffer<int32_t>(context, nodes);
    OrderByLength(context, a, kWindow, made.order_);
    stored = CutSlices(context, a, made.order_.get(), 1, all, made.slices_, apart);
  }
  const auto size = static_cast<int64_t>(sizeof(Value)), index = int64_t{sizeof(int32_t)};
  if (stored * (square * size + index) >= made.nnz_ * (size + index)) return std::nullopt;
  made.cols_ = Buffer<int32_t>(context, stored);
  constexpr const double* kNoValues = nullptr;
  FillSlices(context, a, kNoValues, made.order_.get(), 1, made.slices_, made.cols_, made.values_);
  made.values_ = Buffer<Value>(context, stored * square);
  made.FillValues(context, pattern, values, by_rows);

  while (made.groups_ < kProductThreads / 32 &&
         made.nnz_ >= 2 * made.groups_ * nodes * tuning.group_entries) {
    made.groups_ *= 2;
  }
  const int64_t tile = kProductThreads / made.groups_, tiles = (nodes + tile - 1) / tile;
  const int64_t most =
      std::min<int64_t>(kProductMaxBlocks, tuning.blocks * context.multiprocessors);
  made.blocks_ = static_cast<int>(std::clamp<int64_t>(tiles, 1, most));
  made.streams_ = made.bytes() >= tuning.stream_bytes;
  context.Synchronize();
  return made;
}

template <class Value>
void Bsr<Value>::FillValues(const Context& context, const PatternRef& pattern, const double* values,
                            bool by_rows) {
  BlockValuesKernel<<<Blocks(context, slices_.size(), kWarps), kThreads, 0, context.stream>>>(
      pattern, values, by_rows, node_, order_.get(), slices_.size(), slices_.get(), cols_.get(),
      values_.get());
  CheckLaunch("BlockValuesKernel");
}

template <class Value>
BsrRef<Value> Bsr<Value>::ref() const {
  return {static_cast<int32_t>(nodes_),
          groups_,
          node_ * node_,
          streams_,
          order_.get(),
          slices_.get(),
          cols_.get(),
          values_.get()};
}

template <class Value>
int64_t Bsr<Value>::bytes() const {
  const auto size = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return size(order_) + size(slices_) + size(cols_) + size(values_);
}

template <class Value>
int64_t Bsr<Value>::bytes_per_product() const {
  return nnz_ * static_cast<int64_t>(sizeof(Value)) +
         nnz_ / (node_ * node_) * static_cast<int64_t>(sizeof(int32_t)) +
         order_.size() * static_cast<int64_t>(sizeof(int32_t)) +
         slices_.size() * static_cast<int64_t>(sizeof(Slice)) +
         2 * n() * static_cast<int64_t>(sizeof(double));
}

template class Bsr<double>;
template class Bsr<float>;

}  // namespace spaid::cuda
