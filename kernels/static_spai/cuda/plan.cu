#include <algorithm>
#include <utility>

#include "kernels/base/cuda/hash.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/static_spai/cuda/gram_thread.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/cuda/qr.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one column or group together

int Blocks(int64_t threads) { return static_cast<int>((threads + kThreads - 1) / kThreads); }

__device__ int64_t Thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

template <class T>
__device__ T TeamSum(T value) {
  for (int step = kTeam / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step, kTeam);
  return value;
}

__device__ bool TeamAll(bool value) {
  const unsigned team = 0xffu << (threadIdx.x % 32 / kTeam * kTeam);
  return (__ballot_sync(~0u, value) & team) == team;
}

// --- Hashes of lists, and classes of equal ones ---

// Hashes of the rows of each column, less the column if `shifted`.
__global__ void HashColumnsKernel(PatternRef a, bool shifted, uint64_t* hashes) {
  const int64_t j = Thread() / kTeam;
  uint64_t sum = 0;
  if (j < a.n) {
    const int64_t begin = a.col_ptr[j], end = a.col_ptr[j + 1];
    const int32_t origin = shifted ? static_cast<int32_t>(j) : 0;
#pragma unroll 4
    for (int64_t p = begin + threadIdx.x % kTeam; p < end; p += kTeam) {
      sum += HashAt(static_cast<uint64_t>(p - begin), static_cast<uint64_t>(a.row_idx[p] - origin));
    }
  }
  sum = TeamSum(sum);
  if (j < a.n && threadIdx.x % kTeam == 0) hashes[j] = sum | 1;  // 0 is an empty slot
}

// Enters each member's hash; slot[i] is its slot, first[slot] the lowest member there.
__global__ void EnterKernel(int64_t n, const uint64_t* hashes, uint64_t mask,
                            unsigned long long* keys, int32_t* first, int32_t* slot) {
  const int64_t i = Thread();
  const unsigned long long hash = i < n ? hashes[i] : 0;
  // Neighbours are alike: the first of them enters for all, which keeps atomics on one word few.
  const unsigned same = __match_any_sync(~0u, hash);
  const int lane = static_cast<int>(threadIdx.x % 32), speaker = __ffs(static_cast<int>(same)) - 1;
  uint64_t at = (hash >> 20) & mask;
  if (i < n && lane == speaker) {
    for (;;) {
      unsigned long long key = *const_cast<volatile unsigned long long*>(&keys[at]);
      if (key == 0) key = atomicCAS(&keys[at], 0ull, hash);
      if (key == 0 || key == hash) break;
      at = (at + 1) & mask;
    }
    const auto own = static_cast<int32_t>(i);
    if (*const_cast<volatile int32_t*>(&first[at]) > own) atomicMin(&first[at], own);
  }
  at = __shfl_sync(~0u, at, speaker);
  if (i < n) slot[i] = static_cast<int32_t>(at);
}

// A hash table of at most `n` members.
class Classes {
 public:
  Classes(Context& context, int64_t n) : context_(context), slots_(1) {
    while (slots_ < 2 * n) slots_ *= 2;
    keys_ = Buffer<unsigned long long>(context, slots_);
    first_ = Buffer<int32_t>(context, slots_);
    slot_ = Buffer<int32_t>(context, n);
  }
  void Enter(const Buffer<uint64_t>& hashes, int64_t n) {
    keys_.Fill(0);
    first_.Fill(0x7f);
    EnterKernel<<<Blocks(n), kThreads, 0, context_.stream>>>(
        n, hashes.get(), static_cast<uint64_t>(slots_ - 1), keys_.get(), first_.get(), slot_.get());
    CheckLaunch("EnterKernel");
  }
  const int32_t* first() const { return first_.get(); }
  const int32_t* slot() const { return slot_.get(); }

 private:
  Context& context_;
  int64_t slots_;
  Buffer<unsigned long long> keys_;
  Buffer<int32_t> first_, slot_;
};

