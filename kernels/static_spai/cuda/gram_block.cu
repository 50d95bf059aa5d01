// One block a group, 32 < |J| <= 128: the lower tiles of the Gram matrix are in shared memory and
// become those of its factor. Each of the first warps substitutes for one right-hand side.
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/static_spai/cuda/tile_factor.h"

namespace spaid::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
static_assert(kWarps == 4, "ForOwnWarp");
static_assert(kMaxWidth <= kWarps);

// The warp whose registers hold row i of the tiles of the Gram matrix: rows are dealt out forth and
// back from the longest on, so that all warps have about as many tiles.
__host__ __device__ constexpr int RowOwner(int tiles, int i) {
  const int place = (tiles - 1 - i) % (2 * kWarps);
  return place < kWarps ? place : 2 * kWarps - 1 - place;
}
// Index of the first tile of row i among its owner's tiles.
__host__ __device__ constexpr int RowBegin(int tiles, int i) {
  int begin = 0;
  for (int before = 0; before < i; ++before) {
    if (RowOwner(tiles, before) == RowOwner(tiles, i)) begin += before + 1;
  }
  return begin;
}
__host__ __device__ constexpr int MostTiles(int tiles) {
  int most = 0;
  for (int i = 0; i < tiles; ++i) {
    const int end = RowBegin(tiles, i) + i + 1;
    most = end > most ? end : most;
  }
  return most;
}

template <int kTiles>
struct alignas(16) BlockMemory {
  static constexpr int kSize = 8 * kTiles;
  static constexpr int kLower = kTiles * (kTiles + 1) / 2;
  // A chunk of Â (ChunkPlace), or the lower tiles (TileIndex; each row by row): never both at once.
  // In the factor, diagonal tiles hold their inverses.
  double tiles[kLower * 64 > kChunkRows* kSize ? kLower * 64 : kChunkRows* kSize];
  __device__ double* chunk() { return tiles; }
  double x[kMaxWidth][kSize], step[kMaxWidth][kSize], rhs[kMaxWidth][kSize];
  double diagonal[kSize];  // the Gram matrix's
  double scale[kSize];
  const double* from[kSize];  // the values of each column of J
  double sums[kWarps][kMaxWidth];
  double change[kMaxWidth];  // of ‖r‖² by a step
  FactorFacts factor;
  uint32_t target[kMaxWidth];
  int32_t group;
};

template <int kTiles>
class BlockGroup {
 public:
  using Memory = BlockMemory<kTiles>;
  static constexpr int kSize = Memory::kSize;
  static constexpr int kShare = (kSize + 31) / 32;  // elements of a vector that a lane has

  __device__ BlockGroup(const GramArgs& args, int32_t g, Memory& memory)
      : args_(args),
        group_(args, g),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {}

  __device__ void Solve() {
    Prepare();
    FormGram();
    const TileFactor<kWarps> factor = Factored();
    const int steps =
        factor.Factor() ? StepsFor(factor.SmallestEigenvalue(memory_.step[0]), group_.n2) : 0;
    if (steps == 0) return Refuse();
    if (warp_ < group_.width) {
      double* const x = memory_.x[warp_];
      for (int a = lane_; a < kSize; a += 32) x[a] = memory_.rhs[warp_][a];
      __syncwarp();
      factor.Substitute(x);
    }
    double squared[kMaxWidth];
    Residuals(squared);
    bool done = steps == 1 && AtMinimum(squared);
    for (int step = 0; !done; ++step) {
      if (step == steps) return Refuse();
      Gradient();
      FormGram();  // again: the chunks have overwritten the factor
      factor.Factor();
      if (warp_ < group_.width) {
        double* const own = memory_.step[warp_];
        double gradient[kShare];
#pragma unroll
        for (int i = 0; i < kShare; ++i)
          gradient[i] = lane_ + 32 * i < kSize ? own[lane_ + 32 * i] : 0;
        factor.Substitute(own);
        double change = 0;
#pragma unroll
        for (int i = 0; i < kShare; ++i) {
          const int a = lane_ + 32 * i;
          if (a >= kSize) continue;
          memory_.x[warp_][a] += own[a];
          change += gradient[i] * own[a];
        }
        change = WarpSum(change);
        if (lane_ == 0) memory_.change[warp_] = change;
      }
      __syncthreads();
      done = true;
      for (int t = 0; t < group_.width; ++t) {
        done = done && (steps == 1 || Small(memory_.change[t], squared[t]));
      }
      Residuals(squared);
    }
    Store(squared);
  }

