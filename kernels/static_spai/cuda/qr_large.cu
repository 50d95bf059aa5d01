// Problems of kLargeClass, one block each: Â in global memory, chunk by chunk, and R there too. See
// qr.h.
#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/static_spai/cuda/qr.h"
#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int32_t kFree = -1;

// Rows of a chunk, as many as shared memory holds for so many columns with the right-hand sides.
int ChunkRowsFor(int64_t columns) {
  constexpr int64_t kShared = 220 << 10;
  for (const int rows : {32, 16, 8}) {
    if (columns * (rows + 3) * 8 <= kShared) return rows;
  }
  return 0;
}

// Workspace of one block.
struct Work {
  int64_t slots;    // slots of the hash table of I
  int64_t entries;  // entries of Â with the right-hand sides, whole chunks
  int64_t r_size, x_size;

  __host__ __device__ int64_t doubles() const { return entries + r_size + x_size; }
};

struct Input {
  GramArgs args;
  const int32_t* a_rows;
  Work work;
  double* doubles;
  int32_t* table;  // for each block: rows of all slots, then their numbers in I
  uint8_t flags;
};

__device__ bool TooLarge(int64_t n1, int64_t n2, int64_t columns) {
  return (max(n1, n2) + 7) / 8 * 8 * columns > checks::kMaxDenseEntries;
}

// I of one problem, in a hash table; rows are numbered in the order of their first appearance in
// the columns J, one after the other.
class RowTable {
 public:
  __device__ RowTable(const Input& in, const LocalGroup& group)
      : in_(in),
        group_(group),
        rows_(in.table + blockIdx.x * 2 * in.work.slots),
        numbers_(rows_ + in.work.slots),
        mask_(static_cast<uint32_t>(in.work.slots - 1)) {}

  // Returns n1, the same in all threads.
  __device__ int32_t Enter() {
    __shared__ int32_t found[kWarps];
    const int thread = static_cast<int>(threadIdx.x);
    for (int64_t at = thread; at <= mask_; at += kThreads) rows_[at] = kFree;
    __syncthreads();
    int32_t n1 = 0;
    for (int a = 0; a < group_.n2; ++a) {
      const int64_t begin = in_.args.a_ptr[group_.j[a]], end = in_.args.a_ptr[group_.j[a] + 1];
      for (int64_t p = begin; p < end; p += kThreads) {
        bool is_new = false;
        uint32_t at = 0;
        if (p + thread < end) {
          const int32_t row = in_.a_rows[p + thread];
          for (at = Start(row);; at = (at + 1) & mask_) {
            const int32_t there = atomicCAS(&rows_[at], kFree, row);
            is_new = there == kFree;
            if (is_new || there == row) break;
          }
        }
        const unsigned vote = __ballot_sync(kAllLanes, is_new);
        if (thread % 32 == 0) found[thread / 32] = __popc(vote);
        __syncthreads();
        int32_t number = n1 + __popc(vote & ((1u << thread % 32) - 1));
        for (int w = 0; w < kWarps; ++w) {
          if (w < thread / 32) number += found[w];
          n1 += found[w];
        }
        if (is_new) numbers_[at] = number;
        __syncthreads();
      }
    }
    return n1;
  }

  // Number of a row in I; -1: it is not in I.
  __device__ int32_t Number(int32_t row) const {
    for (uint32_t at = Start(row);; at = (at + 1) & mask_) {
      if (rows_[at] == row) return numbers_[at];
      if (rows_[at] == kFree) return -1;
    }
  }

 private:
  __device__ uint32_t Start(int32_t row) const {
    return static_cast<uint32_t>(row) * 0x9e3779b9u & mask_;
  }

  const Input& in_;
  const LocalGroup& group_;
  int32_t* const rows_;
  int32_t* const numbers_;
  const uint32_t mask_;
};

// Largest n1 of the problems that are not too large.
__global__ void __launch_bounds__(kThreads) CountRowsKernel(Input in, int32_t* most) {
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < in.args.count;
       i += static_cast<int32_t>(gridDim.x)) {
    const LocalGroup group(in.args, in.args.groups[i]);
    const int32_t n1 = RowTable(in, group).Enter();
    if (threadIdx.x == 0 && !TooLarge(n1, group.n2, group.n2 + group.width)) atomicMax(most, n1);
    __syncthreads();
  }
}

template <int kRows>
class LargeQr {
 public:
  __device__ LargeQr(const Input& in, const LocalGroup& group, double* shared)
      : in_(in),
        args_(in.args),
        group_(group),
        n2_(group.n2),
        columns_(group.n2 + group.width),
        thread_(static_cast<int>(threadIdx.x)),
        chunk_(shared),
        squares_(shared + int64_t{columns_} * kStride),
        a_(in.doubles + blockIdx.x * in.work.doubles()),
        r_(a_ + in.work.entries),
        x_(r_ + in.work.r_size) {}

