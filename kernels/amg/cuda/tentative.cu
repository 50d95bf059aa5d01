#include <bit>
#include <utility>

#include "kernels/amg/cuda/tentative.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

// `value` null: a value is not zero where there is an aggregate.
__device__ bool IsEntry(const int32_t* of_node, const double* value, int64_t i) {
  return of_node[i] >= 0 && (value == nullptr || value[i] != 0);
}

__global__ void __launch_bounds__(kThreads)
    CountKernel(int64_t n, const int32_t* __restrict__ of_node, const double* __restrict__ value,
                int64_t* __restrict__ count) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    count[i] = IsEntry(of_node, value, i) ? 1 : 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    FillKernel(int64_t n, const int32_t* __restrict__ of_node, const double* __restrict__ value,
               const int64_t* __restrict__ ptr, int32_t* __restrict__ columns,
               double* __restrict__ values) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (!IsEntry(of_node, value, i)) continue;
    columns[ptr[i]] = of_node[i];
    values[ptr[i]] = value == nullptr ? 1 : value[i];
  }
}

// Nodes, and the aggregates by which they are sorted: `count` for those of none.
__global__ void __launch_bounds__(kThreads)
    MembersKernel(int64_t n, int32_t count, const int32_t* __restrict__ of_node,
                  int32_t* __restrict__ key, int32_t* __restrict__ node) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    key[i] = of_node[i] >= 0 ? of_node[i] : count;
    node[i] = static_cast<int32_t>(i);
  }
}
__global__ void __launch_bounds__(kThreads)
    BeginsKernel(int64_t members, const int32_t* __restrict__ key, int32_t* __restrict__ begin) {
  for (int64_t k = ThreadOfGrid(); k < members; k += ThreadsOfGrid()) {
    if (k == 0 || key[k] != key[k - 1]) begin[key[k]] = static_cast<int32_t>(k);
  }
}

// Makes each aggregate's part of the vector a unit vector; its norm is the coarse vector's.
__global__ void __launch_bounds__(kThreads)
    NormaliseKernel(int64_t count, int64_t members, const int32_t* __restrict__ begin,
                    const int32_t* __restrict__ node, const double* __restrict__ near_null,
                    double* __restrict__ unit, double* __restrict__ coarse) {
  for (int64_t g = ThreadOfGrid(); g < count; g += ThreadsOfGrid()) {
    const int64_t first = begin[g], end = g + 1 < count ? begin[g + 1] : members;
    double squares = 0;
    for (int64_t k = first; k < end; ++k) {
      const double x = near_null[node[k]];
      squares = fma(x, x, squares);
    }
    const double norm = sqrt(squares);
    const bool dropped = !(norm > kernels::kDependentColumn * norm);
    coarse[g] = dropped ? 0 : norm;
    for (int64_t k = first; k < end; ++k) {
      unit[node[k]] = dropped ? 0 : near_null[node[k]] / norm;
    }
  }
}

}  // namespace

Tentative MakeTentative(Context& context, const Aggregates& aggregates,
                        const Buffer<double>& near_null) {
  const int64_t n = aggregates.of_node.size(), members = n - aggregates.isolated;
  const int blocks = Blocks(context, n, kThreads);
  Tentative made;
  Buffer<double> unit;
  if (near_null.size() > 0) {
    const Buffer<int32_t> key(context, n), sorted(context, n), node(context, n), by_key(context, n),
        begin(context, aggregates.count);
    MembersKernel<<<blocks, kThreads, 0, context.stream>>>(
        n, static_cast<int32_t>(aggregates.count), aggregates.of_node.get(), key.get(), node.get());
    CheckLaunch("MembersKernel");
    Sort(context, key.get(), sorted.get(), node.get(), by_key.get(), n,
         std::bit_width(static_cast<uint64_t>(aggregates.count)));
    BeginsKernel<<<blocks, kThreads, 0, context.stream>>>(members, sorted.get(), begin.get());
    CheckLaunch("BeginsKernel");
    unit = Buffer<double>(context, n);
    made.coarse = Buffer<double>(context, aggregates.count);
    NormaliseKernel<<<Blocks(context, aggregates.count, kThreads), kThreads, 0, context.stream>>>(
        aggregates.count, members, begin.get(), by_key.get(), near_null.get(), unit.get(),
        made.coarse.get());
    CheckLaunch("NormaliseKernel");
  }
  const double* const value = near_null.size() > 0 ? unit.get() : nullptr;
  made.p.n = n;
  made.p.columns = aggregates.count;
  made.p.longest = 1;
  made.p.col_ptr = Buffer<int64_t>(context, n + 1);
  CountKernel<<<blocks, kThreads, 0, context.stream>>>(n, aggregates.of_node.get(), value,
                                                       made.p.col_ptr.get());
  CheckLaunch("CountKernel");
  Scan(context, made.p.col_ptr, n + 1);
  made.p.nnz = value == nullptr ? members : Read(context, made.p.col_ptr, n);
  made.p.empty = n - made.p.nnz;
  made.p.row_idx = Buffer<int32_t>(context, made.p.nnz);
  made.p.values = Buffer<double>(context, made.p.nnz);
  FillKernel<<<blocks, kThreads, 0, context.stream>>>(n, aggregates.of_node.get(), value,
                                                      made.p.col_ptr.get(), made.p.row_idx.get(),
                                                      made.p.values.get());
  CheckLaunch("FillKernel");
  return made;
}

}  // namespace spaid::cuda
