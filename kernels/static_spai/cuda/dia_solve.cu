// The factors and solutions of the path by diagonals for nodes of one unknown: one thread a column
// for the smallest local problems, eight threads for those of up to kMaxTeamSlots unknowns.
#include <algorithm>
#include <string>

#include "kernels/static_spai/cuda/dia.h"
#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {
namespace {

__host__ __device__ constexpr int Lower(int a, int b) { return a * (a + 1) / 2 + b; }

__device__ uint8_t SolvedState(double pivot) {
  return kStateSolved | (pivot >= checks::kStrongPivot ? kStateStrong : 0);
}

// Index of `slot` in a column of M with this mask.
__device__ int PlaceOf(uint32_t mask, int slot) { return __popc(mask & ((1u << slot) - 1)); }

// --- One thread a column ---

constexpr int kThreads = 128;

// An unknown that a column lacks is replaced by an uncoupled one: a row and a column of the unit
// matrix.
template <int N>
class Small {
 public:
  __device__ void Gather(const DiaArgs& args, const int32_t* at, uint32_t mask, int64_t k) {
#pragma unroll
    for (int a = 0; a < N; ++a) {
#pragma unroll
      for (int b = 0; b <= a; ++b) {
        const bool present = (mask >> a & mask >> b & 1) != 0;
        lower_[Lower(a, b)] = present ? __ldg(args.b + (at[Lower(a, b)] + k)) : a == b ? 1 : 0;
      }
    }
  }

  // Cholesky in place; the diagonal becomes its inverse. False: a scaled pivot is not over the
  // limit.
  __device__ bool Factor(double limit) {
    bool fine = true;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const double whole = lower_[Lower(j, j)];
      double pivot = whole;
#pragma unroll
      for (int c = 0; c < j; ++c) pivot -= lower_[Lower(j, c)] * lower_[Lower(j, c)];
      fine = fine && pivot > limit * whole;
      const double ratio = pivot / whole;
      pivot_ = fmin(pivot_, ratio);
      determinant_ *= ratio;
      const double inverse = InverseRoot(pivot);
      lower_[Lower(j, j)] = inverse;
#pragma unroll
      for (int a = j + 1; a < N; ++a) {
        double sum = lower_[Lower(a, j)];
#pragma unroll
        for (int c = 0; c < j; ++c) sum -= lower_[Lower(a, c)] * lower_[Lower(j, c)];
        lower_[Lower(a, j)] = sum * inverse;
      }
    }
    return fine;
  }

  // x := (L Lᵀ)⁻¹ x.
  __device__ void Substitute(double (&x)[N]) const {
#pragma unroll
    for (int a = 0; a < N; ++a) {
#pragma unroll
      for (int b = 0; b < a; ++b) x[a] -= lower_[Lower(a, b)] * x[b];
      x[a] *= lower_[Lower(a, a)];
    }
#pragma unroll
    for (int a = N - 1; a >= 0; --a) {
#pragma unroll
      for (int b = a + 1; b < N; ++b) x[a] -= lower_[Lower(b, a)] * x[b];
      x[a] *= lower_[Lower(a, a)];
    }
  }

  // As LaneSolver::WellConditioned (kernels/static_spai/lane_solver.cc).
  __device__ bool WellConditioned(uint32_t mask) const {
    if (determinant_ / 3 >= checks::kGoodEigenvalue) return true;
    double z[N];
#pragma unroll
    for (int a = 0; a < N; ++a) z[a] = (mask >> a & 1) != 0 ? StartSign(a) : 0;
    double norm = 0;
    for (int step = 0; step < 3; ++step) {
      Substitute(z);
      double sum = 0;
#pragma unroll
      for (int a = 0; a < N; ++a) sum += z[a] * z[a];
      norm = sqrt(sum);
      if (step == 0 && checks::kStartShare * norm * checks::kGoodEigenvalue <= 1) return true;
#pragma unroll
      for (int a = 0; a < N; ++a) z[a] /= norm;
    }
    return norm * checks::kGoodEigenvalue <= 1;
  }

  __device__ double pivot() const { return pivot_; }
  __device__ double determinant() const { return determinant_; }

 private:
  double lower_[N * (N + 1) / 2];
  double pivot_ = 1, determinant_ = 1;
};

