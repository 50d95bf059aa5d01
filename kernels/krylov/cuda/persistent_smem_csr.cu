#include <algorithm>
#include <vector>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/persistent_smem_csr.h"

namespace spaid::cuda {
namespace {

using namespace layout;

// Block size of the kernels whose blocks lay out one share each.
constexpr int kShareThreads = 1024;
// At least so many rows a block: smaller systems have fewer blocks.
constexpr int64_t kFewestRows = 32;
// Cost of a row and of an entry to a block, in bytes of shared memory or of time; and the
// additional cost of an entry in another block's row.
constexpr int64_t kRowCost = 40, kEntryCost = 10, kHaloCost = 44;
// A row's length and number in one sort key: longer rows first, equally long ones in their order.
constexpr int kNumberBits = 12;
static_assert(kSmemMostRows * kSmemThreads < 1 << kNumberBits);
constexpr int64_t kLongest = (1 << (31 - kNumberBits)) - 1;

// The cut of A into shares and pieces, for all kernels here.
struct Cut {
  CsrArrays a;
  const int64_t* cost;  // sums over the rows before each
  int64_t piece;        // entries of a piece, at most
};

__device__ int32_t PiecesOf(const Cut& cut, int64_t length) {
  return static_cast<int32_t>(max((length + cut.piece - 1) / cut.piece, int64_t{1}));
}
// First entry of piece q of a row.
__device__ int64_t PieceBegin(int64_t length, int32_t pieces, int32_t q) {
  return length / pieces * q + min(int64_t{q}, length % pieces);
}
__device__ int64_t PieceLength(int64_t length, int32_t pieces, int32_t q) {
  return PieceBegin(length, pieces, q + 1) - PieceBegin(length, pieces, q);
}

__global__ void CostKernel(CsrArrays a, int64_t near, int64_t* cost) {
  for (int64_t i = WarpOfGrid(); i < a.n; i += WarpsOfGrid()) {
    int far = 0;
    for (int64_t p = a.row_ptr[i] + Lane(); p < a.row_ptr[i + 1]; p += 32) {
      far += abs(a.cols[p] - i) >= near ? 1 : 0;
    }
    far = __reduce_add_sync(~0u, far);
    if (Lane() == 0) cost[i] = kRowCost + kEntryCost * a.Length(i) + kHaloCost * far;
  }
}

// First row of a share: the first one before which the share's part of the total cost is reached.
__device__ int64_t FirstRow(const Cut& cut, int64_t share, int64_t shares) {
  if (share == shares) return cut.a.n;
  const int64_t want = cut.cost[cut.a.n] / shares * share;
  int64_t low = 0, high = cut.a.n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (cut.cost[middle] < want) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Sum over the block, for all of its threads; `before`: the sum over lower threads.
__device__ int32_t SumShare(int32_t own, int32_t* before = nullptr) {
  __shared__ int32_t of_warp[kShareThreads / 32];
  const int lane = Lane(), warp = static_cast<int>(threadIdx.x) / 32;
  int32_t sum = own;
  for (int step = 1; step < 32; step *= 2) {
    const int32_t other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int32_t all = 0, warps_before = 0;
  for (int w = 0; w < kShareThreads / 32; ++w) {
    if (w == warp) warps_before = all;
    all += of_warp[w];
  }
  if (before != nullptr) *before = warps_before + sum - own;
  return all;
}

// Sorts each share's rows, and sets those of its sizes that depend on their lengths alone. `place`:
// the inverse of the order.
__global__ void __launch_bounds__(kShareThreads)
    OrderKernel(Cut cut, SmemShare* shares, int32_t* order, int32_t* place) {
  __shared__ uint32_t keys[kSmemMostRows * kSmemThreads];
  __shared__ int32_t lengths[kSmemMostRows * kSmemThreads];  // first pieces, by place
  __shared__ int32_t longest_split;                          // first piece of a split row
  const int64_t first = FirstRow(cut, blockIdx.x, gridDim.x);
  const auto rows = static_cast<int32_t>(FirstRow(cut, blockIdx.x + 1, gridDim.x) - first);
  const int thread = static_cast<int>(threadIdx.x);
  SmemShare share{};
  share.first = static_cast<int32_t>(first);
  share.rows = rows;
  if (rows > kSmemMostRows * kSmemThreads) {
    if (thread == 0) shares[blockIdx.x] = share;  // does not fit
    return;
  }
  for (int32_t i = thread; i < rows; i += kShareThreads) {
    const auto length = static_cast<uint32_t>(min(cut.a.Length(first + i), kLongest));
    keys[i] = length << kNumberBits | static_cast<uint32_t>((1 << kNumberBits) - 1 - i);
  }
  if (thread == 0) longest_split = 0;
  __syncthreads();
  int32_t split = 0, tails = 0;
  for (int32_t i = thread; i < rows; i += kShareThreads) {
    const uint32_t own = keys[i];
    int32_t before = 0;
    for (int32_t other = 0; other < rows; ++other) before += keys[other] > own ? 1 : 0;
    order[first + before] = static_cast<int32_t>(first + i);
    place[first + i] = static_cast<int32_t>(first + before);
    const int64_t length = cut.a.Length(first + i);
    const int32_t pieces = PiecesOf(cut, length);
    lengths[before] = static_cast<int32_t>(PieceLength(length, pieces, 0));
    if (pieces == 1) continue;
    ++split;
    tails += pieces - 1;
    atomicMax(&longest_split, lengths[before]);
  }
  split = SumShare(split);
  tails = SumShare(tails);
  share.split = split;
  share.slices = (rows + 31) / 32;
  share.tails = (tails + 31) / 32;
  int32_t steps = 0;
  for (int32_t s = thread; s < share.slices; s += kShareThreads) {
    int32_t longest = 0;
    for (int32_t i = 32 * s; i < min(32 * s + 32, rows); ++i) longest = max(longest, lengths[i]);
    steps += longest;
  }
  share.tail_steps = longest_split;
  share.stored = 32 * (SumShare(steps) + share.tails * share.tail_steps);
  if (thread == 0) shares[blockIdx.x] = share;
}

// Sets a bit for each place of other shares that this one needs, in the first half of `bits`, and
// in the second half how many there are before each word. Returns how many.
__device__ int32_t FindHalo(const CsrArrays& a, const SmemShare& share, const int32_t* place,
                            uint32_t* bits) {
  const auto words = static_cast<int32_t>((a.n + 31) / 32);
  const int thread = static_cast<int>(threadIdx.x);
  for (int32_t w = thread; w < words; w += kShareThreads) bits[w] = 0;
  __syncthreads();
  for (int64_t p = a.row_ptr[share.first] + thread; p < a.row_ptr[share.first + share.rows];
       p += kShareThreads) {
    const int32_t at = place[a.cols[p]];
    if (at - share.first < 0 || at - share.first >= share.rows) {
      atomicOr(bits + at / 32, 1u << at % 32);
    }
  }
  __syncthreads();
  const int32_t each = (words + kShareThreads - 1) / kShareThreads;
  const int32_t begin = min(thread * each, words), end = min(begin + each, words);
  int32_t count = 0, before = 0;
  for (int32_t w = begin; w < end; ++w) count += __popc(bits[w]);
  const int32_t all = SumShare(count, &before);
  for (int32_t w = begin; w < end; ++w) {
    bits[words + w] = static_cast<uint32_t>(before);
    before += __popc(bits[w]);
  }
  __syncthreads();
  return all;
}

__global__ void __launch_bounds__(kShareThreads)
    HaloKernel(CsrArrays a, const int32_t* place, SmemShare* shares) {
  extern __shared__ uint32_t bits[];
  const int32_t count = FindHalo(a, shares[blockIdx.x], place, bits);
  if (threadIdx.x == 0) shares[blockIdx.x].halo_rows = count;
}

struct Filled {
  const int32_t *order, *place;
  int32_t *halo, *slice_end, *tail_end, *tail_row;
  uint16_t* cols;
  double* values;
};

// Fills the arrays of one share. `tail_row`: the row of every further piece, 32 for each of their
// slices; -1: padding.
__global__ void __launch_bounds__(kShareThreads)
    FillKernel(Cut cut, const double* values, const SmemShare* shares, Filled to) {
  extern __shared__ uint32_t bits[];
  const CsrArrays& a = cut.a;
  const SmemShare share = shares[blockIdx.x];
  FindHalo(a, share, to.place, bits);
  const auto words = static_cast<int32_t>((a.n + 31) / 32);
  const int thread = static_cast<int>(threadIdx.x), lane = Lane(), warp = thread / 32;
  for (int32_t w = thread; w < words; w += kShareThreads) {
    int32_t at = share.halo + static_cast<int32_t>(bits[words + w]);
    for (uint32_t left = bits[w]; left != 0; left &= left - 1)
      to.halo[at++] = 32 * w + __ffs(left) - 1;
  }
  // Ends of split rows' further pieces, and of slices.
  for (int32_t done = 0, begin = 0; begin < share.split; begin += kShareThreads) {
    const int32_t at = begin + thread;
    const bool is_split = at < share.split;
    const int32_t own = is_split ? PiecesOf(cut, a.Length(to.order[share.first + at])) - 1 : 0;
    int32_t before = 0;
    const int32_t all = SumShare(own, &before);
    if (is_split) to.tail_end[share.tail + at] = done + before + own;
    done += all;
  }
  __shared__ int32_t steps_of[kSmemMostRows * kSmemThreads / 32];
  for (int32_t s = warp; s < share.slices; s += kShareThreads / 32) {
    const int32_t at = 32 * s + lane;
    const int64_t length = at < share.rows ? a.Length(to.order[share.first + at]) : 0;
    const auto own = static_cast<int32_t>(PieceLength(length, PiecesOf(cut, length), 0));
    const int32_t longest = __reduce_max_sync(~0u, own);
    if (lane == 0) steps_of[s] = longest;
  }
  __syncthreads();
  if (thread == 0) {
    int32_t end = 0;
    for (int32_t s = 0; s < share.slices + share.tails; ++s) {
      to.slice_end[share.slice + s] = end += s < share.slices ? steps_of[s] : share.tail_steps;
    }
  }
  __syncthreads();
  const auto local = [&](int32_t col) {
    const int32_t at = to.place[col], own = at - share.first;
    if (own >= 0 && own < share.rows) return own;
    const uint32_t below = bits[at / 32] & ((1u << at % 32) - 1);
    return share.rows + static_cast<int32_t>(bits[words + at / 32]) + __popc(below);
  };
  for (int32_t s = warp; s < share.slices + share.tails; s += kShareThreads / 32) {
    const bool is_tail = s >= share.slices;
    int32_t at = 32 * s + lane, q = 0;  // place of the lane's row, and its piece
    if (is_tail) {
      const int32_t tail = 32 * (s - share.slices) + lane;
      for (at = 0; at < share.split && to.tail_end[share.tail + at] <= tail;) ++at;
      if (at < share.split) q = 1 + tail - (at > 0 ? to.tail_end[share.tail + at - 1] : 0);
    }
    const bool is_row = is_tail ? at < share.split : at < share.rows;
    int64_t begin = 0, length = 0;
    if (is_row) {
      const int64_t row = to.order[share.first + at], all = a.Length(row);
      const int32_t pieces = PiecesOf(cut, all);
      begin = a.row_ptr[row] + PieceBegin(all, pieces, q);
      length = PieceLength(all, pieces, q);
    }
    if (is_tail) {
      to.tail_row[32 * (share.slice + s) + lane] = is_row ? to.order[share.first + at] : -1;
    }
    const int32_t from = s > 0 ? to.slice_end[share.slice + s - 1] : 0;
    for (int32_t k = from; k < to.slice_end[share.slice + s]; ++k) {
      // Padding repeats the row's last column, or has the row itself where that is empty.
      const int64_t e = min(int64_t{k - from}, length - 1);
      const int32_t col = length > 0 ? local(a.cols[begin + e]) : is_row ? at : 0;
      const int64_t entry = share.entries + 32 * int64_t{k} + lane;
      to.cols[entry] = static_cast<uint16_t>(col);
      to.values[entry] = k - from < length ? values[begin + e] : 0;
    }
  }
}

// Sets new values, found by row and column, as in csr.cu.
__global__ void __launch_bounds__(kShareThreads)
    ValuesKernel(PatternRef a, const double* a_values, SmemCsrRef to, const int32_t* tail_row,
                 double* values) {
  const SmemShare share = to.shares[blockIdx.x];
  const int lane = Lane(), warp = static_cast<int>(threadIdx.x) / 32;
  for (int32_t s = warp; s < share.slices + share.tails; s += kShareThreads / 32) {
    const int32_t at = 32 * s + lane;
    int64_t row = -1;
    if (s >= share.slices) {
      row = tail_row[32 * (share.slice + s) + lane];
    } else if (at < share.rows) {
      row = to.order[share.first + at];
    }
    const int32_t from = s > 0 ? to.slice_end[share.slice + s - 1] : 0;
    for (int32_t k = from; k < to.slice_end[share.slice + s]; ++k) {
      const int64_t e = share.entries + 32 * int64_t{k} + lane;
      const int32_t col = to.cols[e];
      const bool beyond = row < 0 || (k > from && to.cols[e - 32] == col);
      const int32_t place =
          col < share.rows ? share.first + col : to.halo[share.halo + col - share.rows];
      values[e] = beyond ? 0 : EntryAt(a, a_values, row, to.order[place]);
    }
  }
}

}  // namespace

std::optional<SmemCsr> SmemCsr::Make(Context& context, const CsrArrays& a, const double* values,
                                     int64_t nnz) {
  int most_bytes = 0;
  Check(
      cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
      "cudaDeviceGetAttribute");
  const int64_t most_blocks = std::min(context.multiprocessors, kSmemMostBlocks);
  const int64_t words_bytes = (a.n + 31) / 32 * 2 * static_cast<int64_t>(sizeof(uint32_t));
  constexpr int64_t kStaticBytes = 4096;  // at most, of any kernel that has a share's bytes
  if (a.n > most_blocks * kSmemMostRows * kSmemThreads || words_bytes > most_bytes - kStaticBytes) {
    return std::nullopt;
  }
  const auto blocks = static_cast<int>(std::clamp<int64_t>(a.n / kFewestRows, 1, most_blocks));
  const cudaStream_t stream = context.stream;
  SmemCsr made;
  made.shares_ = Buffer<SmemShare>(context, blocks);
  made.order_ = Buffer<int32_t>(context, a.n);
  const Buffer<int32_t> place(context, a.n);
  const Buffer<int64_t> cost(context, a.n + 1);
  CostKernel<<<Blocks(context, a.n, kWarps), kThreads, 0, stream>>>(a, (a.n + blocks - 1) / blocks,
                                                                    cost.get());
  CheckLaunch("CostKernel");
  Scan(context, cost, a.n + 1);
  // The longest piece: a long row is the work of several threads, and no slice is much longer than
  // a warp's share of all entries.
  constexpr int64_t kShortestPiece = 16;
  const Cut cut{a, cost.get(),
                std::max(kShortestPiece, nnz * 3 / 2 / (int64_t{blocks} * kSmemThreads))};
  OrderKernel<<<blocks, kShareThreads, 0, stream>>>(cut, made.shares_.get(), made.order_.get(),
                                                    place.get());
  CheckLaunch("OrderKernel");
  std::vector<SmemShare> shares(static_cast<size_t>(blocks));
  const auto read = [&] {
    made.shares_.CopyOut(shares.data(), blocks);
    context.Synchronize();
  };
  read();
  int32_t most_rows = 0;
  for (const SmemShare& share : shares) most_rows = std::max(most_rows, share.rows);
  if (most_rows > kSmemMostRows * kSmemThreads) return std::nullopt;
  made.rows_a_thread_ = std::max(1, (most_rows + kSmemThreads - 1) / kSmemThreads);
  for (const auto kernel :
       {reinterpret_cast<const void*>(&HaloKernel), reinterpret_cast<const void*>(&FillKernel)}) {
    AllowSharedMemory(context, kernel, static_cast<int>(words_bytes));
  }
  HaloKernel<<<blocks, kShareThreads, static_cast<size_t>(words_bytes), stream>>>(
      a, place.get(), made.shares_.get());
  CheckLaunch("HaloKernel");
  read();
  SmemShare all{};
  for (SmemShare& share : shares) {
    made.shared_bytes_ = std::max(made.shared_bytes_, SmemBytes(share));
    share.entries = all.entries;
    share.slice = all.slice;
    share.halo = all.halo;
    share.tail = all.tail;
    all.entries += share.stored;
    all.slice += share.slices + share.tails;
    all.halo += share.halo_rows;
    all.tail += share.split;
    // Columns are 16-bit indices.
    if (share.rows + share.halo_rows > 1 << 16) return std::nullopt;
  }
  if (made.shared_bytes_ > most_bytes - kStaticBytes) return std::nullopt;
  made.shares_.CopyIn(shares.data(), blocks);
  made.halo_ = Buffer<int32_t>(context, all.halo);
  made.slice_end_ = Buffer<int32_t>(context, all.slice);
  made.tail_end_ = Buffer<int32_t>(context, all.tail);
  made.tail_row_ = Buffer<int32_t>(context, all.tail > 0 ? 32 * int64_t{all.slice} : 0);
  made.cols_ = Buffer<uint16_t>(context, all.entries);
  made.values_ = Buffer<double>(context, all.entries);
  FillKernel<<<blocks, kShareThreads, static_cast<size_t>(words_bytes), stream>>>(
      cut, values, made.shares_.get(),
      {made.order_.get(), place.get(), made.halo_.get(), made.slice_end_.get(),
       made.tail_end_.get(), made.tail_row_.get(), made.cols_.get(), made.values_.get()});
  CheckLaunch("FillKernel");
  context.Synchronize();
  return made;
}

void SmemCsr::UpdateValues(const Context& context, const PatternRef& pattern,
                           const double* values) {
  ValuesKernel<<<blocks(), kShareThreads, 0, context.stream>>>(pattern, values, ref(),
                                                               tail_row_.get(), values_.get());
  CheckLaunch("ValuesKernel");
}

SmemCsrRef SmemCsr::ref() const {
  return {shares_.get(),   order_.get(), halo_.get(),  slice_end_.get(),
          tail_end_.get(), cols_.get(),  values_.get()};
}

int64_t SmemCsr::bytes() const {
  const auto size = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return size(shares_) + size(order_) + size(halo_) + size(slice_end_) + size(tail_end_) +
         size(tail_row_) + size(cols_) + size(values_);
}

}  // namespace spaid::cuda
