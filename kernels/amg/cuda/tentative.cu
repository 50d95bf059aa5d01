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

__global__ void __launch_bounds__(kThreads)
    FillOnKernel(int64_t n, const int32_t* __restrict__ of_node, const double* __restrict__ value,
                 const int64_t* __restrict__ ptr, double* __restrict__ values,
                 int32_t* __restrict__ other) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const bool is_entry = IsEntry(of_node, value, i);
    if (is_entry != (ptr[i + 1] > ptr[i])) {
      *other = 1;
    } else if (is_entry) {
      values[ptr[i]] = value == nullptr ? 1 : value[i];
    }
  }
}

Members FindMembers(Context& context, const Aggregates& aggregates) {
  const int64_t n = aggregates.of_node.size();
  const int blocks = Blocks(context, n, kThreads);
  Members found{Buffer<int32_t>(context, aggregates.count), Buffer<int32_t>(context, n)};
  const Buffer<int32_t> key(context, n), sorted(context, n), node(context, n);
  MembersKernel<<<blocks, kThreads, 0, context.stream>>>(
      n, static_cast<int32_t>(aggregates.count), aggregates.of_node.get(), key.get(), node.get());
  CheckLaunch("MembersKernel");
  Sort(context, key.get(), sorted.get(), node.get(), found.node.get(), n,
       std::bit_width(static_cast<uint64_t>(aggregates.count)));
  BeginsKernel<<<blocks, kThreads, 0, context.stream>>>(n - aggregates.isolated, sorted.get(),
                                                        found.begin.get());
  CheckLaunch("BeginsKernel");
  return found;
}

// Returns the vector with a unit part in each aggregate, whose norms go to `coarse`.
Buffer<double> Normalised(Context& context, const Aggregates& aggregates, const Members& members,
                          const Buffer<double>& near_null, Buffer<double>* coarse) {
  const int64_t n = aggregates.of_node.size(), count = aggregates.count;
  Buffer<double> unit(context, n);
  *coarse = Buffer<double>(context, count);
  NormaliseKernel<<<Blocks(context, count, kThreads), kThreads, 0, context.stream>>>(
      count, n - aggregates.isolated, members.begin.get(), members.node.get(), near_null.get(),
      unit.get(), coarse->get());
  CheckLaunch("NormaliseKernel");
  return unit;
}

}  // namespace

Tentative MakeTentative(Context& context, const Aggregates& aggregates,
                        const Buffer<double>& near_null, Members* kept) {
  const int64_t n = aggregates.of_node.size(), members = n - aggregates.isolated;
  const int blocks = Blocks(context, n, kThreads);
  Tentative made;
  Buffer<double> unit;
  if (near_null.size() > 0) {
    Members found = FindMembers(context, aggregates);
    unit = Normalised(context, aggregates, found, near_null, &made.coarse);
    if (kept != nullptr) *kept = std::move(found);
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

Tentative TentativeOn(Context& context, const Aggregates& aggregates, const Members& known,
                      const RowMatrix& pattern, const Buffer<double>& near_null, int32_t* other) {
  const int64_t n = aggregates.of_node.size();
  Tentative made;
  Buffer<double> unit;
  if (near_null.size() > 0) {
    Members found;
    if (known.node.size() == 0) found = FindMembers(context, aggregates);
    unit = Normalised(context, aggregates, known.node.size() > 0 ? known : found, near_null,
                      &made.coarse);
  }
  made.p = OnPattern(context, pattern);
  FillOnKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(
      n, aggregates.of_node.get(), near_null.size() > 0 ? unit.get() : nullptr,
      made.p.col_ptr.get(), made.p.values.get(), other);
  CheckLaunch("FillOnKernel");
  return made;
}

}  // namespace spaid::cuda
