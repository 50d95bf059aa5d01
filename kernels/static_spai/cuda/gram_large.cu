// One cluster of blocks a group, for local problems that do not fit shared memory:
// |J| <= kMaxLargeColumns, all of it in global memory that the second-level cache keeps. Products
// of columns merge their rows; residuals use a hash table of I. Every block computes the numbers
// that decide (pivots, norms) for itself, from the same data in the same order, so that all decide
// alike.
#include <algorithm>

#include "kernels/static_spai/cuda/cluster_factor.h"
#include "kernels/static_spai/cuda/scale.h"

namespace spaid::cuda {
namespace {

constexpr int kWarps = ClusterFactor::kWarps;
constexpr int kThreads = ClusterFactor::kThreads;
constexpr int32_t kFree = -1;
// Vectors of |J|: the diagonal; x, step, gradient, rhs and scratch of kMaxWidth right-hand sides.
constexpr int kVectors = 1 + 5 * kMaxWidth;
// A column longer than this is processed by a whole cluster, not by a warp.
constexpr int64_t kLongColumn = 256;

int64_t Padded(int64_t n2) { return (n2 + 7) / 8 * 8; }

// The slots of a hash table of I: at most half of them are taken.
__host__ __device__ int64_t Slots(int64_t entries, int64_t n) {
  int64_t slots = 64;
  while (slots < 2 * (entries < n ? entries : n)) slots *= 2;
  return slots;
}

int64_t TileDoubles(int64_t n2) {
  const int64_t tiles = Padded(n2) / 8;
  return tiles * (tiles + 1) / 2 * 64;
}

// A sum in fixed point, in two words: integers, so that it does not depend on the order of threads.
// At most 2048 terms of at most 2^51 in units of the first word.
struct FixedSum {
  unsigned long long whole, part;
};
constexpr int kPartBits = 51;

__device__ void Add(FixedSum* sum, double term) {
  const double whole = rint(term);
  atomicAdd(&sum->whole, static_cast<unsigned long long>(__double2ll_rn(whole)));
  atomicAdd(&sum->part, static_cast<unsigned long long>(
                            __double2ll_rn((term - whole) * PowerOfTwo(kPartBits))));
}
__device__ double ValueOf(const FixedSum& sum) {
  return __ll2double_rn(static_cast<long long>(sum.whole)) +
         __ll2double_rn(static_cast<long long>(sum.part)) * PowerOfTwo(-kPartBits);
}

// The workspace of one cluster, laid out in this order.
struct LargeMemory {
  double* tiles;
  double* diagonal;                             // n2, padded; so the next ones
  double *x, *step, *gradient, *rhs, *scratch;  // kMaxWidth right-hand sides each
  FixedSum* products;                           // rows of Âx, for each slot and right-hand side
  int32_t* rows;                                // the row of each slot, or kFree
  int32_t* owner;  // for each slot the first local column that has the row
  int64_t padded;
  uint32_t mask;  // slots - 1
};

struct Shared {
  ClusterFactor::Shared factor;
  double sums[kWarps][kMaxWidth];
  double block_sums[kMaxWidth];
  int32_t group;
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
        own_thread_(static_cast<int>(threadIdx.x)),
        lane_(own_thread_ % 32),
        thread_(Cluster::rank() * kThreads + own_thread_),
        threads_(Cluster::size() * kThreads),
        factor_(memory.tiles, memory.diagonal, n2_, shared.factor) {}

  __device__ void Solve() {
    Prepare();
    FormGram();
    const int steps = factor_.Factor(args_.pivot_limit)
                          ? StepsFor(factor_.SmallestEigenvalue(memory_.step, memory_.scratch), n2_)
                          : 0;
    if (steps == 0) return Refuse();
    for (int64_t i = thread_; i < width_ * memory_.padded; i += threads_) {
      memory_.x[i] = memory_.rhs[i];
      memory_.step[i] = 0;
    }
    Cluster::Sync();
    factor_.Substitute(memory_.x, memory_.scratch, memory_.padded, width_);
    double squared[kMaxWidth];
    Residuals(squared);
    bool done = steps == 1 && AtMinimum(squared);
    for (int step = 0; !done; ++step) {
      if (step == steps) return Refuse();
      Gradient();
      for (int64_t i = thread_; i < width_ * memory_.padded; i += threads_) {
        memory_.gradient[i] = memory_.step[i];
      }
      Cluster::Sync();
      factor_.Substitute(memory_.step, memory_.scratch, memory_.padded, width_);
      for (int64_t i = thread_; i < width_ * memory_.padded; i += threads_) {
        memory_.x[i] += memory_.step[i];
      }
      Cluster::Sync();
      done = true;
      for (int t = 0; t < width_ && steps > 1; ++t) {
        double change = 0;  // the same in all warps
        for (int a = lane_; a < n2_; a += 32) {
          change += memory_.gradient[t * memory_.padded + a] * Step(t)[a];
        }
        done = done && Small(WarpSum(change), Pick(squared, t));
      }
      Residuals(squared);
    }
    Store(squared);
  }