 private:
  // Keeps the figures of this attempt for a rescue.
  __device__ void Refuse() const {
    if (thread_ < group_.width) args_.pivots[group_.members[thread_]] = memory_.factor.pivot;
  }

  __device__ void Prepare() {
    for (int a = thread_; a < kSize; a += kThreads) {
      const bool own = a < group_.n2;
      const int32_t j = own ? group_.j[a] : 0;
      memory_.from[a] = args_.a_values + (own ? args_.a_ptr[j] : 0);
      memory_.scale[a] = own ? args_.scale[j] : 0;
      for (int t = 0; t < kMaxWidth; ++t) memory_.x[t][a] = memory_.rhs[t][a] = 0;
    }
    if (thread_ < kMaxWidth) {
      memory_.target[thread_] = thread_ < group_.width ? group_.targets[thread_] : kNoRow;
    }
    __syncthreads();
  }

  using Pipe = ChunkPipe<kThreads, 5>;

  __device__ Pipe OpenPipe() const { return Pipe(group_, thread_, memory_.from); }

  __device__ void LoadChunk(Pipe& pipe, int c) {
    __syncthreads();
    auto* const zero = reinterpret_cast<double2*>(memory_.chunk());
    for (int i = thread_; i < kChunkRows * kSize / 2; i += kThreads) zero[i] = {0, 0};
    __syncthreads();
    pipe.Write(c, memory_.chunk());
    __syncthreads();
  }

  __device__ void FetchMasks(int c, uint32_t (&masks)[Structure::kMaskWords]) const {
    if (c >= group_.chunks) return;
#pragma unroll
    for (int i = 0; i < Structure::kMaskWords; ++i) {
      masks[i] = __ldg(&group_.masks[c * Structure::kMaskWords + i]);
    }
  }

  // Each warp forms the rows of tiles that it owns, in registers.
  __device__ void FormGram() {
    double sums[MostTiles(kTiles)][2] = {};
    Pipe pipe = OpenPipe();
    uint32_t masks[Structure::kMaskWords], next_masks[Structure::kMaskWords];
    FetchMasks(0, next_masks);
#pragma unroll 1
    for (int c = 0; c < group_.chunks; ++c) {
#pragma unroll
      for (int i = 0; i < Structure::kMaskWords; ++i) masks[i] = next_masks[i];
      LoadChunk(pipe, c);
      FetchMasks(c + 1, next_masks);
      // Registers are indexed by constants, so each warp has its own copy of the code.
      ForOwnWarp([&](auto warp) {
#pragma unroll 1
        for (int r = 0; r < kChunkRows; r += 4) {
          static_assert(Structure::kMaskWords == 4);
          const uint32_t word =
              r < 16 ? (r < 8 ? masks[0] : masks[1]) : (r < 24 ? masks[2] : masks[3]);
          const uint32_t mask = word >> (r / 4 % 2 * 16) & 0xffff;
          if (mask == 0) continue;
          double v[kTiles];
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
            v[t] = memory_.chunk()[(r / 4 * kTiles + t) * 32 + lane_];
          AddRows<decltype(warp)::value>(mask, v, sums, std::make_integer_sequence<int, kTiles>());
        }
      });
      for (int t = 0; t < kMaxWidth; ++t) {  // Âᵀe_k is a row of Â
        const uint32_t target = memory_.target[t];
        if (target / kChunkRows != static_cast<uint32_t>(c)) continue;
        for (int a = thread_; a < kSize; a += kThreads) {
          memory_.rhs[t][a] =
              memory_.chunk()[ChunkPlace(kTiles, target % kChunkRows, static_cast<uint32_t>(a))];
        }
      }
    }
    __syncthreads();
    const int at = lane_ / 4 * 8 + 2 * (lane_ % 4);
    ForOwnWarp([&](auto warp) {
      StoreRows<decltype(warp)::value>(at, sums, std::make_integer_sequence<int, kTiles>());
    });
    __syncthreads();
  }

