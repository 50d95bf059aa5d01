// Problems that have a table, by groups of threads; see qr.h.
#include <algorithm>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/static_spai/cuda/qr.h"
#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {
namespace {

constexpr int kBlockThreads = 128;       // for groups of at most as many threads
constexpr int kStride = kChunkRows + 2;  // between columns of the chunk; even, for pairs
constexpr int kPart = 8;                 // rows that are processed, or skipped, together

// One group's shared memory, in doubles.
struct Slot {
  int capacity, columns;  // n2, at most; the same with the right-hand sides

  __host__ __device__ int r() const { return columns * kStride; }
  __host__ __device__ int r_size() const {
    return capacity * columns - capacity * (capacity - 1) / 2;
  }
  __host__ __device__ int squares() const { return r() + r_size(); }
  __host__ __device__ int x() const { return squares() + columns; }
  __host__ __device__ int from() const { return x() + (columns - capacity) * capacity; }
  __host__ __device__ int reflector() const { return from() + capacity; }
  __host__ __device__ int sums() const { return reflector() + 4; }
  __host__ __device__ int tails() const { return sums() + kMaxWidth; }
  __host__ __device__ int words() const { return tails() + kMaxWidth; }
  __host__ __device__ int doubles() const { return (words() + 2 + 1) / 2 * 2; }
};

struct QrArgs {
  GramArgs args;
  Slot slot;
  int q;
  uint8_t flags;
};

__device__ int WarpMost(int value) { return __reduce_max_sync(kAllLanes, value); }

// A group of q threads for one problem. Groups of up to 32 threads share a warp, whose lanes take
// every step together: loops run as long as the longest problem of the warp needs.
template <bool kRegisters>
class QrGroup {
 public:
  __device__ QrGroup(const QrArgs& qr, double* memory, int rank, int slot, int32_t g, bool active)
      : qr_(qr),
        args_(qr.args),
        group_(args_, g),
        q_(qr.q),
        rank_(rank),
        barrier_(slot + 1),
        columns_(group_.n2 + group_.width),
        chunk_(memory),
        r_(memory + qr.slot.r()),
        squares_(memory + qr.slot.squares()),
        x_(memory + qr.slot.x()),
        from_(reinterpret_cast<const double**>(memory + qr.slot.from())),
        reflector_(memory + qr.slot.reflector()),
        sums_(memory + qr.slot.sums()),
        tails_(memory + qr.slot.tails()),
        words_(reinterpret_cast<int*>(memory + qr.slot.words())) {
    active_ = active && group_.chunks > 0 && (columns_ <= q_) == kRegisters;
    chunks_ = active_ ? group_.chunks : 0;
    n2_ = active_ ? group_.n2 : 0;
    most_chunks_ = chunks_;
    most_n2_ = n2_;
    if (q_ < 32) {
      most_chunks_ = WarpMost(chunks_);
      most_n2_ = WarpMost(n2_);
    }
  }

  __device__ void Solve() {
    if (most_chunks_ == 0) return;
    Prepare();
    for (int c = 0; c < most_chunks_; ++c) {
      FillChunk(c, true);
      Eliminate(min(kChunkRows, group_.n1 - c * kChunkRows), c < chunks_);
    }
    FindRank();
    Substitute();
    Residuals();
    Store();
  }

