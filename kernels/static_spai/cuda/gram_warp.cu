// One warp a group, |J| <= 32: lane a holds row a of the Gram matrix and of its factor in
// registers.
#include <algorithm>
#include <string>

#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {
namespace {

constexpr int kWarps = 4;  // a block
constexpr int kTake = 8;   // groups taken from the queue at once

template <int kTiles>
struct alignas(16) WarpMemory {
  static constexpr int kSize = 8 * kTiles;
  static constexpr int kLd = kSize + 2;  // even: two at a time can be read
  // A chunk of Â (ChunkPlace), or the factor, column j from j * kLd on: never both at once.
  double chunk[kSize * (kLd > kChunkRows ? kLd : kChunkRows)];
  __device__ double* factor() { return chunk; }
  const double* from[kSize];  // the values of each column of J
  double scale[kSize];
};

// The solution of one group, kWidth right-hand sides side by side (those beyond the group's are
// zero). Lane a of every vector belongs to column J[a].
template <int kTiles, int kWidth>
class WarpGroup {
 public:
  using Memory = WarpMemory<kTiles>;
  static constexpr int kSize = Memory::kSize, kLd = Memory::kLd;

  __device__ WarpGroup(const GramArgs& args, int32_t g, Memory& memory)
      : args_(args), group_(args, g), memory_(memory), lane_(static_cast<int>(threadIdx.x % 32)) {}

  __device__ void Solve() {
    Prepare();
    FormGram();
    if (!Factor() || !WellConditioned()) return Refuse();
    double x[kWidth], squared[kWidth];
#pragma unroll
    for (int t = 0; t < kWidth; ++t) x[t] = rhs_[t];
    Substitute(x);
    Residuals(x, squared);
    if (!AtMinimum(x, squared)) {
      double g[kWidth];
      Gradient(x, g);
      FormGram();  // again: the chunks have overwritten the factor
      Factor();
      Substitute(g);
#pragma unroll
      for (int t = 0; t < kWidth; ++t) x[t] += g[t];
      Residuals(x, squared);
    }
    Store(x, squared);
  }

 private:
  // Keeps the figures of this attempt for a rescue.
  __device__ void Refuse() const {
    if (lane_ < group_.width) args_.pivots[group_.members[lane_]] = pivot_;
  }

  __device__ void Prepare() {
    if (lane_ < kSize) {
      const bool own = lane_ < group_.n2;
      const int32_t j = own ? group_.j[lane_] : 0;
      memory_.from[lane_] = args_.a_values + (own ? args_.a_ptr[j] : 0);
      memory_.scale[lane_] = own ? args_.scale[j] : 0;
    }
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      target_[t] = t < group_.width ? group_.targets[t] : kNoRow;
      rhs_[t] = 0;
    }
    __syncwarp();
  }

  // Entries of a lane in a chunk of few columns of an irregular matrix; registers are short there.
  using Pipe = ChunkPipe<32, kTiles == 1 ? 2 : kTiles == 2 ? 4 : 6>;

  __device__ Pipe OpenPipe() const { return Pipe(group_, lane_, memory_.from); }

  __device__ void LoadChunk(Pipe& pipe, int c) {
    __syncwarp();
    auto* const zero = reinterpret_cast<double2*>(memory_.chunk);
#pragma unroll
    for (int i = 0; i < kChunkRows * kSize / 64; ++i) zero[lane_ + 32 * i] = {0, 0};
    __syncwarp();
    pipe.Write(c, memory_.chunk);
    __syncwarp();
  }

