#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/fsai/cuda/output_chunks.h"

namespace spaid::cuda::fsai {
namespace {

constexpr int kThreads = 256;

__global__ void FsaiCountsKernel(const int32_t* counts, int64_t rows, int64_t* ptr,
                                 int32_t* longest) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  int32_t count = 0;
  if (i < rows) count = counts[i];
  if (i <= rows) ptr[i] = count;
  count = __reduce_max_sync(~0u, count);
  if (threadIdx.x % 32 == 0 && count > *longest) atomicMax(longest, count);
}

// Copies rows from where they were made to their chunk, kLanes threads a row. `source`: null, or
// for each row the one that it is copied from (RepeatedRows), `first` being the first row of the
// wave. `values` may be null.
template <class Real, int kLanes>
__global__ void FsaiCompactKernel(const int32_t* idx, const Real* values, int64_t rows,
                                  int64_t stride, const int64_t* initial_ptr, const int32_t* source,
                                  int64_t first, double scale, const int64_t* ptr, int32_t* to_idx,
                                  double* to_values) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, i = thread / kLanes;
  if (i >= rows) return;
  const int64_t row = source != nullptr && source[i] >= 0 ? source[i] - first : i;
  const auto by = static_cast<int32_t>(i - row);
  const int64_t from =
      row * stride + (initial_ptr != nullptr ? initial_ptr[row] - initial_ptr[0] : 0);
  const int64_t begin = ptr[i], count = ptr[i + 1] - begin;
  for (int64_t e = thread % kLanes; e < count; e += kLanes) {
    to_idx[begin + e] = idx[from + e] + by;
    if (values != nullptr) to_values[begin + e] = static_cast<double>(values[from + e]) * scale;
  }
}

__global__ void FsaiShiftKernel(int64_t* ptr, int64_t count, int64_t by) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) ptr[i] += by;
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

template <class Real>
OutputChunk Compact(Context& context, const Work<Real>& work, int64_t rows, const int32_t* source,
                    double scale) {
  const int64_t first = work.first_out;
  OutputChunk chunk;
  chunk.rows = rows;
  chunk.ptr = Buffer<int64_t>(context, rows + 1);
  const Buffer<int32_t> longest(context, 1);
  longest.Fill(0);
  FsaiCountsKernel<<<Blocks(rows + 1), kThreads, 0, context.stream>>>(
      work.out_count, rows, chunk.ptr.get(), longest.get());
  CheckLaunch("FsaiCountsKernel");
  Scan(context, chunk.ptr, rows + 1);
  longest.CopyOut(&chunk.longest, 1);
  chunk.nnz = Read(context, chunk.ptr, rows);
  chunk.idx = Buffer<int32_t>(context, chunk.nnz);
  if (work.out_values != nullptr) chunk.values = Buffer<double>(context, chunk.nnz);
  const bool long_rows = chunk.nnz > 16 * rows;
  const auto kernel = long_rows ? FsaiCompactKernel<Real, 32> : FsaiCompactKernel<Real, 8>;
  kernel<<<Blocks((long_rows ? 32 : 8) * rows), kThreads, 0, context.stream>>>(
      work.out_idx, work.out_values, rows, work.out_stride,
      work.initial_ptr != nullptr ? work.initial_ptr + first : nullptr, source, first, scale,
      chunk.ptr.get(), chunk.idx.get(), chunk.values.get());
  CheckLaunch("FsaiCompactKernel");
  return chunk;
}

template OutputChunk Compact<float>(Context&, const Work<float>&, int64_t, const int32_t*, double);
template OutputChunk Compact<double>(Context&, const Work<double>&, int64_t, const int32_t*,
                                     double);

OutputChunk Join(Context& context, std::vector<OutputChunk>& chunks, int64_t rows) {
  if (chunks.size() == 1) return std::move(chunks[0]);
  OutputChunk all;
  all.rows = rows;
  bool has_values = false;
  for (const OutputChunk& chunk : chunks) {
    all.nnz += chunk.nnz;
    has_values = has_values || chunk.values.size() > 0;
  }
  all.ptr = Buffer<int64_t>(context, rows + 1);
  all.idx = Buffer<int32_t>(context, all.nnz);
  if (has_values) all.values = Buffer<double>(context, all.nnz);
  all.ptr.Fill(0);
  int64_t nnz = 0, row = 0;
  const auto copy = [&](void* to, const void* from, int64_t bytes) {
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                          context.stream),
          "cudaMemcpyAsync");
  };
  for (OutputChunk& chunk : chunks) {
    FsaiShiftKernel<<<Blocks(chunk.rows + 1), kThreads, 0, context.stream>>>(chunk.ptr.get(),
                                                                             chunk.rows + 1, nnz);
    CheckLaunch("FsaiShiftKernel");
    copy(all.ptr.get() + row, chunk.ptr.get(), 8 * (chunk.rows + 1));
    copy(all.idx.get() + nnz, chunk.idx.get(), 4 * chunk.nnz);
    if (has_values) copy(all.values.get() + nnz, chunk.values.get(), 8 * chunk.nnz);
    nnz += chunk.nnz;
    row += chunk.rows;
    chunk = {};
  }
  return all;
}

}  // namespace spaid::cuda::fsai
