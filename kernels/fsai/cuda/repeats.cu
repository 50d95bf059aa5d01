#include <algorithm>
#include <utility>

#include "kernels/base/cuda/hash.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/fsai/cuda/repeats.h"
#include "kernels/fsai/cuda/repeats_tuning.h"

namespace spaid::cuda::fsai {
namespace {

constexpr int kThreads = 256, kLanes = 8;

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

// Hash table of groups of rows with equal keys (not 0), by open addressing.
struct Table {
  uint64_t* keys;            // 0: empty
  unsigned long long* best;  // the group's row with the least Turn, which is in the high half
  uint32_t* rows;            // number of the group's rows
  int32_t* slots;            // index of its row among those that are grown; -1: none
  uint32_t mask;
};

// Decides which row of a group is grown, pseudo-randomly but the same in every run: the first row
// of the interior of a grid would be the one nearest to its boundary, which is like no other. A
// permutation: no two rows have the same turn.
__device__ uint32_t Turn(int32_t row) {
  auto turn = static_cast<uint32_t>(row);
  turn = (turn ^ (turn >> 16)) * 0x85ebca6bu;
  turn = (turn ^ (turn >> 13)) * 0xc2b2ae35u;
  return turn ^ (turn >> 16);
}

__device__ uint64_t NotZero(uint64_t key) { return key == 0 ? 1 : key; }

template <class Real>
__device__ uint64_t Bits(Real x);
template <>
__device__ uint64_t Bits(float x) {
  return __float_as_uint(x);
}
template <>
__device__ uint64_t Bits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}

// A row as it is stored, padding included.
template <class Real>
__device__ const Entry<Real>* RowOf(const Rows<Real>& a, int64_t row, int& length) {
  if (a.stride > 0) {
    length = a.stride;
    return a.entries + row * a.stride;
  }
  const int64_t begin = a.ptr[row];
  length = static_cast<int>(a.ptr[row + 1] - begin);
  return a.entries + begin;
}

template <class Real>
__global__ void FsaiDiagonalsKernel(Rows<Real> a, int64_t n, Real* diagonals) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  int unused = 0;
  if (i < n) diagonals[i] = RowOf(a, i, unused)[0].value;
}

// Hashes every `step`-th row, kLanes threads each.
template <class Real>
__global__ void FsaiHashRowsKernel(Rows<Real> a, int64_t n, int step, const Real* diagonals,
                                   int hash_bits, uint64_t* keys) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t i = thread / kLanes * step;
  uint64_t hash = 0;
  if (i < n) {
    int length = 0;
    const Entry<Real>* const row = RowOf(a, i, length);
    for (int e = static_cast<int>(thread % kLanes); e < length; e += kLanes) {
      const Entry<Real> entry = row[e];
      if (entry.index >= n) continue;
      const auto distance = static_cast<uint32_t>(entry.index - static_cast<int32_t>(i));
      hash += HashAt(static_cast<uint64_t>(e) << 32 | distance,
                     Mix(Bits(entry.value)) + Bits(diagonals[entry.index]));
    }
  }
  for (int by = kLanes / 2; by > 0; by /= 2) hash += __shfl_xor_sync(~0u, hash, by);
  if (i < n && thread % kLanes == 0) keys[thread / kLanes] = NotZero(hash >> (64 - hash_bits));
}

// Sets like[i] to the group's best row where row i equals it, else to i.
template <class Real>
__global__ void FsaiSameRowsKernel(Rows<Real> a, int64_t n, const Real* diagonals,
                                   const int32_t* places, const unsigned long long* best,
                                   int32_t* like) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, i = thread / kLanes;
  int32_t other = 0;
  bool same = true;
  if (i < n) {
    other = static_cast<int32_t>(best[places[i]] & 0x7fffffffu);
    int length = 0, other_length = 0;
    const Entry<Real>* const row = RowOf(a, i, length);
    const Entry<Real>* const from = RowOf(a, other, other_length);
    same = length == other_length;
    const auto by = static_cast<int32_t>(i) - other;
    for (int e = static_cast<int>(thread % kLanes); same && e < length; e += kLanes) {
      const Entry<Real> x = row[e], y = from[e];
      const bool filling = x.index >= n;
      same = filling ? y.index >= n
                     : y.index < n && x.index == y.index + by && Bits(x.value) == Bits(y.value) &&
                           Bits(diagonals[x.index]) == Bits(diagonals[y.index]);
    }
  }
  const unsigned all = __ballot_sync(~0u, same);
  const unsigned own = 0xffu << (threadIdx.x % 32 / kLanes * kLanes);
  if (i < n && thread % kLanes == 0) like[i] = (all & own) == own ? other : static_cast<int32_t>(i);
}