  // Calls use(v, row) for four rows of Â at a time: v[t] is this lane's element of tile t, in
  // column 8 t + lane / 4, and row = the row of I, that of lane % 4.
  template <class Use>
  __device__ void ForRows(bool take_targets, const Use& use) {
    Pipe pipe = OpenPipe();
#pragma unroll 1
    for (int c = 0; c < group_.chunks; ++c) {
      LoadChunk(pipe, c);
      const int begin = c * kChunkRows;
#pragma unroll 2
      for (int r = 0; r < kChunkRows; r += 4) {  // rows beyond n1 are zero
        double v[kTiles];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          v[t] = memory_.chunk[(r / 4 * kTiles + t) * 32 + lane_];
        }
        use(v, begin + r + (lane_ & 3));
      }
      if (take_targets) TakeTargets(c);
    }
  }

  // Âᵀe_k is a row of Â.
  __device__ void TakeTargets(int c) {
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      if (target_[t] / kChunkRows == static_cast<uint32_t>(c) && lane_ < kSize) {
        rhs_[t] =
            memory_
                .chunk[ChunkPlace(kTiles, target_[t] % kChunkRows, static_cast<uint32_t>(lane_))];
      }
    }
  }

  __device__ void FormGram() {
    double sums[kTiles * (kTiles + 1) / 2][2] = {};
    ForRows(true, [&](const double* v, int) {
      int tile = 0;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j <= i; ++j, ++tile) {
          MultiplyTiles(v[i], v[j], sums[tile][0], sums[tile][1]);
        }
      }
    });
    __syncwarp();
    const int r = lane_ / 4, q = 2 * (lane_ % 4);
    int tile = 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j <= i; ++j, ++tile) {
        memory_.factor()[(8 * j + q) * kLd + 8 * i + r] = sums[tile][0];
        memory_.factor()[(8 * j + q + 1) * kLd + 8 * i + r] = sums[tile][1];
      }
    }
    __syncwarp();
  }

  // Right-looking Cholesky. False: a scaled pivot is not over the limit. Columns beyond |J| are
  // those of the identity, so that all steps are done without branches.
  __device__ bool Factor() {
    const int row = min(lane_, kSize - 1);
    const bool own = lane_ < group_.n2;
    const double diagonal = own ? memory_.factor()[row * kLd + row] : 1;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      row_[j] = own ? memory_.factor()[j * kLd + row] : lane_ == j ? 1 : 0;
    }
    __syncwarp();
    double pivot = 1;  // the lane's column's
    inverse_ = 1;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const double here = __shfl_sync(kAllLanes, row_[j], j);
      const double inverse = rsqrt(here);
      pivot = lane_ == j ? here : pivot;
      inverse_ = lane_ == j ? inverse : inverse_;
      row_[j] *= inverse;
      if (kSize == 32 || lane_ < kSize) memory_.factor()[j * kLd + lane_] = row_[j];
      __syncwarp();
#pragma unroll
      for (int c = j + 1; c < kSize; ++c) row_[c] -= row_[j] * memory_.factor()[j * kLd + c];
    }
    const double ratio = pivot / diagonal;
    pivot_ = WarpMin(ratio);
    determinant_ = WarpProduct(ratio);
    __syncwarp();
    // A pivot that is not positive makes all that follow NaN.
    return __all_sync(kAllLanes, ratio > args_.pivot_limit);
  }

  // x := (L Lᵀ)⁻¹ x.
  template <int kCount>
  __device__ void Substitute(double (&x)[kCount]) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
#pragma unroll
      for (int t = 0; t < kCount; ++t) {
        const double y = __shfl_sync(kAllLanes, x[t] * inverse_, j);
        x[t] = lane_ == j ? y : lane_ > j ? x[t] - row_[j] * y : x[t];
      }
    }
    const double* const column = memory_.factor() + min(lane_, kSize - 1) * kLd;
