// Kernels that make rows of products, for products.cu: in tables in shared memory, in short lists,
// or, where rows are long, in global memory.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/products_tuning.h"

namespace spaid::cuda::products {

inline constexpr int kThreads = 256;
inline constexpr int32_t kFree = -1;       // of a table, no column
inline constexpr int32_t kUncounted = -1;  // of a row whose table was too small, or less
inline constexpr double kNothing = -0.0;   // the host's sum of nothing: a first product of -0 stays

// Classes of rows by the places of their tables, kLeastSlots << class; the last has no table.
inline constexpr int kLeastSlots = 32;
inline constexpr int kLongClass = 9, kClasses = kLongClass + 1;
inline constexpr int kMostSlotsOfValues = 4096,
                     kMostSlotsOfCounts = kLeastSlots << (kLongClass - 1);

struct Factors {
  PatternRef a;
  const double* a_values;
  PatternRef b;
  const double* b_values;
};

// The rows of C.
struct Target {
  int32_t* entries;  // of each, where they are counted
  const int64_t* ptr = nullptr;
  int32_t* columns = nullptr;
  double* values = nullptr;
  bool ascending = true;
};

// Rows by classes: what each has, and has been given places of the list.
struct Classes {
  int32_t count[kClasses];
  int32_t placed[kClasses];

  __device__ int32_t Begin(int k) const {
    int32_t begin = 0;
    for (int l = 0; l < k; ++l) begin += count[l];
    return begin;
  }
};

enum class Pass {
  kCount,   // entries of the rows of C
  kValues,  // columns and values
  kKnown,   // values of known columns
};

// The lanes that share a row of C.
template <int kLanes>
struct Lanes {
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  static __device__ uint32_t mask() {
    if constexpr (kLanes == 32) {
      return ~0u;
    } else {
      return ((1u << kLanes) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
    }
  }
};

// The answer of a table about a column: it had it, has it now, or has no place for it.
enum class Found { kThere, kFresh, kFull };

// Calls use(group, column, left, right) for the products of a row of C, that of the group-th lanes
// of the warp: those of one entry of A's row by several lanes, all of them before those of the
// next. A warp's rows go side by side, so that its lanes stay together; `row` -1: there is none. A
// row of B beside which the group's lanes are few is the whole warp's. What use() says of columns
// goes to note(fresh, full), of a lane of the row. `stop`, of all lanes of the row, is asked
// between kLanes entries of A's row.
template <int kLanes, bool kValues, class Use, class Note, class Stop>
__device__ void ForProducts(const Factors& f, int32_t row, const Use& use, const Note& note,
                            const Stop& stop) {
  constexpr int kTogether = 4;  // entries of A's row whose rows of B are on their way
  // A longer row of B is the warp's.
  constexpr int32_t kLong = kLanes < 32 ? tuning::kLongRight * kLanes : INT32_MAX;
  const int lane = Lanes<kLanes>::lane(), group = static_cast<int>(threadIdx.x) % 32 / kLanes;
  const int64_t begin_of_row = row >= 0 ? f.a.col_ptr[row] : 0;
  auto left_over = static_cast<int32_t>(row >= 0 ? f.a.col_ptr[row + 1] - begin_of_row : 0);
  for (int64_t first = begin_of_row; __any_sync(~0u, left_over > 0); first += kLanes) {
    int64_t own_begin = 0;
    int32_t own_count = 0;
    double own_left = 0;
    if (lane < left_over) {
      const int32_t k = f.a.row_idx[first + lane];
      if constexpr (kValues) own_left = f.a_values[first + lane];
      own_begin = f.b.col_ptr[k];
      own_count = static_cast<int32_t>(f.b.col_ptr[k + 1] - own_begin);
    }
    const int there = __reduce_max_sync(~0u, min(kLanes, left_over));
    const bool any_long = kLanes < 32 && __any_sync(~0u, own_count > kLong);
    for (int e = 0; e < there; e += kTogether) {
      int64_t begin[kTogether];
      int32_t count[kTogether], column[kTogether];
      double right[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        begin[u] = __shfl_sync(~0u, own_begin, e + u, kLanes);
        count[u] = __shfl_sync(~0u, own_count, e + u, kLanes);
        if (lane >= count[u]) continue;
        column[u] = f.b.row_idx[begin[u] + lane];
        if constexpr (kValues) right[u] = f.b_values[begin[u] + lane];
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        double left = 0;
        if constexpr (kValues) left = __shfl_sync(~0u, own_left, e + u, kLanes);
        if (lane < count[u]) {
          const Found found = use(group, column[u], left, kValues ? right[u] : 0);
          note(found == Found::kFresh ? 1 : 0, found == Found::kFull);
        }
        if (count[u] <= kLong) {
          for (int32_t q = lane + kLanes; q < count[u]; q += kLanes) {
            const Found found =
                use(group, f.b.row_idx[begin[u] + q], left, kValues ? f.b_values[begin[u] + q] : 0);
            note(found == Found::kFresh ? 1 : 0, found == Found::kFull);
          }
        }
        __syncwarp();
        if (!any_long) continue;
        uint32_t longs = __ballot_sync(~0u, lane == 0 && count[u] > kLong);
        for (; longs != 0; longs &= longs - 1) {
          const int leader = __ffs(static_cast<int>(longs)) - 1;
          const int64_t its_begin = __shfl_sync(~0u, begin[u], leader);
          const int32_t its_count = __shfl_sync(~0u, count[u], leader);
          const double its_left = kValues ? __shfl_sync(~0u, left, leader) : 0;
          int fresh = 0;
          bool full = false;
          for (int32_t q = kLanes + static_cast<int>(threadIdx.x) % 32; q < its_count; q += 32) {
            const Found found = use(leader / kLanes, f.b.row_idx[its_begin + q], its_left,
                                    kValues ? f.b_values[its_begin + q] : 0);
            fresh += found == Found::kFresh ? 1 : 0;
            full = full || found == Found::kFull;
          }
          fresh = __reduce_add_sync(~0u, fresh);
          full = __any_sync(~0u, full);
          if (static_cast<int>(threadIdx.x) % 32 == leader) note(fresh, full);
        }
      }
    }
    left_over = stop() ? 0 : left_over - kLanes;
  }
}

// A table of columns in shared memory.
template <int kSlots>
struct Table {
  int32_t* keys;

