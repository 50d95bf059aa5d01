// Solves that live on the chip: one launch for some iterations of a system that is small enough for
// the multiprocessors' own memory. Each has one block, which keeps its share of the rows of A in
// shared memory (persistent_smem_csr.h) and of the vectors in the registers of the threads that
// have the rows. Blocks tell one another two things: sums, and, of each product, the elements that
// are in other blocks' halos.
//
// A block does not ask for the vector that it multiplies, which would take a meeting of all blocks
// before each product beside the one for the sums after it: it keeps its halo of the vectors that
// this one is made of, and does with them what their owners do, to the same bits. So the product's
// elements are all that has to be told, and they come with the meeting of its sums.
//
//   Chip<kRows> chip(ref, space);            // all threads of all blocks; copies A
//   chip.Load(x, x_own); chip.LoadHalo(...)  // between here and there
//   chip.Multiply(y); chip.Tell(y, where); chip.Meet(sums, then);
#pragma once

#include <cstdint>
#include <cuda/atomic>
#include <type_traits>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/persistent_smem.h"

namespace spaid::cuda {

// The vectors' elements that are a thread's: of places thread + u * kChipThreads of its block.
template <int kRows>
using ChipOwn = double[kRows];

template <int kRows>
class Chip {
 public:
  __device__ Chip(const ChipRef& ref, const ChipSpace& space)
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

  // use(u, at) for each of the thread's rows: at its place in the block.
  template <class Use>
  __device__ void ForOwn(const Use& use) const {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int32_t at = u * kChipThreads + static_cast<int>(threadIdx.x);
      if (at < share_.rows) use(u, at);
    }
  }
  // use(h) for those of the thread's elements of the halo.
  template <class Use>
  __device__ void ForHalo(const Use& use) const {
#pragma unroll 4
    for (auto h = static_cast<int32_t>(threadIdx.x); h < share_.halo_rows; h += kChipThreads) {
      use(h);
    }
  }

  // A vector by rows, and the thread's elements of it; null: ones.
  __device__ void Load(const double* from, ChipOwn<kRows>& own) const {
#pragma unroll
    for (double& element : own) element = 0;
    ForOwn([&](int u, int32_t at) { own[u] = from != nullptr ? from[RowAt(at)] : 1; });
  }
  __device__ void Store(const ChipOwn<kRows>& own, double* to) const {
    ForOwn([&](int u, int32_t at) { to[RowAt(at)] = own[u]; });
  }
  // A vector by rows into the block's halo i of it; null: ones.
  __device__ void LoadHalo(const double* from, int i) const {
    ForHalo(
        [&](int32_t h) { halos_[i][h] = from != nullptr ? from[ref_.order[halo_place_[h]]] : 1; });
  }
  __device__ double& halo(int i, int32_t h) const { return halos_[i][h]; }

  // What is multiplied next, at a place of the block and of its halo.
  __device__ double& x(int32_t at) const { return x_[at]; }
  __device__ double& x_halo(int32_t h) const { return x_[share_.rows + h]; }

  // y = A x; all threads, after x was set.
  __device__ void Multiply(ChipOwn<kRows>& y) const {
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    // Further pieces: the warps with the shortest first ones begin.
    for (int s = kChipWarps - 1 - warp; s < share_.tails; s += kChipWarps) {
      tails_[32 * s + lane] = Dot(share_.slices + s);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int slice = u * kChipWarps + warp;
      y[u] = slice < share_.slices ? Dot(slice) : 0;
    }
    if (share_.tails == 0) return;
    __syncthreads();
    ForOwn([&](int u, int32_t at) {
      if (at >= share_.split) return;
      for (int32_t q = at > 0 ? tail_end_[at - 1] : 0; q < tail_end_[at]; ++q) y[u] += tails_[q];
    });
  }

  // y for all blocks, after the next meeting; Told gives them what is in their halo. The same
  // `where` again after two meetings.
  __device__ void Tell(const ChipOwn<kRows>& y, int where) const {
    ForOwn([&](int u, int32_t at) { space_.told[where][share_.first + at] = y[u]; });
  }
  __device__ double Told(int where, int32_t h) const {
    return __ldcg(space_.told[where] + halo_place_[h]);
  }

  // then(total) by one thread of each block, with the sums over all threads of all blocks, which
  // all wait for one another.
  template <int kSums, class Then>
  __device__ void Meet(const double (&sums)[kSums], const Then& then) {
    static_assert(kSums <= kChipMostSums);
    __shared__ double of_warps[2][kChipMostSums][kChipWarps];
    const auto thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32, lane = thread % 32;
    double total[kSums];
    ++space_.meetings;
    ChipWord* const words = space_.words + space_.meetings % 2 * gridDim.x;
    SumWarps(sums, of_warps[0]);
    __syncthreads();
    if (warp == 0) {
      double own[kSums];
#pragma unroll
      for (int k = 0; k < kSums; ++k) own[k] = lane < kChipWarps ? of_warps[0][k][lane] : 0;
      SumWarp(own);
      if (lane == 0) {
        ChipWord& word = words[blockIdx.x];
#pragma unroll
        for (int k = 0; k < kSums; ++k) word.sums[k] = own[k];
        ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_device>(word.meeting)
            .store(space_.meetings, ::cuda::memory_order_release);
      }
    }
    const auto blocks = static_cast<int>(gridDim.x);
    const int warps = (blocks + 31) / 32;
    if (warp < warps) {
      double own[kSums] = {};
      if (thread < blocks) {
        ChipWord& word = words[thread];
        const ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_device> meeting(word.meeting);
        while (meeting.load(::cuda::memory_order_acquire) != space_.meetings) {
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
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kChipThreads) to[i] = from[i];
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
  static __device__ void SumWarps(const double (&sums)[kSums], double (*of_warp)[kChipWarps]) {
    double own[kSums];
#pragma unroll
    for (int k = 0; k < kSums; ++k) own[k] = sums[k];
    SumWarp(own);
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int k = 0; k < kSums; ++k) of_warp[k][threadIdx.x / 32] = own[k];
  }

  const ChipRef ref_;
  const ChipShare share_;
  ChipSpace space_;
  double *values_, *x_, *halos_[kChipHalo], *tails_;
  int32_t *halo_place_, *slice_end_, *tail_end_;
  uint16_t* cols_;
};

// use(std::integral_constant<int, rows>{}), of so many rows a thread or some more.
template <class Use>
void WithChipRows(const ChipRows& a, const Use& use) {
  const int rows = a.rows_a_thread();
  if (rows <= 1) return use(std::integral_constant<int, 1>{});
  if (rows <= 3) return use(std::integral_constant<int, 3>{});
  use(std::integral_constant<int, kChipMostRows>{});
}

// kernel(args...) by a block for each share, all of them at once.
template <class... Args>
void LaunchChip(const Context& context, const ChipRows& rows, void (*kernel)(Args...),
                const Args&... args) {
  const auto bytes = static_cast<int>(rows.shared_bytes());
  AllowSharedMemory(context, kernel, bytes);
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows.blocks()));
  config.blockDim = dim3(kChipThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = context.stream;
  config.attrs = &together;
  config.numAttrs = 1;
  Check(cudaLaunchKernelEx(&config, kernel, args...), "cudaLaunchKernelEx");
}

}  // namespace spaid::cuda
