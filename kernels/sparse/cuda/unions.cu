#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/team.h"
#include "kernels/sparse/cuda/unions.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;                  // lanes that look at one list together
constexpr uint32_t kNone = ~uint32_t{0};  // larger than any row

int Blocks(int64_t threads) { return static_cast<int>((threads + kThreads - 1) / kThreads); }

__device__ int64_t Thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__device__ unsigned TeamMask() { return 0xffu << (threadIdx.x % 32 / kTeam * kTeam); }

// Elements of all lists of each column together; kMany stands for as many or more.
constexpr int64_t kMany = int64_t{1} << 30;

__global__ void BoundKernel(Unions unions, int32_t* bounds) {
  const int64_t k = Thread() / kTeam;
  if (k >= unions.n) return;
  int64_t sum = 0;
  for (int64_t i = threadIdx.x % kTeam; i < unions.Lists(k); i += kTeam) {
    sum += unions.At(k, i).size;
  }
  for (int step = kTeam / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(TeamMask(), sum, step, kTeam);
  }
  if (threadIdx.x % kTeam == 0) bounds[k] = static_cast<int32_t>(sum < kMany ? sum : kMany);
}

// Enters `key` into a table of 2^bits slots that has a free one; whether it was new.
__device__ bool Insert(uint32_t* table, int bits, uint32_t key) {
  const uint32_t mask = (1u << bits) - 1;
  for (uint32_t at = key * 0x9e3779b1u >> (32 - bits);; at = (at + 1) & mask) {
    // Most keys of a power are there already: no atomic for those.
    uint32_t found = *const_cast<volatile uint32_t*>(&table[at]);
    if (found == kNone) found = atomicCAS(&table[at], kNone, key);
    if (found == kNone) return true;
    if (found == key) return false;
  }
}

// What a warp can take: so many different elements. A table takes 32 keys more before its being
// full is seen. How many elements it shall take: Variants.
constexpr int kWarps = 8;
constexpr int kWarpBits = 9;
constexpr int kWarpUnique = 384;
static_assert(kWarpUnique + 32 < 1 << kWarpBits);

// What is left of a product to blocks.
struct Left {
  int32_t columns;  // in the list
  int32_t large;    // of those, the ones that need a bitmap to be counted
  int32_t wide;     // that are filled in by a bitmap
};

// counts[k] of columns [begin, end), or, for kFill, their rows. Columns that are too large go into
// the list.
template <bool kFill>
__global__ void __launch_bounds__(32 * kWarps)
    WarpKernel(Unions unions, int64_t begin, int64_t end, const int32_t* bounds,
               int32_t most_elements, int64_t* counts, const int64_t* col_ptr, int32_t* row_idx,
               int32_t* list, Left* left) {
  __shared__ uint32_t tables[kWarps][1 << kWarpBits];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t k = begin + int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (k >= end) return;
  int64_t expected = bounds[k];  // different ones, at most
  if (expected > most_elements) {
    if (!kFill && lane == 0) list[atomicAdd(&left->columns, 1)] = static_cast<int32_t>(k);
    return;
  }
  if (kFill) expected = col_ptr[k + 1] - col_ptr[k];
  if (kFill && expected > kWarpUnique) return;
  int bits = 5;
  while (bits < kWarpBits && 1 << bits < 2 * expected) ++bits;
  const int slots = 1 << bits;
  uint32_t* const table = tables[threadIdx.x / 32];
  for (int i = lane; i < slots; i += 32) table[i] = kNone;
  __syncwarp();

  int count = 0;
  const int64_t lists = unions.Lists(k);
  for (int64_t first = 0; first < lists && count <= kWarpUnique; first += 32 / kTeam) {
    List own{nullptr, 0};
    if (first + lane / kTeam < lists) own = unions.At(k, first + lane / kTeam);
    const int size = static_cast<int>(own.size);
    int longest = size;
    for (int step = kTeam; step < 32; step *= 2) {
      longest = max(longest, __shfl_xor_sync(~0u, longest, step));
    }
    for (int at = 0; at < longest && count <= kWarpUnique; at += kTeam) {
      const int i = at + lane % kTeam;
      const bool added = i < size && Insert(table, bits, static_cast<uint32_t>(own.data[i]));
      count += __popc(__ballot_sync(~0u, added));
    }
  }
  if (!kFill) {
    if (lane != 0) return;
    if (count > kWarpUnique) {
      list[atomicAdd(&left->columns, 1)] = static_cast<int32_t>(k);
    } else {
      counts[k] = count;
    }
    return;
  }
  __syncwarp();
  // The keys to the front of the table: where one goes has been read before.
  int kept = 0;
  for (int first = 0; first < slots; first += 32) {
    const uint32_t key = table[first + lane];
    const unsigned all = __ballot_sync(~0u, key != kNone);
    __syncwarp();  // a vote orders no memory
    if (key != kNone) table[kept + __popc(all & ((1u << lane) - 1))] = key;
    kept += __popc(all);
    __syncwarp();
  }
  int size = 2;
  while (size < kept) size *= 2;
  for (int i = kept + lane; i < size; i += 32) table[i] = kNone;
  __syncwarp();
  Sort<32>(table, size);
  int32_t* const to = row_idx + col_ptr[k];
  for (int i = lane; i < kept; i += 32) to[i] = static_cast<int32_t>(table[i]);
}

