#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRankThreads = 128;
// Rows side by side have no more entries than this (RankAsideKernel), others are the faster ranked.
constexpr int kMostSteps = 48;
// Room of rows side by side for each entry, where there is memory.
constexpr double kWaste = 1.5;
// Columns of so many entries on average are read 32 entries at a time.
constexpr int64_t kWideColumns = 12;
// Rows of more entries than this, or so many pairs of entries in one row for each entry on average,
// and a sort of all entries is faster than counting in each row which come before which.
constexpr int kMostRanked = 4096;
constexpr int64_t kMostPairs = 512;

// For so much work, of which a block has `a_block` at once.
int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

__device__ int64_t Warp() {
  return int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / 32;
}
__device__ int64_t Warps() { return int64_t{gridDim.x} * kWarps; }
__device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

// Calls use(i, j, p) for every entry of A. A warp takes 32 columns, which are read one after the
// other, kWidth entries at a time, and used side by side: neighbouring columns of a grid have
// entries in neighbouring rows, so that what a warp does at once is to neighbouring addresses.
template <int kWidth, class Use>
__device__ void ForEntries(const PatternRef& a, const Use& use) {
  __shared__ int32_t tiles[kWarps][32][kWidth + 1];
  constexpr int kTogether = 32 / kWidth;  // columns that are read at once
  constexpr int64_t kLong = 128;          // a column's entries beyond are used by the whole warp
  auto& tile = tiles[threadIdx.x / 32];
  const int lane = Lane();
  for (int64_t first = 32 * Warp(); first < a.n; first += 32 * Warps()) {
    const int64_t j = first + lane, begin = a.col_ptr[min(j, a.n)];
    const int64_t count = a.col_ptr[min(j + 1, a.n)] - begin;
    const auto near = static_cast<int>(min(count, kLong));
    const int most = __reduce_max_sync(~0u, near);
    for (int from = 0; from < most; from += kWidth) {
#pragma unroll 8
      for (int part = 0; part < kWidth; ++part) {
        const int column = part * kTogether + lane / kWidth, e = from + lane % kWidth;
        const int64_t its_begin = __shfl_sync(~0u, begin, column);
        if (e < __shfl_sync(~0u, near, column)) {
          tile[column][lane % kWidth] = a.row_idx[its_begin + e];
        }
      }
      __syncwarp();
      for (int e = from; e < min(from + kWidth, near); ++e) {
        use(tile[lane][e - from], j, begin + e);
      }
      __syncwarp();
    }
    for (unsigned left = __ballot_sync(~0u, count > kLong); left != 0; left &= left - 1) {
      const int column = __ffs(static_cast<int>(left)) - 1;
      const int64_t its_begin = __shfl_sync(~0u, begin, column);
      const int64_t end = its_begin + __shfl_sync(~0u, count, column);
      for (int64_t p = its_begin + kLong + lane; p < end; p += 32) {
        use(a.row_idx[p], first + column, p);
      }
    }
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) CountKernel(PatternRef a, int32_t* count) {
  ForEntries<kWidth>(a, [&](int32_t i, int64_t, int64_t) { atomicAdd(count + i, 1); });
}

// Entries wait to be sorted by 32 rows: side by side, row by row in each step, where the rows are
// of about equal length, else one row behind the other.
struct Survey {
  unsigned long long pairs;  // of entries in one row
  int32_t longest, empty;
  int32_t steps;  // of rows side by side, at most
  int32_t alone;  // 32 rows that are not side by side
};

// Takes a warp's rows of `own` entries; `waste`: room for each entry; `most`: of a row.
__device__ bool AreAside(int32_t own, double waste, int32_t* most) {
  *most = __reduce_max_sync(~0u, own);
  const int32_t all = __reduce_add_sync(~0u, min(own, kMostSteps));
  return *most <= kMostSteps && 32 * *most <= waste * all;
}

// A warp 32 rows: `row_ptr` gets what each has, `room` what they take together.
__global__ void SurveyKernel(const int32_t* count, int64_t n, double waste, int64_t* row_ptr,
                             int64_t* room, Survey* survey) {
  int32_t longest = 0, empty = 0, steps = 0, alone = 0;
  unsigned long long pairs = 0;
  for (int64_t first = 32 * Warp(); first < n; first += 32 * Warps()) {
    const int64_t i = first + Lane();
    const int32_t own = i < n ? count[i] : 0;
    if (i < n) row_ptr[i] = own;
    pairs += static_cast<unsigned long long>(own) * static_cast<unsigned long long>(own);
    int32_t most = 0;
    const bool aside = AreAside(own, waste, &most);
    int64_t all = own;
    for (int step = 16; step > 0; step /= 2) all += __shfl_xor_sync(~0u, all, step);
    if (Lane() == 0) room[first / 32] = aside ? 32 * most : all;
    longest = max(longest, most);
    empty += __popc(__ballot_sync(~0u, i < n && own == 0));
    steps = max(steps, aside ? most : 0);
    alone += aside ? 0 : 1;
  }
  for (int step = 16; step > 0; step /= 2) pairs += __shfl_xor_sync(~0u, pairs, step);
  if (Lane() != 0) return;
  atomicMax(&survey->longest, longest);
  if (empty > 0) atomicAdd(&survey->empty, empty);
  atomicMax(&survey->steps, steps);
  atomicAdd(&survey->alone, alone);
  atomicAdd(&survey->pairs, pairs);
}

// Where a row's entries wait: twice where the first one does, and one more where the next ones are
// 32 from it each.
using Wait = int64_t;
__device__ bool IsAside(Wait wait) { return (wait & 1) != 0; }

__global__ void WaitKernel(const int64_t* row_ptr, const int64_t* room, int64_t n, double waste,
                           Wait* wait) {
  for (int64_t first = 32 * Warp(); first < n; first += 32 * Warps()) {
    const int64_t i = first + Lane(), begin = row_ptr[min(i, n)];
    const int64_t own = row_ptr[min(i + 1, n)] - begin;
    const int64_t before = begin - __shfl_sync(~0u, begin, 0);
    int32_t most = 0;
    const bool aside = AreAside(static_cast<int32_t>(own), waste, &most);
    if (i < n) wait[i] = 2 * (room[first / 32] + (aside ? Lane() : before)) + (aside ? 1 : 0);
  }
}

// An entry in its row: its column, and where A has it.
struct alignas(8) Entry {
  int32_t column;
  uint32_t place;
};

// To their rows, in any order; `next`: of each row how many there are.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    ScatterKernel(PatternRef a, const Wait* wait, int32_t* next, Entry* to) {
  ForEntries<kWidth>(a, [&](int32_t i, int64_t j, int64_t p) {
    const Wait own = wait[i];
    const int64_t k = atomicAdd(next + i, 1);
    to[own / 2 + (IsAside(own) ? 32 * k : k)] = {static_cast<int32_t>(j), static_cast<uint32_t>(p)};
  });
}