// Puts rows into groups; stops where there are more than `most` groups. `rows` null: those from
// `first` on.
__global__ void FsaiGroupKernel(const uint64_t* keys, const int32_t* rows, int32_t first,
                                int32_t count, Table table, uint32_t* groups, uint32_t most,
                                int32_t* places) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const unsigned active = __ballot_sync(~0u, t < count);
  if (t >= count) return;
  const uint64_t key = keys[t];
  const int32_t row = rows != nullptr ? rows[t] : first + static_cast<int32_t>(t);
  const unsigned alike = __match_any_sync(active, key);
  // One lane acts for all that have this key.
  const uint32_t turn = Turn(row), least = __reduce_min_sync(alike, turn);
  const unsigned has = __ballot_sync(alike, turn == least);
  uint32_t place = 0;
  if (turn == least) {
    place = static_cast<uint32_t>(Mix(key)) & table.mask;
    // More groups than that are not looked at: the table is never full.
    while (*static_cast<volatile uint32_t*>(groups) <= most) {
      const uint64_t there = table.keys[place];
      if (there == key) break;
      if (there == 0) {
        const uint64_t seen = atomicCAS(reinterpret_cast<unsigned long long*>(table.keys + place),
                                        0ull, static_cast<unsigned long long>(key));
        if (seen == 0) atomicAdd(groups, 1u);
        if (seen == 0 || seen == key) break;
      }
      place = (place + 1) & table.mask;
    }
    atomicAdd(table.rows + place, static_cast<uint32_t>(__popc(alike)));
    atomicMin(table.best + place,
              static_cast<unsigned long long>(turn) << 32 | static_cast<uint32_t>(row));
  }
  places[t] = static_cast<int32_t>(__shfl_sync(alike, place, __ffs(static_cast<int>(has)) - 1));
}

struct Choice {
  uint32_t groups;   // all groups
  uint32_t shared;   // groups of more than one row
  uint32_t rows;     // rows in these
  uint32_t pending;  // rows for the next round
  unsigned long long copied;
};

// Chooses the best row of each group of more than one row, as far as `capacity` goes.
__global__ void FsaiChooseKernel(Table table, uint32_t capacity, int32_t first, int32_t* chosen,
                                 int32_t* record_of, Choice* choice) {
  const uint32_t place = blockIdx.x * kThreads + threadIdx.x;
  if (place > table.mask) return;
  const uint32_t rows = table.rows[place];
  if (rows < 2) return;
  atomicAdd(&choice->rows, rows);
  const uint32_t slot = atomicAdd(&choice->shared, 1u);
  if (slot >= capacity) return;
  const auto row = static_cast<int32_t>(table.best[place] & 0x7fffffffu);
  table.slots[place] = static_cast<int32_t>(slot);
  chosen[slot] = row;
  record_of[row - first] = static_cast<int32_t>(slot);
}

__global__ void FsaiFirstKeysKernel(const int32_t* like, int64_t first, int64_t count,
                                    const int64_t* initial_ptr, const int32_t* initial_idx,
                                    uint64_t* keys) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= count) return;
  const int64_t i = first + t;
  uint64_t key = Mix(static_cast<uint64_t>(like[i]));
  if (initial_ptr != nullptr) {
    for (int64_t q = initial_ptr[i]; q < initial_ptr[i + 1]; ++q) {
      key = Mix(key ^ static_cast<uint64_t>(i - initial_idx[q]));
    }
  }
  keys[t] = NotZero(key);
}

// The rows of a round; `rows` null: all of the wave.
struct Pending {
  const uint64_t* keys;
  const int32_t *rows, *places;
  int32_t count;
};