// Lists that all threads of a block go through together.
constexpr int64_t kLongList = 512;
constexpr int kMaxLong = 256;
struct LongLists {
  int32_t count;  // 0 before ForElements
  int64_t which[kMaxLong];
};

// Calls use(row) for the elements of column k's lists, in no order, until it returns false (to each
// thread on its own). By a whole block; a barrier ends it.
template <class Use>
__device__ void ForElements(const Unions& unions, int64_t k, LongLists& longs, const Use& use) {
  const int64_t lists = unions.Lists(k);
  bool more = true;
  for (int64_t i = threadIdx.x / kTeam; i < lists; i += blockDim.x / kTeam) {
    const List own = unions.At(k, i);
    if (own.size > kLongList) {
      int place = 0;
      if (threadIdx.x % kTeam == 0) place = atomicAdd(&longs.count, 1);
      place = __shfl_sync(TeamMask(), place, 0, kTeam);
      if (place < kMaxLong) {
        if (threadIdx.x % kTeam == 0) longs.which[place] = i;
        continue;
      }
    }
    for (int64_t q = threadIdx.x % kTeam; more && q < own.size; q += kTeam) {
      more = use(own.data[q]);
    }
  }
  __syncthreads();
  const int count = min(longs.count, kMaxLong);
  for (int l = 0; l < count; ++l) {
    const List own = unions.At(k, longs.which[l]);
    for (int64_t q = threadIdx.x; more && q < own.size; q += blockDim.x) more = use(own.data[q]);
  }
  __syncthreads();
}

// What a block takes: so many different elements. Each thread may enter one more.
constexpr int kBlockThreads = 256;
constexpr int kBlockBits = 13;
constexpr int kBlockUnique = 6144;
static_assert(kBlockUnique + kBlockThreads < 1 << kBlockBits);

// One block for each column of list[0, gridDim.x). counts[k] = -1: it needs a bitmap.
template <bool kFill>
__global__ void __launch_bounds__(kBlockThreads)
    BlockKernel(Unions unions, const int32_t* list, int32_t most_entries, int64_t* counts,
                const int64_t* col_ptr, int32_t* row_idx, Left* left) {
  __shared__ uint32_t table[1 << kBlockBits];
  __shared__ LongLists longs;
  __shared__ int unique;
  const int64_t k = list[blockIdx.x];
  int bits = kBlockBits, size = 0;
  if (kFill) {
    if (col_ptr[k + 1] - col_ptr[k] > most_entries) return;
    size = static_cast<int>(col_ptr[k + 1] - col_ptr[k]);
    bits = 5;
    while (3 << bits < 4 * size) ++bits;
  }
  for (int i = static_cast<int>(threadIdx.x); i < 1 << bits; i += kBlockThreads) table[i] = kNone;
  if (threadIdx.x == 0) longs.count = unique = 0;
  __syncthreads();
  ForElements(unions, k, longs, [&](int32_t row) {
    if (!kFill && *const_cast<volatile int*>(&unique) > kBlockUnique) return false;
    const bool added = Insert(table, bits, static_cast<uint32_t>(row));
    if (!kFill && added) atomicAdd(&unique, 1);
    return true;
  });
  if (!kFill) {
    if (threadIdx.x != 0) return;
    const bool large = unique > kBlockUnique;
    counts[k] = large ? -1 : unique;
    if (large) atomicAdd(&left->large, 1);
    if (unique > most_entries) atomicAdd(&left->wide, 1);
    return;
  }
  Sort<kBlockThreads>(table, 1 << bits);
  int32_t* const to = row_idx + col_ptr[k];
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kBlockThreads) {
    to[i] = static_cast<int32_t>(table[i]);
  }
}

