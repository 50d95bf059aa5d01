// One block a group, for local problems that no shared memory holds: |J| <= kMaxLargeColumns, all
// of it in global memory that the second-level cache keeps. Products of columns by merging their
// rows; residuals over a hash table of I.
#include <algorithm>

#include "kernels/static_spai/cuda/tile_factor_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kWarps = 16;  // the factor takes most of the time
constexpr int kThreads = 32 * kWarps;
constexpr int32_t kFree = -1;

int64_t Padded(int64_t n2) { return (n2 + 7) / 8 * 8; }

// The slots of a hash table of I: at most half of them are taken.
int64_t Slots(const LargestLocal& largest, int64_t n) {
  int64_t slots = 64;
  while (slots < 2 * std::min(largest.entries, n)) slots *= 2;
  return slots;
}

int64_t TileDoubles(int64_t n2) {
  const int64_t tiles = Padded(n2) / 8;
  return tiles * (tiles + 1) / 2 * 64;
}

// What one block works in, laid out in this order.
struct LargeMemory {
  double* tiles;
  double* diagonal;        // n2, padded; so the next ones
  double *x, *step, *rhs;  // of kMaxWidth right-hand sides
  double* residual;        // of each slot, kMaxWidth of them
  int32_t* rows;           // of each slot, or kFree
  int32_t* owner;          // of each slot: the first local column that has the row
  int64_t padded;
  uint32_t mask;  // slots - 1
};

struct Shared {
  FactorFacts factor;
  double sums[kWarps][kMaxWidth];
  int32_t group;
  int fine;
};

class LargeGroup {
 public:
  __device__ LargeGroup(const GramArgs& args, const int32_t* a_rows, int32_t g,
                        const LargeMemory& memory, Shared& shared)
      : args_(args),
        a_rows_(a_rows),
        memory_(memory),
        shared_(shared),
        members_(args.members + args.group_ptr[g]),
        width_(args.group_ptr[g + 1] - args.group_ptr[g]),
        j_(args.m_idx + args.m_ptr[members_[0]]),
        n2_(static_cast<int>(args.m_ptr[members_[0] + 1] - args.m_ptr[members_[0]])),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {}

  __device__ void Solve() {
    Prepare();
    FormGram();
    const TileFactor<kWarps> factor(memory_.tiles, memory_.diagonal, n2_, args_.pivot_limit,
                                    shared_.factor);
    if (!factor.Factor() || !factor.WellConditioned(memory_.step)) return Refuse();
    if (warp_ < width_) {
      for (int a = lane_; a < memory_.padded; a += 32) X(warp_)[a] = Rhs(warp_)[a];
      __syncwarp();
      factor.Substitute(X(warp_));
    }
    __syncthreads();
    double squared[kMaxWidth];
    Residuals(squared);
    if (!AtMinimum(squared)) {
      Gradient();
      if (warp_ < width_) {
        factor.Substitute(Step(warp_));
        for (int a = lane_; a < n2_; a += 32) X(warp_)[a] += Step(warp_)[a];
      }
      __syncthreads();
      Residuals(squared);
    }
    Store(squared);
  }

 private:
  // What a rescue will say of the try.
  __device__ void Refuse() const {
    if (thread_ < width_) args_.pivots[members_[thread_]] = shared_.factor.pivot;
  }

  __device__ double* X(int t) const { return memory_.x + t * memory_.padded; }
  __device__ double* Step(int t) const { return memory_.step + t * memory_.padded; }
  __device__ double* Rhs(int t) const { return memory_.rhs + t * memory_.padded; }
  __device__ double* ResidualsOf(int64_t slot) const { return memory_.residual + slot * kMaxWidth; }

  // The slot of a row of I, which is in the table.
  __device__ int64_t Find(int32_t row) const {
    uint32_t at = static_cast<uint32_t>(row) * 0x9e3779b9u & memory_.mask;
    while (memory_.rows[at] != row) at = (at + 1) & memory_.mask;
    return at;
  }

