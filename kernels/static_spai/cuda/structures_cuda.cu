// Finds I of each structure and lays out its entries (plan_cuda.h: Structure).
#include "kernels/base/cuda/scan_sort_cuda.h"
#include "kernels/base/cuda/team_cuda.h"
#include "kernels/static_spai/cuda/plan_cuda.h"

namespace spaid::cuda {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};  // larger than any row
constexpr int kSmallEntries = 1024;       // of Â: what one warp sorts
constexpr int kWarps = 4;                 // in a block of such warps

struct Input {
  PatternRef a, m;
  const int32_t* members;
  const int32_t* group_ptr;
  const int32_t* representative;
};

// Sizes of each structure, and the words of its table, at most. Those too large for shared memory
// get none.
__global__ void MeasureKernel(Input in, int32_t n_structures, Structure* structures,
                              int64_t* words) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s > n_structures) return;
  if (s == n_structures) {
    words[s] = 0;
    return;
  }
  const int32_t g = in.representative[s];
  const int32_t begin = in.group_ptr[g], width = in.group_ptr[g + 1] - begin;
  const int32_t k = in.members[begin];
  int64_t entries = 0;
  bool fits = in.m.col_ptr[k + 1] - in.m.col_ptr[k] <= kMaxColumns;
  for (int64_t p = in.m.col_ptr[k]; p < in.m.col_ptr[k + 1]; ++p) {
    const int32_t j = in.m.row_idx[p];
    const int64_t length = in.a.col_ptr[j + 1] - in.a.col_ptr[j];
    entries += length;
    fits = fits && length < kMaxLength && entries <= kMaxEntries;
  }
  Structure structure;
  structure.all_entries = entries;
  structure.entries = fits ? static_cast<int32_t>(entries) : 0;
  structure.width = width;
  structures[s] = structure;
  words[s] = structure.words();
}

// The largest of what has no table and is not left to the host.
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

__device__ int LowerBound(const uint32_t* keys, int size, uint32_t key) {
  int begin = 0;
  while (size > 0) {
    const int half = size / 2;
    if (keys[begin + half] < key) {
      begin += half + 1;
      size -= half + 1;
    } else {
      size = half;
    }
  }
  return begin;
}

template <int kCapacity>
struct Scratch {
  uint32_t keys[kCapacity];
  int64_t base[kMaxColumns];         // where column J[a] begins in A
  uint32_t offset[kMaxColumns + 1];  // of the first entry of local column a
  uint32_t next[kCapacity / kChunkRows + 2];
};