// class_of[j]: the lowest column with the rows of column j, shifted; j itself if only the hash was
// equal.
__global__ void ConfirmColumnsKernel(PatternRef a, const int32_t* first, const int32_t* slot,
                                     int32_t* class_of) {
  const int64_t j = Thread() / kTeam;
  bool same = true;
  int32_t other = 0;
  if (j < a.n) {
    other = first[slot[j]];
    const int64_t begin = a.col_ptr[j], count = a.col_ptr[j + 1] - begin;
    const int64_t begin_other = a.col_ptr[other];
    same = count == a.col_ptr[other + 1] - begin_other;
    const int32_t shift = static_cast<int32_t>(j) - other;
    const int64_t compared = same ? count : 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x % kTeam; i < compared; i += kTeam) {
      same &= a.row_idx[begin + i] - a.row_idx[begin_other + i] == shift;
    }
  }
  same = TeamAll(same);
  if (j < a.n && threadIdx.x % kTeam == 0) class_of[j] = same ? other : static_cast<int32_t>(j);
}

// --- Groups of columns with equal J ---

// leader[k]: the lowest column with J_k, looked for inside J_k.
__global__ void FindLeadersKernel(PatternRef m, const uint64_t* hashes, int32_t* leader) {
  constexpr int kAhead = 4;  // columns that a lane loads together
  const int64_t k = Thread() / kTeam;
  if (k >= m.n) return;
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  const unsigned shift = threadIdx.x % 32 / kTeam * kTeam, team = 0xffu << shift;
  const int64_t begin = m.col_ptr[k], count = m.col_ptr[k + 1] - begin;
  const uint64_t hash = hashes[k];
  int32_t found = static_cast<int32_t>(k);
  for (int64_t first = 0; first < count && found == k; first += kAhead * kTeam) {
    int32_t l[kAhead];
    bool alike[kAhead], beyond = false;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = first + i * kTeam + lane;
      l[i] = at < count ? m.row_idx[begin + at] : static_cast<int32_t>(k);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      beyond = beyond || l[i] >= k;
      alike[i] = l[i] < k && hashes[l[i]] == hash;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      unsigned left = __ballot_sync(team, alike[i]) >> shift & 0xff;
      for (; left != 0 && found == k; left &= left - 1) {
        const int32_t other = __shfl_sync(team, l[i], __ffs(static_cast<int>(left)) - 1, kTeam);
        const int64_t begin_other = m.col_ptr[other];
        bool same = m.col_ptr[other + 1] - begin_other == count;
        for (int64_t q = lane; same && q < count; q += kTeam) {
          same = m.row_idx[begin_other + q] == m.row_idx[begin + q];
        }
        if (__all_sync(team, same)) found = other;
      }
    }
    if (__any_sync(team, beyond)) break;
  }
  if (lane == 0) leader[k] = found;
}

// rank[k]: how many columns before k share its J; head[k]: whether a group of kMaxWidth begins
// with k.
__global__ void RankKernel(PatternRef m, const int32_t* leader, int32_t* rank, int32_t* head) {
  const int64_t k = Thread();
  if (k > m.n) return;
  int32_t before = 0;
  if (k < m.n && leader[k] != k) {
    for (int64_t p = m.col_ptr[k]; p < m.col_ptr[k + 1]; ++p) {
      const int32_t l = m.row_idx[p];
      if (l >= k) break;
      before += leader[l] == leader[k] ? 1 : 0;
    }
  }
  if (k < m.n) rank[k] = before;
  head[k] = k < m.n && before % kMaxWidth == 0 ? 1 : 0;
}

// group[k] of every column, from group_of_head (the scan of head).
__global__ void NameGroupsKernel(PatternRef m, const int32_t* leader, const int32_t* rank,
                                 const int32_t* group_of_head, int32_t* group, int32_t* width) {
  const int64_t k = Thread();
  if (k >= m.n) return;
  int64_t head = k;
  if (rank[k] % kMaxWidth != 0) {
    for (int64_t p = m.col_ptr[k]; p < m.col_ptr[k + 1]; ++p) {
      const int32_t l = m.row_idx[p];
      if (leader[l] == leader[k] && rank[l] == rank[k] / kMaxWidth * kMaxWidth) {
        head = l;
        break;
      }
    }
  }
  group[k] = group_of_head[head];
  atomicAdd(&width[group[k]], 1);
}

