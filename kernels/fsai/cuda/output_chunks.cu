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

// From where the rows were made to where they are to be, kLanes threads a row. `source`: null, or
// of each row that it is copied from (RepeatedRows), `first` the first of the wave. `values` may be
// null.
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
Piece Compact(Context& context, const Work<Real>& work, int64_t rows, const int32_t* source,
              double scale) {
  const int64_t first = work.first_out;
  Piece piece;
  piece.rows = rows;
  piece.ptr = Buffer<int64_t>(context, rows + 1);
  const Buffer<int32_t> longest(context, 1);
  longest.Fill(0);
  FsaiCountsKernel<<<Blocks(rows + 1), kThreads, 0, context.stream>>>(
      work.out_count, rows, piece.ptr.get(), longest.get());
  CheckLaunch("FsaiCountsKernel");
  Scan(context, piece.ptr, rows + 1);
  longest.CopyOut(&piece.longest, 1);
  piece.nnz = Read(context, piece.ptr, rows);
  piece.idx = Buffer<int32_t>(context, piece.nnz);
  if (work.out_values != nullptr) piece.values = Buffer<double>(context, piece.nnz);
  const bool long_rows = piece.nnz > 16 * rows;
  const auto kernel = long_rows ? FsaiCompactKernel<Real, 32> : FsaiCompactKernel<Real, 8>;
  kernel<<<Blocks((long_rows ? 32 : 8) * rows), kThreads, 0, context.stream>>>(
      work.out_idx, work.out_values, rows, work.out_stride,
      work.initial_ptr != nullptr ? work.initial_ptr + first : nullptr, source, first, scale,
      piece.ptr.get(), piece.idx.get(), piece.values.get());
  CheckLaunch("FsaiCompactKernel");
  return piece;
}

template Piece Compact<float>(Context&, const Work<float>&, int64_t, const int32_t*, double);
template Piece Compact<double>(Context&, const Work<double>&, int64_t, const int32_t*, double);

Piece Join(Context& context, std::vector<Piece>& pieces, int64_t rows) {
  if (pieces.size() == 1) return std::move(pieces[0]);
  Piece all;
  all.rows = rows;
  bool has_values = false;
  for (const Piece& piece : pieces) {
    all.nnz += piece.nnz;
    has_values = has_values || piece.values.size() > 0;
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
  for (Piece& piece : pieces) {
    FsaiShiftKernel<<<Blocks(piece.rows + 1), kThreads, 0, context.stream>>>(piece.ptr.get(),
                                                                             piece.rows + 1, nnz);
    CheckLaunch("FsaiShiftKernel");
    copy(all.ptr.get() + row, piece.ptr.get(), 8 * (piece.rows + 1));
    copy(all.idx.get() + nnz, piece.idx.get(), 4 * piece.nnz);
    if (has_values) copy(all.values.get() + nnz, piece.values.get(), 8 * piece.nnz);
    nnz += piece.nnz;
    row += piece.rows;
    piece = {};
  }
  return all;
}

}  // namespace spaid::cuda::fsai