// Bitmaps of up to as many words lie in shared memory.
constexpr int64_t kSharedWords = 10240;

// The columns of list[begin, end) that the blocks above did not take. Where not kShared, `words` of
// `bitmaps` belong to each block; they are read past the first-level cache, as atomics are done
// behind it.
template <bool kFill, bool kShared>
__global__ void __launch_bounds__(kBlockThreads)
    BitmapKernel(Unions unions, const int32_t* list, int32_t begin, int32_t end,
                 int32_t block_entries, int64_t* counts, const int64_t* col_ptr, int32_t* row_idx,
                 uint32_t* bitmaps, int64_t words) {
  using Reduce = cub::BlockReduce<int64_t, kBlockThreads>;
  using Scan = cub::BlockScan<int32_t, kBlockThreads>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
  } scratch;
  __shared__ LongLists longs;
  extern __shared__ uint32_t shared_bitmap[];
  uint32_t* const own = kShared ? shared_bitmap : bitmaps + int64_t{blockIdx.x} * words;
  const auto word = [own](int64_t w) {
    return kShared ? *const_cast<volatile uint32_t*>(&own[w]) : __ldcg(&own[w]);
  };
  for (int32_t i = begin + static_cast<int32_t>(blockIdx.x); i < end;
       i += static_cast<int32_t>(gridDim.x)) {
    const int64_t k = list[i];
    if (kFill ? col_ptr[k + 1] - col_ptr[k] <= block_entries : counts[k] >= 0) continue;
    for (int64_t w = threadIdx.x; w < words; w += kBlockThreads) own[w] = 0;
    if (threadIdx.x == 0) longs.count = 0;
    __syncthreads();
    ForElements(unions, k, longs, [&](int32_t row) {
      const uint32_t bit = 1u << (row & 31);
      if ((word(row >> 5) & bit) == 0) atomicOr(&own[row >> 5], bit);
      return true;
    });
    if (!kFill) {
      int64_t count = 0;
      for (int64_t w = threadIdx.x; w < words; w += kBlockThreads) count += __popc(word(w));
      count = Reduce(scratch.reduce).Sum(count);
      if (threadIdx.x == 0) counts[k] = count;
    } else {
      int32_t* to = row_idx + col_ptr[k];
      for (int64_t first = 0; first < words; first += kBlockThreads) {
        const int64_t w = first + threadIdx.x;
        uint32_t bits = w < words ? word(w) : 0;
        int32_t place = 0, sum = 0;
        Scan(scratch.scan).ExclusiveSum(__popc(bits), place, sum);
        for (; bits != 0; bits &= bits - 1) {
          to[place++] = static_cast<int32_t>(w * 32 + __ffs(static_cast<int>(bits)) - 1);
        }
        to += sum;
        __syncthreads();
      }
    }
    __syncthreads();
  }
}

// Columns of one launch, the grain of cancellation.
constexpr int64_t kWarpWave = 1 << 18;
constexpr int32_t kBlockWave = 1 << 14;
constexpr int32_t kBitmapWave = 1 << 10;

}  // namespace

void AllocateCounted(Context& context, int64_t max_nnz, DevicePattern& out) {
  Scan(context, out.col_ptr, out.n + 1);
  out.nnz = Read(context, out.col_ptr, out.n);
  if (max_nnz > 0 && out.nnz > max_nnz) throw PatternTooLarge{out.nnz};
  out.row_idx = Buffer<int32_t>(context, out.nnz);
}

