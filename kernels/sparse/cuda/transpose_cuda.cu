#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/base/cuda/context_cuda.h"
#include "kernels/sparse/cuda/transpose_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// For so much work, of which a block has `a_block` at once.
int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

__device__ int64_t Warp() {
  return int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / 32;
}
__device__ int64_t Warps() { return int64_t{gridDim.x} * kWarps; }
__device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

__global__ void ColumnOfEntryKernel(PatternRef a, int32_t* column) {
  for (int64_t j = Warp(); j < a.n; j += Warps()) {
    for (int64_t p = a.col_ptr[j] + Lane(); p < a.col_ptr[j + 1]; p += 32) {
      column[p] = static_cast<int32_t>(j);
    }
  }
}

// Where each row begins among sorted ones.
__global__ void RowBeginKernel(const int32_t* sorted, int64_t nnz, int64_t n, int64_t* row_ptr) {
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i <= n; i += threads) {
    int64_t low = 0, high = nnz;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sorted[middle] < i) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    row_ptr[i] = low;
  }
}

__global__ void TransposedValuesKernel(PatternRef a, const double* values, PatternRef to,
                                       double* to_values) {
  for (int64_t i = Warp(); i < to.n; i += Warps()) {
    for (int64_t p = to.col_ptr[i] + Lane(); p < to.col_ptr[i + 1]; p += 32) {
      to_values[p] = EntryAt(a, values, i, to.row_idx[p]);
    }
  }
}

}  // namespace

// A stable sort, so that columns ascend.
void SortByRows(Context& context, const PatternRef& a, int64_t nnz, const Buffer<int64_t>& row_ptr,
                const Buffer<int32_t>& cols) {
  const Buffer<int32_t> columns(context, nnz), rows(context, nnz);
  ColumnOfEntryKernel<<<Blocks(context, a.n, kWarps), kThreads, 0, context.stream>>>(a,
                                                                                     columns.get());
  CheckLaunch("ColumnOfEntryKernel");
  int bits = 1;
  while (bits < 31 && a.n - 1 >> bits != 0) ++bits;
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    Check(cub::DeviceRadixSort::SortPairs(scratch, bytes, a.row_idx, rows.get(), columns.get(),
                                          cols.get(), nnz, 0, bits, context.stream),
          "cub::DeviceRadixSort");
  };
  sort(nullptr);
  const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
  sort(scratch.get());
  RowBeginKernel<<<Blocks(context, a.n + 1, kThreads), kThreads, 0, context.stream>>>(
      rows.get(), nnz, a.n, row_ptr.get());
  CheckLaunch("RowBeginKernel");
}

Matrix Transpose(Context& context, const PatternRef& a, int64_t nnz, const double* values) {
  Matrix to;
  to.n = a.n;
  to.nnz = nnz;
  to.col_ptr = Buffer<int64_t>(context, a.n + 1);
  to.row_idx = Buffer<int32_t>(context, nnz);
  SortByRows(context, a, nnz, to.col_ptr, to.row_idx);
  to.values = Buffer<double>(context, nnz);
  TransposedValuesKernel<<<Blocks(context, a.n, kWarps), kThreads, 0, context.stream>>>(
      a, values, to.pattern(), to.values.get());
  CheckLaunch("TransposedValuesKernel");
  return to;
}

}  // namespace spaid::cuda
