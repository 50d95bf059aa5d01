// Finds I of each structure and lays out its entries (plan.h: Structure).
#include <algorithm>
#include <type_traits>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/base/cuda/team.h"
#include "kernels/static_spai/cuda/plan.h"

namespace spaid::cuda {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};  // larger than any row
constexpr int kSmallEntries = 512;        // entries of Â of a warp's table
constexpr int kWarps = 4;                 // a block of such warps

struct Input {
  PatternRef a, m;
  const int32_t* members;
  const int32_t* group_ptr;
  const int32_t* representative;
};

constexpr int kMeasureTeam = 8;  // lanes that measure one structure

// Measures the sizes of each structure, and the words of its table, at most. Structures too large
// for shared memory get none; those without `uses` count as too large for any kernel.
__global__ void MeasureKernel(Input in, int32_t n_structures, const int32_t* uses,
                              Structure* structures, int64_t* words) {
  const int64_t s = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kMeasureTeam;
  const bool real = s < n_structures;
  const int32_t g = real ? in.representative[s] : 0;
  const int32_t begin = in.group_ptr[g], width = in.group_ptr[g + 1] - begin;
  const int32_t k = in.members[begin];
  const int64_t first = in.m.col_ptr[k], end = real ? in.m.col_ptr[k + 1] : first;
  int64_t entries = 0, longest = 0;
#pragma unroll 4
  for (int64_t p = first + threadIdx.x % kMeasureTeam; p < end; p += kMeasureTeam) {
    const int32_t j = in.m.row_idx[p];
    const int64_t length = in.a.col_ptr[j + 1] - in.a.col_ptr[j];
    entries += length;
    longest = max(longest, length);
  }
  for (int step = kMeasureTeam / 2; step > 0; step /= 2) {
    entries += __shfl_xor_sync(~0u, entries, step);
    longest = max(longest, __shfl_xor_sync(~0u, longest, step));
  }
  if (s > n_structures || threadIdx.x % kMeasureTeam != 0) return;
  if (!real) {
    words[s] = 0;
    return;
  }
  const bool fits = end - first <= kMaxColumns && longest < kMaxLength && entries <= kMaxEntries;
  const bool used = uses == nullptr || uses[s] != 0;
  Structure structure;
  structure.all_entries = used || !fits ? entries : INT64_MAX;
  structure.entries = used && fits ? static_cast<int32_t>(entries) : 0;
  structure.width = width;
  structures[s] = structure;
  words[s] = structure.words();
}

// The largest structure that has no table and is not left to the host.
__global__ void FindLargestKernel(Input in, int32_t n_structures, const Structure* structures,
                                  LargestLocal* large) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= n_structures || structures[s].entries > 0) return;
  const int32_t k = in.members[in.group_ptr[in.representative[s]]];
  const int64_t n2 = in.m.col_ptr[k + 1] - in.m.col_ptr[k], entries = structures[s].all_entries;
  if (n2 > kMaxLargeColumns || entries > kMaxLargeEntries) return;
  atomicMax(reinterpret_cast<long long*>(&large->n2), static_cast<long long>(n2));
  atomicMax(reinterpret_cast<long long*>(&large->entries), static_cast<long long>(entries));
}

// Shared memory of a table with at most kCapacity entries, a power of two.
template <int kCapacity>
struct Scratch {
  using Slot = std::conditional_t<(kCapacity > 8192), unsigned short, unsigned int>;
  static constexpr Slot kFree = static_cast<Slot>(~0u);
  static constexpr Slot kNumbered = static_cast<Slot>(kFree / 2 + 1);

  int64_t base[kMaxColumns];         // first entry of column J[a] in A
  uint32_t offset[kMaxColumns + 1];  // first entry of local column a
  uint32_t next[kCapacity / kChunkRows + 2];
  uint32_t masks[kCapacity / kChunkRows * Structure::kMaskWords];
  int counts[32];  // of each warp
  uint32_t
      rows[kCapacity];    // of A, of each entry; in the end kMaxColumns times that of I, + column
  Slot slots[kCapacity];  // hash table of I: a row's first entry; in the end kNumbered | number
  uint16_t slot[kCapacity];   // of each entry
  uint8_t column[kCapacity];  // of each entry
};
static_assert(kMaxColumns <= 256);