  // Enters I, column by column: which of the columns is the first one with a row does not depend on
  // the order of threads.
  __device__ void Prepare() {
    for (int64_t at = thread_; at <= memory_.mask; at += kThreads) memory_.rows[at] = kFree;
    for (int64_t i = thread_; i < kMaxWidth * memory_.padded; i += kThreads) {
      memory_.x[i] = memory_.step[i] = memory_.rhs[i] = 0;
    }
    __syncthreads();
    for (int a = 0; a < n2_; ++a) {
      const int64_t end = args_.a_ptr[j_[a] + 1];
      for (int64_t p = args_.a_ptr[j_[a]] + thread_; p < end; p += kThreads) {
        const int32_t row = a_rows_[p];
        uint32_t at = static_cast<uint32_t>(row) * 0x9e3779b9u & memory_.mask;
        for (;;) {
          const int32_t found = atomicCAS(&memory_.rows[at], kFree, row);
          if (found == kFree) memory_.owner[at] = a;
          if (found == kFree || found == row) break;
          at = (at + 1) & memory_.mask;
        }
      }
      __syncthreads();
    }
    for (int i = thread_; i < width_ * n2_; i += kThreads) {
      const int t = i / n2_, a = i % n2_;
      const int64_t begin = args_.a_ptr[j_[a]], end = args_.a_ptr[j_[a] + 1];
      const int64_t at = LowerBound(begin, end, members_[t]);
      if (at < end && a_rows_[at] == members_[t]) Rhs(t)[a] = args_.a_values[at];
    }
    __syncthreads();
  }