 private:
  // Keeps the figures of this attempt for a rescue.
  __device__ void Refuse() const {
    if (thread_ < width_) args_.pivots[members_[thread_]] = factor_.pivot();
  }

  __device__ double* X(int t) const { return memory_.x + t * memory_.padded; }
  __device__ double* Step(int t) const { return memory_.step + t * memory_.padded; }
  __device__ double* Rhs(int t) const { return memory_.rhs + t * memory_.padded; }

  // The slot of a row; if it is not in the table, a free one.
  __device__ uint32_t Find(int32_t row) const {
    uint32_t at = First(row);
    while (memory_.rows[at] != row && memory_.rows[at] != kFree) at = (at + 1) & memory_.mask;
    return at;
  }
  __device__ uint32_t First(int32_t row) const {
    return static_cast<uint32_t>(row) * 0x9e3779b9u & memory_.mask;
  }

  // Calls use(a, p) for all entries p of all local columns a, each of them once in the cluster and
  // in a fixed order of each thread.
  template <class Use>
  __device__ void ForEntries(const Use& use) const {
    for (int a = thread_ / 32; a < n2_; a += threads_ / 32) {
      const int64_t begin = args_.a_ptr[j_[a]], end = args_.a_ptr[j_[a] + 1];
      if (end - begin > kLongColumn) continue;
      for (int64_t p = begin + lane_; p < end; p += 32) use(a, p);
    }
    ForLong([&](int a, int64_t begin, int64_t end) {
      for (int64_t p = begin + thread_; p < end; p += threads_) use(a, p);
    });
  }

  // Calls use(a, begin, end) for the long columns, in all threads.
  template <class Use>
  __device__ void ForLong(const Use& use) const {
    for (int first = 0; first < n2_; first += 32) {
      const int a = first + lane_;
      const int64_t begin = a < n2_ ? args_.a_ptr[j_[a]] : 0;
      const int64_t end = a < n2_ ? args_.a_ptr[j_[a] + 1] : 0;
      unsigned left = __ballot_sync(kAllLanes, end - begin > kLongColumn);
      for (; left != 0; left &= left - 1) {
        const int from = __ffs(static_cast<int>(left)) - 1;
        use(first + from, __shfl_sync(kAllLanes, begin, from), __shfl_sync(kAllLanes, end, from));
      }
    }
  }

  // Enters I, with the first column that has each row, and finds Âᵀe_k, a row of Â.
  __device__ void Prepare() {
    for (int64_t at = thread_; at <= memory_.mask; at += threads_) {
      memory_.rows[at] = kFree;
      memory_.owner[at] = n2_;
    }
    for (int64_t i = thread_; i < kMaxWidth * memory_.padded; i += threads_) memory_.rhs[i] = 0;
    Cluster::Sync();
    ForEntries([&](int a, int64_t p) {
      const int32_t row = a_rows_[p];
      uint32_t at = First(row);
      for (;;) {
        const int32_t found = atomicCAS(&memory_.rows[at], kFree, row);
        if (found == kFree || found == row) break;
        at = (at + 1) & memory_.mask;
      }
      atomicMin(&memory_.owner[at], a);
      for (int t = 0; t < width_; ++t) {
        if (row == members_[t]) Rhs(t)[a] = args_.a_values[p];
      }
    });
    Cluster::Sync();
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      reached_[t] = t < width_ && memory_.rows[Find(members_[t])] != kFree;
    }
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

  struct Column {
    int64_t begin, end;
    __device__ int64_t size() const { return end - begin; }
  };

  // Dot product of two columns of A, `s` no longer than `l`: merges them, or, if `l` is much
  // longer, looks the rows of `s` up in it.
  __device__ double Dot(const Column& s, const Column& l) const {
    constexpr int64_t kMuchLonger = 16;
    const bool look_up = l.size() > kMuchLonger * s.size();
    double sum = 0;
    int64_t q = l.begin;
    for (int64_t p = s.begin; p < s.end && q < l.end; ++p) {
      const int32_t row = a_rows_[p];
      if (look_up) {
        q = LowerBound(q, l.end, row);
      } else {
        while (q < l.end && a_rows_[q] < row) ++q;
      }
      if (q < l.end && a_rows_[q] == row) sum += args_.a_values[p] * args_.a_values[q];
    }
    return sum;
  }