// An open hash table of the rows of entries, of `size` slots, a power of two, as many as there are
// entries or more.
template <int kCapacity>
struct RowTable {
  using Slot = typename Scratch<kCapacity>::Slot;
  static constexpr Slot kFree = Scratch<kCapacity>::kFree;

  Scratch<kCapacity>& scratch;
  int size;

  __device__ int Start(uint32_t row) const {
    constexpr uint32_t kGolden = 0x9e3779b1;  // Knuth's multiplicative hash
    return static_cast<int>(row * kGolden >> (__clz(size) + 1));
  }

  // Enters entry e, and returns its slot. In the end a slot has the lowest entry of its row,
  // whatever the order of threads.
  __device__ int Enter(int e) {
    const auto own = static_cast<Slot>(e);
    const uint32_t row = scratch.rows[e];
    for (int at = Start(row);; at = (at + 1) & (size - 1)) {
      Slot* const slot = scratch.slots + at;
      Slot there = *const_cast<volatile Slot*>(slot);
      if (there == kFree) there = atomicCAS(slot, kFree, own);
      if (there == kFree) return at;
      if (scratch.rows[there] != row) continue;
      while (own < there) {
        const Slot seen = atomicCAS(slot, there, own);
        if (seen == there) break;
        there = seen;
      }
      return at;
    }
  }

  // The slot of a row once all are entered; -1: it is not in I.
  __device__ int Find(uint32_t row) const {
    int at = Start(row);
    for (int probe = 0; probe < size; ++probe, at = (at + 1) & (size - 1)) {
      const Slot there = scratch.slots[at];
      if (there == kFree) return -1;
      if (scratch.rows[there] == row) return at;
    }
    return -1;
  }
};