constexpr int kSlots = 4;  // entries that a lane has at once

// How many of `others` come before each.
__device__ void CountBefore(int32_t others, const Entry (&own)[kSlots], int (&rank)[kSlots]) {
#pragma unroll
  for (int s = 0; s < kSlots; ++s) rank[s] += others < own[s].column ? 1 : 0;
}

// What a warp ranks rows side by side in: their columns, and which of a row's entries comes at each
// place; those of a row are in banks of their own.
constexpr int kColumnPitch = 33, kOrderPitch = 36;
constexpr int kAsideBytes = kColumnPitch * static_cast<int>(sizeof(int32_t)) + kOrderPitch;
static_assert(kMostSteps < 1 << 8);

// Rows side by side in the order of columns: an entry's place is the number of those that come
// before. A warp 32 rows, a lane each.
template <class Value>
__global__ void __launch_bounds__(kRankThreads)
    RankAsideKernel(int64_t n, int steps, const int64_t* __restrict__ row_ptr,
                    const Wait* __restrict__ wait, const Entry* __restrict__ entries,
                    const double* __restrict__ values, int32_t* __restrict__ cols,
                    Value* __restrict__ to) {
  extern __shared__ int32_t all_columns[];
  constexpr int kOwnWarps = kRankThreads / 32;
  const int lane = Lane(), warp = static_cast<int>(threadIdx.x) / 32;
  int32_t* const columns = all_columns + warp * steps * kColumnPitch;
  uint8_t* const order =
      reinterpret_cast<uint8_t*>(all_columns + kOwnWarps * steps * kColumnPitch) +
      warp * steps * kOrderPitch;
  const int width = steps > 16 ? 32 : 8;  // lanes that write one row
  for (int64_t first = 32 * (int64_t{blockIdx.x} * kOwnWarps + warp); first < n;
       first += int64_t{32} * kOwnWarps * gridDim.x) {
    const Wait own_wait = wait[min(first + lane, n - 1)];
    if (!__all_sync(~0u, IsAside(own_wait))) continue;
    const int64_t begin = row_ptr[min(first + lane, n)];
    const auto count = static_cast<int>(row_ptr[min(first + lane + 1, n)] - begin);
    const int most = __reduce_max_sync(~0u, count);
    const Entry* const from = entries + __shfl_sync(~0u, own_wait, 0) / 2;
#pragma unroll 8
    for (int e = 0; e < most; ++e) {
      if (e < count) columns[kColumnPitch * e + lane] = from[32 * e + lane].column;
    }
    for (int e = 0; e < count; e += kSlots) {
      Entry own[kSlots] = {};
      int rank[kSlots] = {};
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        if (e + s < count) own[s].column = columns[kColumnPitch * (e + s) + lane];
      }
      for (int other = 0; other < count; ++other) {
        CountBefore(columns[kColumnPitch * other + lane], own, rank);
      }
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        if (e + s < count) order[kOrderPitch * rank[s] + lane] = static_cast<uint8_t>(e + s);
      }
    }
    __syncwarp();
    // Several rows at once, as each value is a way to memory.
    constexpr int kRows = 8;
    for (int first_row = lane / width; first_row < 32; first_row += kRows * (32 / width)) {
      int64_t its_begin[kRows];
      int its_count[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        its_begin[r] = __shfl_sync(~0u, begin, first_row + r * (32 / width));
        its_count[r] = __shfl_sync(~0u, count, first_row + r * (32 / width));
      }
      for (int e = lane % width; e < most; e += width) {
        Entry entry[kRows];
        double value[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (e >= its_count[r]) continue;
          const int row = first_row + r * (32 / width);
          entry[r] = from[32 * order[kOrderPitch * e + row] + row];
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (e < its_count[r] && values != nullptr) value[r] = values[entry[r].place];
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (e >= its_count[r]) continue;
          cols[its_begin[r] + e] = entry[r].column;
          if (values != nullptr) to[its_begin[r] + e] = static_cast<Value>(value[r]);
        }
      }
      __syncwarp();
    }
    __syncwarp();
  }
}