  // The same for two long columns, by a warp.
  __device__ double WarpDot(const Column& s, const Column& l) const {
    double sum = 0;
    int64_t q = l.begin;
    for (int64_t p = s.begin + lane_; p < s.end; p += 32) {
      const int32_t row = a_rows_[p];
      q = LowerBound(q, l.end, row);
      if (q < l.end && a_rows_[q] == row) sum += args_.a_values[p] * args_.a_values[q];
    }
    return WarpSum(sum);
  }

  // Forms a tile by a warp: a lane has two pairs of columns; pairs of long columns are the warp's.
  __device__ void FormGram() {
    constexpr int64_t kLong = 32;
    const int tiles = static_cast<int>(memory_.padded / 8);
    int i = 0, j = thread_ / 32;
    for (;;) {
      while (j > i) {
        j -= i + 1;
        ++i;
      }
      if (i >= tiles) break;
      for (int half = 0; half < 2; ++half) {
        const int a = 8 * i + 4 * half + lane_ / 8, b = 8 * j + lane_ % 8;
        const bool own = a < n2_ && b <= a;
        Column s{0, 0}, l{0, 0};
        if (own) {
          s = {args_.a_ptr[j_[a]], args_.a_ptr[j_[a] + 1]};
          l = {args_.a_ptr[j_[b]], args_.a_ptr[j_[b] + 1]};
          if (s.size() > l.size()) {
            const Column other = s;
            s = l;
            l = other;
          }
        }
        double sum = s.size() <= kLong ? Dot(s, l) : 0;
        unsigned left = __ballot_sync(kAllLanes, s.size() > kLong);
        for (; left != 0; left &= left - 1) {
          const int from = __ffs(static_cast<int>(left)) - 1;
          const Column s_from{__shfl_sync(kAllLanes, s.begin, from),
                              __shfl_sync(kAllLanes, s.end, from)};
          const Column l_from{__shfl_sync(kAllLanes, l.begin, from),
                              __shfl_sync(kAllLanes, l.end, from)};
          const double whole = WarpDot(s_from, l_from);
          if (lane_ == from) sum = whole;
        }
        memory_.tiles[int64_t{TileIndex(i, j)} * 64 + 32 * half + lane_] = sum;
        if (own && a == b) memory_.diagonal[a] = sum;
      }
      j += threads_ / 32;
    }
    Cluster::Sync();
  }

  // The exponent that scales terms of Âx to the units of FixedSum: none is larger than its column's
  // norm times x.
  __device__ int FixedExponent(int t) {
    double largest = 0;
    for (int a = own_thread_; a < n2_; a += kThreads) {
      largest = fmax(largest, fabs(X(t)[a]) * sqrt(memory_.diagonal[a]));
    }
    largest = WarpMax(largest);
    __syncthreads();
    if (lane_ == 0) shared_.sums[own_thread_ / 32][0] = largest;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) largest = fmax(largest, shared_.sums[w][0]);
    // Terms are below 2^(e + 2), roundings included. Store refuses an x that is not finite.
    return kPartBits - 2 - max(Exponent(largest), -900);
  }

  // r = Âx − e of a row in its slot.
  __device__ double Residual(uint32_t slot, int32_t row, int t) const {
    const double product = ValueOf(memory_.products[int64_t{slot} * kMaxWidth + t]) * unit_[t];
    return row == members_[t] ? product - 1 : product;
  }