// Rows are numbered in the order of their first entries.
template <int kThreads, int kCapacity>
__device__ void MakeTable(const Input& in, int32_t s, int64_t table, Structure* structures,
                          uint32_t* tables, Scratch<kCapacity>& scratch) {
  using Own = Team<kThreads>;
  using Slot = typename Scratch<kCapacity>::Slot;
  constexpr Slot kNumbered = Scratch<kCapacity>::kNumbered;
  const int thread = Own::thread(), lane = thread % 32;
  const int32_t g = in.representative[s];
  const int32_t first = in.group_ptr[g], width = in.group_ptr[g + 1] - first;
  const int32_t k = in.members[first];
  const int64_t j_begin = in.m.col_ptr[k];
  const int n2 = static_cast<int>(in.m.col_ptr[k + 1] - j_begin);
  if (thread < 32) {
    if (thread == 0) scratch.offset[0] = 0;
    uint32_t before = 0;
    for (int begin = 0; begin < n2; begin += 32) {
      const int a = begin + lane;
      uint32_t sum = 0;
      if (a < n2) {
        const int32_t j = in.m.row_idx[j_begin + a];
        scratch.base[a] = in.a.col_ptr[j];
        sum = static_cast<uint32_t>(in.a.col_ptr[j + 1] - scratch.base[a]);
      }
      for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, sum, static_cast<unsigned>(step));
        if (lane >= step) sum += other;
      }
      if (a < n2) scratch.offset[a + 1] = before + sum;
      before += __shfl_sync(~0u, sum, 31);
    }
  }
  Own::Sync();
  const int entries = static_cast<int>(scratch.offset[n2]);
  RowTable<kCapacity> rows{scratch, 2};
  while (rows.size < entries) rows.size *= 2;
  for (int i = thread; i < rows.size; i += kThreads) scratch.slots[i] = rows.kFree;
  const int most_chunks = (entries + kChunkRows - 1) / kChunkRows;
  for (int c = thread; c <= most_chunks; c += kThreads) scratch.next[c] = 0;
  for (int i = thread; i < most_chunks * Structure::kMaskWords; i += kThreads) {
    scratch.masks[i] = 0;
  }
  for (int e = thread; e < entries; e += kThreads) {
    int low = 0, high = n2;  // offset[low] <= e < offset[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (scratch.offset[middle] <= static_cast<uint32_t>(e)) {
        low = middle;
      } else {
        high = middle;
      }
    }
    scratch.column[e] = static_cast<uint8_t>(low);
    scratch.rows[e] = static_cast<uint32_t>(
        in.a.row_idx[scratch.base[low] + e - static_cast<int64_t>(scratch.offset[low])]);
  }
  Own::Sync();
  for (int e = thread; e < entries; e += kThreads) {
    scratch.slot[e] = static_cast<uint16_t>(rows.Enter(e));
  }
  Own::Sync();
  static_assert(kMaxWidth <= 32);
  const int target =
      thread < width ? rows.Find(static_cast<uint32_t>(in.members[first + thread])) : -1;
  Own::Sync();

  const auto tiles = static_cast<uint32_t>(TilesFor(n2));
  int n1 = 0;
  for (int begin = 0; begin < entries; begin += kThreads) {
    const int e = begin + thread;
    Slot* const slot = e < entries ? scratch.slots + scratch.slot[e] : nullptr;
    const bool is_first = slot != nullptr && *slot == static_cast<Slot>(e);
    const unsigned vote = __ballot_sync(~0u, is_first);
    int number = n1 + __popc(vote & ((1u << lane) - 1));
    if (kThreads == 32) {
      n1 += __popc(vote);
    } else {
      if (lane == 0) scratch.counts[thread / 32] = __popc(vote);
      Own::Sync();
      for (int w = 0; w < kThreads / 32; ++w) {
        const int own = scratch.counts[w];
        if (w < thread / 32) number += own;
        n1 += own;
      }
    }
    // Entries of the row that do not come first differ from what it is before and after.
    if (is_first) *slot = static_cast<Slot>(kNumbered | static_cast<Slot>(number));
    Own::Sync();  // all that come first so far are numbered
    if (slot == nullptr) continue;
    const auto row = static_cast<uint32_t>(*slot & ~kNumbered);
    const uint32_t column = scratch.column[e];
    scratch.rows[e] = row * kMaxColumns + column;
    atomicAdd(&scratch.next[row / kChunkRows + 1], 1u);
    // Rows 4 i to 4 i + 3 of the matrix: half i % 2 of word i / 2.
    const uint32_t bit = 1u << (column / 8) << (row / 4 % 2 * 16);
    if ((scratch.masks[row / 8] & bit) == 0) atomicOr(&scratch.masks[row / 8], bit);
  }
  const int chunks = (n1 + kChunkRows - 1) / kChunkRows;
  Own::Sync();
  if (thread == 0) {
    for (int c = 0; c < chunks; ++c) scratch.next[c + 1] += scratch.next[c];
  }
  Own::Sync();
  uint32_t* const to = tables + table;
  uint32_t* const masks = to + chunks + 1;
  uint32_t* const list = masks + chunks * Structure::kMaskWords;
  for (int c = thread; c <= chunks; c += kThreads) to[c] = scratch.next[c];
  for (int i = thread; i < chunks * Structure::kMaskWords; i += kThreads) {
    masks[i] = scratch.masks[i];
  }
  Own::Sync();
  for (int e = thread; e < entries; e += kThreads) {
    const uint32_t column = scratch.rows[e] % kMaxColumns, row = scratch.rows[e] / kMaxColumns;
    const uint32_t at = atomicAdd(&scratch.next[row / kChunkRows], 1u);
    list[at] = PackEntry(static_cast<uint32_t>(e) - scratch.offset[column], column,
                         ChunkPlace(tiles, row % kChunkRows, column));
  }
  if (thread < width) {
    list[entries + thread] =
        target < 0 ? kNoRow : static_cast<uint32_t>(scratch.slots[target] & ~kNumbered);
  }
  if (thread == 0) {
    Structure& structure = structures[s];
    structure.table = table;
    structure.n1 = n1;
    structure.chunks = chunks;
  }
}