__global__ void FillMembersKernel(int64_t n, const int32_t* group, const int32_t* rank,
                                  const int32_t* group_ptr, int32_t* members) {
  const int64_t k = Thread();
  if (k < n) members[group_ptr[group[k]] + rank[k] % kMaxWidth] = static_cast<int32_t>(k);
}

// --- Groups whose local problems are shifted copies ---

struct GroupRef {
  PatternRef m;
  const int32_t* members;
  const int32_t* group_ptr;
  const int32_t* class_of;  // class of each column of A
};

__global__ void HashGroupsKernel(GroupRef groups, int32_t n_groups, uint64_t* hashes) {
  const int64_t g = Thread() / kTeam;
  uint64_t sum = 0;
  if (g < n_groups) {
    const int32_t begin = groups.group_ptr[g], end = groups.group_ptr[g + 1];
    const int32_t origin = groups.members[begin];
    const int64_t first = groups.m.col_ptr[origin];
    const int64_t count = groups.m.col_ptr[origin + 1] - first;
#pragma unroll 4
    for (int64_t q = threadIdx.x % kTeam; q < count; q += kTeam) {
      const int32_t j = groups.m.row_idx[first + q];
      const auto shift = static_cast<uint64_t>(static_cast<uint32_t>(j - origin));
      sum +=
          HashAt(static_cast<uint64_t>(q), shift << 32 | static_cast<uint32_t>(groups.class_of[j]));
    }
    for (int32_t t = begin + 1 + static_cast<int32_t>(threadIdx.x % kTeam); t < end; t += kTeam) {
      sum += HashAt((uint64_t{1} << 40) + static_cast<uint64_t>(t - begin),
                    static_cast<uint64_t>(groups.members[t] - origin));
    }
  }
  sum = TeamSum(sum);
  if (g < n_groups && threadIdx.x % kTeam == 0) hashes[g] = sum | 1;
}

// copy_of[g]: the lowest group that g is a shifted copy of; is_first[g]: whether that is g.
__global__ void ConfirmGroupsKernel(GroupRef groups, int32_t n_groups, const int32_t* first,
                                    const int32_t* slot, int32_t* copy_of, int32_t* is_first) {
  const int64_t g = Thread() / kTeam;
  bool same = true;
  int32_t other = 0;
  if (g < n_groups) {
    other = first[slot[g]];
    const int32_t begin = groups.group_ptr[g], width = groups.group_ptr[g + 1] - begin;
    const int32_t begin_o = groups.group_ptr[other];
    same = width == groups.group_ptr[other + 1] - begin_o;
    const int32_t k = groups.members[begin], k_o = groups.members[begin_o], shift = k - k_o;
    const int64_t at = groups.m.col_ptr[k], count = groups.m.col_ptr[k + 1] - at;
    const int64_t at_o = groups.m.col_ptr[k_o];
    same = same && count == groups.m.col_ptr[k_o + 1] - at_o;
    for (int32_t t = 0; same && t < width; ++t) {
      same = groups.members[begin + t] - groups.members[begin_o + t] == shift;
    }
    const int64_t compared = same ? count : 0;
#pragma unroll 4
    for (int64_t q = threadIdx.x % kTeam; q < compared; q += kTeam) {
      const int32_t j = groups.m.row_idx[at + q], j_o = groups.m.row_idx[at_o + q];
      same &= j - j_o == shift && groups.class_of[j] == groups.class_of[j_o];
    }
  }
  same = TeamAll(same);
  if (threadIdx.x % kTeam != 0) return;
  if (g < n_groups) copy_of[g] = same ? other : static_cast<int32_t>(g);
  if (g <= n_groups) is_first[g] = g < n_groups && (!same || other == g) ? 1 : 0;
}