template <int kThreads, int kCapacity>
__device__ void MakeTable(const Input& in, int32_t s, int64_t table, Structure* structures,
                          uint32_t* tables, Scratch<kCapacity>& scratch) {
  using Own = Team<kThreads>;
  const int thread = Own::thread();
  const int32_t g = in.representative[s];
  const int32_t first = in.group_ptr[g], width = in.group_ptr[g + 1] - first;
  const int32_t k = in.members[first];
  const int64_t j_begin = in.m.col_ptr[k];
  const int n2 = static_cast<int>(in.m.col_ptr[k + 1] - j_begin);
  if (thread == 0) scratch.offset[0] = 0;
  for (int a = thread; a < n2; a += kThreads) {
    const int32_t j = in.m.row_idx[j_begin + a];
    scratch.base[a] = in.a.col_ptr[j];
    scratch.offset[a + 1] = static_cast<uint32_t>(in.a.col_ptr[j + 1] - in.a.col_ptr[j]);
  }
  Own::Sync();
  if (thread == 0) {
    for (int a = 0; a < n2; ++a) scratch.offset[a + 1] += scratch.offset[a];
  }
  Own::Sync();
  const int entries = static_cast<int>(scratch.offset[n2]);
  int size = 2;
  while (size < entries) size *= 2;
  const auto column_of = [&](int e) {
    int low = 0, high = n2;  // offset[low] <= e < offset[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (scratch.offset[middle] <= static_cast<uint32_t>(e)) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  };
  const auto row_of = [&](int e, int a) {
    return static_cast<uint32_t>(
        in.a.row_idx[scratch.base[a] + e - static_cast<int64_t>(scratch.offset[a])]);
  };
  for (int e = thread; e < size; e += kThreads) {
    scratch.keys[e] = e < entries ? row_of(e, column_of(e)) : kNone;
  }
  Own::Sync();
  Sort<kThreads>(scratch.keys, size);
  // Repeated rows go to the end.
  uint64_t repeated = 0;  // bit i: element thread + i kThreads
  static_assert(kCapacity <= 64 * kThreads);
  for (int e = thread, i = 0; e < size; e += kThreads, ++i) {
    if (e > 0 && scratch.keys[e] == scratch.keys[e - 1]) repeated |= uint64_t{1} << i;
  }
  Own::Sync();
  for (int e = thread, i = 0; e < size; e += kThreads, ++i) {
    if ((repeated >> i & 1) != 0) scratch.keys[e] = kNone;
  }
  Own::Sync();
  Sort<kThreads>(scratch.keys, size);
  const int n1 = LowerBound(scratch.keys, size, kNone);
  const int chunks = (n1 + kChunkRows - 1) / kChunkRows;

  for (int c = thread; c <= chunks; c += kThreads) scratch.next[c] = 0;
  Own::Sync();
  const auto place_of = [&](int e, int& a) {
    a = column_of(e);
    return LowerBound(scratch.keys, n1, row_of(e, a));
  };
  for (int e = thread; e < entries; e += kThreads) {
    int a = 0;
    atomicAdd(&scratch.next[place_of(e, a) / kChunkRows + 1], 1u);
  }
  Own::Sync();
  if (thread == 0) {
    for (int c = 0; c < chunks; ++c) scratch.next[c + 1] += scratch.next[c];
  }
  Own::Sync();
  uint32_t* const to = tables + table;
  for (int c = thread; c <= chunks; c += kThreads) to[c] = scratch.next[c];
  Own::Sync();
  uint32_t* const masks = to + chunks + 1;
  uint32_t* const list = masks + chunks * Structure::kMaskWords;
  for (int i = thread; i < chunks * Structure::kMaskWords; i += kThreads) masks[i] = 0;
  Own::Sync();
  const auto tiles = static_cast<uint32_t>(TilesFor(n2));
  for (int e = thread; e < entries; e += kThreads) {
    int a = 0;
    const int row = place_of(e, a);
    const uint32_t at = atomicAdd(&scratch.next[row / kChunkRows], 1u);
    const auto column = static_cast<uint32_t>(a), r = static_cast<uint32_t>(row % kChunkRows);
    list[at] = PackEntry(static_cast<uint32_t>(e) - scratch.offset[a], column,
                         ChunkPlace(tiles, r, column));
    // Rows 4 i to 4 i + 3 of the matrix: half i % 2 of word i / 2.
    atomicOr(&masks[row / 8], 1u << (column / 8) << (row / 4 % 2 * 16));
  }
  for (int t = thread; t < width; t += kThreads) {
    const auto target = static_cast<uint32_t>(in.members[first + t]);
    const int row = LowerBound(scratch.keys, n1, target);
    list[entries + t] =
        row < n1 && scratch.keys[row] == target ? static_cast<uint32_t>(row) : kNoRow;
  }
  if (thread == 0) {
    Structure& structure = structures[s];
    structure.table = table;
    structure.n1 = n1;
    structure.chunks = chunks;
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    SmallTablesKernel(Input in, const int32_t* which, int32_t count, const int64_t* begin,
                      Structure* structures, uint32_t* tables) {
  __shared__ Scratch<kSmallEntries> scratch[kWarps];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int64_t i = int64_t{blockIdx.x} * kWarps + warp;
  if (i >= count) return;
  const int32_t s = which != nullptr ? which[i] : static_cast<int32_t>(i);
  const int32_t entries = structures[s].entries;
  if (entries == 0 || entries > kSmallEntries) return;
  MakeTable<32>(in, s, begin[i], structures, tables, scratch[warp]);
}

constexpr int kBlockThreads = 256;

__global__ void __launch_bounds__(kBlockThreads)
    LargeTablesKernel(Input in, const int32_t* which, const int64_t* begin, Structure* structures,
                      uint32_t* tables) {
  extern __shared__ char memory[];
  const auto i = static_cast<int32_t>(blockIdx.x);
  const int32_t s = which != nullptr ? which[i] : i;
  if (structures[s].entries <= kSmallEntries) return;
  MakeTable<kBlockThreads>(in, s, begin[i], structures, tables,
                           *reinterpret_cast<Scratch<kMaxEntries>*>(memory));
}

Input InputOf(const Matrix& a, const StaticSpaiPlan& plan, const int32_t* representative) {
  return {a.pattern(), plan.pattern(), plan.members.get(), plan.group_ptr.get(), representative};
}

}  // namespace

void MeasureStructures(Context& context, const Matrix& a, const int32_t* representative,
                       StaticSpaiPlan& plan, int64_t* words) {
  const int32_t count = plan.n_structures;
  MeasureKernel<<<(count + 256) / 256, 256, 0, context.stream>>>(
      InputOf(a, plan, representative), count, plan.structures.get(), words);
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
  SmallTablesKernel<<<(count + kWarps - 1) / kWarps, 32 * kWarps, 0, context.stream>>>(
      in, which, count, begin, structures, tables.get());
  CheckLaunch("SmallTablesKernel");
  constexpr int kShared = static_cast<int>(sizeof(Scratch<kMaxEntries>));
  Check(
      cudaFuncSetAttribute(LargeTablesKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
      "cudaFuncSetAttribute");
  LargeTablesKernel<<<count, kBlockThreads, kShared, context.stream>>>(in, which, begin, structures,
                                                                       tables.get());
  CheckLaunch("LargeTablesKernel");
  return tables;
}

}  // namespace spaid::cuda