  __device__ int64_t LowerBound(int64_t begin, int64_t end, int32_t row) const {
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (a_rows_[middle] < row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  // Of two columns of A: merged, or, where one is much longer, looked up there.
  __device__ double Dot(int32_t left, int32_t right) const {
    int64_t p = args_.a_ptr[left], p_end = args_.a_ptr[left + 1];
    int64_t q = args_.a_ptr[right], q_end = args_.a_ptr[right + 1];
    if (p_end - p > q_end - q) {
      int64_t other = p;
      p = q, q = other;
      other = p_end;
      p_end = q_end, q_end = other;
    }
    constexpr int64_t kMuchLonger = 16;
    const bool look_up = q_end - q > kMuchLonger * (p_end - p);
    double sum = 0;
    while (p < p_end && q < q_end) {
      const int32_t row = a_rows_[p];
      if (look_up) {
        q = LowerBound(q, q_end, row);
      } else {
        while (q < q_end && a_rows_[q] < row) ++q;
      }
      if (q < q_end && a_rows_[q] == row) sum += args_.a_values[p] * args_.a_values[q];
      ++p;
    }
    return sum;
  }

  __device__ void FormGram() {
    const int64_t tiles = memory_.padded / 8, all = tiles * (tiles + 1) / 2 * 64;
    for (int64_t i = thread_; i < all; i += kThreads) memory_.tiles[i] = 0;
    __syncthreads();
    // Rows of the triangle, each by all threads in turn.
    int a = 0, b = thread_;
    for (;;) {
      while (b > a) {
        b -= a + 1;
        ++a;
      }
      if (a >= n2_) break;
      memory_.tiles[int64_t{TileIndex(a / 8, b / 8)} * 64 + a % 8 * 8 + b % 8] = Dot(j_[a], j_[b]);
      b += kThreads;
    }
    __syncthreads();
  }

  // residual = Âx − e of each row of I, column by column: every row's sum has a fixed order.
  __device__ void FormResiduals() {
    for (int64_t i = thread_; i < kMaxWidth * (int64_t{memory_.mask} + 1); i += kThreads) {
      memory_.residual[i] = 0;
    }
    __syncthreads();
    for (int a = 0; a < n2_; ++a) {
      const int64_t end = args_.a_ptr[j_[a] + 1];
      for (int64_t p = args_.a_ptr[j_[a]] + thread_; p < end; p += kThreads) {
        double* const residual = ResidualsOf(Find(a_rows_[p]));
        for (int t = 0; t < width_; ++t) residual[t] += args_.a_values[p] * X(t)[a];
      }
      __syncthreads();
    }
  }

  // ‖Âx − e‖², the same in all threads.
  __device__ void Residuals(double (&squared)[kMaxWidth]) {
    FormResiduals();
    for (int t = 0; t < kMaxWidth; ++t) squared[t] = 0;
    bool reached[kMaxWidth] = {};
    for (int a = 0; a < n2_; ++a) {
      const int64_t end = args_.a_ptr[j_[a] + 1];
      for (int64_t p = args_.a_ptr[j_[a]] + thread_; p < end; p += kThreads) {
        const int32_t row = a_rows_[p];
        const int64_t slot = Find(row);
        if (memory_.owner[slot] != a) continue;  // each row once
        for (int t = 0; t < width_; ++t) {
          const bool own = row == members_[t];
          const double r = ResidualsOf(slot)[t] - (own ? 1 : 0);
          squared[t] += r * r;
          reached[t] = reached[t] || own;
        }
      }
    }
    for (int t = 0; t < kMaxWidth; ++t) {
      const bool any = __syncthreads_or(reached[t] ? 1 : 0) != 0;
      squared[t] = WarpSum(squared[t]);
      if (lane_ == 0) shared_.sums[warp_][t] = squared[t];
      reached_[t] = any;
    }
    __syncthreads();
    for (int t = 0; t < kMaxWidth; ++t) {
      squared[t] = 0;
      for (int w = 0; w < kWarps; ++w) squared[t] += shared_.sums[w][t];
      if (t < width_ && !reached_[t]) squared[t] += 1;  // a row that Â has not
    }
    __syncthreads();
  }

  // step[t] = Âᵀ(e − Âx), a column by a warp; the residuals are those of the last Residuals.
  __device__ void Gradient() {
    for (int a = warp_; a < n2_; a += kWarps) {
      double sums[kMaxWidth] = {};
      const int64_t end = args_.a_ptr[j_[a] + 1];
      for (int64_t p = args_.a_ptr[j_[a]] + lane_; p < end; p += 32) {
        const int32_t row = a_rows_[p];
        const double* const residual = ResidualsOf(Find(row));
        for (int t = 0; t < width_; ++t) {
          sums[t] -= args_.a_values[p] * (residual[t] - (row == members_[t] ? 1 : 0));
        }
      }
      for (int t = 0; t < width_; ++t) {
        const double sum = WarpSum(sums[t]);
        if (lane_ == 0) Step(t)[a] = sum;
      }
    }
    // What inverse iteration has left beyond |J| in the first one is zero.
    __syncthreads();
  }

  // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
  __device__ bool AtMinimum(const double (&squared)[kMaxWidth]) const {
    bool done = shared_.factor.pivot >= checks::kStrongPivot;
    for (int t = 0; t < width_; ++t) {
      double fit = 0;
      for (int a = lane_; a < n2_; a += 32) fit += Rhs(t)[a] * X(t)[a];
      fit = WarpSum(fit);
      done = done && fabs(squared[t] - (1 - fit)) <= checks::kMinimumTolerance;
    }
    return done;
  }

  // Leaves the columns to the host where one is not finite or worse than zero.
  __device__ void Store(double (&squared)[kMaxWidth]) {
    bool fine = true;
    for (int t = 0; t < width_; ++t) {
      for (int a = thread_; a < n2_; a += kThreads) {
        fine = fine && isfinite(X(t)[a] * args_.scale[j_[a]]);
      }
      fine = fine && sqrt(squared[t]) <= checks::kWorthlessResidual;
    }
    if (__syncthreads_and(fine ? 1 : 0) == 0) return Refuse();
    if (args_.post_filter > 0) {
      if (warp_ < width_) Filter(warp_);
      __syncthreads();
      Residuals(squared);
    }
    for (int t = 0; t < width_; ++t) {
      const int32_t k = members_[t];
      for (int a = thread_; a < n2_; a += kThreads) {
        args_.m_values[args_.m_ptr[k] + a] = X(t)[a] * args_.scale[j_[a]];
      }
      if (thread_ == 0) {
        args_.residual_norms[k] = sqrt(squared[t]);
        args_.pivots[k] = shared_.factor.pivot;
        args_.flags[k] = kernels::kColumnGram | (reached_[t] ? 0 : kernels::kColumnZero);
      }
    }
  }

  __device__ void Filter(int t) {
    double largest = 0;
    for (int a = lane_; a < n2_; a += 32) {
      largest = fmax(largest, fabs(X(t)[a] * args_.scale[j_[a]]));
    }
    largest = WarpMax(largest);
    for (int a = lane_; a < n2_; a += 32) {
      const double size = fabs(X(t)[a] * args_.scale[j_[a]]);
      if (size < args_.post_filter * largest && j_[a] != members_[t]) X(t)[a] = 0;
    }
  }

  const GramArgs& args_;
  const int32_t* const a_rows_;
  const LargeMemory& memory_;
  Shared& shared_;
  const int32_t* const members_;
  const int width_;
  const int32_t* const j_;
  const int n2_, thread_, warp_, lane_;
  bool reached_[kMaxWidth];  // whether k is in I
};

__global__ void __launch_bounds__(kThreads)
    LargeGramKernel(GramArgs args, const int32_t* a_rows, double* doubles, int64_t tile_doubles,
                    int64_t padded, int32_t* slots, uint32_t mask) {
  __shared__ Shared shared;
  const int64_t n_slots = int64_t{mask} + 1;
  double* const own =
      doubles + blockIdx.x * (tile_doubles + padded * (1 + 3 * kMaxWidth) + n_slots * kMaxWidth);
  LargeMemory memory;
  memory.tiles = own;
  memory.diagonal = memory.tiles + tile_doubles;
  memory.x = memory.diagonal + padded;
  memory.step = memory.x + kMaxWidth * padded;
  memory.rhs = memory.step + kMaxWidth * padded;
  memory.residual = memory.rhs + kMaxWidth * padded;
  memory.rows = slots + blockIdx.x * 2 * n_slots;
  memory.owner = memory.rows + n_slots;
  memory.mask = mask;
  for (;;) {
    if (threadIdx.x == 0) shared.group = atomicAdd(args.next, 1);
    __syncthreads();
    const int32_t i = shared.group;
    if (i >= args.count) return;
    const int32_t g = args.groups[i], k = args.members[args.group_ptr[g]];
    memory.padded = (args.m_ptr[k + 1] - args.m_ptr[k] + 7) / 8 * 8;
    LargeGroup(args, a_rows, g, memory, shared).Solve();
    __syncthreads();
  }
}

int64_t DoublesOf(const LargestLocal& largest, int64_t n) {
  return TileDoubles(largest.n2) + Padded(largest.n2) * (1 + 3 * kMaxWidth) +
         Slots(largest, n) * kMaxWidth;
}

}  // namespace

int64_t LargeGramBytes(const LargestLocal& largest, int64_t n) {
  return 8 * DoublesOf(largest, n) + 8 * Slots(largest, n);
}

LargeGram::LargeGram(Context& context, const LargestLocal& largest, int64_t n, int32_t count)
    : tile_doubles_(TileDoubles(largest.n2)),
      padded_(Padded(largest.n2)),
      slots_(Slots(largest, n)) {
  const int64_t doubles = DoublesOf(largest, n), bytes = LargeGramBytes(largest, n);
  // One block at least.
  const int64_t room = (context.arena->limit() - context.arena->used() - 2 * Arena::kGrain) / bytes;
  blocks_ = static_cast<int>(
      std::clamp<int64_t>(room, 1, std::min<int64_t>(count, int64_t{2} * context.multiprocessors)));
  memory_ = Buffer<double>(context, blocks_ * doubles);
  table_ = Buffer<int32_t>(context, blocks_ * 2 * slots_);
}

void LargeGram::Launch(cudaStream_t stream, const int32_t* a_rows, const GramArgs& args) const {
  LargeGramKernel<<<blocks_, kThreads, 0, stream>>>(args, a_rows, memory_.get(), tile_doubles_,
                                                    padded_, table_.get(),
                                                    static_cast<uint32_t>(slots_ - 1));
  CheckLaunch("LargeGramKernel");
}

}  // namespace spaid::cuda