  static constexpr int kShift = 32 - std::countr_zero(static_cast<unsigned>(kSlots));
  // The place of a column, which it gets where it has none (`fresh`); kFree: none is free among
  // `probes`.
  __device__ int Put(int32_t column, int probes, bool* fresh) const {
    auto s = static_cast<int>(static_cast<uint32_t>(column) * 2654435769u >> kShift);
    for (int probe = 0; probe < probes; ++probe) {
      int32_t found = *const_cast<volatile int32_t*>(keys + s);  // most often it is there
      if (found == kFree) {
        found = atomicCAS(keys + s, kFree, column);
        *fresh = found == kFree;
        if (*fresh) return s;
      }
      if (found == column) return s;
      s = (s + 1) % kSlots;
    }
    return kFree;
  }
};

// Bitonic (Batcher 1968); `size` a power of two.
template <int kLanes>
__device__ void SortPairs(int32_t* keys, double* values, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      for (int i = Lanes<kLanes>::lane(); i < size / 2; i += kLanes) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const int32_t x = keys[low], y = keys[high];
        if ((x > y) != ((low & run) == 0)) continue;
        const double value = values[low];
        keys[low] = y, keys[high] = x;
        values[low] = values[high], values[high] = value;
      }
      __syncwarp();
    }
  }
}