  __device__ void Solve() {
    RowTable table(in_, group_);
    n1_ = table.Enter();
    if (TooLarge(n1_, n2_, columns_)) return;
    Fill(table);
    for (int c = 0; c * kRows < n1_; ++c) {
      LoadChunk(c);
      Eliminate(min(kRows, n1_ - c * kRows));
    }
    if (!FullRank()) return;
    Substitute();
    double squared[kMaxWidth];
    Residuals(squared);
    bool fine = true;
    for (int t = 0; t < group_.width; ++t) {
      for (int a = thread_; a < n2_; a += kThreads) fine = fine && isfinite(M(t, a));
      fine = fine && Minimal(squared[t], tails_[t] + (target_[t] < 0 ? 1 : 0));
    }
    if (__syncthreads_and(fine ? 1 : 0) == 0) return;
    if (args_.post_filter > 0) {
      Filter();
      Residuals(squared);
    }
    for (int t = 0; t < group_.width; ++t) {
      const int32_t k = group_.members[t];
      for (int a = thread_; a < n2_; a += kThreads) args_.m_values[args_.m_ptr[k] + a] = M(t, a);
      if (thread_ != 0) continue;
      args_.residual_norms[k] = sqrt(squared[t]);
      if ((in_.flags & kernels::kColumnRescued) == 0) args_.pivots[k] = 1;
      args_.flags[k] = static_cast<uint8_t>(kernels::kColumnQr | in_.flags |
                                            (target_[t] < 0 ? kernels::kColumnZero : 0));
    }
  }

 private:
  static constexpr int kStride = kRows + 2;  // between columns of the chunk; even, for pairs

  __device__ int64_t RowOf(int j) const { return int64_t{j} * columns_ - int64_t{j} * (j + 1) / 2; }
  __device__ double& R(int j, int c) const { return r_[RowOf(j) + c]; }
  // Â is stored by chunks, each column by column.
  __device__ double& A(int32_t row, int c) const {
    return a_[(int64_t{row / kRows} * columns_ + c) * kRows + row % kRows];
  }
  __device__ double M(int t, int a) const {
    return x_[int64_t{t} * n2_ + a] * args_.scale[group_.j[a]];
  }

  __device__ void Fill(const RowTable& table) {
    const int64_t size = int64_t{(n1_ + kRows - 1) / kRows} * columns_ * kRows;
    for (int64_t i = thread_; i < size; i += kThreads) a_[i] = 0;
    const int64_t r_size = RowOf(n2_ - 1) + columns_;
    for (int64_t i = thread_; i < r_size; i += kThreads) r_[i] = 0;
    __syncthreads();
    for (int a = thread_ / 32; a < n2_; a += kWarps) {
      const int64_t begin = args_.a_ptr[group_.j[a]], end = args_.a_ptr[group_.j[a] + 1];
      for (int64_t p = begin + thread_ % 32; p < end; p += 32) {
        A(table.Number(in_.a_rows[p]), a) = args_.a_values[p];
      }
    }
    for (int t = 0; t < group_.width; ++t) {
      target_[t] = table.Number(group_.members[t]);
      if (thread_ == 0 && target_[t] >= 0) A(target_[t], n2_ + t) = 1;
    }
    __syncthreads();
  }

  __device__ void LoadChunk(int c) {
    __syncthreads();
    const double* const from = a_ + int64_t{c} * columns_ * kRows;
    for (int i = thread_; i < columns_ * kRows; i += kThreads) {
      chunk_[i / kRows * kStride + i % kRows] = from[i];
    }
    __syncthreads();
  }