// Copies rows that repeat the row grown for their group; the others go to the next round.
__global__ void FsaiRepeatsKernel(Pending pending, const int32_t* slots, const int32_t* chosen,
                                  const int64_t* records, const int32_t* like, const int32_t* own,
                                  int64_t n, MadeRows made, int32_t* source, uint32_t* copies,
                                  int32_t* next_rows, uint64_t* next_keys, Choice* choice) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= pending.count) return;
  const int32_t slot = slots[pending.places[t]];
  // No row was grown for a group of one.
  if (slot < 0) return;
  const int64_t row = pending.rows != nullptr ? pending.rows[t] : made.first + t;
  const int64_t from = chosen[slot], by = row - from;
  if (by == 0) {
    source[row - made.first] = static_cast<int32_t>(row);
    return;
  }
  // Rows where A is not positive definite are grown one by one, as on the CPU.
  if ((records[slot * (made.k_max + 4) + made.k_max + 3] & kRecordNotSpd) != 0) return;
  bool same = own[row] == own[from];
  int64_t begin = (from - made.first) * made.out_stride;
  if (made.initial_ptr != nullptr) {
    const int64_t its = made.initial_ptr[row], other = made.initial_ptr[from];
    const int64_t size = made.initial_ptr[row + 1] - its;
    same = same && made.initial_ptr[from + 1] - other == size;
    for (int64_t q = 0; same && q < size; ++q) {
      same = made.initial_idx[its + q] == made.initial_idx[other + q] + by;
    }
    begin += other - made.initial_ptr[made.first];
  }
  const int32_t count = made.out_count[from - made.first];
  uint64_t key = pending.keys[t];
  for (int32_t e = 0; e < count; ++e) {
    const int64_t j = made.out_idx[begin + e], k = j + by;
    const int32_t here = k >= 0 && k < n ? like[k] : -1;
    same = same && here == like[j];
    key = (key ^ static_cast<uint32_t>(here)) * 0xd6e8feb86659fd93u;
    key ^= key >> 32;
  }
  if (same) {
    source[row - made.first] = static_cast<int32_t>(from);
    made.out_count[row - made.first] = count;
    made.psi_ratio[row] = made.psi_ratio[from];
    const unsigned alike = __match_any_sync(__activemask(), slot);
    if (static_cast<int>(threadIdx.x) % 32 == __ffs(static_cast<int>(alike)) - 1) {
      atomicAdd(copies + slot, static_cast<uint32_t>(__popc(alike)));
    }
  } else {
    const uint32_t next = atomicAdd(&choice->pending, 1u);
    next_rows[next] = static_cast<int32_t>(row);
    next_keys[next] = NotZero(Mix(key));
  }
}

// One block for each part of a record: sums of integers, which do not depend on the order.
__global__ void FsaiAddCopiesKernel(const int64_t* records, const uint32_t* copies, int32_t count,
                                    MadeRows made, Choice* choice) {
  const int t = static_cast<int>(blockIdx.x);
  const int64_t size = made.k_max + 4;
  unsigned long long sum = 0, copied = 0;
  for (int slot = static_cast<int>(threadIdx.x); slot < count; slot += kThreads) {
    int64_t part = records[slot * size + t];
    if (t == made.k_max + 3) part = (part & kRecordConverged) != 0 ? 1 : 0;
    sum += static_cast<unsigned long long>(part) * copies[slot];
    copied += copies[slot];
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(~0u, sum, step);
    copied += __shfl_xor_sync(~0u, copied, step);
  }
  if (threadIdx.x % 32 != 0) return;
  if (t < made.k_max + 2) {
    atomicAdd(reinterpret_cast<unsigned long long*>(made.log_sums + t), sum);
  } else if (t == made.k_max + 2) {
    atomicAdd(made.products, sum);
  } else {
    atomicAdd(made.converged_count, static_cast<uint32_t>(sum));
    atomicAdd(&choice->copied, copied);
  }
}

__global__ void FsaiRestKernel(const int32_t* source, int64_t first, int64_t count, int32_t* rest,
                               uint32_t* rest_count) {
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t < count && source[t] < 0) {
    rest[atomicAdd(rest_count, 1u)] = static_cast<int32_t>(first + t);
  }
}