#pragma unroll 4
    for (int j = kSize - 1; j >= 0; --j) {
      const double l = column[j];
#pragma unroll
      for (int t = 0; t < kCount; ++t) {
        const double y = __shfl_sync(kAllLanes, x[t] * inverse_, j);
        x[t] = lane_ == j ? y : lane_ < j ? x[t] - l * y : x[t];
      }
    }
  }

  // As LaneSolver::WellConditioned (kernels/static_spai/lane_solver.cc).
  __device__ bool WellConditioned() {
    if (determinant_ / 3 >= checks::kGoodEigenvalue) return true;
    double z[1] = {lane_ < group_.n2 ? StartSign(lane_) : 0.0};
    const auto step = [&] {
      Substitute(z);
      const double norm = sqrt(WarpSum(z[0] * z[0]));
      z[0] /= norm;
      return norm;
    };
    if (checks::kStartShare * step() * checks::kGoodEigenvalue <= 1) return true;
    step();
    return step() * checks::kGoodEigenvalue <= 1;
  }

  // Calls use(v, residual): residual[t] is that of the lane's row, the same in all lanes of the
  // row.
  template <class Use>
  __device__ void ForResiduals(const double (&x)[kWidth], const Use& use) {
    double own[kWidth][kTiles];  // x in the lane's columns
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        own[t][i] = __shfl_sync(kAllLanes, x[t], 8 * i + lane_ / 4);
      }
    }
    ForRows(false, [&](const double* v, int row) {
      double residual[kWidth] = {};
#pragma unroll
      for (int t = 0; t < kWidth; ++t) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) residual[t] += v[i] * own[t][i];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
          residual[t] += __shfl_xor_sync(kAllLanes, residual[t], step);
        }
        if (target_[t] == static_cast<uint32_t>(row)) residual[t] -= 1;
      }
      use(v, residual);
    });
  }

  // ‖Âx − e‖², by the tensor cores: eight rows of Â times the right-hand sides' x.
  __device__ void Residuals(const double (&x)[kWidth], double (&squared)[kWidth]) {
    double own[2 * kTiles];  // right-hand side lane / 4, columns 4 q + lane % 4
#pragma unroll
    for (int q = 0; q < 2 * kTiles; ++q) {
      own[q] = 0;
#pragma unroll
      for (int t = 0; t < kWidth; ++t) {
        const double v = __shfl_sync(kAllLanes, x[t], 4 * q + (lane_ & 3));
        if (lane_ / 4 == t) own[q] = v;
      }
    }
    double sums[2] = {0, 0};  // right-hand sides 2 (lane % 4) and the next
    uint32_t target[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      target[i] = kNoRow;
#pragma unroll
      for (int t = 0; t < kWidth; ++t) {
        if (t == 2 * (lane_ & 3) + i) target[i] = target_[t];
      }
    }
    Pipe pipe = OpenPipe();
#pragma unroll 1
    for (int c = 0; c < group_.chunks; ++c) {
      LoadChunk(pipe, c);
      const int begin = c * kChunkRows;
#pragma unroll 1
      for (int r = 0; r < kChunkRows && begin + r < group_.n1; r += 8) {
        const double* const rows =
            memory_.chunk + ((r + lane_ / 4) / 4 * kTiles * 32 + (lane_ / 4 & 3));
        double residual[2] = {0, 0}, odd[2] = {0, 0};  // independent accumulators
#pragma unroll
        for (int q = 0; q < 2 * kTiles; q += 2) {
          MultiplyTiles(rows[q / 2 * 32 + (lane_ & 3) * 4], own[q], residual[0], residual[1]);
          MultiplyTiles(rows[q / 2 * 32 + (4 + (lane_ & 3)) * 4], own[q + 1], odd[0], odd[1]);
        }
        residual[0] += odd[0];
        residual[1] += odd[1];
        const auto row = static_cast<uint32_t>(begin + r + lane_ / 4);
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
    }
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      squared[t] = __shfl_sync(kAllLanes, t % 2 == 0 ? sums[0] : sums[1], t / 2);
      if (t < group_.width && target_[t] == kNoRow) squared[t] += 1;  // row k is not in Â
    }
  }

  // Âᵀ(e − Âx).
  __device__ void Gradient(const double (&x)[kWidth], double (&g)[kWidth]) {
    double sums[kWidth][kTiles] = {};
    ForResiduals(x, [&](const double* v, const double* residual) {
#pragma unroll
      for (int t = 0; t < kWidth; ++t) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) sums[t][i] -= v[i] * residual[t];
      }
    });
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      g[t] = 0;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        double sum = sums[t][i];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        const double own = __shfl_sync(kAllLanes, sum, (lane_ & 7) * 4);
        if (lane_ / 8 == i) g[t] = own;
      }
    }
  }

  // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
  __device__ bool AtMinimum(const double (&x)[kWidth], const double (&squared)[kWidth]) const {
    bool done = pivot_ >= checks::kStrongPivot;
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      const double fit = WarpSum(rhs_[t] * x[t]);
      done =
          done && (t >= group_.width || fabs(squared[t] - (1 - fit)) <= checks::kMinimumTolerance);
    }
    return done;
  }

  // Leaves the columns to the host if one is not finite or worse than zero.
  __device__ void Store(double (&x)[kWidth], double (&squared)[kWidth]) {
    double m[kWidth];
    const bool own = lane_ < group_.n2;
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      m[t] = own ? x[t] * memory_.scale[lane_] : 0;
      const bool fine = isfinite(m[t]) && sqrt(squared[t]) <= checks::kWorthlessResidual;
      if (t < group_.width && !__all_sync(kAllLanes, fine)) return Refuse();
    }
    if (args_.post_filter > 0) {
#pragma unroll
      for (int t = 0; t < kWidth; ++t) {
        const bool diagonal = own && t < group_.width && group_.j[lane_] == group_.members[t];
        const double largest = WarpMax(fabs(m[t]));
        if (fabs(m[t]) < args_.post_filter * largest && !diagonal) m[t] = x[t] = 0;
      }
      Residuals(x, squared);
    }
