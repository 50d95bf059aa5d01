#include <bit>
#include <utility>

#include "kernels/amg/cuda/tentative.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::Lane, layout::ThreadOfGrid, layout::ThreadsOfGrid;
using layout::WarpOfGrid, layout::WarpsOfGrid;

// P0 by rows of `count` values each; `value` null: ones.
struct ValuesRef {
  const int32_t* of_node;
  const double* value;
  int block, count;

  __device__ bool IsEntry(int64_t i, int k) const {
    return of_node[i / block] >= 0 && (value == nullptr || value[i * count + k] != 0);
  }
};

__global__ void __launch_bounds__(kThreads)
    CountKernel(int64_t n, ValuesRef of, int32_t* __restrict__ entries) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    int32_t own = 0;
    for (int k = 0; k < of.count; ++k) own += of.IsEntry(i, k) ? 1 : 0;
    entries[i] = own;
  }
}

__global__ void __launch_bounds__(kThreads)
    FillKernel(int64_t n, ValuesRef of, const int64_t* __restrict__ ptr,
               int32_t* __restrict__ columns, double* __restrict__ values) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    int64_t to = ptr[i];
    for (int k = 0; k < of.count; ++k) {
      if (!of.IsEntry(i, k)) continue;
      columns[to] = of.of_node[i / of.block] * of.count + k;
      values[to++] = of.value == nullptr ? 1 : of.value[i * of.count + k];
    }
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

__device__ double Dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
#pragma unroll 4
  for (int64_t i = 0; i < n; ++i) sum = fma(x[i], y[i], sum);
  return sum;
}

// The host's Orthonormalise of the rows of each aggregate: a warp each, whose lanes all form the
// same sums and share the rest. `scratch`: room for these rows, `rows_of_p` and `coarse` receive Q
// and R.
__global__ void __launch_bounds__(kThreads)
    OrthonormaliseKernel(int64_t aggregates, int64_t members, const int32_t* __restrict__ begin,
                         const int32_t* __restrict__ node, int64_t n,
                         const double* __restrict__ near_null, int block, int count,
                         double* scratch, double* __restrict__ rows_of_p, double* coarse) {
  for (int64_t g = WarpOfGrid(); g < aggregates; g += WarpsOfGrid()) {
    const int64_t first = begin[g], end = g + 1 < aggregates ? begin[g + 1] : members;
    const int64_t rows = (end - first) * block;
    double* const q = scratch + first * block * count;
    const auto row = [&](int64_t i) {
      return int64_t{node[first + i / block]} * block + i % block;
    };
    const auto r = [&](int l, int k) -> double& {
      return coarse[k * aggregates * count + g * count + l];
    };
    for (int64_t e = Lane(); e < rows * count; e += 32)
      q[e] = near_null[e / rows * n + row(e % rows)];
    __syncwarp();
    for (int k = 0; k < count; ++k) {
      double* const column = q + k * rows;
      const double before = sqrt(Dot(column, column, rows));
      for (int pass = 0; pass < 2; ++pass) {
        for (int l = 0; l < k; ++l) {
          const double along = Dot(q + l * rows, column, rows);
          if (Lane() == 0) r(l, k) += along;
          __syncwarp();
          for (int64_t i = Lane(); i < rows; i += 32) {
            column[i] = fma(-along, q[l * rows + i], column[i]);
          }
          __syncwarp();
        }
      }
      const double norm = sqrt(Dot(column, column, rows));
      const bool dropped = !(norm > kernels::kDependentColumn * before);
      __syncwarp();
      for (int64_t i = Lane(); i < rows; i += 32) column[i] = dropped ? 0 : column[i] / norm;
      if (Lane() == 0 && !dropped) r(k, k) = norm;
      __syncwarp();
    }
    for (int64_t e = Lane(); e < rows * count; e += 32) {
      rows_of_p[row(e / count) * count + e % count] = q[e % count * rows + e / count];
    }
    __syncwarp();
  }
}

// Fills P0 of one vector, for nodes of one unknown.
__global__ void __launch_bounds__(kThreads)
    FillOnKernel(int64_t n, ValuesRef of, const int64_t* __restrict__ ptr,
                 double* __restrict__ values, int32_t* __restrict__ other) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const bool is_entry = of.IsEntry(i, 0);
    if (is_entry != (ptr[i + 1] > ptr[i])) {
      *other = 1;
    } else if (is_entry) {
      values[ptr[i]] = of.value == nullptr ? 1 : of.value[i];
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

// Returns rows of P0 with their zeros, and the coarse vectors.
Buffer<double> Orthonormal(Context& context, const Aggregates& aggregates, const Members& of,
                           const Buffer<double>& near_null, int count, int block,
                           Buffer<double>* coarse) {
  const int64_t nodes = aggregates.of_node.size(), members = nodes - aggregates.isolated;
  const int64_t n = nodes * block;
  Buffer<double> rows(context, n * count);
  *coarse = Buffer<double>(context, aggregates.count * count * count);
  coarse->Fill(0);
  const Buffer<double> scratch(context, members * block * count);
  OrthonormaliseKernel<<<Blocks(context, aggregates.count, layout::kWarps), kThreads, 0,
                         context.stream>>>(aggregates.count, members, of.begin.get(), of.node.get(),
                                           n, near_null.get(), block, count, scratch.get(),
                                           rows.get(), coarse->get());
  CheckLaunch("OrthonormaliseKernel");
  return rows;
}

}  // namespace

Tentative MakeTentative(Context& context, const Aggregates& aggregates,
                        const Buffer<double>& near_null, int count, int block, Members* kept) {
  Tentative made = BeginTentative(context, aggregates, near_null, count, block, kept);
  FinishTentative(context, aggregates, count, block, made);
  return made;
}

Tentative BeginTentative(Context& context, const Aggregates& aggregates,
                         const Buffer<double>& near_null, int count, int block, Members* kept,
                         const Members* known) {
  Tentative made;
  if (near_null.size() == 0) return made;
  Members found;
  if (known == nullptr || known->node.size() == 0) {
    found = FindMembers(context, aggregates);
    known = &found;
  }
  made.rows = Orthonormal(context, aggregates, *known, near_null, count, block, &made.coarse);
  if (kept != nullptr) *kept = std::move(found);
  return made;
}

void FinishTentative(Context& context, const Aggregates& aggregates, int count, int block,
                     Tentative& made) {
  const int64_t n = aggregates.of_node.size() * block;
  made.p.n = n;
  made.p.columns = aggregates.count * count;
  const ValuesRef of{aggregates.of_node.get(), made.rows.get(), block, count};
  const Buffer<int32_t> entries(context, n);
  CountKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(n, of, entries.get());
  CheckLaunch("CountKernel");
  SizeRows(context, entries, made.p);
  FillKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(
      n, of, made.p.col_ptr.get(), made.p.row_idx.get(), made.p.values.get());
  CheckLaunch("FillKernel");
}

Tentative TentativeOn(Context& context, const Aggregates& aggregates, const Members& known,
                      const RowMatrix& pattern, const Buffer<double>& near_null, int32_t* other) {
  const int64_t n = aggregates.of_node.size();
  Tentative made =
      BeginTentative(context, aggregates, near_null, /*count=*/1, /*block=*/1, nullptr, &known);
  made.p = OnPattern(context, pattern);
  FillOnKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(
      n, ValuesRef{aggregates.of_node.get(), made.rows.get(), 1, 1}, made.p.col_ptr.get(),
      made.p.values.get(), other);
  CheckLaunch("FillOnKernel");
  return made;
}

}  // namespace spaid::cuda