__global__ void NameStructuresKernel(int32_t n_groups, const int32_t* copy_of,
                                     const int32_t* is_first, const int32_t* number,
                                     int32_t* structure_of, int32_t* representative) {
  const int64_t g = Thread();
  if (g >= n_groups) return;
  structure_of[g] = number[copy_of[g]];
  if (is_first[g] != 0) representative[number[g]] = static_cast<int32_t>(g);
}

__device__ int ClassOf(int64_t n2, int32_t width, const Structure& structure) {
  if (structure.entries == 0 || n2 > kMaxColumns) {
    const bool large =
        n2 > 0 && n2 <= kMaxLargeColumns && structure.all_entries <= kMaxLargeEntries;
    return large ? kLargeClass : kHostClass;
  }
  if (n2 <= 8 * kWarpSizes) return 2 * static_cast<int>((n2 - 1) / 8) + (width > 1 ? 1 : 0);
  int size = 0;
  while (n2 > BlockSize(size)) ++size;
  return 2 * kWarpSizes + size;
}

// Whether a column of the group is in the range.
__device__ bool Touches(const GroupRef& groups, int64_t g, ColumnRange range) {
  for (int32_t at = groups.group_ptr[g]; at < groups.group_ptr[g + 1]; ++at) {
    if (range.Has(groups.members[at])) return true;
  }
  return false;
}

// uses[s]: how many groups of the range share structure s.
__global__ void CountUsesKernel(GroupRef groups, int32_t n_groups, ColumnRange range,
                                const int32_t* structure_of, int32_t* uses) {
  const int64_t g = Thread();
  const int32_t s = g < n_groups && Touches(groups, g, range) ? structure_of[g] : -1;
  // Nearly all groups of a grid share one structure: a warp adds its groups at once.
  const unsigned same = __match_any_sync(~0u, s);
  if (s >= 0 && static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(same)) - 1) {
    atomicAdd(&uses[s], __popc(same));
  }
}

// The result of ChooseLanes, by |J|.
struct LaneSizes {
  int32_t structures[kMaxLaneColumns + 1];
  int32_t entries[kMaxLaneColumns + 1];  // entries of a structure, at most
};

// size[s]: |J| of structure s if it is solved one thread a group, else a number above these. None
// is so solved if `tables` is null. `uses`: counts over all groups.
__global__ void ChooseLanesKernel(GroupRef groups, int32_t n_structures,
                                  const Structure* structures, const uint32_t* tables,
                                  const int32_t* representative, const int32_t* uses,
                                  int32_t lane_columns, uint8_t* size, int32_t* ids,
                                  LaneSizes* sizes) {
  const int64_t s = Thread();
  if (s >= n_structures) return;
  const Structure& structure = structures[s];
  const int32_t k = groups.members[groups.group_ptr[representative[s]]];
  const int64_t n2 = groups.m.col_ptr[k + 1] - groups.m.col_ptr[k];
  const bool chosen = tables != nullptr && uses[s] >= kLanes && structure.width == 1 &&
                      structure.entries > 0 && structure.entries <= kMaxLaneEntries &&
                      n2 <= lane_columns && tables[structure.targets()] != kNoRow;
  if (chosen) {
    atomicAdd(&sizes->structures[n2], 1);
    atomicMax(&sizes->entries[n2], structure.entries);
  }
  size[s] = static_cast<uint8_t>(chosen ? n2 : kMaxLaneColumns + 1);
  ids[s] = static_cast<int32_t>(s);
}

// Counts the groups of each lane structure, by size, and the warps that they fill; lane[s]: its
// number, -1 for other structures.
__global__ void DescribeLanesKernel(int32_t n_structures, int32_t lanes, const int32_t* by_size,
                                    const int32_t* uses, int32_t* lane, int32_t* groups,
                                    int32_t* tasks) {
  const int64_t i = Thread();
  if (i == lanes) groups[lanes] = tasks[lanes] = 0;  // for the totals of the sums
  if (i >= n_structures) return;
  const int32_t s = by_size[i];
  lane[s] = i < lanes ? static_cast<int32_t>(i) : -1;
  if (i >= lanes) return;
  groups[i] = uses[s];
  tasks[i] = (uses[s] + kLanes - 1) / kLanes;
}

