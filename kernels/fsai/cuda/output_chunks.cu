#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/fsai/cuda/output_chunks.h"

namespace spaid::cuda {
namespace fsai {
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
FsaiChunk Compact(Context& context, const Work<Real>& work, int64_t rows, const int32_t* source,
                  double scale, int32_t& longest) {
  const int64_t first = work.first_out;
  FsaiChunk chunk;
  chunk.first = first;
  chunk.rows = rows;
  chunk.row_ptr = Buffer<int64_t>(context, rows + 1);
  const Buffer<int32_t> most(context, 1);
  most.Fill(0);
  FsaiCountsKernel<<<Blocks(rows + 1), kThreads, 0, context.stream>>>(
      work.out_count, rows, chunk.row_ptr.get(), most.get());
  CheckLaunch("FsaiCountsKernel");
  Scan(context, chunk.row_ptr, rows + 1);
  most.CopyOut(&longest, 1);
  chunk.nnz = Read(context, chunk.row_ptr, rows);
  chunk.col_idx = Buffer<int32_t>(context, chunk.nnz);
  if (work.out_values != nullptr) chunk.values = Buffer<double>(context, chunk.nnz);
  const bool long_rows = chunk.nnz > 16 * rows;
  const auto kernel = long_rows ? FsaiCompactKernel<Real, 32> : FsaiCompactKernel<Real, 8>;
  kernel<<<Blocks((long_rows ? 32 : 8) * rows), kThreads, 0, context.stream>>>(
      work.out_idx, work.out_values, rows, work.out_stride,
      work.initial_ptr != nullptr ? work.initial_ptr + first : nullptr, source, first, scale,
      chunk.row_ptr.get(), chunk.col_idx.get(), chunk.values.get());
  CheckLaunch("FsaiCompactKernel");
  return chunk;
}

template FsaiChunk Compact<float>(Context&, const Work<float>&, int64_t, const int32_t*, double,
                                  int32_t&);
template FsaiChunk Compact<double>(Context&, const Work<double>&, int64_t, const int32_t*, double,
                                   int32_t&);

}  // namespace fsai

FsaiChunk EmptyChunk(Context& context, int64_t first, int64_t rows, int64_t nnz, bool has_values) {
  return {.first = first,
          .rows = rows,
          .nnz = nnz,
          .row_ptr = Buffer<int64_t>(context, rows + 1),
          .col_idx = Buffer<int32_t>(context, nnz),
          .values = Buffer<double>(context, has_values ? nnz : 0)};
}

void CountFrom(Context& context, int64_t before, const FsaiChunk& chunk) {
  if (before == 0) return;
  fsai::FsaiShiftKernel<<<fsai::Blocks(chunk.rows + 1), fsai::kThreads, 0, context.stream>>>(
      chunk.row_ptr.get(), chunk.rows + 1, before);
  CheckLaunch("FsaiShiftKernel");
}

void PutInto(const FsaiChunk& whole, int ordinal, int64_t before, Context& context,
             const FsaiChunk& chunk) {
  const int own = context.ordinal;
  // The end of its last row is where the next chunk begins, which says so itself.
  const bool last = chunk.first + chunk.rows == whole.first + whole.rows;
  context.CopyAcross(whole.row_ptr.get() + (chunk.first - whole.first), ordinal,
                     chunk.row_ptr.get(), own, chunk.rows + (last ? 1 : 0));
  context.CopyAcross(whole.col_idx.get() + before, ordinal, chunk.col_idx.get(), own, chunk.nnz);
  context.CopyAcross(whole.values.get() + before, ordinal, chunk.values.get(), own,
                     chunk.values.size());
}

FsaiChunk Join(Context& context, std::vector<FsaiChunk>& chunks) {
  if (chunks.size() == 1) return std::move(chunks[0]);
  int64_t rows = 0, nnz = 0;
  bool has_values = false;
  for (const FsaiChunk& chunk : chunks) {
    rows += chunk.rows;
    nnz += chunk.nnz;
    has_values = has_values || chunk.values.size() > 0;
  }
  FsaiChunk whole =
      EmptyChunk(context, chunks.empty() ? 0 : chunks[0].first, rows, nnz, has_values);
  if (chunks.empty()) whole.row_ptr.Fill(0);
  int64_t before = 0;
  for (FsaiChunk& chunk : chunks) {
    CountFrom(context, before, chunk);
    PutInto(whole, context.ordinal, before, context, chunk);
    before += chunk.nnz;
    chunk = {};
  }
  return whole;
}

}  // namespace spaid::cuda