template <int N>
__global__ void __launch_bounds__(kThreads)
    SmallKernel(const __grid_constant__ DiaArgs args, bool again) {
  __shared__ int32_t at[N * (N + 1) / 2], offset[N], target[N];
  if (again && *args.wanted == 0) return;
  const DiaTables& tables = *args.tables;
  for (int i = static_cast<int>(threadIdx.x); i < N * (N + 1) / 2; i += kThreads) {
    int a = 0;
    while (Lower(a + 1, 0) <= i) ++a;
    const int b = i - Lower(a, 0);
    at[i] =
        a < tables.offsets ? tables.place[i] * args.b_stride + tables.m_offset[b] - args.low : 0;
  }
  if (threadIdx.x < N) {
    const auto a = static_cast<int>(threadIdx.x);
    offset[a] = a < tables.offsets ? tables.m_offset[a] : 0;
    target[a] = a < tables.offsets ? tables.target[a] : -1;
  }
  __syncthreads();
  const int64_t local = int64_t{blockIdx.x} * kThreads + threadIdx.x, k = args.begin + local;
  if (k >= args.end) return;
  if (again && (args.state[local] & kStateAgain) == 0) return;
  const uint32_t mask = args.m_mask[k];
  Small<N> small;
  small.Gather(args, at, mask, k);
  double x[N], rhs[N];
#pragma unroll
  for (int a = 0; a < N; ++a) {
    rhs[a] = 0;
    if ((mask >> a & 1) == 0) continue;
    if (again) {
      rhs[a] = args.gradient[int64_t{a} * args.g_stride + local];
    } else if (target[a] >= 0) {
      rhs[a] = __ldg(args.a + (int64_t{target[a]} * args.nodes + k + offset[a]));
    }
  }
  const bool fine = small.Factor(args.pivot_limit) && small.WellConditioned(mask);
  if (!fine) {
    if (!again) args.pivots[k] = small.pivot();
    args.state[local] = 0;
    return;
  }
#pragma unroll
  for (int a = 0; a < N; ++a) x[a] = rhs[a];
  small.Substitute(x);
  double* m = args.m_values + args.m_ptr[k];
  double fit = 0;
  bool finite = true;
#pragma unroll
  for (int a = 0; a < N; ++a) {
    if ((mask >> a & 1) == 0) continue;
    const double value = x[a] * args.scale[k + offset[a]];
    *m = again ? *m + value : value;
    ++m;
    fit += rhs[a] * x[a];
    finite = finite && isfinite(value);
  }
  if (again) return;
  args.pivots[k] = small.pivot();
  if (finite && args.post_filter == 0 && IsCertain(N, 3 / small.determinant(), fit)) {
    args.state[local] = 0;
    args.residual_norms[k] = sqrt(1 - fit);
    args.flags[k] = kernels::kColumnGram;
  } else {
    args.state[local] = SolvedState(small.pivot());
  }
}

// --- Eight threads a column, four columns a warp ---
//
// Lane = 4 · part + column: each load of a warp reads runs of four columns. Part s of a column has
// rows s, s + 8, ... of the matrix in registers, and of two more: the right-hand side, which is
// substituted forward as the factor is made, and the random signs by which the conditioning is
// estimated (gram_checks.h).

constexpr int kTeamThreads = 64;
constexpr int kColumns = 4;  // a warp
constexpr int kParts = 8;

template <int N>
struct Team {
  static constexpr int kBlocks = (N + 2 + kParts - 1) / kParts;  // row blocks
  __host__ __device__ static constexpr int Width(int i) {
    return kParts * (i + 1) < N ? kParts * (i + 1) : N;
  }
  // Index of row block i's first register: all blocks before the last are full.
  __host__ __device__ static constexpr int Begin(int i) { return kParts * i * (i + 1) / 2; }
  static constexpr int kSize = Begin(kBlocks - 1) + N;
  __host__ __device__ static constexpr int At(int i, int c) { return Begin(i) + c; }
  // Places of the rows of the right-hand side and of the signs.
  static constexpr int kBlock = N / kParts, kSidePart = N % kParts, kSignPart = N % kParts + 1;
  static_assert((N + 1) / kParts == kBlock, "both in one block of rows");
};

