// y = A x for the layout of csr.h, with an epilogue: code of the caller that gets every element of
// y in the same launch, such as a dot product. For .cu files.
//
// x is one vector, or kColumns interleaved ones (sums.h), for which A is read once.
//
//   struct Epilogue {                    // trivially copyable
//     static constexpr int kSums = 1;    // 0: it writes itself, without sums and Finish
//     // True: the thread's column of y keeps its values, and nothing else is done for it; true for
//     // all columns: the whole launch does nothing, Finish is not called. The data that it reads
//     // must not change during the launch.
//     __device__ bool Skip() const;
//     // Called once for every element of y, by one thread, after y[at] = y_at was written, or,
//     // without the sums, in place of that.
//     __device__ void Row(int64_t at, double y_at, double (&sums)[kSums]);
//     // Called once by all kProductThreads threads of every block, in the end, each with the sums
//     of
//     // its own rows, slot by slot.
//     __device__ void Finish(double (&sums)[kColumns][kSums]);
//   };
//   LaunchProduct<kColumns>(branch, rows, x, y, Epilogue{...});
#pragma once

#include <cuda/atomic>
#include <type_traits>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/sums.h"
#include "kernels/krylov/cuda/tile_product.h"

namespace spaid::cuda {

namespace product {

template <class Epilogue>
inline constexpr bool kWritesItself = Epilogue::kSums == 0;

inline constexpr int kWarps = kProductThreads / 32;

// Entries of a lane in a chunk of SliceLoop; 0: plain.
template <SliceLoop kLoop, class Value>
inline constexpr int kChunk = kLoop == SliceLoop::kPlain        ? 0
                              : kLoop == SliceLoop::kLongChunks ? 12
                              : std::is_same_v<Value, double>   ? 4
                                                                : 6;

// Resident blocks a multiprocessor, at least.
template <int kColumns, SliceLoop kLoop>
inline constexpr int kResident = kColumns > 1                      ? 3
                                 : kLoop == SliceLoop::kLongChunks ? kLongResident
                                                                   : kProductResident;

// Entries that a thread loads before it waits for the first of them.
template <int kColumns>
inline constexpr int kTogether = kColumns <= 2 ? 8 : 4;

// Loads an element of x; in a persistent kernel x may have been written in the same launch.
template <bool kPersistent, class X>
__device__ double LoadX(const X* at) {
  return kPersistent ? *at : __ldg(at);
}

// Σ values[32 k] x[cols[32 k]] over k < count.
template <bool kStream, bool kPersistent, class Value, class X>
__device__ double LaneDot(const int32_t* cols, const Value* values, int count, const X* x) {
  constexpr int kEach = kTogether<1>;
  double sum = 0;
  for (int k = 0; k < count; k += kEach) {
    int32_t col[kEach];
    Value value[kEach];
    double xs[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const bool in = k + u < count;
      col[u] = in ? Load<kStream>(cols + 32 * u) : 0;
      value[u] = in ? Load<kStream>(values + 32 * u) : Value{0};
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) xs[u] = k + u < count ? LoadX<kPersistent>(x + col[u]) : 0.0;
#pragma unroll
    for (int u = 0; u < kEach; ++u) sum = fma(static_cast<double>(value[u]), xs[u], sum);
    cols += 32 * kEach;
    values += 32 * kEach;
  }
  return sum;
}

// Whether lanes take their pairs of columns in rotated order: those of floats are one load.
template <class X>
inline constexpr bool kRotated = std::is_same_v<X, double>;

// The same of several columns of x interleaved, in pairs that begin at x + at[.].
template <int kColumns, bool kStream, class Value, class X, int kPairs>
__device__ void WideDot(const int32_t* cols, const Value* values, int count, const X* x,
                        const int (&at)[kPairs], double2 (&sums)[kPairs]) {
  constexpr int kEach = kTogether<kColumns>;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) sums[j] = {0, 0};
  for (int k = 0; k < count; k += kEach) {
    int32_t col[kEach];
    Value value[kEach];
    double2 xs[kEach][kPairs];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const bool in = k + u < count;
      col[u] = in ? Load<kStream>(cols + 32 * u) : 0;
      value[u] = in ? Load<kStream>(values + 32 * u) : Value{0};
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const X* const from = x + int64_t{col[u]} * kColumns;
      if constexpr (kRotated<X>) {
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          xs[u][j] =
              k + u < count ? __ldg(reinterpret_cast<const double2*>(from + at[j])) : double2{0, 0};
        }
      } else {
        double row[kColumns];
        LoadRow<kColumns>(from, k + u < count, row);
#pragma unroll
        for (int j = 0; j < kPairs; ++j) xs[u][j] = {row[2 * j], row[2 * j + 1]};
      }
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const auto own = static_cast<double>(value[u]);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        sums[j].x = fma(own, xs[u][j].x, sums[j].x);
        sums[j].y = fma(own, xs[u][j].y, sums[j].y);
      }
    }
    cols += 32 * kEach;
    values += 32 * kEach;
  }
}