// Element e of a list that a warp holds in registers: word e / 32 of lane e % 32.
template <class T>
__device__ T Element(const T (&list)[2], int e) {
  const T low = __shfl_sync(~0u, list[0], e % 32), high = __shfl_sync(~0u, list[1], e % 32);
  return e < 32 ? low : high;
}

constexpr int kTinyEntries = 64;

// Makes a table of at most kTinyEntries entries by one warp that has all of them in registers:
// entry, or local column, lane + 32 h.
__device__ void MakeTinyTable(const Input& in, int32_t s, int64_t table, Structure* structures,
                              uint32_t* tables) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t before = (1u << lane) - 1;  // lanes
  const int32_t g = in.representative[s];
  const int32_t first = in.group_ptr[g], width = in.group_ptr[g + 1] - first;
  const int32_t k = in.members[first];
  const int64_t j_begin = in.m.col_ptr[k];
  const int n2 = static_cast<int>(in.m.col_ptr[k + 1] - j_begin);
  // Columns: offsets in A, and in the list of entries. None is empty, so that each begins at an
  // entry of its own.
  int64_t base[2];
  int offset[2], entries = 0;
  uint32_t begins[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int a = lane + 32 * h;
    base[h] = 0;
    int length = 0;
    if (a < n2) {
      const int32_t j = in.m.row_idx[j_begin + a];
      base[h] = in.a.col_ptr[j];
      length = static_cast<int>(in.a.col_ptr[j + 1] - base[h]);
    }
    offset[h] = length;
    for (unsigned step = 1; step < 32; step *= 2) {
      const int sum = __shfl_up_sync(~0u, offset[h], step);
      if (lane >= static_cast<int>(step)) offset[h] += sum;
    }
    const int all = __shfl_sync(~0u, offset[h], 31);
    offset[h] += entries - length;
    entries += all;
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      begins[word] |=
          __reduce_or_sync(~0u, a < n2 && offset[h] / 32 == word ? 1u << offset[h] % 32 : 0);
    }
  }
  // Entries: column, index in it, row.
  int a[2], place[2];
  uint32_t row[2], key[2];  // key: kNone if the row is repeated
  bool own[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    a[h] = (h == 0 ? 0 : __popc(begins[0])) + __popc(begins[h] & (before << 1 | 1)) - 1;
    place[h] = lane + 32 * h - Element(offset, a[h]);
    const int64_t at = Element(base, a[h]) + place[h];
    own[h] = lane + 32 * h < entries;
    row[h] = own[h] ? static_cast<uint32_t>(in.a.row_idx[at]) : kNone;
    key[h] = (__match_any_sync(~0u, row[h]) & before) != 0 ? kNone : row[h];
  }
  const int in_second = entries - 32;
  if (in_second > 0) {
    for (int e = 0; e < 32; ++e) {
      if (__shfl_sync(~0u, row[0], e) == row[1]) key[1] = kNone;
    }
  }
  const int n1 =
      __popc(__ballot_sync(~0u, key[0] != kNone)) + __popc(__ballot_sync(~0u, key[1] != kNone));
  int local[2] = {0, 0};  // row
  for (int e = 0; e < min(entries, 32); ++e) {
    const uint32_t other = __shfl_sync(~0u, key[0], e);
    local[0] += other < row[0] ? 1 : 0;
    local[1] += other < row[1] ? 1 : 0;
  }
  for (int e = 0; e < in_second; ++e) {
    const uint32_t other = __shfl_sync(~0u, key[1], e);
    local[0] += other < row[0] ? 1 : 0;
    local[1] += other < row[1] ? 1 : 0;
  }

  const int chunks = (n1 + kChunkRows - 1) / kChunkRows;
  uint32_t* const to = tables + table;
  uint32_t* const masks = to + chunks + 1;
  uint32_t* const list = masks + chunks * Structure::kMaskWords;
  unsigned in_first[2];  // entries of the first chunk
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    in_first[h] = __ballot_sync(~0u, own[h] && local[h] < kChunkRows);
  }
  const int first_chunk = __popc(in_first[0]) + __popc(in_first[1]);
  if (lane <= chunks) {
    to[lane] = static_cast<uint32_t>(lane == 0 ? 0 : lane == 1 ? first_chunk : entries);
  }
  const auto tiles = static_cast<uint32_t>(TilesFor(n2));
  for (int word = 0; word < chunks * Structure::kMaskWords; ++word) {
    uint32_t bits = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (own[h] && local[h] / 8 == word) bits |= 1u << (a[h] / 8) << (local[h] / 4 % 2 * 16);
    }
    bits = __reduce_or_sync(~0u, bits);
    if (lane == 0) masks[word] = bits;
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!own[h]) continue;
    const int ahead = __popc(in_first[h] & before) + (h == 0 ? 0 : __popc(in_first[0]));
    const int at = local[h] < kChunkRows ? ahead : first_chunk + lane + 32 * h - ahead;
    const auto column = static_cast<uint32_t>(a[h]);
    list[at] = PackEntry(static_cast<uint32_t>(place[h]), column,
                         ChunkPlace(tiles, static_cast<uint32_t>(local[h]) % kChunkRows, column));
  }
  for (int t = 0; t < width; ++t) {
    const auto target = static_cast<uint32_t>(in.members[first + t]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (key[h] == target) list[entries + t] = static_cast<uint32_t>(local[h]);
    }
    const bool found = __any_sync(~0u, key[0] == target || key[1] == target);
    if (!found && lane == 0) list[entries + t] = kNoRow;
  }
  if (lane == 0) {
    Structure& structure = structures[s];
    structure.table = table;
    structure.n1 = n1;
    structure.chunks = chunks;
  }
}