// Writes a table out as a row of C.
template <int kLanes, int kSlots>
__device__ void WriteRow(int32_t* keys, double* values, int64_t to, const Target& c) {
  const uint32_t mask = Lanes<kLanes>::mask();
  const int lane = Lanes<kLanes>::lane();
  const uint32_t lower = (1u << (threadIdx.x % 32)) - 1;
  int filled = 0;
  for (int begin = 0; begin < kSlots; begin += kLanes) {
    const int32_t key = keys[begin + lane];
    const bool some = key != kFree;
    const double value = some ? values[begin + lane] : 0;
    const uint32_t all = __ballot_sync(~0u, some) & mask;
    const int at = filled + __popc(all & lower);
    if (c.ascending) {
      __syncwarp();
      if (some) keys[at] = key, values[at] = value;  // to the front
    } else if (some) {
      c.columns[to + at] = key;
      c.values[to + at] = value;
    }
    filled += __popc(all);
    __syncwarp();
  }
  if (!c.ascending) return;
  constexpr int32_t kLast = INT32_MAX;
  if constexpr (kSlots > tuning::kMostRankedSlots) {
    int size = 2;
    while (size < filled) size *= 2;
    for (int e = filled + lane; e < size; e += kLanes) keys[e] = kLast;
    __syncwarp();
    SortPairs<kLanes>(keys, values, size);
    for (int e = lane; e < filled; e += kLanes) {
      c.columns[to + e] = keys[e];
      c.values[to + e] = values[e];
    }
  } else {
    if (lane < 3) keys[filled + lane] = kLast;
    __syncwarp();
    for (int e = lane; e < filled; e += kLanes) {
      const int32_t key = keys[e];
      int before = 0;
      for (int other = 0; other < filled; other += 4) {
        const int4 four = *reinterpret_cast<const int4*>(keys + other);
        before += (four.x < key ? 1 : 0) + (four.y < key ? 1 : 0) + (four.z < key ? 1 : 0) +
                  (four.w < key ? 1 : 0);
      }
      c.columns[to + before] = key;
      c.values[to + before] = values[e];
    }
  }
}

// Rows of a block, of so many lanes and bytes of tables each.
constexpr int RowsOfBlock(int lanes, int row_bytes) {
  int rows = kThreads / lanes;
  while (rows > 1 && rows * row_bytes > tuning::kTableBytes) rows /= 2;
  return rows;
}

template <int kLanes, int kSlots, Pass kPass>
struct Shape {
  static constexpr int kRowBytes = kSlots * (kPass == Pass::kCount ? 4 : 12);
  static constexpr int kRows = RowsOfBlock(kLanes, kRowBytes);
  static constexpr int kBlock = kRows * kLanes, kBytes = kRows * kRowBytes;
};