 private:
  __device__ void Sync() const {
    if (q_ <= 32) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(barrier_), "r"(q_) : "memory");
    }
  }

  // Row j of R, from the diagonal on, is kept: its column c is at RowOf(j) + c.
  __device__ int RowOf(int j) const { return j * columns_ - j * (j + 1) / 2; }
  __device__ double& R(int j, int c) const { return r_[RowOf(j) + c]; }

  __device__ void Prepare() {
    for (int a = rank_; a < n2_; a += q_) from_[a] = args_.a_values + args_.a_ptr[group_.j[a]];
    const int size = n2_ * columns_ - n2_ * (n2_ - 1) / 2;
    for (int i = rank_; i < size; i += q_) r_[i] = 0;
    for (int t = rank_; t < group_.width; t += q_) {
      tails_[t] = group_.targets[t] == kNoRow ? 1 : 0;  // row k is not in Â
    }
    if (rank_ == 0) words_[0] = 1;  // full rank
    Sync();
  }

  // Loads chunk c of [Â | e_k ...]; column a from a * kStride on.
  __device__ void FillChunk(int c, bool right_hand_sides) {
    const bool own = c < chunks_;
    Sync();
    auto* const zero = reinterpret_cast<double2*>(chunk_);
    if (own) {
      for (int i = rank_; i < columns_ * kStride / 2; i += q_) zero[i] = {0, 0};
    }
    Sync();
    if (own) {
      const auto row_words = static_cast<uint32_t>(TilesFor(n2_)) * 32;
      const float inverse = 1.0f / static_cast<float>(row_words);
      const uint32_t end = group_.starts[c + 1];
      for (uint32_t e = group_.starts[c] + static_cast<uint32_t>(rank_); e < end;
           e += static_cast<uint32_t>(q_)) {
        const uint32_t word = __ldg(&group_.list[e]);
        const uint32_t place = word & 0xfff, a = word >> 12 & 127;
        // ChunkRow without a division: the quotient is below 8, and the half keeps it off integers.
        const auto four = static_cast<uint32_t>((static_cast<float>(place) + 0.5f) * inverse);
        chunk_[a * kStride + four * 4 + (place & 3)] = __ldg(from_[a] + (word >> 19));
      }
      for (int t = rank_; right_hand_sides && t < group_.width; t += q_) {
        const uint32_t target = group_.targets[t];
        if (target / kChunkRows == static_cast<uint32_t>(c)) {
          chunk_[(n2_ + t) * kStride + target % kChunkRows] = 1;
        }
      }
    }
    Sync();
  }

  // Eliminates the chunk's `rows` rows into R; rows beyond are zero. Both variants add in the same
  // order, so that M does not depend on the strategy.
  __device__ void Eliminate(int rows, bool own) {
    if (kRegisters) {
      EliminateRegisters(rows, own);
    } else {
      EliminateShared(rows, own);
    }
  }

  __device__ void EliminateRegisters(int rows, bool own) {
    const int c = rank_;
    const bool mine = own && c < columns_;
    const int parts = mine ? (rows + kPart - 1) / kPart : 0;
    double column[kChunkRows];
    double sums[4] = {};
    double2* const kept = reinterpret_cast<double2*>(chunk_ + c * kStride);
#pragma unroll
    for (int r = 0; r < kChunkRows; r += 2) {
      const double2 pair = mine ? kept[r / 2] : double2{0, 0};
      column[r] = pair.x;
      column[r + 1] = pair.y;
      sums[r & 2] += pair.x * pair.x;
      sums[(r & 2) + 1] += pair.y * pair.y;
    }
    double squared = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    int row = 0;  // RowOf(j)
    for (int j = 0; j < most_n2_; ++j) {
      double* const v = reflector_ + 2 * (j & 1);
      const bool here = own && j < n2_;
      if (here && c == j) {
        const Reflector reflector = Reflect(r_[row + j], squared);
        v[0] = reflector.v;
        v[1] = reflector.tau;
#pragma unroll
        for (int r = 0; r < kChunkRows; r += 2) kept[r / 2] = {column[r], column[r + 1]};
      }
      Sync();
      if (here && mine && c > j && v[1] != 0) {
        const auto* const pairs = reinterpret_cast<const double2*>(chunk_ + j * kStride);
        double dot[4] = {};
#pragma unroll
        for (int p = 0; p < kChunkRows / kPart; ++p) {
          if (p >= parts) continue;
#pragma unroll
          for (int i = 0; i < kPart; i += 2) {
            const double2 pair = pairs[(p * kPart + i) / 2];
            dot[i & 2] += pair.x * column[p * kPart + i];
            dot[(i & 2) + 1] += pair.y * column[p * kPart + i + 1];
          }
        }
        double& top = r_[row + c];
        const double w = v[1] * (v[0] * top + ((dot[0] + dot[1]) + (dot[2] + dot[3])));
        top -= w * v[0];
        double squares[4] = {};
#pragma unroll
        for (int p = 0; p < kChunkRows / kPart; ++p) {
          if (p >= parts) continue;
#pragma unroll
          for (int i = 0; i < kPart; i += 2) {
            const double2 pair = pairs[(p * kPart + i) / 2];
            column[p * kPart + i] -= w * pair.x;
            column[p * kPart + i + 1] -= w * pair.y;
            squares[i & 2] += column[p * kPart + i] * column[p * kPart + i];
            squares[(i & 2) + 1] += column[p * kPart + i + 1] * column[p * kPart + i + 1];
          }
        }
        squared = (squares[0] + squares[1]) + (squares[2] + squares[3]);
      }
      row += columns_ - j - 1;
    }
    if (mine && c >= n2_) tails_[c - n2_] += squared;
  }

  __device__ double SquaredColumn(int c, int rows) const {
    double sums[4] = {};
    for (int r = 0; r < rows; r += 2) {
      const double2 pair = *reinterpret_cast<const double2*>(chunk_ + c * kStride + r);
      sums[r & 2] += pair.x * pair.x;
      sums[(r & 2) + 1] += pair.y * pair.y;
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  __device__ void EliminateShared(int rows, bool own) {
    if (own) {
      for (int c = rank_; c < columns_; c += q_) squares_[c] = SquaredColumn(c, rows);
    }
    int row = 0;
    for (int j = 0; j < most_n2_; ++j) {
      double* const v = reflector_ + 2 * (j & 1);
      const bool here = own && j < n2_;
      if (here && j % q_ == rank_) {
        const Reflector reflector = Reflect(r_[row + j], squares_[j]);
        v[0] = reflector.v;
        v[1] = reflector.tau;
      }
      Sync();
      if (here && v[1] != 0) {
        const auto* const pairs = reinterpret_cast<const double2*>(chunk_ + j * kStride);
        int c = j + 1 + (rank_ - (j + 1) % q_ + q_) % q_;  // the thread's first one after j
        for (; c < columns_; c += q_) {
          auto* const column = reinterpret_cast<double2*>(chunk_ + c * kStride);
          double dot[4] = {};
          for (int r = 0; r < rows; r += 4) {
            const double2 v0 = pairs[r / 2], v1 = pairs[r / 2 + 1];
            const double2 a0 = column[r / 2], a1 = column[r / 2 + 1];
            dot[0] += v0.x * a0.x;
            dot[1] += v0.y * a0.y;
            dot[2] += v1.x * a1.x;
            dot[3] += v1.y * a1.y;
          }
          double& top = r_[row + c];
          const double w = v[1] * (v[0] * top + ((dot[0] + dot[1]) + (dot[2] + dot[3])));
          top -= w * v[0];
          double squares[4] = {};
          for (int r = 0; r < rows; r += 4) {
            const double2 v0 = pairs[r / 2], v1 = pairs[r / 2 + 1];
            double2 a0 = column[r / 2], a1 = column[r / 2 + 1];
            a0.x -= w * v0.x;
            a0.y -= w * v0.y;
            a1.x -= w * v1.x;
            a1.y -= w * v1.y;
            squares[0] += a0.x * a0.x;
            squares[1] += a0.y * a0.y;
            squares[2] += a1.x * a1.x;
            squares[3] += a1.y * a1.y;
            column[r / 2] = a0;
            column[r / 2 + 1] = a1;
          }
          squares_[c] = (squares[0] + squares[1]) + (squares[2] + squares[3]);
        }
      }
      row += columns_ - j - 1;
    }
    if (!own) return;
    for (int t = 0; t < group_.width; ++t) {
      if ((n2_ + t) % q_ == rank_) tails_[t] += squares_[n2_ + t];
    }
  }

  __device__ void FindRank() {
    Sync();
    const double tolerance = kDependent * max(group_.n1, group_.n2);
    for (int c = rank_; c < n2_; c += q_) {
      double squared = 0;
      for (int j = 0; j <= c; ++j) squared += R(j, c) * R(j, c);
      if (!(fabs(R(c, c)) > tolerance * sqrt(squared))) words_[0] = 0;
    }
    Sync();
  }

  // x := R⁻¹ y, y being the right-hand sides' part of R.
  __device__ void Substitute() {
    for (int i = most_n2_ - 1; i >= 0; --i) {
      const bool here = i < n2_;
      if (here && rank_ < group_.width) {
        for (int t = rank_; t < group_.width; t += q_) {
          x_[t * n2_ + i] = R(i, n2_ + t) / R(i, i);
        }
      }
      Sync();
      if (here) {
        for (int j = rank_; j < i; j += q_) {
          const double r = R(j, i);
          for (int t = 0; t < group_.width; ++t) R(j, n2_ + t) -= r * x_[t * n2_ + i];
        }
      }
      Sync();
    }
  }

  // sums_[t] = ‖Âx − e‖², Â read again.
  __device__ void Residuals() {
    double squared[kMaxWidth] = {};
    for (int c = 0; c < most_chunks_; ++c) {
      FillChunk(c, false);
      if (c >= chunks_) continue;
      const int rows = min(kChunkRows, group_.n1 - c * kChunkRows);
      for (int r = rank_; r < rows; r += q_) {
        double residual[kMaxWidth] = {};
        for (int a = 0; a < n2_; ++a) {
          const double v = chunk_[a * kStride + r];
#pragma unroll
          for (int t = 0; t < kMaxWidth; ++t) {
            if (t < group_.width) residual[t] += v * x_[t * n2_ + a];
          }
        }
#pragma unroll
        for (int t = 0; t < kMaxWidth; ++t) {
          if (t >= group_.width) continue;
          if (group_.targets[t] == static_cast<uint32_t>(c * kChunkRows + r)) residual[t] -= 1;
          squared[t] += residual[t] * residual[t];
        }
      }
    }
    // Rows are the first 32 threads': one warp has all of the sums.
#pragma unroll
    for (int t = 0; t < kMaxWidth; ++t) {
      double sum = squared[t];
      for (int step = min(q_, 32) / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, step);
      }
      if (rank_ == 0 && t < group_.width) {
        sums_[t] = sum + (group_.targets[t] == kNoRow ? 1 : 0);  // row k is not in Â
      }
    }
    Sync();
  }

  // Computes m for right-hand side t, in place of x.
  __device__ double M(int t, int a) const { return x_[t * n2_ + a] * args_.scale[group_.j[a]]; }

  __device__ void Store() {
    for (int t = 0; t < group_.width && active_; ++t) {
      for (int a = rank_; a < n2_; a += q_) {
        if (!isfinite(M(t, a))) words_[0] = 0;
      }
      if (rank_ == 0 && !Minimal(sums_[t], tails_[t])) words_[0] = 0;
    }
    Sync();
    if (args_.post_filter > 0) {
      if (active_) Filter();
      Residuals();
    }
    if (!active_ || words_[0] == 0) return;
    for (int t = 0; t < group_.width; ++t) {
      const int32_t k = group_.members[t];
      for (int a = rank_; a < n2_; a += q_) args_.m_values[args_.m_ptr[k] + a] = M(t, a);
      if (rank_ != 0) continue;
      args_.residual_norms[k] = sqrt(sums_[t]);
      if ((qr_.flags & kernels::kColumnRescued) == 0) args_.pivots[k] = 1;
      args_.flags[k] =
          static_cast<uint8_t>(kernels::kColumnQr | qr_.flags |
                               (group_.targets[t] == kNoRow ? kernels::kColumnZero : 0));
    }
  }

  // Every thread reads all of m before any is changed: R's memory is free by now.
  __device__ void Filter() {
    for (int t = 0; t < group_.width; ++t) {
      double largest = 0;
      for (int a = 0; a < n2_; ++a) largest = fmax(largest, fabs(M(t, a)));
      for (int a = rank_; a < n2_; a += q_) {
        const bool keep =
            fabs(M(t, a)) >= args_.post_filter * largest || group_.j[a] == group_.members[t];
        r_[t * n2_ + a] = keep ? x_[t * n2_ + a] : 0;
      }
    }
    GroupSync();
    for (int i = rank_; i < group_.width * n2_; i += q_) x_[i] = r_[i];
  }

  // Synchronises the threads of one active group.
  __device__ void GroupSync() const {
    if (q_ >= 32) return Sync();
    __syncwarp(((1u << q_) - 1) << (threadIdx.x % 32 / q_ * q_));
  }

  const QrArgs& qr_;
  const GramArgs& args_;
  const LocalGroup group_;
  const int q_, rank_, barrier_, columns_;
  double* const chunk_;
  double* const r_;
  double* const squares_;
  double* const x_;
  const double** const from_;
  double* const reflector_;  // v_1 and tau of this step and of the previous one
  double* const sums_;
  double* const tails_;  // ‖Qᵀe beyond R‖²: ‖Âx − e‖² at the minimum
  int* const words_;     // whether the solution is good
  bool active_;
  int chunks_, n2_, most_chunks_, most_n2_;
};