// Structures to make tables of: which[i], or i, for i < count.
struct Selection {
  const int32_t* which;
  int32_t count;
  const int64_t* begin;  // first word of each table
  int32_t share;         // structures of a warp, or a block, one after the other
  int32_t above, most;   // only structures with entries of Â in (above, most]
};

// Calls use(s, table) for the structures of share number `own`. Called by whole warps, which all
// make the same calls.
template <class Use>
__device__ void ForSelected(const Selection& selection, int64_t own, const Structure* structures,
                            const Use& use) {
  const int64_t end = min((own + 1) * selection.share, int64_t{selection.count});
  for (int64_t first = own * selection.share; first < end; first += 32) {
    const int64_t i = first + threadIdx.x % 32;
    const int32_t s = i >= end                     ? 0
                      : selection.which != nullptr ? selection.which[i]
                                                   : static_cast<int32_t>(i);
    const int32_t entries = i < end ? structures[s].entries : 0;
    unsigned left = __ballot_sync(~0u, entries > selection.above && entries <= selection.most);
    for (; left != 0; left &= left - 1) {
      const int lane = __ffs(static_cast<int>(left)) - 1;
      use(__shfl_sync(~0u, s, lane), selection.begin[first + lane]);
    }
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    TinyTablesKernel(Input in, Selection selection, Structure* structures, uint32_t* tables) {
  const int64_t own = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  ForSelected(selection, own, structures,
              [&](int32_t s, int64_t table) { MakeTinyTable(in, s, table, structures, tables); });
}

__global__ void __launch_bounds__(32 * kWarps)
    SmallTablesKernel(Input in, Selection selection, Structure* structures, uint32_t* tables) {
  __shared__ Scratch<kSmallEntries> scratch[kWarps];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int64_t own = int64_t{blockIdx.x} * kWarps + warp;
  ForSelected(selection, own, structures, [&](int32_t s, int64_t table) {
    MakeTable<32>(in, s, table, structures, tables, scratch[warp]);
    __syncwarp();
  });
}

// A block a table of at most kCapacity entries.
template <int kThreads, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    BlockTablesKernel(Input in, Selection selection, Structure* structures, uint32_t* tables) {
  extern __shared__ int64_t memory[];
  ForSelected(selection, blockIdx.x, structures, [&](int32_t s, int64_t table) {
    MakeTable<kThreads>(in, s, table, structures, tables,
                        *reinterpret_cast<Scratch<kCapacity>*>(memory));
    __syncthreads();
  });
}

Input InputOf(const Matrix& a, const StaticSpaiPlan& plan, const int32_t* representative) {
  return {a.pattern(), plan.pattern(), plan.members.get(), plan.group_ptr.get(), representative};
}

}  // namespace

void MeasureStructures(Context& context, const Matrix& a, const int32_t* representative,
                       const int32_t* uses, StaticSpaiPlan& plan, int64_t* words) {
  const int32_t count = plan.n_structures;
  const int64_t threads = (int64_t{count} + 1) * kMeasureTeam;
  MeasureKernel<<<static_cast<int>((threads + 255) / 256), 256, 0, context.stream>>>(
      InputOf(a, plan, representative), count, uses, plan.structures.get(), words);
  CheckLaunch("MeasureKernel");
}

LargestLocal FindLargest(Context& context, const Matrix& a, const int32_t* representative,
                         const StaticSpaiPlan& plan) {
  const Buffer<LargestLocal> large(context, 1);
  large.Fill(0);
  const int32_t count = plan.n_structures;
  FindLargestKernel<<<(count + 255) / 256, 256, 0, context.stream>>>(
      InputOf(a, plan, representative), count, plan.structures.get(), large.get());
  CheckLaunch("FindLargestKernel");
  return Read(context, large, 0);
}

Buffer<uint32_t> MakeTables(Context& context, const Matrix& a, const StaticSpaiPlan& plan,
                            const int32_t* representative, const int32_t* which, int32_t count,
                            const int64_t* begin, int64_t words, Structure* structures) {
  const Input in = InputOf(a, plan, representative);
  Buffer<uint32_t> tables(context, words);
  // Shares small enough to occupy the device, and large enough that most have something to do, as
  // sizes are mixed.
  const auto shares = [&](int64_t per_multiprocessor, Selection& selection, int64_t most = 32) {
    const int64_t places = 4 * per_multiprocessor * context.multiprocessors;
    selection.share = static_cast<int32_t>(std::clamp<int64_t>(count / places, 1, most));
    return (count + selection.share - 1) / selection.share;
  };
  // All sizes side by side: the few large ones take as long as the many small ones.
  Branches branches(context);
  const int32_t tiny = std::min(context.variants.table_register_entries, kTinyEntries),
                small = std::clamp(context.variants.table_warp_entries, tiny, kSmallEntries);
  Selection selection{which, count, begin, 1, small, 0};
  int branch = 0;
  const auto by_blocks = [&]<int kThreads, int kCapacity>(int64_t per_multiprocessor) {
    selection.most = kCapacity;
    constexpr int kShared = static_cast<int>(sizeof(Scratch<kCapacity>));
    const auto kernel = BlockTablesKernel<kThreads, kCapacity>;
    AllowSharedMemory(context, kernel, kShared);
    // Few problems are so large, as a rule.
    const int blocks = shares(per_multiprocessor, selection, kCapacity / 32);
    Launch(branches.Fork(branch++), kernel, blocks, 1, kThreads, kShared, in, selection, structures,
           tables.get());
    selection.above = kCapacity;
  };
  by_blocks.template operator()<256, 4096>(4);
  by_blocks.template operator()<512, 8192>(2);
  by_blocks.template operator()<1024, kMaxEntries>(1);
  selection.above = tiny;
  selection.most = small;
  int warps = shares(32, selection);
  Launch(branches.Fork(branch), SmallTablesKernel, (warps + kWarps - 1) / kWarps, 1, 32 * kWarps, 0,
         in, selection, structures, tables.get());
  selection.above = 0;
  selection.most = tiny;
  warps = shares(64, selection);
  TinyTablesKernel<<<(warps + kWarps - 1) / kWarps, 32 * kWarps, 0, context.stream>>>(
      in, selection, structures, tables.get());
  CheckLaunch("TinyTablesKernel");
  return tables;
}

}  // namespace spaid::cuda