// The rows of class k. `probes`: places that are looked at for a column, before its row stays
// uncounted.
template <int kLanes, int kSlots, Pass kPass>
__global__ void __launch_bounds__(Shape<kLanes, kSlots, kPass>::kBlock)
    RowsKernel(Factors f, const Classes* classes, int k, const int32_t* __restrict__ list,
               int probes, Target c) {
  using Of = Shape<kLanes, kSlots, kPass>;
  constexpr bool kValues = kPass != Pass::kCount;
  static_assert(kSlots >= kLanes && kSlots % 4 == 0);
  extern __shared__ __align__(16) double memory[];
  const uint32_t mask = Lanes<kLanes>::mask();
  const int lane = Lanes<kLanes>::lane(), own = static_cast<int>(threadIdx.x) / kLanes;
  double* const values = memory + own * kSlots;
  const Table<kSlots> table{
      reinterpret_cast<int32_t*>(memory + (kValues ? Of::kRows * kSlots : 0)) + own * kSlots};
  const int32_t count = classes->count[k];
  list += classes->Begin(k);
  // The value of the warp's first lane.
  const int64_t begin = int64_t{blockIdx.x} * Of::kRows + threadIdx.x / 32 * (32 / kLanes);
  for (int64_t first = begin; first < count; first += int64_t{gridDim.x} * Of::kRows) {
    const int64_t at = first + static_cast<int>(threadIdx.x) % 32 / kLanes;
    const int32_t row = at < count ? list[at] : -1;
    for (int s = 4 * lane; s < kSlots; s += 4 * kLanes) {
      *reinterpret_cast<int4*>(table.keys + s) = {kFree, kFree, kFree, kFree};
    }
    __syncwarp();
    int fresh_ones = 0;
    bool is_full = false;
    ForProducts<kLanes, kValues>(
        f, row,
        [&](int group, int32_t column, double left, double right) {
          const int shift = (group - static_cast<int>(threadIdx.x) % 32 / kLanes) * kSlots;
          bool is_fresh = false;
          const int s = Table<kSlots>{table.keys + shift}.Put(column, probes, &is_fresh);
          if constexpr (kValues) {
            double& value = values[shift + s];
            value = fma(left, right, is_fresh ? kNothing : value);
          }
          return is_fresh ? Found::kFresh : s == kFree ? Found::kFull : Found::kThere;
        },
        [&](int fresh, bool full) {
          fresh_ones += fresh;
          is_full = is_full || full;
        },
        [&] { return !kValues && (__ballot_sync(~0u, is_full) & mask) != 0; });
    if constexpr (kPass == Pass::kCount) {
      is_full = (__ballot_sync(~0u, is_full) & mask) != 0;
      for (int step = kLanes / 2; step > 0; step /= 2) {
        fresh_ones += __shfl_xor_sync(~0u, fresh_ones, step);
      }
      if (lane == 0 && row >= 0) c.entries[row] = is_full ? kUncounted : fresh_ones;
    } else if constexpr (kPass == Pass::kValues) {
      WriteRow<kLanes, kSlots>(table.keys, values, row >= 0 ? c.ptr[row] : 0, c);
    } else if (row >= 0) {
      for (int64_t e = c.ptr[row] + lane; e < c.ptr[row + 1]; e += kLanes) {
        bool is_fresh = false;
        const int s = table.Put(c.columns[e], probes, &is_fresh);
        c.values[e] = is_fresh ? kNothing : values[s];
      }
    }
    __syncwarp();
  }
}

