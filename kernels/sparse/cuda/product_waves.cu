#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/sparse/cuda/product_waves.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a row

int Blocks(const Context& context, int64_t threads) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, most));
}

__device__ int64_t Thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t Threads() { return int64_t{gridDim.x} * kThreads; }

// Entries of A P that each row of R reads; those of several entries count for each.
__global__ void __launch_bounds__(kThreads)
    WeightsKernel(PatternRef r, const int64_t* __restrict__ ap_ptr, int64_t* __restrict__ weight) {
  for (int64_t i = Thread(); i <= r.n; i += Threads()) {
    int64_t sum = 0;
    for (int64_t p = i < r.n ? r.col_ptr[i] : 0; i < r.n && p < r.col_ptr[i + 1]; ++p) {
      sum += ap_ptr[r.row_idx[p] + 1] - ap_ptr[r.row_idx[p]];
    }
    weight[i] = sum;
  }
}

// Says 1 of the rows of A that entries of R name.
__global__ void __launch_bounds__(kThreads)
    MarkKernel(int64_t count, const int32_t* __restrict__ columns, int32_t* __restrict__ number) {
  for (int64_t p = Thread(); p < count; p += Threads()) number[columns[p]] = 1;
}

// Lists the rows that have a number of their own, and their lengths.
__global__ void __launch_bounds__(kThreads)
    ListKernel(PatternRef a, const int32_t* __restrict__ number, int32_t* __restrict__ list,
               int32_t* __restrict__ length) {
  for (int64_t i = Thread(); i < a.n; i += Threads()) {
    if (number[i + 1] == number[i]) continue;
    list[number[i]] = static_cast<int32_t>(i);
    length[number[i]] = static_cast<int32_t>(a.col_ptr[i + 1] - a.col_ptr[i]);
  }
}

