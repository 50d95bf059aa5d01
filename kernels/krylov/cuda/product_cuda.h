// The product of rows_cuda.h, with an epilogue: what its caller does with every y_i in the same
// launch, such as dot products. For .cu files.
//
//   struct Epilogue {                    // trivially copyable
//     static constexpr int kSums = 1;    // at least 1
//     // True: the whole launch does nothing, Finish neither. Asked by every thread; what it reads
//     // must not change during the launch.
//     __device__ bool Skip() const;
//     // Once for every row, by one thread, after y[i] = y_i was written.
//     __device__ void Row(int64_t i, double y_i, double (&sums)[kSums]);
//     // Once by all kProductThreads threads of every block, in the end, each with the sums of what
//     // it was given.
//     __device__ void Finish(const double (&sums)[kSums]);
//   };
//   LaunchProduct(branch, rows, x, y, Epilogue{...});
#pragma once

#include <cuda/atomic>

#include "kernels/krylov/cuda/rows_cuda.h"

namespace spaid::cuda {

struct NoEpilogue {
  static constexpr int kSums = 1;
  __device__ bool Skip() const { return false; }
  __device__ void Row(int64_t, double, double (&)[kSums]) {}
  __device__ void Finish(const double (&)[kSums]) {}
};

namespace product {

// Entries that a thread asks for before it waits for the first of them.
inline constexpr int kTogether = 8;

// Entries of a matrix that the caches cannot keep until the next product should not drive x out of
// them either.
template <bool kStream, class T>
__device__ T Load(const T* at) {
  if constexpr (kStream) {
    return __ldcs(at);
  } else {
    return __ldg(at);
  }
}

// All lanes get the sum over those that differ from them in the low bits under `lanes`, a power of
// two.
__device__ inline double SumOver(int lanes, double value) {
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Σ values[32 k] x[cols[32 k]] over k < count.
template <bool kStream, class Value>
__device__ double Dot(const int32_t* cols, const Value* values, int count, const double* x) {
  double sum = 0;
  for (int k = 0; k < count; k += kTogether) {
    int32_t col[kTogether];
    Value value[kTogether];
    double xs[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const bool in = k + u < count;
      col[u] = in ? Load<kStream>(cols + 32 * u) : 0;
      value[u] = in ? Load<kStream>(values + 32 * u) : Value{0};
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) xs[u] = k + u < count ? __ldg(x + col[u]) : 0.0;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) sum = fma(static_cast<double>(value[u]), xs[u], sum);
    cols += 32 * kTogether;
    values += 32 * kTogether;
  }
  return sum;
}

// Of a row in pieces, the piece whose warp adds them up: of the last block that has any of them,
// since a block may only wait for those before it, which have begun. Piece q is block q % blocks'.
__device__ inline int Adder(const Piece& piece, int blocks) {
  const int round = piece.last / blocks;
  return piece.first / blocks == round ? piece.last : round * blocks - 1;
}

template <int kThreadsARow, bool kStream, class Value, class Epilogue>
__global__ void __launch_bounds__(kProductThreads, kProductResident)
    ProductKernel(RowsRef<Value> a, const double* __restrict__ x, double* __restrict__ y,
                  Epilogue epilogue) {
  if (epilogue.Skip()) return;
  constexpr int kWarps = kProductThreads / 32, kRows = 32 / kThreadsARow;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  double sums[Epilogue::kSums] = {};

  // Long rows, a piece a warp: first of all, as they take longest.
  for (int64_t q = block + int64_t{warp} * blocks; q < a.pieces; q += int64_t{kWarps} * blocks) {
    const Piece piece = a.piece[q];
    const int64_t begin = piece.begin + lane;
    const int count = (piece.count - lane + 31) / 32;
    const double sum = SumOver(32, Dot<kStream>(a.cols + begin, a.values + begin, count, x));
    if (lane != 0) continue;
    if (piece.first == piece.last) {
      y[piece.row] = sum;
      epilogue.Row(piece.row, sum, sums);
    } else {
      a.partial[q] = sum;
      ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device>(a.arrived[piece.first])
          .fetch_add(1, ::cuda::memory_order_release);
    }
  }

  // Slices, one a warp; what a slice is comes while the one before is summed.
  const int64_t stride = int64_t{kWarps} * blocks;
  int64_t s = int64_t{block} * kWarps + warp;
  Slice slice{};
  if (s < a.slices) slice = a.slice[s];
  while (s < a.slices) {
    const int64_t next = s + stride;
    Slice ahead{};
    if (next < a.slices) ahead = a.slice[next];
    const int r = lane / kThreadsARow;
    const int64_t place = s * kRows + r;
    const int64_t row = a.order != nullptr && place < a.n ? a.order[place] : place;
    const int64_t begin = slice.begin + lane;
    const double sum =
        SumOver(kThreadsARow, Dot<kStream>(a.cols + begin, a.values + begin, slice.steps, x));
    if (lane % kThreadsARow == 0 && (slice.apart >> r & 1) == 0) {
      y[row] = sum;
      epilogue.Row(row, sum, sums);
    }
    s = next;
    slice = ahead;
  }

  if (a.in_pieces) {
    for (int64_t q = block + int64_t{warp} * blocks; q < a.pieces; q += int64_t{kWarps} * blocks) {
      const Piece piece = a.piece[q];
      if (piece.first == piece.last || q != Adder(piece, blocks)) continue;
      const int count = piece.last - piece.first + 1;
      const ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device> arrived(
          a.arrived[piece.first]);
      while (arrived.load(::cuda::memory_order_acquire) != count) {
      }
      __syncwarp();
      double sum = 0;
      for (int p = piece.first + lane; p <= piece.last; p += 32) sum += __ldcg(a.partial + p);
      sum = SumOver(32, sum);
      if (lane == 0) {
        arrived.store(0, ::cuda::memory_order_relaxed);  // for the next launch
        y[piece.row] = sum;
        epilogue.Row(piece.row, sum, sums);
      }
    }
  }
  epilogue.Finish(sums);
}

}  // namespace product

// y = A x on the branch's stream; x and y have n elements on the device; x is not written
// meanwhile, by the epilogue neither. At most kProductMaxBlocks blocks of kProductThreads threads,
// as many for every epilogue; which thread is given which rows is fixed, so that all sums are the
// same bits in every launch. One launch of the same rows at a time.
template <class Value, class Epilogue>
void LaunchProduct(const Branch& branch, const Rows<Value>& rows, const double* x, double* y,
                   const Epilogue& epilogue) {
  using namespace product;
  void (*const kernels[])(RowsRef<Value>, const double*, double*, Epilogue) = {
      &ProductKernel<1, false, Value, Epilogue>, &ProductKernel<1, true, Value, Epilogue>,
      &ProductKernel<kManyThreads, false, Value, Epilogue>,
      &ProductKernel<kManyThreads, true, Value, Epilogue>};
  const auto kernel = kernels[(rows.threads_a_row() > 1 ? 2 : 0) + (rows.streams() ? 1 : 0)];
  Launch(branch, kernel, rows.blocks(), 1, kProductThreads, 0, rows.ref(), x, y, epilogue);
}

}  // namespace spaid::cuda