#pragma unroll
    for (int t = 0; t < kWidth; ++t) {
      if (t >= group_.width) continue;
      const int32_t k = group_.members[t];
      if (own) args_.m_values[args_.m_ptr[k] + lane_] = m[t];
      if (lane_ == 0) {
        args_.residual_norms[k] = sqrt(squared[t]);
        args_.pivots[k] = pivot_;
        args_.flags[k] = kernels::kColumnGram | (target_[t] == kNoRow ? kernels::kColumnZero : 0);
      }
    }
  }

  const GramArgs& args_;
  const LocalGroup group_;
  Memory& memory_;
  const int lane_;
  uint32_t target_[kWidth];
  double rhs_[kWidth];  // Âᵀe
  double row_[kSize];   // lane a has row a of L
  double inverse_ = 1;  // 1 / L_aa
  double pivot_ = 1, determinant_ = 1;
};

// Resident blocks a multiprocessor, for which registers are limited: small problems wait for
// memory.
template <int kTiles, int kWidth>
constexpr int kBlocks = kTiles == 1 ? (kWidth == 1 ? 6 : 4) : (kWidth == 1 ? 4 : 2);

template <int kTiles, int kWidth>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kTiles, kWidth>)
    WarpGramKernel(GramArgs args) {
  extern __shared__ char memory[];
  auto& own = reinterpret_cast<WarpMemory<kTiles>*>(memory)[threadIdx.x / 32];
  for (;;) {
    int32_t first = 0;
    if (threadIdx.x % 32 == 0) first = atomicAdd(args.next, kTake);
    first = __shfl_sync(kAllLanes, first, 0);
    if (first >= args.count) return;
    for (int32_t i = first; i < min(first + kTake, args.count); ++i) {
      WarpGroup<kTiles, kWidth>(args, args.groups[i], own).Solve();
      __syncwarp();
    }
  }
}

template <int kTiles, int kWidth>
void LaunchTiles(const Context& context, const Branch& branch, const GramArgs& args) {
  constexpr int kShared = kWarps * static_cast<int>(sizeof(WarpMemory<kTiles>));
  const auto kernel = WarpGramKernel<kTiles, kWidth>;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        "cudaFuncSetAttribute");
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32 * kWarps, kShared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int needed = (args.count + kWarps - 1) / kWarps;
  Launch(branch, kernel, std::min(blocks * context.multiprocessors, needed), 1, 32 * kWarps,
         kShared, args);
}

}  // namespace

void LaunchWarpGram(const Context& context, const Branch& branch, int tiles, bool wide,
                    const GramArgs& args) {
  switch (2 * tiles + (wide ? 1 : 0)) {
    case 2:
      return LaunchTiles<1, 1>(context, branch, args);
    case 3:
      return LaunchTiles<1, kMaxWidth>(context, branch, args);
    case 4:
      return LaunchTiles<2, 1>(context, branch, args);
    case 5:
      return LaunchTiles<2, kMaxWidth>(context, branch, args);
    case 6:
      return LaunchTiles<3, 1>(context, branch, args);
    case 7:
      return LaunchTiles<3, kMaxWidth>(context, branch, args);
    case 8:
      return LaunchTiles<4, 1>(context, branch, args);
    case 9:
      return LaunchTiles<4, kMaxWidth>(context, branch, args);
    default:
      throw Failure(CudaFault::kError, "no warp kernel for " + std::to_string(tiles) + " tiles");
  }
}

}  // namespace spaid::cuda