template <bool kRegisters>
__global__ void __launch_bounds__(kernels::kMaxGroupThreads) QrKernel(QrArgs qr) {
  extern __shared__ double2 shared[];  // aligned for pairs
  auto* const memory = reinterpret_cast<double*>(shared);
  const int q = qr.q, slot = static_cast<int>(threadIdx.x) / q,
            rank = static_cast<int>(threadIdx.x) % q;
  double* const own = memory + slot * qr.slot.doubles();
  const GramArgs& args = qr.args;
  for (;;) {
    int32_t i = 0;
    if (q <= 32) {
      if (threadIdx.x % 32 == 0) i = atomicAdd(args.next, 32 / q);
      i = __shfl_sync(kAllLanes, i, 0);
      if (i >= args.count) return;
      i += static_cast<int32_t>(threadIdx.x % 32) / q;
    } else {
      int* const next = reinterpret_cast<int*>(own + qr.slot.words()) + 1;
      if (rank == 0) *next = atomicAdd(args.next, 1);
      asm volatile("bar.sync %0, %1;" ::"r"(slot + 1), "r"(q) : "memory");
      i = *next;
      if (i >= args.count) return;
    }
    const bool active = i < args.count;
    const int32_t g = args.groups[active ? i : args.count - 1];
    QrGroup<kRegisters>(qr, own, rank, slot, g, active).Solve();
    if (q > 32) {
      asm volatile("bar.sync %0, %1;" ::"r"(slot + 1), "r"(q) : "memory");
    } else {
      __syncwarp();
    }
  }
}

}  // namespace

void LaunchQr(const Context& context, const Branch& branch, const QrLaunch& launch, uint8_t flags,
              const GramArgs& args) {
  QrArgs qr{args, {}, 1 << launch.s, flags};
  qr.slot.capacity = launch.n2_max;
  qr.slot.columns = launch.n2_max + launch.width_max;
  const int threads = std::max(kBlockThreads, qr.q), slots = threads / qr.q;
  const int bytes = slots * qr.slot.doubles() * static_cast<int>(sizeof(double));
  const auto kernel = launch.registers ? QrKernel<true> : QrKernel<false>;
  AllowSharedMemory(context, kernel, bytes);
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads,
                                                      static_cast<size_t>(bytes)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int needed = (args.count + slots - 1) / slots;
  Launch(branch, kernel, std::max(1, std::min(blocks * context.multiprocessors, needed)), 1,
         threads, bytes, qr);
}

}  // namespace spaid::cuda