// The rows of class k where no row of B has more than one entry, as a tentative prolongation: a
// thread each, with room for kRoom entries of C, in the order in which they come up.
template <int kRoom, Pass kPass>
__global__ void __launch_bounds__(tuning::kSingleThreads)
    SingleRowsKernel(Factors f, const Classes* classes, int k, const int32_t* __restrict__ list,
                     Target c) {
  constexpr bool kValues = kPass != Pass::kCount;
  constexpr int kBlock = tuning::kSingleThreads;
  __shared__ int32_t all_keys[kRoom][kBlock];
  __shared__ double all_values[kValues ? kRoom : 1][kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  const auto key = [&](int e) -> int32_t& { return all_keys[e][thread]; };
  const auto value = [&](int e) -> double& { return all_values[kValues ? e : 0][thread]; };
  const int32_t rows = classes->count[k];
  list += classes->Begin(k);
  for (int64_t at = int64_t{blockIdx.x} * kBlock + thread; at < rows;
       at += int64_t{gridDim.x} * kBlock) {
    const int32_t row = list[at];
    int count = 0;
    const auto find = [&](int32_t column) {
      int e = 0;
      while (e < count && key(e) != column) ++e;
      return e;
    };
    bool full = false;
    for (int64_t p = f.a.col_ptr[row]; p < f.a.col_ptr[row + 1] && !full; ++p) {
      const int32_t inner = f.a.row_idx[p];
      const int64_t q = f.b.col_ptr[inner];
      if (q == f.b.col_ptr[inner + 1]) continue;
      const int32_t column = f.b.row_idx[q];
      const int e = find(column);
      full = e == kRoom;
      if (full) continue;
      if constexpr (kValues) {
        value(e) = fma(f.a_values[p], f.b_values[q], e == count ? kNothing : value(e));
      }
      if (e < count) continue;
      key(e) = column;
      ++count;
    }
    if constexpr (kPass == Pass::kCount) {
      c.entries[row] = full ? kUncounted : count;
    } else if constexpr (kPass == Pass::kValues) {
      const int64_t to = c.ptr[row];
      for (int e = 0; e < count; ++e) {
        int before = c.ascending ? 0 : e;
        for (int other = 0; c.ascending && other < count; ++other) {
          before += key(other) < key(e) ? 1 : 0;
        }
        c.columns[to + before] = key(e);
        c.values[to + before] = value(e);
      }
    } else {
      for (int64_t p = c.ptr[row]; p < c.ptr[row + 1]; ++p) {
        c.values[p] = value(find(c.columns[p]));
      }
    }
  }
}

// Rows too long for tables, a block each: a bit and a sum in global memory for each column of C.
// `marks`: zeros, before and after.
template <Pass kPass>
__global__ void __launch_bounds__(kThreads)
    LongRowsKernel(Factors f, const Classes* classes, const int32_t* __restrict__ list,
                   int64_t columns, uint32_t* marks, double* sums, Target c) {
  __shared__ int32_t of_warp[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t words = (columns + 31) / 32;
  marks += blockIdx.x * words;
  sums += kPass == Pass::kCount ? 0 : blockIdx.x * columns;
  const int32_t count = classes->count[kLongClass];
  list += classes->Begin(kLongClass);
  for (int32_t at = static_cast<int32_t>(blockIdx.x); at < count;
       at += static_cast<int32_t>(gridDim.x)) {
    const int32_t row = list[at];
    if constexpr (kPass == Pass::kKnown) {
      for (int64_t e = c.ptr[row] + thread; e < c.ptr[row + 1]; e += kThreads) {
        sums[c.columns[e]] = kNothing;
      }
      __syncthreads();
    }
    const int64_t end = f.a.col_ptr[row + 1];
    for (int64_t p = f.a.col_ptr[row]; p < end; ++p) {
      const int32_t k = f.a.row_idx[p];
      for (int64_t q = f.b.col_ptr[k] + thread; q < f.b.col_ptr[k + 1]; q += kThreads) {
        const int32_t column = f.b.row_idx[q];
        bool is_fresh = false;
        if constexpr (kPass != Pass::kKnown) {
          const uint32_t bit = 1u << (column % 32);
          is_fresh = (atomicOr(marks + column / 32, bit) & bit) == 0;
        }
        if constexpr (kPass != Pass::kCount) {
          sums[column] = fma(f.a_values[p], f.b_values[q], is_fresh ? kNothing : sums[column]);
        }
      }
      if constexpr (kPass != Pass::kCount) __syncthreads();
    }
    __syncthreads();
    if constexpr (kPass == Pass::kKnown) {
      for (int64_t e = c.ptr[row] + thread; e < c.ptr[row + 1]; e += kThreads) {
        c.values[e] = sums[c.columns[e]];
      }
    } else {
      // In ascending order, as the marks are.
      int64_t before = 0;
      for (int64_t first = 0; first < words; first += kThreads) {
        const int64_t w = first + thread;
        uint32_t own = w < words ? marks[w] : 0;
        if (own != 0) marks[w] = 0;
        int32_t up_to = __popc(own);
        for (int step = 1; step < 32; step *= 2) {
          const int32_t other = __shfl_up_sync(~0u, up_to, step);
          if (lane >= step) up_to += other;
        }
        if (lane == 31) of_warp[warp] = up_to;
        __syncthreads();
        int32_t of_block = 0, of_lower = 0;
        for (int other = 0; other < kThreads / 32; ++other) {
          of_lower += other < warp ? of_warp[other] : 0;
          of_block += of_warp[other];
        }
        if constexpr (kPass == Pass::kValues) {
          int64_t to = c.ptr[row] + before + of_lower + up_to - __popc(own);
          for (; own != 0; own &= own - 1, ++to) {
            const int64_t column = 32 * w + __ffs(static_cast<int>(own)) - 1;
            c.columns[to] = static_cast<int32_t>(column);
            c.values[to] = sums[column];
          }
        }
        before += of_block;
        __syncthreads();
      }
      if constexpr (kPass == Pass::kCount) {
        if (thread == 0) c.entries[row] = static_cast<int32_t>(before);
      }
    }
    __syncthreads();
  }
}

}  // namespace spaid::cuda::products