// The warp's part of shared memory in which lanes hand sums to slots: a row of kColumns for each
// lane.
template <int kColumns>
__device__ double* Tile() {
  __shared__ __align__(16) double tiles[kProductThreads * kColumns];
  return tiles + threadIdx.x / 32 * (32 * kColumns);
}

// dots[slot] = Σ values[l + 32 k] x[cols[l + 32 k]] over k < count(l), for the slot's lane l and
// the thread's column.
template <int kColumns, bool kStream, bool kPersistent, class Value, class Count, class X>
__device__ void Dot(const int32_t* cols, const Value* values, const Count& count, const X* x,
                    double (&dots)[kColumns]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kColumns == 1) {
    dots[0] = LaneDot<kStream, kPersistent>(cols + lane, values + lane, count(lane), x);
  } else {
    constexpr int kPairs = kColumns / 2;
    double* const own = Tile<kColumns>();
    // Groups of four lanes take their pairs in rotated order, which avoids bank conflicts.
    int at[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) at[j] = 2 * ((j + (kRotated<X> ? lane / 4 : 0)) % kPairs);
    double2 sums[kPairs];
    WideDot<kColumns, kStream>(cols + lane, values + lane, count(lane), x, at, sums);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      *reinterpret_cast<double2*>(own + lane * kColumns + at[j]) = sums[j];
    }
    __syncwarp();
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) dots[slot] = own[32 * slot + lane];
    __syncwarp();
  }
}

// The sums of an epilogue, slot by slot: for several columns in shared memory while rows are
// summed, since registers are needed for the entries being loaded.
template <int kColumns, int kSums>
class SlotSums {
 public:
  __device__ SlotSums() {
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) Of(slot, k) = 0;
    }
  }
  template <class Epilogue>
  __device__ void Row(const Epilogue& epilogue, int64_t at, double y, int slot) {
    double own[kSums];
#pragma unroll
    for (int k = 0; k < kSums; ++k) own[k] = Of(slot, k);
    epilogue.Row(at, y, own);
#pragma unroll
    for (int k = 0; k < kSums; ++k) Of(slot, k) = own[k];
  }
  template <class Epilogue>
  __device__ void Finish(const Epilogue& epilogue) {
    double sums[kColumns][kSums];
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) sums[slot][k] = Of(slot, k);
    }
    epilogue.Finish(sums);
  }

 private:
  __device__ double& Of(int slot, int k) {
    if constexpr (kColumns == 1) {
      return own_[k];
    } else {
      __shared__ double of_threads[kColumns][kSums][kProductThreads];
      return of_threads[slot][k][threadIdx.x];
    }
  }
  double own_[kSums];  // used with a single column
};
template <int kColumns>
class SlotSums<kColumns, 0> {
 public:
  template <class Epilogue>
  __device__ void Row(const Epilogue& epilogue, int64_t at, double y, int) {
    epilogue.Row(at, y);
  }
  template <class Epilogue>
  __device__ void Finish(const Epilogue&) {}
};

// The piece whose warp adds up all pieces of its row. It belongs to the last block that has any of
// them, since a block may only wait for blocks before it, which have begun. Piece q belongs to
// block q % blocks.
__device__ inline int Adder(const Piece& piece, int blocks) {
  const int round = piece.last / blocks;
  return piece.first / blocks == round ? piece.last : round * blocks - 1;
}

// The slices that a warp sums, one after the other: one in each round of all warps.
class Turns {
 public:
  __device__ Turns(int blocks, int shift)
      : warps_(blocks * (kProductThreads / 32)),
        shift_(shift),
        place_(static_cast<int>(blockIdx.x) * (kProductThreads / 32) +
               static_cast<int>(threadIdx.x) / 32) {}
  // May be beyond the last slice; then all that follow are, too.
  __device__ int slice() const { return round_ + place_; }
  __device__ void Advance() {
    round_ += warps_;
    place_ += shift_;
    if (place_ >= warps_) place_ -= warps_;
  }