  template <class Use>
  __device__ void ForOwnWarp(const Use& use) const {
    switch (warp_) {
      case 0:
        return use(std::integral_constant<int, 0>());
      case 1:
        return use(std::integral_constant<int, 1>());
      case 2:
        return use(std::integral_constant<int, 2>());
      default:
        return use(std::integral_constant<int, 3>());
    }
  }

  // Adds the products of four rows of Â to row i of the tiles, if kWarp owns it; `mask`: the
  // columns of tiles that have an entry there (about half of them).
  template <int kWarp, int i>
  static __device__ void AddRow(uint32_t mask, const double (&v)[kTiles], double (*sums)[2]) {
    if constexpr (RowOwner(kTiles, i) == kWarp) {
      constexpr int kBegin = RowBegin(kTiles, i);
      if ((mask >> i & 1) == 0) return;
#pragma unroll
      for (int j = 0; j <= i; ++j) {
        MultiplyTiles(v[i], v[j], sums[kBegin + j][0], sums[kBegin + j][1]);
      }
    }
  }
  template <int kWarp, int... kRows>
  static __device__ void AddRows(uint32_t mask, const double (&v)[kTiles], double (*sums)[2],
                                 std::integer_sequence<int, kRows...>) {
    (..., AddRow<kWarp, kRows>(mask, v, sums));
  }

  template <int kWarp, int i>
  __device__ void StoreRow(int at, const double (*sums)[2]) {
    if constexpr (RowOwner(kTiles, i) == kWarp) {
      constexpr int kBegin = RowBegin(kTiles, i);
#pragma unroll
      for (int j = 0; j <= i; ++j) {
        *reinterpret_cast<double2*>(&memory_.tiles[TileIndex(i, j) * 64 + at]) = {
            sums[kBegin + j][0], sums[kBegin + j][1]};
      }
    }
  }
  template <int kWarp, int... kRows>
  __device__ void StoreRows(int at, const double (*sums)[2], std::integer_sequence<int, kRows...>) {
    (..., StoreRow<kWarp, kRows>(at, sums));
  }

  // Factors in `tiles`.
  __device__ TileFactor<kWarps> Factored() {
    return {memory_.tiles, memory_.diagonal, group_.n2, args_.pivot_limit, memory_.factor};
  }