__global__ void PickKernel(const int32_t* from, const LaneSizes* sizes, int32_t* to) {
  int32_t at = 0;
  for (int n2 = 0; n2 <= kMaxLaneColumns; ++n2) {
    to[n2] = from[at];
    at += sizes->structures[n2];
  }
  to[kMaxLaneColumns + 1] = from[at];
}

// The key by which groups are ordered: the number of the lane structure, or, after all of those,
// the class. counts[kClasses]: those of kOtherClass that would be of kLargeClass.
__global__ void ClassifyKernel(GroupRef groups, int32_t n_groups, ColumnRange range,
                               const int32_t* structure_of, const Structure* structures,
                               const int32_t* lane, int32_t lane_structures, uint32_t* keys,
                               int32_t* ids, int32_t* counts, LargestLocal* large) {
  __shared__ int32_t own[kClasses + 1];
  if (threadIdx.x <= kClasses) own[threadIdx.x] = 0;
  __syncthreads();
  const int64_t g = Thread();
  if (g < n_groups) {
    const int32_t s = structure_of[g];
    ids[g] = static_cast<int32_t>(g);
    const bool other = !Touches(groups, g, range);
    if (lane[s] >= 0 && !other) {
      keys[g] = static_cast<uint32_t>(lane[s]);
    } else {
      const int32_t begin = groups.group_ptr[g], width = groups.group_ptr[g + 1] - begin;
      const int32_t k = groups.members[begin];
      const int64_t n2 = groups.m.col_ptr[k + 1] - groups.m.col_ptr[k];
      const int as_own = ClassOf(n2, width, structures[s]), c = other ? kOtherClass : as_own;
      keys[g] = static_cast<uint32_t>(lane_structures + c);
      atomicAdd(&own[c], 1);
      if (as_own == kLargeClass) {
        if (other) atomicAdd(&own[kClasses], 1);
        atomicMax(reinterpret_cast<long long*>(&large->n2), static_cast<long long>(n2));
        atomicMax(reinterpret_cast<long long*>(&large->entries),
                  static_cast<long long>(structures[s].all_entries));
      }
    }
  }
  __syncthreads();
  if (threadIdx.x <= kClasses && own[threadIdx.x] > 0) {
    atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
  }
}

void MakeGroups(Context& context, StaticSpaiPlan& plan) {
  const int64_t n = plan.n;
  const PatternRef m = plan.pattern();
  Buffer<uint64_t> hashes(context, n);
  HashColumnsKernel<<<Blocks(n * kTeam), kThreads, 0, context.stream>>>(m, false, hashes.get());
  CheckLaunch("HashColumnsKernel");
  const Buffer<int32_t> leader(context, n), rank(context, n), head(context, n + 1);
  FindLeadersKernel<<<Blocks(n * kTeam), kThreads, 0, context.stream>>>(m, hashes.get(),
                                                                        leader.get());
  CheckLaunch("FindLeadersKernel");
  RankKernel<<<Blocks(n + 1), kThreads, 0, context.stream>>>(m, leader.get(), rank.get(),
                                                             head.get());
  CheckLaunch("RankKernel");
  Scan(context, head, n + 1);
  plan.n_groups = Read(context, head, n);
  const Buffer<int32_t> group(context, n);
  plan.group_ptr = Buffer<int32_t>(context, plan.n_groups + 1);
  plan.members = Buffer<int32_t>(context, n);
  plan.group_ptr.Fill(0);
  NameGroupsKernel<<<Blocks(n), kThreads, 0, context.stream>>>(
      m, leader.get(), rank.get(), head.get(), group.get(), plan.group_ptr.get());
  CheckLaunch("NameGroupsKernel");
  Scan(context, plan.group_ptr, plan.n_groups + 1);
  FillMembersKernel<<<Blocks(n), kThreads, 0, context.stream>>>(
      n, group.get(), rank.get(), plan.group_ptr.get(), plan.members.get());
  CheckLaunch("FillMembersKernel");
}