  // As QrGroup::EliminateShared (qr.cu).
  __device__ void Eliminate(int rows) {
    __shared__ double reflector[4];
    for (int c = thread_; c < columns_; c += kThreads) {
      const auto* const column = reinterpret_cast<const double2*>(chunk_ + c * kStride);
      double sums[2] = {};
      for (int r = 0; r < rows; r += 2) {
        sums[0] += column[r / 2].x * column[r / 2].x;
        sums[1] += column[r / 2].y * column[r / 2].y;
      }
      squares_[c] = sums[0] + sums[1];
    }
    int64_t row = 0;
    for (int j = 0; j < n2_; ++j) {
      double* const v = reflector + 2 * (j & 1);
      if (j % kThreads == thread_) {
        const Reflector reflector = Reflect(r_[row + j], squares_[j]);
        v[0] = reflector.v;
        v[1] = reflector.tau;
      }
      __syncthreads();
      if (v[1] != 0) {
        const auto* const pairs = reinterpret_cast<const double2*>(chunk_ + j * kStride);
        int c = j + 1 + (thread_ - (j + 1) % kThreads + kThreads) % kThreads;
        for (; c < columns_; c += kThreads) {
          auto* const column = reinterpret_cast<double2*>(chunk_ + c * kStride);
          double dot[2] = {};
          const double top = r_[row + c];
          for (int r = 0; r < rows; r += 2) {
            dot[0] += pairs[r / 2].x * column[r / 2].x;
            dot[1] += pairs[r / 2].y * column[r / 2].y;
          }
          const double w = v[1] * (v[0] * top + (dot[0] + dot[1]));
          r_[row + c] = top - w * v[0];
          double squares[2] = {};
          for (int r = 0; r < rows; r += 2) {
            double2 pair = column[r / 2];
            pair.x -= w * pairs[r / 2].x;
            pair.y -= w * pairs[r / 2].y;
            squares[0] += pair.x * pair.x;
            squares[1] += pair.y * pair.y;
            column[r / 2] = pair;
          }
          squares_[c] = squares[0] + squares[1];
        }
      }
      row += columns_ - j - 1;
    }
    __syncthreads();
    for (int t = 0; t < group_.width; ++t) tails_[t] += squares_[n2_ + t];
  }

  __device__ bool FullRank() const {
    const double tolerance = kDependent * max(n1_, n2_);
    __syncthreads();
    bool full = true;
    for (int c = thread_; c < n2_; c += kThreads) {
      double squared = 0;
      for (int j = 0; j <= c; ++j) squared += R(j, c) * R(j, c);
      full = full && fabs(R(c, c)) > tolerance * sqrt(squared);
    }
    return __syncthreads_and(full ? 1 : 0) != 0;
  }

  __device__ void Substitute() {
    for (int i = n2_ - 1; i >= 0; --i) {
      if (thread_ < group_.width) x_[int64_t{thread_} * n2_ + i] = R(i, n2_ + thread_) / R(i, i);
      __syncthreads();
      for (int j = thread_; j < i; j += kThreads) {
        const double r = R(j, i);
        for (int t = 0; t < group_.width; ++t) R(j, n2_ + t) -= r * x_[int64_t{t} * n2_ + i];
      }
      __syncthreads();
    }
  }

  // ‖Âx − e‖², the same in all threads; sums in a fixed order.
  __device__ void Residuals(double (&squared)[kMaxWidth]) {
    constexpr int kShares = kThreads / kRows;  // threads a row
    __shared__ double partial[kThreads];
    const int r = thread_ % kRows, share = thread_ / kRows;
    for (int t = 0; t < kMaxWidth; ++t) squared[t] = 0;
    for (int c = 0; c * kRows < n1_; ++c) {
      LoadChunk(c);
      for (int t = 0; t < group_.width; ++t) {
        double sum = 0;
        for (int a = share; a < n2_; a += kShares) {
          sum += chunk_[a * kStride + r] * x_[int64_t{t} * n2_ + a];
        }
        partial[thread_] = sum;
        __syncthreads();
        if (thread_ < kRows) {
          for (int s = 1; s < kShares; ++s) sum += partial[s * kRows + r];
          if (target_[t] == c * kRows + r) sum -= 1;
          squared[t] += sum * sum;  // rows beyond n1 are zero
        }
        __syncthreads();
      }
    }
    for (int t = 0; t < group_.width; ++t) {
      partial[thread_] = thread_ < kRows ? squared[t] : 0;
      __syncthreads();
      squared[t] = target_[t] < 0 ? 1 : 0;  // row k is not in Â
      for (int i = 0; i < kRows; ++i) squared[t] += partial[i];
      __syncthreads();
    }
  }

  __device__ void Filter() {
    double* const filtered = r_;  // free by now
    for (int t = 0; t < group_.width; ++t) {
      double largest = 0;
      for (int a = 0; a < n2_; ++a) largest = fmax(largest, fabs(M(t, a)));
      for (int a = thread_; a < n2_; a += kThreads) {
        const bool keep =
            fabs(M(t, a)) >= args_.post_filter * largest || group_.j[a] == group_.members[t];
        filtered[int64_t{t} * n2_ + a] = keep ? x_[int64_t{t} * n2_ + a] : 0;
      }
    }
    __syncthreads();
    for (int i = thread_; i < group_.width * n2_; i += kThreads) x_[i] = filtered[i];
    __syncthreads();
  }