 private:
  const int warps_, shift_;
  int place_, round_ = 0;
};

// The lane's entries of a chunk.
template <int kEach, class Value>
struct Chunk {
  int32_t col[kEach];
  Value value[kEach];

  __device__ void Ask(const int32_t* cols, const Value* values, int left) {
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const bool in = u < left;
      col[u] = in ? Load<true>(cols + 32 * u) : 0;
      value[u] = in ? Load<true>(values + 32 * u) : Value{0};
    }
  }
};

// Sums the slices for one column, a thread a row, loading the next chunk while one is summed, in
// the order of LaneDot. Calls give(row, sum) for every row of a slice.
template <int kEach, class Value, class X, class Give>
__device__ void SumSlicesAhead(const CsrRef<Value>& a, const X* x, Turns turns, const Give& give) {
  const int lane = static_cast<int>(threadIdx.x) % 32, slices = static_cast<int>(a.slices);
  const int32_t* const cols = a.cols + lane;
  const Value* const values = a.values + lane;
  const auto row_of = [&](int s) -> int64_t {
    const int64_t place = int64_t{s} * 32 + lane;
    return a.order != nullptr && place < a.n ? a.order[place] : place;
  };
  if (turns.slice() >= slices) return;
  const Slice first = a.slice[turns.slice()];
  int64_t row = row_of(turns.slice()), at = first.begin;
  int left = first.steps;
  bool apart = (first.apart >> lane & 1) != 0;
  const auto following = [&] {
    turns.Advance();
    return turns.slice() < slices ? a.slice[turns.slice()] : Slice{};
  };
  Slice ahead = following();
  Chunk<kEach, Value> chunk;
  chunk.Ask(cols + at, values + at, left);
  double sum = 0;
  while (true) {
    const bool ends = left <= kEach;
    at = ends ? ahead.begin : at + 32 * kEach;
    const int next_left = ends ? ahead.steps : left - kEach;
    Chunk<kEach, Value> next;
    next.Ask(cols + at, values + at, next_left);
    double xs[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) xs[u] = u < left ? __ldg(x + chunk.col[u]) : 0.0;
#pragma unroll
    for (int u = 0; u < kEach; ++u) sum = fma(static_cast<double>(chunk.value[u]), xs[u], sum);
    left = next_left;
    chunk = next;
    if (!ends) continue;
    if (!apart) give(row, sum);
    if (turns.slice() >= slices) return;
    sum = 0;
    row = row_of(turns.slice());
    apart = (ahead.apart >> lane & 1) != 0;
    ahead = following();
  }
}

// Sums the rows that are stored apart, a warp a piece. Calls give(row, sum, slot) for rows of one
// piece.
template <int kColumns, bool kStream, bool kPersistent, class Value, class X, class Give>
__device__ void SumPieces(const CsrRef<Value>& a, const X* x, int blocks, const Give& give) {
  const bool is_first = LaneOf<kColumns>(0) == 0;  // the first of the column's lanes
  const int64_t warp = threadIdx.x / 32;
  Piece ahead{};  // loaded while the one before is summed
  int64_t q = blockIdx.x + warp * blocks;
  if (q < a.pieces) ahead = a.piece[q];
  for (; q < a.pieces; q += int64_t{kWarps} * blocks) {
    const Piece piece = ahead;
    const int64_t next = q + int64_t{kWarps} * blocks;
    if (next < a.pieces) ahead = a.piece[next];
    double dots[kColumns];
    Dot<kColumns, kStream, kPersistent>(
        a.cols + piece.begin, a.values + piece.begin,
        [&](int lane) { return (piece.count - lane + 31) / 32; }, x, dots);
    SumOver<32>(dots);
    if (piece.first == piece.last) {
      if (is_first) give(piece.row, dots[0], 0);
      continue;
    }
    if (is_first) a.partial[q * kMostColumns + Column<kColumns>()] = dots[0];
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device>(a.arrived[piece.first])
          .fetch_add(1, ::cuda::memory_order_release);
    }
  }
}