// Memory of a table for `most` groups, and for those that threads may add before they notice that
// there are more.
class Groups {
 public:
  Groups(Context& context, int64_t most, int64_t rows) {
    const int64_t size = Size(most, rows);
    keys_ = Buffer<uint64_t>(context, size);
    best_ = Buffer<unsigned long long>(context, size);
    rows_ = Buffer<uint32_t>(context, size);
    slots_ = Buffer<int32_t>(context, size);
    keys_.Fill(0);
    best_.Fill(0xff);
    rows_.Fill(0);
    slots_.Fill(0xff);
  }
  static int64_t Bytes(int64_t most, int64_t rows) { return 24 * Size(most, rows); }
  Table table() const {
    return {keys_.get(), best_.get(), rows_.get(), slots_.get(),
            static_cast<uint32_t>(keys_.size() - 1)};
  }

 private:
  static constexpr int64_t kMostThreads = int64_t{1} << 19;  // resident on any device, at most
  static int64_t Size(int64_t most, int64_t rows) {
    int64_t size = 64;
    while (size < 2 * std::min(rows, most + kMostThreads)) size *= 2;
    return size;
  }
  Buffer<uint64_t> keys_;
  Buffer<unsigned long long> best_;
  Buffer<uint32_t> rows_;
  Buffer<int32_t> slots_;
};

// Half of the memory left is kept for G, which is the same without the search.
bool HasRoom(const Context& context, int64_t bytes) {
  return bytes <= (context.arena->limit() - context.arena->used()) / 2;
}

}  // namespace

template <class Real>
Buffer<int32_t> LikeRows(Context& context, const Rows<Real>& a, int64_t n, int hash_bits) {
  const int64_t most = std::max<int64_t>(n / tuning::kFsaiRowsPerClass, 1);
  if (!HasRoom(context, (16 + static_cast<int64_t>(sizeof(Real))) * n + Groups::Bytes(most, n)))
    return {};
  Buffer<int32_t> like(context, n);
  const Buffer<Real> diagonals(context, n);
  const Buffer<uint64_t> keys(context, n);
  const Buffer<int32_t> places(context, n);
  const Buffer<uint32_t> count(context, 1);
  FsaiDiagonalsKernel<<<Blocks(n), kThreads, 0, context.stream>>>(a, n, diagonals.get());
  CheckLaunch("FsaiDiagonalsKernel");
  const auto group = [&](int step, const Groups& groups, int64_t limit) {
    const int64_t rows = (n - 1) / step + 1;
    count.Fill(0);
    FsaiHashRowsKernel<<<Blocks(rows * kLanes), kThreads, 0, context.stream>>>(
        a, n, step, diagonals.get(), hash_bits, keys.get());
    CheckLaunch("FsaiHashRowsKernel");
    FsaiGroupKernel<<<Blocks(rows), kThreads, 0, context.stream>>>(
        keys.get(), nullptr, 0, static_cast<int32_t>(rows), groups.table(), count.get(),
        static_cast<uint32_t>(limit), places.get());
    CheckLaunch("FsaiGroupKernel");
    return Read(context, count, 0) <= limit;
  };
  if (n >= tuning::kFsaiSampledRows) {
    constexpr int kStep = tuning::kFsaiSampleStep;
    const int64_t few = n / kStep / 2;
    if (!group(kStep, Groups(context, few, 2 * few), few)) return {};
  }
  const Groups groups(context, most, n);
  if (!group(1, groups, most)) return {};
  FsaiSameRowsKernel<<<Blocks(n * kLanes), kThreads, 0, context.stream>>>(
      a, n, diagonals.get(), places.get(), groups.table().best, like.get());
  CheckLaunch("FsaiSameRowsKernel");
  return like;
}

template Buffer<int32_t> LikeRows<float>(Context&, const Rows<float>&, int64_t, int);
template Buffer<int32_t> LikeRows<double>(Context&, const Rows<double>&, int64_t, int);