  const Input& in_;
  const GramArgs& args_;
  const LocalGroup& group_;
  const int n2_, columns_, thread_;
  double* const chunk_;
  double* const squares_;
  double* const a_;
  double* const r_;
  double* const x_;
  int32_t n1_ = 0;
  int32_t target_[kMaxWidth] = {};
  double tails_[kMaxWidth] = {};  // ‖Qᵀe beyond R‖²
};

template <int kRows>
__global__ void __launch_bounds__(kThreads) LargeQrKernel(Input in) {
  extern __shared__ double2 shared[];  // aligned for pairs
  __shared__ int32_t next;
  for (;;) {
    if (threadIdx.x == 0) next = atomicAdd(in.args.next, 1);
    __syncthreads();
    const int32_t i = next;
    if (i >= in.args.count) return;
    const LocalGroup group(in.args, in.args.groups[i]);
    LargeQr<kRows>(in, group, reinterpret_cast<double*>(shared)).Solve();
    __syncthreads();
  }
}

template <int kRows>
void Launch(const Context& context, const Input& in, int64_t columns, int blocks) {
  const auto bytes = static_cast<int>(columns * (kRows + 3) * 8);
  const auto kernel = LargeQrKernel<kRows>;
  AllowSharedMemory(context, kernel, bytes);
  kernel<<<blocks, kThreads, bytes, context.stream>>>(in);
  CheckLaunch("LargeQrKernel");
}

// Slots of the hash table of I: at most half of them are taken.
int64_t Slots(const LargestLocal& largest, int64_t n) {
  int64_t slots = 64;
  while (slots < 2 * std::min(largest.entries, n)) slots *= 2;
  return slots;
}

// Workspace of a block except for `slots`, for problems of at most n1 rows, in chunks of `rows`.
Work WorkOf(const LargestLocal& largest, int64_t n1, int rows) {
  const int64_t columns = largest.n2 + kMaxWidth;
  Work work{};
  // Whole chunks of the problem with most rows; none has more entries than the limit of dense ones.
  work.entries = std::min<int64_t>((n1 + rows - 1) / rows * rows * columns,
                                   checks::kMaxDenseEntries + rows * columns);
  work.r_size = largest.n2 * columns;
  work.x_size = kMaxWidth * largest.n2;
  return work;
}

}  // namespace

int64_t LargeQrBytes(const LargestLocal& largest, int64_t n) {
  const int rows = ChunkRowsFor(largest.n2 + kMaxWidth);
  if (rows == 0) return 0;
  const int64_t n1 = std::min(largest.entries, n);
  return 8 * WorkOf(largest, n1, rows).doubles() + 8 * Slots(largest, n);
}

void LaunchLargeQr(Context& context, const LargestLocal& largest, const int32_t* a_rows, int64_t n,
                   uint8_t flags, const GramArgs& args) {
  const int64_t columns = largest.n2 + kMaxWidth;
  const int rows = ChunkRowsFor(columns);
  if (rows == 0) return;  // left to the host
  const int64_t slots = Slots(largest, n);
  Input in{args, a_rows, {}, nullptr, nullptr, flags};
  in.work.slots = slots;
  const auto blocks_for = [&](int64_t bytes) {
    const int64_t room =
        (context.arena->limit() - context.arena->used() - 4 * Arena::kGrain) / bytes;
    return static_cast<int>(
        std::clamp<int64_t>(room, 1, std::min<int64_t>(args.count, context.multiprocessors)));
  };
  int32_t n1 = 0;
  {
    const int blocks = blocks_for(in.work.slots * 8);
    const Buffer<int32_t> table(context, blocks * 2 * in.work.slots), most(context, 1);
    most.Fill(0);
    in.table = table.get();
    CountRowsKernel<<<blocks, kThreads, 0, context.stream>>>(in, most.get());
    CheckLaunch("CountRowsKernel");
    n1 = Read(context, most, 0);
  }
  if (n1 == 0) return;
  in.work = WorkOf(largest, n1, rows);
  in.work.slots = slots;
  const int blocks = blocks_for(in.work.doubles() * 8 + in.work.slots * 8);
  const Buffer<double> doubles(context, blocks * in.work.doubles());
  const Buffer<int32_t> table(context, blocks * 2 * in.work.slots);
  in.doubles = doubles.get();
  in.table = table.get();
  switch (rows) {
    case 32:
      return Launch<32>(context, in, columns, blocks);
    case 16:
      return Launch<16>(context, in, columns, blocks);
    default:
      return Launch<8>(context, in, columns, blocks);
  }
}

}  // namespace spaid::cuda