// After SumPieces: adds up rows of several pieces, and calls give(row, sum, slot) for them.
template <int kColumns, class Value, class Give>
__device__ void AddPieces(const CsrRef<Value>& a, int blocks, const Give& give) {
  if (!a.in_pieces) return;
  const int64_t warp = threadIdx.x / 32;
  Piece ahead{};  // loaded while the one before is summed
  int64_t q = blockIdx.x + warp * blocks;
  if (q < a.pieces) ahead = a.piece[q];
  for (; q < a.pieces; q += int64_t{kWarps} * blocks) {
    const Piece piece = ahead;
    const int64_t next = q + int64_t{kWarps} * blocks;
    if (next < a.pieces) ahead = a.piece[next];
    if (piece.first == piece.last || q != Adder(piece, blocks)) continue;
    const int count = piece.last - piece.first + 1;
    const ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device> arrived(a.arrived[piece.first]);
    while (arrived.load(::cuda::memory_order_acquire) != count) {
    }
    __syncwarp();
    double dots[kColumns];
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
      dots[slot] = 0;
      for (int p = piece.first + LaneOf<kColumns>(slot); p <= piece.last; p += 32) {
        dots[slot] += __ldcg(a.partial + int64_t{p} * kMostColumns + Column<kColumns>());
      }
    }
    SumOver<32>(dots);
    if (threadIdx.x % 32 == 0) arrived.store(0, ::cuda::memory_order_relaxed);  // for the next
    if (LaneOf<kColumns>(0) == 0) give(piece.row, dots[0], 0);
  }
}

// Sums the slices, chunk after chunk. Calls give(row, sum, slot) for every row of a slice.
template <int kColumns, int kThreadsARow, bool kStream, bool kPersistent, class Value, class X,
          class Give>
__device__ void SumSlices(const CsrRef<Value>& a, const X* x, Turns turns, const Give& give) {
  constexpr int kRows = 32 / kThreadsARow;
  // The next slice's header is loaded while one is summed.
  Slice slice{};
  int s = turns.slice();
  if (s < a.slices) slice = a.slice[s];
  while (s < a.slices) {
    turns.Advance();
    const int next = turns.slice();
    Slice ahead{};
    if (next < a.slices) ahead = a.slice[next];
    const auto row_of = [&](int slot) -> int64_t {
      const int64_t place = int64_t{s} * kRows + LaneOf<kColumns>(slot) / kThreadsARow;
      return a.order != nullptr && place < a.n ? a.order[place] : place;
    };
    const int64_t row = kColumns == 1 ? row_of(0) : 0;  // ahead; of several, registers are short
    double dots[kColumns];
    Dot<kColumns, kStream, kPersistent>(
        a.cols + slice.begin, a.values + slice.begin, [&](int) { return slice.steps; }, x, dots);
    SumOver<kThreadsARow>(dots);
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
      const int lane = LaneOf<kColumns>(slot);
      if (lane % kThreadsARow == 0 && (slice.apart >> (lane / kThreadsARow) & 1) == 0) {
        give(kColumns == 1 ? row : row_of(slot), dots[slot], slot);
      }
    }
    s = next;
    slice = ahead;
  }
}

// y = A x by `blocks` blocks of the grid; called by all of its threads, kProductThreads a block,
// which all call epilogue.Finish. Where `runs` is false, nothing is done for the thread's column.
// sum_rows(give) calls give(row, sum, slot) for the block's rows that are not stored apart.
template <int kColumns, bool kStream, bool kPersistent, class Value, class X, class Epilogue,
          class SumRows>
__device__ void MultiplyBy(const CsrRef<Value>& a, const X* x, X* y, bool runs, int blocks,
                           const Epilogue& epilogue, const SumRows& sum_rows) {
  const int column = Column<kColumns>();
  SlotSums<kColumns, Epilogue::kSums> sums;
  const auto give = [&](int64_t row, double sum, int slot) {
    if (kColumns > 1 && !runs) return;
    if constexpr (!kWritesItself<Epilogue>) y[row * kColumns + column] = static_cast<X>(sum);
    sums.Row(epilogue, row * kColumns + column, sum, slot);
  };
  if (static_cast<int>(blockIdx.x) < blocks) {
    // Long rows first, as they take longest.
    SumPieces<kColumns, kStream, kPersistent>(a, x, blocks, give);
    sum_rows(give);
    AddPieces<kColumns>(a, blocks, give);
  }
  sums.Finish(epilogue);
}

// The same by slices.
template <int kColumns, int kThreadsARow, bool kStream, bool kPersistent,
          SliceLoop kLoop = SliceLoop::kPlain, class Value, class X, class Epilogue>