// Offset of each entry in `b`, or in the source of the right-hand side; kAbsent: zero.
template <int N>
struct TeamTable {
  static constexpr int kAbsent = INT32_MIN;
  static constexpr int kPitch = N + (N + 1) % 2;  // rows in different banks
  int32_t at[kParts * Team<N>::kBlocks][kPitch];
  int32_t offset[kParts * Team<N>::kBlocks];
  // 1: for a column without missing unknowns every entry up to the right-hand side is present.
  int32_t whole;
};

// Called by all threads of the block; ends in a barrier.
template <int N>
__device__ void FillTable(const DiaArgs& args, bool again, TeamTable<N>& table) {
  const DiaTables& tables = *args.tables;
  if (threadIdx.x == 0) table.whole = tables.offsets == N ? 1 : 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kParts * Team<N>::kBlocks * N;
       i += kTeamThreads) {
    // Above the diagonal the entries below are repeated, and unused rows are copies of the first:
    // all can be read.
    const int a = i / N <= N ? i / N : 0, b = i % N;
    int32_t at = TeamTable<N>::kAbsent;
    if (b < tables.offsets) {
      if (a == N && again) {
        at = b * args.g_stride - args.begin;
      } else if (a == N && tables.target[b] >= 0) {
        at = tables.target[b] * args.nodes + tables.m_offset[b];
      } else if (a < tables.offsets) {
        const int high = max(a, b), low = min(a, b);
        at = tables.place[Lower(high, low)] * args.b_stride + tables.m_offset[low] - args.low;
      }
    }
    table.at[i / N][b] = at;
    if (at == TeamTable<N>::kAbsent) table.whole = 0;
    if (b == 0) table.offset[i / N] = a < tables.offsets ? tables.m_offset[a] : 0;
  }
  __syncthreads();
}

template <int N>
class TeamSolver {
 public:
  using Shape = Team<N>;

  __device__ TeamSolver(const DiaArgs& args, const TeamTable<N>& table, uint32_t signs)
      : args_(args),
        table_(table),
        signs_(signs),
        column_(static_cast<int>(threadIdx.x % kColumns)),
        part_(static_cast<int>(threadIdx.x % 32) / kColumns) {}

  // Called by all lanes of a warp; `k`: this lane's column; `real` false: there is none.
  __device__ void Solve(int64_t k, bool real, bool again) {
    const uint32_t mask = real ? args_.m_mask[k] : 0;
    Gather(k, mask, again);
    Factor();
    double pivot = 1, determinant = 1;
    bool fine = Pivots(k, mask, pivot, determinant);
    double x[Shape::kBlocks];
    if (__any_sync(kAllLanes, fine && determinant / 3 < checks::kGoodEigenvalue)) {
      Substitute(Shape::kSignPart, x);
      double sum = 0;
#pragma unroll
      for (int i = 0; i < Shape::kBlocks; ++i) sum += Row(i) < N ? x[i] * x[i] : 0;
      const double norm = sqrt(Sum(sum));
      // Without further refinement: otherwise the column is left to the host.
      fine = fine && (determinant / 3 >= checks::kGoodEigenvalue ||
                      checks::kStartShare * norm * checks::kGoodEigenvalue <= 1);
    }
    // ‖L⁻¹b‖² = bᵀm = (Âm)_k.
    double fit = 0;
#pragma unroll
    for (int c = 0; c < N; ++c) {
      fit += l_[Shape::At(Shape::kBlock, c)] * l_[Shape::At(Shape::kBlock, c)];
    }
    fit = FromPart(fit, Shape::kSidePart);
    Substitute(Shape::kSidePart, x);
    bool finite = true;
    double* const m = real ? args_.m_values + args_.m_ptr[k] : nullptr;
    if (fine && real) {
#pragma unroll
      for (int i = 0; i < Shape::kBlocks; ++i) {
        const int a = Row(i);
        if (a >= N || (mask >> a & 1) == 0) continue;
        const double value = x[i] * args_.scale[k + table_.offset[a]];
        double& to = m[PlaceOf(mask, a)];
        to = again ? to + value : value;
        finite = finite && isfinite(value);
      }
    }
    finite = All(finite);
    if (!real || again || part_ != 0) return;
    const bool certain =
        fine && finite && args_.post_filter == 0 && IsCertain(N, 3 / determinant, fit);
    args_.state[k - args_.begin] = !fine || certain ? 0 : SolvedState(pivot);
    args_.pivots[k] = pivot;
    if (certain) {
      args_.residual_norms[k] = sqrt(1 - fit);
      args_.flags[k] = kernels::kColumnGram;
    }
  }