  // ‖Âx − e‖², the same in all threads.
  __device__ void Residuals(double (&squared)[kMaxWidth]) {
    double to_units[kMaxWidth];
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      const int exponent = t < width_ ? FixedExponent(t) : 0;
      to_units[t] = PowerOfTwo(exponent);
      unit_[t] = PowerOfTwo(-exponent);
    }
    for (int64_t i = thread_; i < kMaxWidth * (int64_t{memory_.mask} + 1); i += threads_) {
      memory_.products[i] = {0, 0};
    }
    Cluster::Sync();
    ForEntries([&](int a, int64_t p) {
      FixedSum* const sums = memory_.products + int64_t{Find(a_rows_[p])} * kMaxWidth;
#pragma unroll
      for (int t = 0; t < kMaxWidth; ++t) {
        if (t < width_) Add(sums + t, args_.a_values[p] * (X(t)[a] * to_units[t]));
      }
    });
    Cluster::Sync();
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) squared[t] = 0;
    ForEntries([&](int a, int64_t p) {
      const int32_t row = a_rows_[p];
      const uint32_t slot = Find(row);
      if (memory_.owner[slot] != a) return;  // each row once
#pragma unroll
      for (int t = 0; t < kMaxWidth; ++t) {
        if (t >= width_) continue;
        const double r = Residual(slot, row, t);
        squared[t] += r * r;
      }
    });
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      squared[t] = WarpSum(squared[t]);
      if (lane_ == 0) shared_.sums[own_thread_ / 32][t] = squared[t];
    }
    __syncthreads();
    if (own_thread_ < kMaxWidth) {
      double sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += shared_.sums[w][own_thread_];
      shared_.block_sums[own_thread_] = sum;
    }
    Cluster::Sync();
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      squared[t] = t < width_ && !reached_[t] ? 1 : 0;  // row k is not in Â
      for (int rank = 0; rank < Cluster::size(); ++rank) {
        squared[t] += *Cluster::Of(&shared_.block_sums[t], rank);
      }
    }
    Cluster::Sync();  // all have read them
  }

  // step[t] = Âᵀ(e − Âx), a warp a column, a block a long one; with the residuals of the last call
  // of Residuals.
  __device__ void Gradient() {
    const auto sum_up = [&](int64_t begin, int64_t end, int64_t by, double(&sums)[kMaxWidth]) {
#pragma unroll
      for (int t = 0; t < kMaxWidth; ++t) sums[t] = 0;
      for (int64_t p = begin; p < end; p += by) {
        const int32_t row = a_rows_[p];
        const uint32_t slot = Find(row);
#pragma unroll
        for (int t = 0; t < kMaxWidth; ++t) {
          if (t < width_) sums[t] -= args_.a_values[p] * Residual(slot, row, t);
        }
      }
#pragma unroll
      for (int t = 0; t < kMaxWidth; ++t) sums[t] = WarpSum(sums[t]);
    };
    double sums[kMaxWidth];
    for (int a = thread_ / 32; a < n2_; a += threads_ / 32) {
      const int64_t begin = args_.a_ptr[j_[a]], end = args_.a_ptr[j_[a] + 1];
      if (end - begin > kLongColumn) continue;
      sum_up(begin + lane_, end, 32, sums);
      if (lane_ < width_) Step(lane_)[a] = Pick(sums);
    }
    int turn = 0;
    ForLong([&](int a, int64_t begin, int64_t end) {
      if (turn++ % Cluster::size() != Cluster::rank()) return;
      sum_up(begin + own_thread_, end, kThreads, sums);
      __syncthreads();
      if (lane_ < kMaxWidth) shared_.sums[own_thread_ / 32][lane_] = Pick(sums);
      __syncthreads();
      if (own_thread_ >= width_) return;
      double sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += shared_.sums[w][own_thread_];
      Step(own_thread_)[a] = sum;
    });
    Cluster::Sync();
  }

  // An element of an array in registers.
  static __device__ double Pick(const double (&all)[kMaxWidth], int own) {
    double picked = 0;
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) picked = own == t ? all[t] : picked;
    return picked;
  }
  // Lane t's element of an array that all lanes have.
  __device__ double Pick(const double (&sums)[kMaxWidth]) const { return Pick(sums, lane_); }

  // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
  __device__ bool AtMinimum(const double (&squared)[kMaxWidth]) const {
    bool done = factor_.pivot() >= checks::kStrongPivot;
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      if (t >= width_) continue;
      double fit = 0;
      for (int a = lane_; a < n2_; a += 32) fit += Rhs(t)[a] * X(t)[a];
      fit = WarpSum(fit);
      done = done && fabs(squared[t] - (1 - fit)) <= checks::kMinimumTolerance;
    }
    return done;
  }

  // Leaves the columns to the host if one is not finite or worse than zero.
  __device__ void Store(double (&squared)[kMaxWidth]) {
    bool fine = true;
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      if (t >= width_) continue;
      for (int a = own_thread_; a < n2_; a += kThreads) {
        fine = fine && isfinite(X(t)[a] * args_.scale[j_[a]]);
      }
      fine = fine && sqrt(squared[t]) <= checks::kWorthlessResidual;
    }
    if (__syncthreads_and(fine ? 1 : 0) == 0) return Refuse();
    if (args_.post_filter > 0) {
      Cluster::Sync();  // all have seen x
      if (thread_ / 32 < width_) Filter(thread_ / 32);
      Cluster::Sync();
      Residuals(squared);
    }
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      if (t >= width_) continue;
      const int32_t k = members_[t];
      for (int a = thread_; a < n2_; a += threads_) {
        args_.m_values[args_.m_ptr[k] + a] = X(t)[a] * args_.scale[j_[a]];
      }
      if (thread_ == 0) {
        args_.residual_norms[k] = sqrt(squared[t]);
        args_.pivots[k] = factor_.pivot();
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
  const int n2_;
  const int own_thread_, lane_;  // within the block
  const int thread_, threads_;   // within the cluster
  ClusterFactor factor_;
  double unit_[kMaxWidth];   // unit of the fixed-point sums of the last Residuals
  bool reached_[kMaxWidth];  // whether k is in I
};

