// One block of a persistent kernel for a system that is small enough for the multiprocessors' own
// memory: one launch for several iterations. Each multiprocessor has one block, which keeps its
// share of the rows of A in shared memory (persistent_smem_csr.h), and its share of the vectors in
// the registers of the threads that have these rows. Blocks exchange sums, and, of each product,
// the elements that are in other blocks' halos.
//
// A block does not read the vector that it multiplies from other blocks, which would take a grid
// barrier before each product beside the one for the sums after it: it keeps its halo of the
// vectors from which that one is computed, and repeats their owners' arithmetic on it, to the same
// bits. So only the product's elements have to be published, and the barrier of the sums makes them
// visible.
//
//   PersistentBlock<kRows> block(ref, exchange);  // all threads of all blocks; copies A
//   block.Load(x, x_own); block.LoadHalo(...);    // from global memory
//   block.Multiply(y); block.Publish(y, where); block.SumGrid(sums, then);
#pragma once

#include <cstdint>
#include <cuda/atomic>
#include <type_traits>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/persistent_smem.h"

namespace spaid::cuda {

// A thread's elements of a vector: those at places thread + u * kSmemThreads of its block.
template <int kRows>
using OwnRows = double[kRows];

template <int kRows>
class PersistentBlock {
 public:
  __device__ PersistentBlock(const SmemCsrRef& ref, const SmemExchange& space)
      : ref_(ref), share_(ref.shares[blockIdx.x]), space_(space) {
    extern __shared__ __align__(16) char memory[];
    auto* doubles = reinterpret_cast<double*>(memory);
    const auto take = [&doubles](int32_t count) {
      double* const at = doubles;
      doubles += count;
      return at;
    };
    values_ = take(share_.stored);
    x_ = take(share_.rows + share_.halo_rows);
    for (double*& halo : halos_) halo = take(share_.halo_rows);
    tails_ = take(32 * share_.tails);
    auto* ints = reinterpret_cast<int32_t*>(doubles);
    halo_place_ = ints;
    slice_end_ = halo_place_ + share_.halo_rows;
    tail_end_ = slice_end_ + share_.slices + share_.tails;
    cols_ = reinterpret_cast<uint16_t*>(tail_end_ + share_.split);
    Copy(ref.values + share_.entries, share_.stored, values_);
    Copy(ref.cols + share_.entries, share_.stored, cols_);
    Copy(ref.halo + share_.halo, share_.halo_rows, halo_place_);
    Copy(ref.slice_end + share_.slice, share_.slices + share_.tails, slice_end_);
    Copy(ref.tail_end + share_.tail, share_.split, tail_end_);
    __syncthreads();
  }

  // Calls use(u, at) for each of the thread's rows; `at`: its place in the block.
  template <class Use>
  __device__ void ForOwn(const Use& use) const {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int32_t at = u * kSmemThreads + static_cast<int>(threadIdx.x);
      if (at < share_.rows) use(u, at);
    }
  }
  // Calls use(h) for each of the thread's elements of the halo.
  template <class Use>
  __device__ void ForHalo(const Use& use) const {
#pragma unroll 4
    for (auto h = static_cast<int32_t>(threadIdx.x); h < share_.halo_rows; h += kSmemThreads) {
      use(h);
    }
  }

  // Loads the thread's elements of a vector in the order of A's rows; null: ones.
  __device__ void Load(const double* from, OwnRows<kRows>& own) const {
#pragma unroll
    for (double& element : own) element = 0;
    ForOwn([&](int u, int32_t at) { own[u] = from != nullptr ? from[RowAt(at)] : 1; });
  }
  __device__ void Store(const OwnRows<kRows>& own, double* to) const {
    ForOwn([&](int u, int32_t at) { to[RowAt(at)] = own[u]; });
  }
  // Loads the block's halo number i from a vector in the order of A's rows; null: ones.
  __device__ void LoadHalo(const double* from, int i) const {
    ForHalo(
        [&](int32_t h) { halos_[i][h] = from != nullptr ? from[ref_.order[halo_place_[h]]] : 1; });
  }
  __device__ double& halo(int i, int32_t h) const { return halos_[i][h]; }

  // The vector that Multiply takes: at a place of the block, and of its halo.
  __device__ double& x(int32_t at) const { return x_[at]; }
  __device__ double& x_halo(int32_t h) const { return x_[share_.rows + h]; }

  // y = A x. Called by all threads, after x was set.
  __device__ void Multiply(OwnRows<kRows>& y) const {
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    // Pieces after the first: begin with the warps whose first pieces are shortest.
    for (int s = kSmemWarps - 1 - warp; s < share_.tails; s += kSmemWarps) {
      tails_[32 * s + lane] = Dot(share_.slices + s);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int slice = u * kSmemWarps + warp;
      y[u] = slice < share_.slices ? Dot(slice) : 0;
    }
    if (share_.tails == 0) return;
    __syncthreads();
    ForOwn([&](int u, int32_t at) {
      if (at >= share_.split) return;
      for (int32_t q = at > 0 ? tail_end_[at - 1] : 0; q < tail_end_[at]; ++q) y[u] += tails_[q];
    });
  }