void CountUses(const Context& context, const GroupRef& groups, ColumnRange range,
               const StaticSpaiPlan& plan, const Buffer<int32_t>& uses) {
  uses.Fill(0);
  CountUsesKernel<<<Blocks(plan.n_groups), kThreads, 0, context.stream>>>(
      groups, plan.n_groups, range, plan.structure_of.get(), uses.get());
  CheckLaunch("CountUsesKernel");
}

// Chooses the kernel of each group: fills order, class_begin, and the fields of the lanes.
// `own_uses`: counts over the groups of plan.own; null: these are all.
void OrderGroups(Context& context, const Matrix& a, const GroupRef& groups,
                 const int32_t* representative, const int32_t* own_uses, StaticSpaiPlan& plan) {
  const int32_t n_groups = plan.n_groups, n_structures = plan.n_structures;
  const Buffer<int32_t> uses(context, n_structures), lane(context, n_structures),
      ids(context, std::max(n_groups, n_structures)), by_size(context, n_structures),
      counts(context, kClasses + 1);
  const Buffer<uint8_t> size(context, n_structures), sorted_size(context, n_structures);
  const Buffer<LaneSizes> sizes(context, 1);
  counts.Fill(0);
  sizes.Fill(0);
  CountUses(context, groups, {0, plan.n}, plan, uses);
  if (own_uses == nullptr) own_uses = uses.get();
  ChooseLanesKernel<<<Blocks(n_structures), kThreads, 0, context.stream>>>(
      groups, n_structures, plan.structures.get(), plan.tables.get(), representative, uses.get(),
      std::min(context.variants.lane_columns, kMaxLaneColumns), size.get(), ids.get(), sizes.get());
  CheckLaunch("ChooseLanesKernel");
  Sort(context, size.get(), sorted_size.get(), ids.get(), by_size.get(), n_structures, 4);
  const LaneSizes found = Read(context, sizes, 0);
  for (int n2 = 0; n2 <= kMaxLaneColumns; ++n2) {
    plan.lane_size_begin[n2 + 1] = plan.lane_size_begin[n2] + found.structures[n2];
    plan.lane_entries[n2] = found.entries[n2];
  }
  const int32_t lanes = plan.lane_structures = plan.lane_size_begin[kMaxLaneColumns + 1];
  plan.lane_begin = Buffer<int32_t>(context, lanes + 1);
  plan.lane_tasks = Buffer<int32_t>(context, lanes + 1);
  DescribeLanesKernel<<<Blocks(n_structures + 1), kThreads, 0, context.stream>>>(
      n_structures, lanes, by_size.get(), own_uses, lane.get(), plan.lane_begin.get(),
      plan.lane_tasks.get());
  CheckLaunch("DescribeLanesKernel");
  Scan(context, plan.lane_begin, lanes + 1);
  Scan(context, plan.lane_tasks, lanes + 1);
  const Buffer<int32_t> task_begin(context, kMaxLaneColumns + 2);
  PickKernel<<<1, 1, 0, context.stream>>>(plan.lane_tasks.get(), sizes.get(), task_begin.get());
  CheckLaunch("PickKernel");
  plan.lane_tables = Buffer<LaneTable>(context, lanes);
  MakeLaneTables(context, a, by_size.get(), representative, plan);

  const Buffer<uint32_t> keys(context, n_groups), sorted(context, n_groups);
  const Buffer<LargestLocal> large(context, 1);
  large.Fill(0);
  plan.order = Buffer<int32_t>(context, n_groups);
  ClassifyKernel<<<Blocks(n_groups), kThreads, 0, context.stream>>>(
      groups, n_groups, plan.own, plan.structure_of.get(), plan.structures.get(), lane.get(), lanes,
      keys.get(), ids.get(), counts.get(), large.get());
  CheckLaunch("ClassifyKernel");
  int bits = 1;
  while ((int64_t{1} << bits) < int64_t{lanes} + kClasses) ++bits;
  Sort(context, keys.get(), sorted.get(), ids.get(), plan.order.get(), n_groups, bits);
  int32_t in_class[kClasses + 1];
  counts.CopyOut(in_class, kClasses + 1);
  large.CopyOut(&plan.large, 1);
  task_begin.CopyOut(plan.lane_task_begin, kMaxLaneColumns + 2);
  plan.lane_begin.CopyOut(&plan.class_begin[0], 1, lanes);
  context.Synchronize();
  for (int c = 0; c < kClasses; ++c) plan.class_begin[c + 1] = plan.class_begin[c] + in_class[c];
  plan.large_groups = in_class[kLargeClass] + in_class[kClasses];
}