// The others, of more than `least` entries and no more than kMost, kLanes lanes each. A block takes
// 32 rows at a time, those that stand together not by the same block.
template <int kLanes, int kMost, class Value>
__global__ void __launch_bounds__(kThreads)
    RankAloneKernel(int64_t n, int32_t least, const int64_t* __restrict__ row_ptr,
                    const Wait* __restrict__ wait, const Entry* __restrict__ entries,
                    const double* __restrict__ values, int32_t* __restrict__ cols,
                    Value* __restrict__ to) {
  constexpr int kTeams = kThreads / kLanes;
  __shared__ int32_t all_columns[kTeams][kMost];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int team = static_cast<int>(threadIdx.x) / kLanes;
  int32_t* const columns = all_columns[team];
  const auto sync = [] {
    if constexpr (kLanes > 32) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  };
  const int64_t groups = (n + 31) / 32;
  for (int64_t looked = blockIdx.x; looked < groups; looked += int64_t{32} * gridDim.x) {
    const int64_t own_group = looked + int64_t{gridDim.x} * Lane();
    unsigned alone =
        __ballot_sync(~0u, own_group < groups && !IsAside(wait[min(32 * own_group, n - 1)]));
    for (; alone != 0; alone &= alone - 1) {
      const int64_t group = looked + int64_t{gridDim.x} * (__ffs(static_cast<int>(alone)) - 1);
      for (int64_t i = 32 * group + team; i < min(32 * group + 32, n); i += kTeams) {
        const int64_t begin = row_ptr[i], length = row_ptr[i + 1] - begin;
        if (length <= least || length > kMost) continue;
        const auto count = static_cast<int>(length);
        const Entry* const from = entries + wait[i] / 2;
        for (int e = lane; e < count; e += kLanes) columns[e] = from[e].column;
        sync();
        for (int at = lane; at < count; at += kSlots * kLanes) {
          Entry own[kSlots] = {};
          double value[kSlots] = {};
          int rank[kSlots] = {};
#pragma unroll
          for (int s = 0; s < kSlots; ++s) {
            if (at + s * kLanes >= count) continue;
            own[s] = from[at + s * kLanes];
            if (values != nullptr) value[s] = values[own[s].place];
          }
          for (int other = 0; other < count; ++other) CountBefore(columns[other], own, rank);
#pragma unroll
          for (int s = 0; s < kSlots; ++s) {
            if (at + s * kLanes >= count) continue;
            cols[begin + rank[s]] = own[s].column;
            if (values != nullptr) to[begin + rank[s]] = static_cast<Value>(value[s]);
          }
        }
        sync();
      }
    }
  }
}