  // Calls use(v, residual) as WarpGroup::ForResiduals does; a warp has every fourth group of four
  // rows.
  template <class Use>
  __device__ void ForResiduals(const Use& use) {
    Pipe pipe = OpenPipe();
#pragma unroll 1
    for (int c = 0; c < group_.chunks; ++c) {
      LoadChunk(pipe, c);
      const int rows = min(kChunkRows, group_.n1 - c * kChunkRows);
#pragma unroll 1
      for (int r = 4 * warp_; r < rows; r += 4 * kWarps) {
        double v[kTiles], residual[kMaxWidth] = {};
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          v[i] = memory_.chunk()[(r / 4 * kTiles + i) * 32 + lane_];
#pragma unroll
          for (int t = 0; t < kMaxWidth; ++t) {
            if (t < group_.width) residual[t] += v[i] * memory_.x[t][8 * i + lane_ / 4];
          }
        }
        const auto row = static_cast<uint32_t>(c * kChunkRows + r + (lane_ & 3));
#pragma unroll
        for (int t = 0; t < kMaxWidth; ++t) {
          if (t >= group_.width) continue;
#pragma unroll
          for (int step = 4; step < 32; step *= 2) {
            residual[t] += __shfl_xor_sync(kAllLanes, residual[t], step);
          }
          if (memory_.target[t] == row) residual[t] -= 1;
        }
        use(v, residual);
      }
    }
  }

  // ‖Âx − e‖², the same in all threads, by the tensor cores: eight rows of Â times the right-hand
  // sides' x.
  __device__ void Residuals(double (&squared)[kMaxWidth]) {
    __syncthreads();
    double own[2 * kTiles];  // right-hand side lane / 4, columns 4 q + lane % 4
#pragma unroll
    for (int q = 0; q < 2 * kTiles; ++q) {
      own[q] = lane_ / 4 < kMaxWidth ? memory_.x[lane_ / 4][4 * q + (lane_ & 3)] : 0;
    }
    const int first = 2 * (lane_ & 3);  // the first of the two right-hand sides of this lane
    const uint32_t target[2] = {first < kMaxWidth ? memory_.target[first] : kNoRow,
                                first < kMaxWidth ? memory_.target[first + 1] : kNoRow};
    double sums[2] = {0, 0};
    Pipe pipe = OpenPipe();
#pragma unroll 1
    for (int c = 0; c < group_.chunks; ++c) {
      LoadChunk(pipe, c);
      const int rows = min(kChunkRows, group_.n1 - c * kChunkRows);
#pragma unroll 1
      for (int r = 8 * warp_; r < rows; r += 8 * kWarps) {
        const double* const from =
            memory_.chunk() + ((r + lane_ / 4) / 4 * kTiles * 32 + (lane_ / 4 & 3));
        double residual[2] = {0, 0}, odd[2] = {0, 0};  // independent accumulators
#pragma unroll
        for (int q = 0; q < 2 * kTiles; q += 2) {
          MultiplyTiles(from[q / 2 * 32 + (lane_ & 3) * 4], own[q], residual[0], residual[1]);
          MultiplyTiles(from[q / 2 * 32 + (4 + (lane_ & 3)) * 4], own[q + 1], odd[0], odd[1]);
        }
        residual[0] += odd[0];
        residual[1] += odd[1];
        const auto row = static_cast<uint32_t>(c * kChunkRows + r + lane_ / 4);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (target[i] == row) residual[i] -= 1;
          sums[i] += residual[i] * residual[i];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      for (int step = 4; step < 32; step *= 2) {
        sums[i] += __shfl_xor_sync(kAllLanes, sums[i], step);
      }
      if (lane_ < kMaxWidth / 2) memory_.sums[warp_][first + i] = sums[i];
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      squared[t] = 0;
      for (int w = 0; w < kWarps; ++w) squared[t] += memory_.sums[w][t];
      // Row k is not in Â.
      if (t < group_.width && memory_.target[t] == kNoRow) squared[t] += 1;
    }
  }

  // step[t] = Âᵀ(e − Âx), one after the other: the sums are many registers.
  __device__ void Gradient() {
    // Chunks, and the warps' parts, are added in a fixed order, so that results are reproducible.
    double* const parts = memory_.chunk();  // free after the last row: kWarps x kSize
    for (int t = 0; t < group_.width; ++t) {
      double sums[kTiles] = {};
      ForResiduals([&](const double* v, const double* residual) {
        double own = 0;
#pragma unroll
        for (int other = 0; other < kMaxWidth; ++other) own = other == t ? residual[other] : own;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) sums[i] -= v[i] * own;
      });
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        sums[i] += __shfl_xor_sync(kAllLanes, sums[i], 1);
        sums[i] += __shfl_xor_sync(kAllLanes, sums[i], 2);
        if (lane_ % 4 == 0) parts[warp_ * kSize + 8 * i + lane_ / 4] = sums[i];
      }
      __syncthreads();
      for (int a = thread_; a < kSize; a += kThreads) {
        double sum = 0;
        for (int w = 0; w < kWarps; ++w) sum += parts[w * kSize + a];
        memory_.step[t][a] = sum;
      }
    }
    __syncthreads();
  }

  // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
  __device__ bool AtMinimum(const double (&squared)[kMaxWidth]) {
    bool done = memory_.factor.pivot >= checks::kStrongPivot;
    if (!done) return false;
    for (int t = 0; t < group_.width; ++t) {
      double fit = 0;
      for (int a = lane_; a < kSize; a += 32) fit += memory_.rhs[t][a] * memory_.x[t][a];
      fit = WarpSum(fit);
      done = done && fabs(squared[t] - (1 - fit)) <= checks::kMinimumTolerance;
    }
    return done;
  }

  // Leaves the columns to the host if one is not finite or worse than zero.
  __device__ void Store(double (&squared)[kMaxWidth]) {
    bool fine = true;
    for (int t = 0; t < group_.width; ++t) {
      for (int a = thread_; a < group_.n2; a += kThreads) {
        fine = fine && isfinite(memory_.x[t][a] * memory_.scale[a]);
      }
      fine = fine && sqrt(squared[t]) <= checks::kWorthlessResidual;
    }
    if (__syncthreads_and(fine ? 1 : 0) == 0) return Refuse();
    if (args_.post_filter > 0) {
      if (warp_ < group_.width) Filter(warp_);
      Residuals(squared);
    }
    for (int t = 0; t < group_.width; ++t) {
      const int32_t k = group_.members[t];
      for (int a = thread_; a < group_.n2; a += kThreads) {
        args_.m_values[args_.m_ptr[k] + a] = memory_.x[t][a] * memory_.scale[a];
      }
      if (thread_ == 0) {
        args_.residual_norms[k] = sqrt(squared[t]);
        args_.pivots[k] = memory_.factor.pivot;
        args_.flags[k] =
            kernels::kColumnGram | (memory_.target[t] == kNoRow ? kernels::kColumnZero : 0);
      }
    }
  }

  __device__ void Filter(int t) {
    double largest = 0;
    for (int a = lane_; a < group_.n2; a += 32) {
      largest = fmax(largest, fabs(memory_.x[t][a] * memory_.scale[a]));
    }
    largest = WarpMax(largest);
    for (int a = lane_; a < group_.n2; a += 32) {
      const double size = fabs(memory_.x[t][a] * memory_.scale[a]);
      if (size < args_.post_filter * largest && group_.j[a] != group_.members[t]) {
        memory_.x[t][a] = 0;
      }
    }
    __syncwarp();
  }

  const GramArgs& args_;
  const LocalGroup group_;
  Memory& memory_;
  const int thread_, warp_, lane_;
};