// Whether the tables do not fit beside the rest of the plan and a build. `planning_only`: bytes
// that are freed before a build.
bool NeedWaves(Context& context, const Matrix& a, const int32_t* representative,
               const StaticSpaiPlan& plan, bool by_qr, int64_t planning_only) {
  // Waves of smaller tables would save no more than the error of this count.
  // EstimateStaticSpai counts with it.
  constexpr int64_t kWorthWaves = 4 << 20;
  constexpr int64_t kRounding = 1 << 20;  // blocks, and the scratch of sorts
  if (plan.most_table_bytes > 0 && plan.table_bytes > plan.most_table_bytes) return true;
  if (plan.table_bytes < kWorthWaves) return false;
  const int64_t n_groups = plan.n_groups;
  const int64_t lanes = std::min<int64_t>(plan.n_structures, n_groups / kLanes);
  const auto lane_bytes = lanes * (static_cast<int64_t>(sizeof(LaneTable)) + 8);
  const int64_t kept = 4 * n_groups + lane_bytes;  // the order, and the fields of the lanes
  const int64_t ordering = kept + 40 * n_groups;   // keys, uses, the sorts' copies of both
  const int64_t building =
      kept - planning_only + 8 * plan.m.nnz + 25 * plan.n + (a.values.size() > 0 ? 8 : 16) * a.nnz;
  const int64_t room =
      context.arena->limit() - context.arena->used() - plan.table_bytes - kRounding;
  const auto fits = [&](const LargestLocal& large) {
    int64_t work_space = 0;
    if (large.n2 > 0) {
      work_space = by_qr ? LargeQrBytes(large, plan.n) : LargeGramBytes(large, plan.n);
    }
    // Two orders of the groups; before that also keys, sorted keys, and the scratch of sorting.
    const int64_t solving = by_qr ? std::max(24 * n_groups, 8 * n_groups + work_space) : work_space;
    return std::max(ordering, building + solving) <= room;
  };
  return !fits({kMaxLargeColumns, kMaxLargeEntries}) &&
         !fits(FindLargest(context, a, representative, plan));
}

}  // namespace

StaticSpaiPlan MakePlan(Context& context, const Matrix& a, DevicePattern pattern, bool by_qr,
                        ColumnRange own, int64_t most_table_bytes) {
  StaticSpaiPlan plan;
  plan.most_table_bytes = most_table_bytes;
  plan.own = own;
  plan.by_qr = by_qr;
  plan.n = a.n;
  plan.nnz_a = a.nnz;
  plan.pattern_hash = a.pattern_hash;
  plan.m = std::move(pattern);
  plan.entries = plan.m.nnz;
  if (!plan.whole()) {
    const int64_t* const m_ptr = plan.pattern().col_ptr;
    int64_t end = 0;
    context.Download({{&plan.first_entry, m_ptr + own.begin, sizeof(end)},
                      {&end, m_ptr + own.end, sizeof(end)}});
    plan.entries = end - plan.first_entry;
  }
  if (!by_qr) plan.dia = MakeDiaPlan(context, a, plan);
  if (plan.dia.node == 0) AddGroups(context, a, by_qr, plan);
  return plan;
}