__global__ void ColumnOfEntryKernel(PatternRef a, int32_t* column) {
  for (int64_t j = Warp(); j < a.n; j += Warps()) {
    for (int64_t p = a.col_ptr[j] + Lane(); p < a.col_ptr[j + 1]; p += 32) {
      column[p] = static_cast<int32_t>(j);
    }
  }
}

template <class Value>
__global__ void ValuesKernel(PatternRef a, const double* values, int64_t rows,
                             const int64_t* row_ptr, const int32_t* cols, Value* to) {
  for (int64_t i = Warp(); i < rows; i += Warps()) {
    for (int64_t p = row_ptr[i] + Lane(); p < row_ptr[i + 1]; p += 32) {
      to[p] = static_cast<Value>(EntryAt(a, values, i, cols[p]));
    }
  }
}

// All entries at once. Stable, so that columns ascend.
template <class Value>
void SortAll(Context& context, const PatternRef& a, int64_t nnz, const double* values, int64_t rows,
             ByRows<Value>& to) {
  {
    const Buffer<int32_t> columns(context, nnz), sorted(context, nnz);
    ColumnOfEntryKernel<<<Blocks(context, a.n, kWarps), kThreads, 0, context.stream>>>(
        a, columns.get());
    CheckLaunch("ColumnOfEntryKernel");
    int bits = 1;
    while (bits < 31 && rows - 1 >> bits != 0) ++bits;
    Sort(context, a.row_idx, sorted.get(), columns.get(), to.cols.get(), nnz, bits);
  }
  if (values == nullptr) return;
  to.values = Buffer<Value>(context, nnz);
  ValuesKernel<<<Blocks(context, rows, kWarps), kThreads, 0, context.stream>>>(
      a, values, rows, to.row_ptr.get(), to.cols.get(), to.values.get());
  CheckLaunch("ValuesKernel");
}