DevicePattern Unite(Context& context, const Unions& unions, int64_t max_nnz, const Caller& caller) {
  const int64_t words = (unions.n + 31) / 32;
  const int32_t per_entry = context.variants.union_bitmap_words;
  const bool in_shared = words <= kSharedWords;
  const auto block_entries = static_cast<int32_t>(
      in_shared && per_entry > 0 ? std::min<int64_t>(words / per_entry, kBlockUnique)
                                 : kBlockUnique);
  DevicePattern out;
  out.n = unions.n;
  out.col_ptr = Buffer<int64_t>(context, out.n + 1);
  out.col_ptr.Fill(0);
  const Buffer<int32_t> bounds(context, out.n), list(context, out.n);
  const Buffer<Left> left(context, 1);
  left.Fill(0);
  BoundKernel<<<Blocks(out.n * kTeam), kThreads, 0, context.stream>>>(unions, bounds.get());
  CheckLaunch("BoundKernel");

  const auto poll = [&] {
    context.Synchronize();
    caller.Poll();
  };
  const auto by_warps = [&](auto kernel) {
    for (int64_t begin = 0; begin < out.n; begin += kWarpWave) {
      const int64_t end = std::min(begin + kWarpWave, out.n);
      kernel<<<static_cast<int>((end - begin + kWarps - 1) / kWarps), 32 * kWarps, 0,
               context.stream>>>(unions, begin, end, bounds.get(),
                                 context.variants.union_warp_elements, out.col_ptr.get(),
                                 out.col_ptr.get(), out.row_idx.get(), list.get(), left.get());
      CheckLaunch("WarpKernel");
      if (end < out.n) poll();
    }
  };
  Left found{};
  const auto by_blocks = [&](auto kernel) {
    for (int32_t begin = 0; begin < found.columns; begin += kBlockWave) {
      kernel<<<std::min(kBlockWave, found.columns - begin), kBlockThreads, 0, context.stream>>>(
          unions, list.get() + begin, block_entries, out.col_ptr.get(), out.col_ptr.get(),
          out.row_idx.get(), left.get());
      CheckLaunch("BlockKernel");
      poll();
    }
  };
  const auto by_bitmaps = [&](auto in_memory, auto of_block, int32_t count) {
    if (count == 0) return;
    const auto launch = [&](auto kernel, int32_t begin, int32_t wave, int blocks, int shared,
                            uint32_t* bitmaps) {
      const int32_t end = std::min(begin + wave, found.columns);
      kernel<<<std::min(blocks, end - begin), kBlockThreads, shared, context.stream>>>(
          unions, list.get(), begin, end, block_entries, out.col_ptr.get(), out.col_ptr.get(),
          out.row_idx.get(), bitmaps, words);
      CheckLaunch("BitmapKernel");
      poll();
    };
    if (in_shared) {
      for (int32_t begin = 0; begin < found.columns; begin += kBlockWave) {
        launch(of_block, begin, kBlockWave, kBlockWave, static_cast<int>(4 * words), nullptr);
      }
      return;
    }
    const int64_t bytes = 4 * words;
    const int64_t room = (context.arena->limit() - context.arena->used() - Arena::kGrain) / bytes;
    const auto blocks = static_cast<int>(
        std::clamp<int64_t>(room, 1, std::min<int64_t>(count, 2 * context.multiprocessors)));
    const Buffer<uint32_t> bitmaps(context, blocks * words);
    for (int32_t begin = 0; begin < found.columns; begin += kBitmapWave) {
      launch(in_memory, begin, kBitmapWave, blocks, 0, bitmaps.get());
    }
  };
  by_warps(WarpKernel<false>);
  found = Read(context, left, 0);
  by_blocks(BlockKernel<false>);
  found = Read(context, left, 0);
  by_bitmaps(BitmapKernel<false, false>, BitmapKernel<false, true>, found.large);
  AllocateCounted(context, max_nnz, out);
  by_warps(WarpKernel<true>);
  by_blocks(BlockKernel<true>);
  by_bitmaps(BitmapKernel<true, false>, BitmapKernel<true, true>, found.wide);
  return out;
}

}  // namespace spaid::cuda