void AddGroups(Context& context, const Matrix& a, bool by_qr, StaticSpaiPlan& plan) {
  MakeGroups(context, plan);

  const int64_t n = plan.n, n_groups = plan.n_groups;
  const Buffer<int32_t> class_of(context, n);
  {
    const Buffer<uint64_t> hashes(context, n);
    HashColumnsKernel<<<Blocks(n * kTeam), kThreads, 0, context.stream>>>(a.pattern(), true,
                                                                          hashes.get());
    CheckLaunch("HashColumnsKernel");
    Classes classes(context, n);
    classes.Enter(hashes, n);
    ConfirmColumnsKernel<<<Blocks(n * kTeam), kThreads, 0, context.stream>>>(
        a.pattern(), classes.first(), classes.slot(), class_of.get());
    CheckLaunch("ConfirmColumnsKernel");
  }
  const GroupRef groups{plan.pattern(), plan.members.get(), plan.group_ptr.get(), class_of.get()};
  const Buffer<int32_t> number(context, n_groups + 1), is_first(context, n_groups + 1),
      copy_of(context, n_groups);
  {
    const Buffer<uint64_t> hashes(context, n_groups);
    HashGroupsKernel<<<Blocks(n_groups * kTeam), kThreads, 0, context.stream>>>(
        groups, plan.n_groups, hashes.get());
    CheckLaunch("HashGroupsKernel");
    Classes classes(context, n_groups);
    classes.Enter(hashes, n_groups);
    ConfirmGroupsKernel<<<Blocks((n_groups + 1) * kTeam), kThreads, 0, context.stream>>>(
        groups, plan.n_groups, classes.first(), classes.slot(), copy_of.get(), is_first.get());
    CheckLaunch("ConfirmGroupsKernel");
  }
  Copy(context, is_first, number, n_groups + 1);
  Scan(context, number, n_groups + 1);
  plan.n_structures = Read(context, number, n_groups);
  plan.structure_of = Buffer<int32_t>(context, n_groups);
  plan.structures = Buffer<Structure>(context, plan.n_structures);
  Buffer<int32_t> representative(context, plan.n_structures);
  NameStructuresKernel<<<Blocks(n_groups), kThreads, 0, context.stream>>>(
      plan.n_groups, copy_of.get(), is_first.get(), number.get(), plan.structure_of.get(),
      representative.get());
  CheckLaunch("NameStructuresKernel");
  Buffer<int32_t> own_uses;
  if (!plan.whole()) {
    own_uses = Buffer<int32_t>(context, plan.n_structures);
    CountUses(context, groups, plan.own, plan, own_uses);
  }
  {
    const Buffer<int64_t> begin(context, plan.n_structures + 1);
    MeasureStructures(context, a, representative.get(), own_uses.get(), plan, begin.get());
    Scan(context, begin, plan.n_structures + 1);
    const int64_t words = Read(context, begin, plan.n_structures);
    plan.table_bytes = 4 * words;
    plan.in_waves = NeedWaves(context, a, representative.get(), plan, by_qr,
                              4 * n + 12 * n_groups + 12 * int64_t{plan.n_structures});
    if (!plan.in_waves) {
      plan.tables = MakeTables(context, a, plan, representative.get(), nullptr, plan.n_structures,
                               begin.get(), words, plan.structures.get());
    }
  }
  OrderGroups(context, a, groups, representative.get(), own_uses.get(), plan);
  if (plan.in_waves) plan.representative = std::move(representative);
  plan.grouped = true;
}

int64_t StaticSpaiPlan::device_bytes() const {
  const auto bytes = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return dia.device_bytes() + bytes(m.col_ptr) + bytes(m.row_idx) + bytes(members) +
         bytes(group_ptr) + bytes(structure_of) + bytes(structures) + bytes(tables) +
         bytes(representative) + bytes(order) + bytes(lane_tables) + bytes(lane_begin) +
         bytes(lane_tasks);
}

}  // namespace spaid::cuda