__device__ void Multiply(const CsrRef<Value>& a, const X* x, X* y, bool runs, int blocks,
                         const Epilogue& epilogue) {
  MultiplyBy<kColumns, kStream, kPersistent>(
      a, x, y, runs, blocks, epilogue, [&](const auto& give) {
        const Turns turns(blocks, a.shift);
        if constexpr (kLoop != SliceLoop::kPlain) {
          static_assert(kColumns == 1 && kThreadsARow == 1 && kStream && !kPersistent);
          SumSlicesAhead<kChunk<kLoop, Value>>(a, x, turns,
                                               [&](int64_t row, double sum) { give(row, sum, 0); });
        } else {
          SumSlices<kColumns, kThreadsARow, kStream, kPersistent>(a, x, turns, give);
        }
      });
}

template <int kColumns, int kThreadsARow, bool kStream, SliceLoop kLoop, class Value, class X,
          class Epilogue>
__global__ void __launch_bounds__(kProductThreads, kResident<kColumns, kLoop>)
    ProductKernel(CsrRef<Value> a, const X* __restrict__ x, X* __restrict__ y, Epilogue epilogue) {
  const bool runs = !epilogue.Skip();
  if (!AnyRuns<kColumns>(runs)) return;
  Multiply<kColumns, kThreadsARow, kStream, false, kLoop>(a, x, y, runs,
                                                          static_cast<int>(gridDim.x), epilogue);
}

template <int kColumns, class Value, class X, class Epilogue>
__global__ void __launch_bounds__(kProductThreads, kTileResident<kColumns>)
    TileProductKernel(CsrRef<Value> a, const X* __restrict__ x, X* __restrict__ y,
                      Epilogue epilogue) {
  const bool runs = !epilogue.Skip();
  if (!AnyRuns<kColumns>(runs)) return;
  const auto blocks = static_cast<int>(gridDim.x);
  MultiplyBy<kColumns, true, false>(a, x, y, runs, blocks, epilogue, [&](const auto& give) {
    SumTiles<kColumns>(a, x, blocks, give);
  });
}

}  // namespace product

// y = A x on the branch's stream; x and y, of doubles or floats, have n rows of kColumns elements
// on the device; nothing, nor the epilogue, may write x meanwhile. Uses at most kProductMaxBlocks
// blocks of kProductThreads threads, the same number for every epilogue; which thread gets which
// rows is fixed, so that all sums are the same bits in every launch, and a column's for every
// kColumns: 1, 2 or 4. One launch of the same matrix at a time.
template <int kColumns = 1, class Value, class X, class Epilogue>
void LaunchProduct(const Branch& branch, const Csr<Value>& rows, const X* x, X* y,
                   const Epilogue& epilogue) {
  using namespace product;
  if (rows.in_tiles()) {
    const auto kernel = &TileProductKernel<kColumns, Value, X, Epilogue>;
    constexpr int kUsual = 48 << 10;
    if constexpr (kTileBytes < kColumns >> kUsual) {
      AllowSharedMemory(rows.context(), kernel, kTileBytes<kColumns>);
    }
    Launch(branch, kernel, rows.blocks(), 1, kProductThreads, kTileBytes<kColumns>, rows.ref(), x,
           y, epilogue);
    return;
  }
  using Kernel = void (*)(CsrRef<Value>, const X*, X*, Epilogue);
  const auto kernel_of = [&]() -> Kernel {
    constexpr SliceLoop kPlain = SliceLoop::kPlain;
    if (rows.threads_a_row() > 1) {
      return &ProductKernel<kColumns, kManyThreads, false, kPlain, Value, X, Epilogue>;
    }
    if (!rows.streams()) return &ProductKernel<kColumns, 1, false, kPlain, Value, X, Epilogue>;
    if constexpr (kColumns > 1) {
      return &ProductKernel<kColumns, 1, true, kPlain, Value, X, Epilogue>;
    } else {
      return rows.loop() == SliceLoop::kLongChunks
                 ? &ProductKernel<1, 1, true, SliceLoop::kLongChunks, Value, X, Epilogue>
                 : &ProductKernel<1, 1, true, SliceLoop::kShortChunks, Value, X, Epilogue>;
    }
  };
  Launch(branch, kernel_of(), rows.blocks(), 1, kProductThreads, 0, rows.ref(), x, y, epilogue);
}

}  // namespace spaid::cuda