  // Publishes y for all blocks; after the next barrier Published gives the elements of their halo.
  // The same `where` may be used again after two barriers.
  __device__ void Publish(const OwnRows<kRows>& y, int where) const {
    ForOwn([&](int u, int32_t at) { space_.published[where][share_.first + at] = y[u]; });
  }
  __device__ double Published(int where, int32_t h) const {
    return __ldcg(space_.published[where] + halo_place_[h]);
  }

  // Sums over all threads of all blocks, and a grid barrier; then(total) is called by one thread of
  // each block.
  template <int kSums, class Then>
  __device__ void SumGrid(const double (&sums)[kSums], const Then& then) {
    static_assert(kSums <= kSmemMostSums);
    __shared__ double of_warps[2][kSmemMostSums][kSmemWarps];
    const auto thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32, lane = thread % 32;
    double total[kSums];
    ++space_.barriers;
    BarrierWord* const words = space_.words + space_.barriers % 2 * gridDim.x;
    SumWarps(sums, of_warps[0]);
    __syncthreads();
    if (warp == 0) {
      double own[kSums];
#pragma unroll
      for (int k = 0; k < kSums; ++k) own[k] = lane < kSmemWarps ? of_warps[0][k][lane] : 0;
      SumWarp(own);
      if (lane == 0) {
        BarrierWord& word = words[blockIdx.x];
#pragma unroll
        for (int k = 0; k < kSums; ++k) word.sums[k] = own[k];
        ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_device>(word.barrier)
            .store(space_.barriers, ::cuda::memory_order_release);
      }
    }
    const auto blocks = static_cast<int>(gridDim.x);
    const int warps = (blocks + 31) / 32;
    if (warp < warps) {
      double own[kSums] = {};
      if (thread < blocks) {
        BarrierWord& word = words[thread];
        const ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_device> barrier(word.barrier);
        while (barrier.load(::cuda::memory_order_acquire) != space_.barriers) {
        }
#pragma unroll
        for (int k = 0; k < kSums; ++k) own[k] = __ldcg(&word.sums[k]);
      }
      SumWarps(own, of_warps[1]);
    }
    __syncthreads();
    if (thread == 0) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
        total[k] = 0;
        for (int w = 0; w < warps; ++w) total[k] += of_warps[1][k][w];
      }
      then(total);
    }
    __syncthreads();
  }

 private:
  template <class T>
  static __device__ void Copy(const T* from, int32_t count, T* to) {
#pragma unroll 8
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kSmemThreads) to[i] = from[i];
  }

  __device__ int32_t RowAt(int32_t at) const { return ref_.order[share_.first + at]; }

  __device__ double Dot(int slice) const {
    const int32_t lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t begin = slice > 0 ? slice_end_[slice - 1] : 0, end = slice_end_[slice];
    double sum = 0;
#pragma unroll 4
    for (int32_t at = 32 * begin + lane; at < 32 * end; at += 32) {
      sum = fma(values_[at], x_[cols_[at]], sum);
    }
    return sum;
  }

  template <int kSums>
  static __device__ void SumWarp(double (&sums)[kSums]) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) sums[k] += __shfl_xor_sync(~0u, sums[k], step);
    }
  }
  template <int kSums>
  static __device__ void SumWarps(const double (&sums)[kSums], double (*of_warp)[kSmemWarps]) {
    double own[kSums];
#pragma unroll
    for (int k = 0; k < kSums; ++k) own[k] = sums[k];
    SumWarp(own);
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int k = 0; k < kSums; ++k) of_warp[k][threadIdx.x / 32] = own[k];
  }

  const SmemCsrRef ref_;
  const SmemShare share_;
  SmemExchange space_;
  double *values_, *x_, *halos_[kSmemHalos], *tails_;
  int32_t *halo_place_, *slice_end_, *tail_end_;
  uint16_t* cols_;
};

// Calls use(std::integral_constant<int, rows>{}) with enough rows a thread for `a`.
template <class Use>
void WithRowsAThread(const SmemCsr& a, const Use& use) {
  const int rows = a.rows_a_thread();
  if (rows <= 1) return use(std::integral_constant<int, 1>{});
  if (rows <= 3) return use(std::integral_constant<int, 3>{});
  use(std::integral_constant<int, kSmemMostRows>{});
}

// Launches kernel(args...) with one block for each share, all resident at once.
template <class... Args>
void LaunchSmemKernel(const Context& context, const SmemCsr& rows, void (*kernel)(Args...),
                      const Args&... args) {
  const auto bytes = static_cast<int>(rows.shared_bytes());
  AllowSharedMemory(context, kernel, bytes);
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows.blocks()));
  config.blockDim = dim3(kSmemThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = context.stream;
  config.attrs = &together;
  config.numAttrs = 1;
  Check(cudaLaunchKernelEx(&config, kernel, args...), "cudaLaunchKernelEx");
}

}  // namespace spaid::cuda