__global__ void __launch_bounds__(kThreads)
    CopyRowsKernel(int64_t count, const int32_t* __restrict__ list, PatternRef a,
                   const double* __restrict__ values, const int64_t* __restrict__ ptr,
                   int32_t* __restrict__ columns, double* __restrict__ to) {
  const int64_t lane = threadIdx.x % kLanes;
  for (int64_t k = Thread() / kLanes; k < count; k += Threads() / kLanes) {
    const int64_t from = a.col_ptr[list[k]], entries = a.col_ptr[list[k] + 1] - from;
    for (int64_t e = lane; e < entries; e += kLanes) {
      columns[ptr[k] + e] = a.row_idx[from + e];
      to[ptr[k] + e] = values[from + e];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    ShiftKernel(int64_t count, const int64_t* __restrict__ from, int64_t by,
                int64_t* __restrict__ to) {
  for (int64_t i = Thread(); i < count; i += Threads()) to[i] = from[i] + by;
}

__global__ void __launch_bounds__(kThreads)
    RenumberKernel(int64_t count, const int32_t* __restrict__ columns,
                   const int32_t* __restrict__ number, int32_t* __restrict__ to) {
  for (int64_t p = Thread(); p < count; p += Threads()) to[p] = number[columns[p]];
}

template <class T>
void CopyRange(Context& context, const Buffer<T>& from, int64_t first, const Buffer<T>& to,
               int64_t count) {
  if (count == 0) return;
  Check(cudaMemcpyAsync(to.get(), from.get() + first, static_cast<size_t>(count) * sizeof(T),
                        cudaMemcpyDeviceToDevice, context.stream),
        "cudaMemcpyAsync");
}

// The rows of A that `number`, counted up, gives a number.
RowMatrix Chosen(Context& context, const RowMatrix& a, const Buffer<int32_t>& number) {
  RowMatrix rows;
  rows.n = Read(context, number, a.n);
  rows.columns = a.columns;
  const Buffer<int32_t> list(context, rows.n), length(context, rows.n);
  ListKernel<<<Blocks(context, a.n), kThreads, 0, context.stream>>>(a.pattern(), number.get(),
                                                                    list.get(), length.get());
  CheckLaunch("ListKernel");
  SizeRows(context, length, rows);
  CopyRowsKernel<<<Blocks(context, kLanes * rows.n), kThreads, 0, context.stream>>>(
      rows.n, list.get(), a.pattern(), a.values.get(), rows.col_ptr.get(), rows.row_idx.get(),
      rows.values.get());
  CheckLaunch("CopyRowsKernel");
  return rows;
}

// Rows of R, whose columns are rows of `ap`, and these rows of A P.
struct Wave {
  RowMatrix r, ap;
};

// Makes the wave of rows begin to end of R, entries first to last.
Wave MakeWave(Context& context, const RowMatrix& r, int64_t begin, int64_t end, int64_t first,
              int64_t last, const RowMatrix& a, const RowMatrix& p) {
  const int64_t entries = last - first;
  Wave wave;
  RowMatrix& part = wave.r;
  part.n = end - begin;
  part.nnz = entries;
  part.longest = r.longest;
  part.col_ptr = Buffer<int64_t>(context, part.n + 1);
  part.row_idx = Buffer<int32_t>(context, entries);
  part.values = Buffer<double>(context, entries);
  RowMatrix rows;
  {
    const Buffer<int32_t> number(context, a.n + 1);
    number.Fill(0);
    MarkKernel<<<Blocks(context, entries), kThreads, 0, context.stream>>>(
        entries, r.row_idx.get() + first, number.get());
    CheckLaunch("MarkKernel");
    Scan(context, number, a.n + 1);
    ShiftKernel<<<Blocks(context, part.n + 1), kThreads, 0, context.stream>>>(
        part.n + 1, r.col_ptr.get() + begin, -first, part.col_ptr.get());
    CheckLaunch("ShiftKernel");
    RenumberKernel<<<Blocks(context, entries), kThreads, 0, context.stream>>>(
        entries, r.row_idx.get() + first, number.get(), part.row_idx.get());
    CheckLaunch("RenumberKernel");
    CopyRange(context, r.values, first, part.values, entries);
    rows = Chosen(context, a, number);
  }
  part.columns = rows.n;
  wave.ap = Multiply(context, rows, p, RowOrder::kAsFound);
  return wave;
}

}  // namespace

std::optional<RowMatrix> MultiplyInWaves(Context& context, int64_t most_entries,
                                         int64_t most_between, const RowMatrix& r,
                                         const RowMatrix& a, const RowMatrix& p,
                                         const RowMatrix& ap) {
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<int64_t> weight(at(r.n + 1)), ptr(weight.size());
  {
    const Buffer<int64_t> there(context, r.n + 1);
    WeightsKernel<<<Blocks(context, r.n + 1), kThreads, 0, context.stream>>>(
        r.pattern(), ap.col_ptr.get(), there.get());
    CheckLaunch("WeightsKernel");
    context.Download({there.To(weight.data(), r.n + 1), r.col_ptr.To(ptr.data(), r.n + 1)});
  }
  // Calls use(begin, end, wave) for all; false: it has ended them.
  const auto for_waves = [&](const auto& use) {
    for (int64_t begin = 0; begin < r.n;) {
      int64_t end = begin + 1;
      for (int64_t sum = weight[at(begin)]; end < r.n; ++end) {
        sum += weight[at(end)];
        if (sum > most_between) break;
      }
      if (!use(begin, end, MakeWave(context, r, begin, end, ptr[at(begin)], ptr[at(end)], a, p))) {
        return false;
      }
      begin = end;
    }
    return true;
  };
  RowMatrix c;
  c.n = r.n;
  c.columns = p.columns;
  c.col_ptr = Buffer<int64_t>(context, c.n + 1);
  c.col_ptr.Fill(0);
  const bool fits = for_waves([&](int64_t begin, int64_t, const Wave& wave) {
    const RowMatrix counted = CountProduct(context, wave.r, wave.ap);
    ShiftKernel<<<Blocks(context, counted.n + 1), kThreads, 0, context.stream>>>(
        counted.n + 1, counted.col_ptr.get(), c.nnz, c.col_ptr.get() + begin);
    CheckLaunch("ShiftKernel");
    c.nnz += counted.nnz;
    c.longest = std::max(c.longest, counted.longest);
    c.empty += counted.empty;
    return c.nnz <= most_entries;
  });
  if (!fits) return std::nullopt;
  c.row_idx = Buffer<int32_t>(context, c.nnz);
  c.values = Buffer<double>(context, c.nnz);
  for_waves([&](int64_t begin, int64_t end, const Wave& wave) {
    RowMatrix rows;  // of C, where they are
    rows.n = end - begin;
    rows.nnz = c.nnz;
    rows.columns = c.columns;
    rows.longest = c.longest;
    rows.col_ptr = Buffer<int64_t>(context, rows.n + 1);
    ShiftKernel<<<Blocks(context, rows.n + 1), kThreads, 0, context.stream>>>(
        rows.n + 1, c.col_ptr.get() + begin, 0, rows.col_ptr.get());
    CheckLaunch("ShiftKernel");
    std::swap(rows.row_idx, c.row_idx);
    std::swap(rows.values, c.values);
    FillProduct(context, wave.r, wave.ap, rows);
    std::swap(rows.row_idx, c.row_idx);
    std::swap(rows.values, c.values);
    return true;
  });
  return c;
}

}  // namespace spaid::cuda