 private:
  __device__ int Row(int i) const { return kParts * i + part_; }
  __device__ double FromPart(double value, int part) const {
    return __shfl_sync(kAllLanes, value, part * kColumns + column_);
  }
  // Sums over the parts of a column.
  __device__ bool All(bool value) const {
    const unsigned team = 0x11111111u << column_;
    return (__ballot_sync(kAllLanes, value) & team) == team;
  }
  __device__ static double Sum(double value) {
#pragma unroll
    for (int step = kColumns; step < 32; step *= 2) {
      value += __shfl_xor_sync(kAllLanes, value, step);
    }
    return value;
  }

  __device__ void Gather(int64_t k, uint32_t mask, bool again) {
    const double* const side = again ? args_.gradient : args_.a;
    const bool whole = table_.whole != 0 && __popc(mask) == N;
    if (__all_sync(kAllLanes, whole)) {
#pragma unroll
      for (int i = 0; i < Shape::kBlocks; ++i) {
        const double* const from = (Row(i) == N ? side : args_.b) + k;
        const int32_t* const at = table_.at[Row(i)];
#pragma unroll
        for (int c = 0; c < Shape::Width(i); ++c) l_[Shape::At(i, c)] = __ldg(from + at[c]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Shape::kBlocks; ++i) {
        const int a = Row(i);
        const double* const from = (a == N ? side : args_.b) + k;
        const bool own = a < N ? (mask >> a & 1) != 0 : a == N;
#pragma unroll
        for (int c = 0; c < Shape::Width(i); ++c) {
          const int32_t at = table_.at[a][c];
          const bool present = (mask >> c & 1) != 0;
          double value = a == c && !present ? 1 : 0;
          if (own && present && at != TeamTable<N>::kAbsent) value = __ldg(from + at);
          l_[Shape::At(i, c)] = value;
        }
      }
    }
#pragma unroll
    for (int c = 0; c < N; ++c) {
      if (part_ == Shape::kSignPart) {
        l_[Shape::At(Shape::kBlock, c)] = (mask >> c & 1) == 0     ? 0
                                          : (signs_ >> c & 1) != 0 ? 1
                                                                   : -1;
      }
    }
  }

  // Right-looking Cholesky. Elements above the diagonal are not read.
  __device__ void Factor() {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      constexpr int kLast = Shape::kBlocks;
      const int ib = j / kParts;
      const double pivot = FromPart(l_[Shape::At(ib, j)], j % kParts);
      const double inverse = InverseRoot(pivot);
      if (part_ == j % kParts) inverse_[ib] = inverse;
#pragma unroll
      for (int i = ib; i < kLast; ++i) l_[Shape::At(i, j)] *= inverse;
#pragma unroll
      for (int c = j + 1; c < N; ++c) {
        const double factor = FromPart(l_[Shape::At(c / kParts, j)], c % kParts);
#pragma unroll
        for (int i = c / kParts; i < kLast; ++i) {
          l_[Shape::At(i, c)] -= l_[Shape::At(i, j)] * factor;
        }
      }
    }
  }

  // The smallest scaled pivot, and the product of all; false: one is not over the limit.
  __device__ bool Pivots(int64_t k, uint32_t mask, double& pivot, double& determinant) const {
    bool fine = true;
#pragma unroll
    for (int i = 0; i < Shape::kBlocks; ++i) {
      const int a = Row(i);
      if (a >= N || (mask >> a & 1) == 0) continue;
      const double ratio = 1 / (inverse_[i] * inverse_[i] * __ldg(args_.b + k + table_.at[a][a]));
      fine = fine && ratio > args_.pivot_limit;
      pivot = fmin(pivot, ratio);
      determinant *= ratio;
    }
#pragma unroll
    for (int step = kColumns; step < 32; step *= 2) {
      pivot = fmin(pivot, __shfl_xor_sync(kAllLanes, pivot, step));
      determinant *= __shfl_xor_sync(kAllLanes, determinant, step);
    }
    return All(fine);
  }