int64_t DoublesOf(const LargestLocal& largest, int64_t n) {
  return TileDoubles(largest.n2) + Padded(largest.n2) * kVectors +
         Slots(largest.entries, n) * kMaxWidth * 2;
}

// `doubles`, `slots`: for one cluster.
__global__ void __launch_bounds__(kThreads, 1)
    LargeGramKernel(GramArgs args, const int32_t* a_rows, int64_t n, double* memory_of_all,
                    int64_t doubles, int64_t tile_doubles, int32_t* tables, int64_t slots) {
  __shared__ Shared shared;
  const int64_t cluster = static_cast<int>(blockIdx.x) / Cluster::size();
  for (;;) {
    if (threadIdx.x == 0 && Cluster::rank() == 0) shared.group = atomicAdd(args.next, 1);
    Cluster::Sync();
    const int32_t i = *Cluster::Of(&shared.group, 0);
    Cluster::Sync();
    if (i >= args.count) return;
    const int32_t g = args.groups[i], k = args.members[args.group_ptr[g]];
    LargeMemory memory;
    memory.padded = (args.m_ptr[k + 1] - args.m_ptr[k] + 7) / 8 * 8;
    memory.mask =
        static_cast<uint32_t>(Slots(args.structures[args.structure_of[g]].all_entries, n) - 1);
    memory.tiles = memory_of_all + cluster * doubles;
    memory.diagonal = memory.tiles + tile_doubles;
    memory.x = memory.diagonal + memory.padded;
    memory.step = memory.x + kMaxWidth * memory.padded;
    memory.gradient = memory.step + kMaxWidth * memory.padded;
    memory.rhs = memory.gradient + kMaxWidth * memory.padded;
    memory.scratch = memory.rhs + kMaxWidth * memory.padded;
    memory.products = reinterpret_cast<FixedSum*>(memory.scratch + kMaxWidth * memory.padded);
    memory.rows = tables + cluster * 2 * slots;
    memory.owner = memory.rows + slots;
    LargeGroup(args, a_rows, g, memory, shared).Solve();
    Cluster::Sync();
  }
}

}  // namespace

int64_t LargeGramBytes(const LargestLocal& largest, int64_t n) {
  return 8 * DoublesOf(largest, n) + 8 * Slots(largest.entries, n);
}

LargeGram::LargeGram(Context& context, const LargestLocal& largest, int64_t n, int32_t count)
    : n_(n), tile_doubles_(TileDoubles(largest.n2)), slots_(Slots(largest.entries, n)) {
  const int64_t doubles = DoublesOf(largest, n), bytes = LargeGramBytes(largest, n);
  // With few problems each gets several blocks. Their number does not depend on memory, since the
  // order of sums depends on it.
  blocks_ = MostClusterBlocks(LargeGramKernel);
  while (blocks_ > 1 && int64_t{count} * blocks_ > context.multiprocessors) blocks_ /= 2;
  // At least one cluster.
  const int64_t room = (context.arena->limit() - context.arena->used() - 2 * Arena::kGrain) / bytes;
  clusters_ = static_cast<int>(
      std::clamp<int64_t>(room, 1, std::min<int64_t>(count, context.multiprocessors / blocks_)));
  memory_ = Buffer<double>(context, clusters_ * doubles);
  table_ = Buffer<int32_t>(context, clusters_ * 2 * slots_);
}

void LargeGram::Launch(const Branch& branch, const int32_t* a_rows, const GramArgs& args) const {
  cuda::Launch(branch, LargeGramKernel, clusters_ * blocks_, blocks_, kThreads, 0, args, a_rows, n_,
               memory_.get(), memory_.size() / clusters_, tile_doubles_, table_.get(), slots_);
}

}  // namespace spaid::cuda