// Row by row.
template <class Value>
void SortEach(Context& context, const PatternRef& a, int64_t nnz, const double* values,
              int64_t rows, const Survey& survey, const Buffer<int64_t>& room, int64_t taken,
              double waste, const Buffer<int32_t>& next, ByRows<Value>& to) {
  if (values != nullptr) to.values = Buffer<Value>(context, nnz);
  const Buffer<Entry> entries(context, taken);
  const Buffer<Wait> wait(context, rows);
  WaitKernel<<<Blocks(context, rows, 32 * kWarps), kThreads, 0, context.stream>>>(
      to.row_ptr.get(), room.get(), rows, waste, wait.get());
  CheckLaunch("WaitKernel");
  next.Fill(0);
  const auto scatter = nnz >= kWideColumns * a.n ? ScatterKernel<32> : ScatterKernel<8>;
  scatter<<<Blocks(context, a.n, 32 * kWarps), kThreads, 0, context.stream>>>(
      a, wait.get(), next.get(), entries.get());
  CheckLaunch("ScatterKernel");
  if (survey.steps > 0) {
    const auto kernel = RankAsideKernel<Value>;
    const int bytes = kRankThreads / 32 * survey.steps * kAsideBytes;
    AllowSharedMemory(context, kernel, bytes);
    kernel<<<Blocks(context, rows, kRankThreads), kRankThreads, static_cast<size_t>(bytes),
             context.stream>>>(rows, survey.steps, to.row_ptr.get(), wait.get(), entries.get(),
                               values, to.cols.get(), to.values.get());
    CheckLaunch("RankAsideKernel");
  }
  const auto alone = [&](auto kernel, int32_t least) {
    if (survey.alone == 0 || survey.longest <= least) return;
    kernel<<<Blocks(context, rows, 32), kThreads, 0, context.stream>>>(
        rows, least, to.row_ptr.get(), wait.get(), entries.get(), values, to.cols.get(),
        to.values.get());
    CheckLaunch("RankAloneKernel");
  };
  constexpr int kByWarp = 512;
  alone(RankAloneKernel<32, kByWarp, Value>, 0);
  alone(RankAloneKernel<kThreads, kMostRanked, Value>, kByWarp);
}

}  // namespace

template <class Value>
ByRows<Value> SortByRows(Context& context, const PatternRef& a, int64_t nnz, const double* values,
                         int64_t rows) {
  if (rows < 0) rows = a.n;
  ByRows<Value> to;
  to.row_ptr = Buffer<int64_t>(context, rows + 1);
  to.cols = Buffer<int32_t>(context, nnz);
  const int64_t groups = (rows + 31) / 32;
  const Buffer<int32_t> count(context, rows);
  const Buffer<int64_t> room(context, groups + 1);
  const Buffer<Survey> there(context, 1);
  count.Fill(0);
  const auto counter = nnz >= kWideColumns * a.n ? CountKernel<32> : CountKernel<8>;
  counter<<<Blocks(context, a.n, 32 * kWarps), kThreads, 0, context.stream>>>(a, count.get());
  CheckLaunch("CountKernel");
  Survey survey{};
  int64_t taken = 0;
  double waste = kWaste;
  const auto look = [&] {
    there.Fill(0);
    SurveyKernel<<<Blocks(context, rows, 32 * kWarps), kThreads, 0, context.stream>>>(
        count.get(), rows, waste, to.row_ptr.get(), room.get(), there.get());
    CheckLaunch("SurveyKernel");
    Scan(context, room, groups + 1);
    context.Download({there.To(&survey, 1), room.To(&taken, 1, groups)});
  };
  look();
  const int64_t left = context.arena->limit() - context.arena->used();
  const auto needed = static_cast<int64_t>(sizeof(Entry)) * taken +
                      static_cast<int64_t>(values != nullptr ? sizeof(Value) : 0) * nnz +
                      static_cast<int64_t>(sizeof(Wait)) * rows;
  if (needed > left && taken > nnz) {
    waste = 0;
    look();
  }
  Scan(context, to.row_ptr, rows + 1);
  to.longest = survey.longest;
  to.empty = survey.empty;
  if (survey.longest > kMostRanked || nnz > int64_t{UINT32_MAX} ||
      survey.pairs > static_cast<unsigned long long>(kMostPairs * nnz)) {
    SortAll(context, a, nnz, values, rows, to);
  } else {
    SortEach(context, a, nnz, values, rows, survey, room, taken, waste, count, to);
  }
  return to;
}

template ByRows<double> SortByRows<double>(Context&, const PatternRef&, int64_t, const double*,
                                           int64_t);
template ByRows<float> SortByRows<float>(Context&, const PatternRef&, int64_t, const double*,
                                         int64_t);

Matrix Transpose(Context& context, const PatternRef& a, int64_t nnz, const double* values) {
  ByRows<double> rows = SortByRows<double>(context, a, nnz, values);
  Matrix to;
  to.n = a.n;
  to.nnz = nnz;
  to.col_ptr = std::move(rows.row_ptr);
  to.row_idx = std::move(rows.cols);
  to.values = std::move(rows.values);
  return to;
}

}  // namespace spaid::cuda