  // x := L⁻ᵀ y for the row of y that `part` has, distributed by rows as the matrix. That row acts
  // as an unknown of −1, so that a sum over all rows gives the next unknown.
  __device__ void Substitute(int part, double (&x)[Shape::kBlocks]) const {
#pragma unroll
    for (int i = 0; i < Shape::kBlocks; ++i) x[i] = 0;
    x[Shape::kBlock] = part_ == part ? -1 : 0;
#pragma unroll
    for (int j = N - 1; j >= 0; --j) {
      double sum = 0;
#pragma unroll
      for (int i = j / kParts; i < Shape::kBlocks; ++i) sum += l_[Shape::At(i, j)] * x[i];
      sum = Sum(sum);
      if (part_ == j % kParts) x[j / kParts] = -sum * inverse_[j / kParts];
    }
  }

  const DiaArgs& args_;
  const TeamTable<N>& table_;
  const uint32_t signs_;
  const int column_, part_;
  double l_[Shape::kSize];
  double inverse_[Shape::kBlocks];
};

template <int N>
__global__ void __launch_bounds__(kTeamThreads, N > 19 ? 4 : 6)
    TeamKernel(const __grid_constant__ DiaArgs args, bool again) {
  __shared__ TeamTable<N> table;
  if (again && *args.wanted == 0) return;
  FillTable(args, again, table);
  uint32_t signs = 0;
  for (int c = 0; c < N; ++c) signs |= StartSign(c) > 0 ? 1u << c : 0;
  const int64_t stride = int64_t{gridDim.x} * (kTeamThreads / 32 * kColumns);
  const int64_t warp = int64_t{blockIdx.x} * (kTeamThreads / 32) + threadIdx.x / 32;
  for (int64_t first = args.begin + warp * kColumns; first < args.end; first += stride) {
    const int64_t k = first + threadIdx.x % kColumns;
    const bool real = k < args.end && (!again || (args.state[k - args.begin] & kStateAgain) != 0);
    if (!__any_sync(kAllLanes, real)) continue;
    TeamSolver<N>(args, table, signs).Solve(k, real, again);
  }
}

template <int N>
void LaunchSmall(const Context& context, const DiaArgs& args, bool again) {
  const int blocks = (args.end - args.begin + kThreads - 1) / kThreads;
  SmallKernel<N><<<blocks, kThreads, 0, context.stream>>>(args, again);
  CheckLaunch("SmallKernel");
}

template <int N>
void LaunchTeam(const Context& context, const DiaArgs& args, bool again) {
  const auto kernel = TeamKernel<N>;
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kTeamThreads, 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  constexpr int kPerBlock = kTeamThreads / 32 * kColumns;
  const int needed = (args.end - args.begin + kPerBlock - 1) / kPerBlock;
  kernel<<<std::min(blocks * context.multiprocessors, needed), kTeamThreads, 0, context.stream>>>(
      args, again);
  CheckLaunch("TeamKernel");
}

}  // namespace

void LaunchDiaThreads(const Context& context, const DiaArgs& args, int slots, bool again) {
  if (slots <= 5) return LaunchSmall<5>(context, args, again);
  if (slots <= 7) return LaunchSmall<7>(context, args, again);
  if (slots <= kMaxThreadSlots) return LaunchSmall<kMaxThreadSlots>(context, args, again);
  throw Failure(CudaFault::kError, "no thread kernel for " + std::to_string(slots) + " slots");
}

void LaunchDiaTeams(const Context& context, const DiaArgs& args, int slots, bool again) {
  if (slots <= 14) return LaunchTeam<14>(context, args, again);
  if (slots <= 19) return LaunchTeam<19>(context, args, again);
  if (slots <= 27) return LaunchTeam<27>(context, args, again);
  if (slots <= kMaxTeamSlots) return LaunchTeam<kMaxTeamSlots>(context, args, again);
  throw Failure(CudaFault::kError, "no team kernel for " + std::to_string(slots) + " slots");
}

}  // namespace spaid::cuda