RepeatedRows FindRepeats(Context& context, const Buffer<int32_t>& like, const Buffer<int32_t>& own,
                         const MadeRows& made, const GrowRows& grow) {
  const int64_t n = like.size(), most = made.count / tuning::kFsaiRowsPerClass;
  RepeatedRows found;
  if (!HasRoom(context, 40 * made.count + (12 + 8 * (made.k_max + 4)) * most +
                            Groups::Bytes(made.count / 4 + tuning::kFsaiAnyGroups, made.count))) {
    return found;
  }
  found.source = Buffer<int32_t>(context, made.count);
  found.source.Fill(0xff);
  const Buffer<int32_t> record_of(context, made.count), places(context, made.count);
  const Buffer<Choice> choice(context, 1);
  Buffer<uint64_t> keys(context, made.count), next_keys;
  Buffer<int32_t> rows, next_rows;
  FsaiFirstKeysKernel<<<Blocks(made.count), kThreads, 0, context.stream>>>(
      own.get(), made.first, made.count, made.initial_ptr, made.initial_idx, keys.get());
  CheckLaunch("FsaiFirstKeysKernel");
  auto count = static_cast<int32_t>(made.count);
  for (int round = 0; round < tuning::kFsaiRepeatRounds && count >= 8; ++round) {
    // Growing more rows for copies would not be worth it.
    const int64_t capacity = std::min<int64_t>(most - found.grown, count / 4);
    if (capacity < 1) break;
    const int64_t most_groups = std::min<int64_t>(count, count / 4 + tuning::kFsaiAnyGroups);
    const Groups groups(context, most_groups, count);
    const Buffer<int32_t> chosen(context, capacity);
    choice.Fill(0);
    FsaiGroupKernel<<<Blocks(count), kThreads, 0, context.stream>>>(
        keys.get(), rows.get(), static_cast<int32_t>(made.first), count, groups.table(),
        &choice.get()->groups, static_cast<uint32_t>(most_groups), places.get());
    CheckLaunch("FsaiGroupKernel");
    FsaiChooseKernel<<<Blocks(int64_t{groups.table().mask} + 1), kThreads, 0, context.stream>>>(
        groups.table(), static_cast<uint32_t>(capacity), static_cast<int32_t>(made.first),
        chosen.get(), record_of.get(), choice.get());
    CheckLaunch("FsaiChooseKernel");
    Choice now = Read(context, choice, 0);
    if (now.groups > most_groups || now.shared == 0 || now.shared > capacity ||
        now.shared > now.rows / 4) {
      break;
    }
    const auto shared = static_cast<int32_t>(now.shared);
    const Buffer<int64_t> records(context, int64_t{shared} * (made.k_max + 4));
    // A row that the device does not make counts like one where A is not positive definite.
    records.Fill(0xff);
    grow(chosen.get(), shared, records.get(), record_of.get());
    const Buffer<uint32_t> copies(context, shared);
    copies.Fill(0);
    next_rows = Buffer<int32_t>(context, now.rows);
    next_keys = Buffer<uint64_t>(context, now.rows);
    const Pending pending{keys.get(), rows.get(), places.get(), count};
    FsaiRepeatsKernel<<<Blocks(count), kThreads, 0, context.stream>>>(
        pending, groups.table().slots, chosen.get(), records.get(), like.get(), own.get(), n, made,
        found.source.get(), copies.get(), next_rows.get(), next_keys.get(), choice.get());
    CheckLaunch("FsaiRepeatsKernel");
    FsaiAddCopiesKernel<<<static_cast<unsigned>(made.k_max + 4), kThreads, 0, context.stream>>>(
        records.get(), copies.get(), shared, made, choice.get());
    CheckLaunch("FsaiAddCopiesKernel");
    now = Read(context, choice, 0);
    found.grown += shared;
    found.copied += static_cast<int64_t>(now.copied);
    count = static_cast<int32_t>(now.pending);
    std::swap(rows, next_rows);
    std::swap(keys, next_keys);
  }
  if (found.grown == 0) return {};
  found.rest_count = static_cast<int32_t>(made.count - found.grown - found.copied);
  found.rest = Buffer<int32_t>(context, found.rest_count);
  const Buffer<uint32_t> rest_count(context, 1);
  rest_count.Fill(0);
  FsaiRestKernel<<<Blocks(made.count), kThreads, 0, context.stream>>>(
      found.source.get(), made.first, made.count, found.rest.get(), rest_count.get());
  CheckLaunch("FsaiRestKernel");
  return found;
}

}  // namespace spaid::cuda::fsai