template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles <= 11 ? 4 : 2) BlockGramKernel(GramArgs args) {
  extern __shared__ char bytes[];
  auto& memory = *reinterpret_cast<BlockMemory<kTiles>*>(bytes);
  for (;;) {
    if (threadIdx.x == 0) memory.group = atomicAdd(args.next, 1);
    __syncthreads();
    const int32_t i = memory.group;
    if (i >= args.count) return;
    BlockGroup<kTiles>(args, args.groups[i], memory).Solve();
    __syncthreads();
  }
}

template <int kTiles>
void LaunchTiles(const Context& context, const Branch& branch, const GramArgs& args) {
  constexpr int kShared = static_cast<int>(sizeof(BlockMemory<kTiles>));
  const auto kernel = BlockGramKernel<kTiles>;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        "cudaFuncSetAttribute");
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, kShared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  Launch(branch, kernel, std::min(blocks * context.multiprocessors, args.count), 1, kThreads,
         kShared, args);
}

}  // namespace

void LaunchBlockGram(const Context& context, const Branch& branch, int tiles,
                     const GramArgs& args) {
  switch (tiles) {
    case 6:
      return LaunchTiles<6>(context, branch, args);
    case 8:
      return LaunchTiles<8>(context, branch, args);
    case 11:
      return LaunchTiles<11>(context, branch, args);
    case 16:
      return LaunchTiles<16>(context, branch, args);
    default:
      throw Failure(CudaFault::kError, "no block kernel for " + std::to_string(tiles) + " tiles");
  }
}

}  // namespace spaid::cuda
