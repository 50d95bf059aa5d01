#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/amg/cuda/cut_groups.h"
#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/power_steps.h"
#include "kernels/amg/cuda/prolongation.h"
#include "kernels/amg/cuda/prolongation_tuning.h"
#include "kernels/amg/cuda/staying_nodes.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/amg/smoothers.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/sparse/cuda/product_waves.h"
#include "kernels/sparse/cuda/transpose.h"

// Products and sums of the host are rounded one by one: __dmul_rn and __dadd_rn keep the compiler
// from contracting them.
namespace spaid::cuda {
namespace {

using layout::Blocks, layout::Lane, layout::ThreadOfGrid, layout::ThreadsOfGrid;
using layout::WarpOfGrid, layout::WarpsOfGrid;
constexpr int kThreads = layout::kThreads;
using tuning::kMostAggregates;
constexpr double kTight = tuning::kTightRowSums;
constexpr int kPowerSteps = tuning::kProlongationSteps;
constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

// A RowMatrix as kernels read it.
struct RowsRef {
  explicit RowsRef(const RowMatrix& of)
      : n(of.n), ptr(of.col_ptr.get()), columns(of.row_idx.get()), values(of.values.get()) {}
  RowsRef(const PatternRef& pattern, const double* of)
      : n(pattern.n), ptr(pattern.col_ptr), columns(pattern.row_idx), values(of) {}
  __device__ auto Entries() const {
    return [ptr = ptr](int64_t i) { return ptr[i + 1] - ptr[i]; };
  }

  int64_t n;
  const int64_t* ptr;
  const int32_t* columns;
  const double* values;
};

// The host's StrongRow and KeptRow: whether entries of a row stay.
class StayingRow {
 public:
  __device__ StayingRow(const StrongRef& graph, const int32_t* of_node, int64_t i)
      : known_(graph.ptr, graph.neighbours, i),
        row_(static_cast<int32_t>(i)),
        leader_(known_.count == 0 && of_node[i] >= 0 ? graph.leader[i] : -1) {}
  __device__ StayingRow(const int64_t* ptr, const int32_t* columns, int64_t i)
      : known_(ptr, columns, i), row_(static_cast<int32_t>(i)), leader_(-1) {}
  // One lane asks in ascending order.
  template <int kLanes>
  __device__ bool Stays(int32_t column) {
    if (column == row_ || column == leader_) return true;
    if constexpr (kLanes > 1) {
      return known_.Has(column);
    } else {
      while (next_ < known_.count && known_.columns[next_] < column) ++next_;
      return known_.Has(column, next_);
    }
  }

 private:
  RowColumns known_;
  int64_t next_ = 0;
  int32_t row_, leader_;
};

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    CountStayingKernel(RowsRef a, StrongRef graph, const int32_t* __restrict__ of_node,
                       int32_t* entries) {
  ForRowsByLength<kLanes>(a.n, a.Entries(), [&](const auto& group, int64_t i) {
    StayingRow row(graph, of_node, i);
    int32_t own = 0;
    for (int64_t p = a.ptr[i] + group.lane; p < a.ptr[i + 1]; p += group.lanes) {
      own += row.template Stays<group.lanes>(a.columns[p]) ? 1 : 0;
    }
    own = group.Best(own, [](int32_t x, int32_t y) { return x + y; });
    if (group.lane == 0) entries[i] = own;
  });
}

// The host's FilteredRow: row i of D_F⁻¹ A_F, of the entries that stay, at `to`. `columns`: null:
// they are there.
template <class Group>
__device__ void FilterRow(const Group& group, const RowsRef& a, int64_t i,
                          const StayingRow& staying, const double* near_null, double least_left,
                          int32_t* columns, double* to) {
  const double near = near_null != nullptr ? near_null[i] : 1;
  const int64_t begin = a.ptr[i], end = a.ptr[i + 1];
  double diagonal = 0, weak = 0;
  StayingRow row = staying;
  for (int64_t first = begin; first < end; first += Group::lanes) {
    const int64_t p = first + group.lane;
    const int32_t j = p < end ? a.columns[p] : -1;
    if (j == i) diagonal = a.values[p];
    double part = 0;  // a sum that is not -0 stays what it is
    if (j >= 0 && near != 0 && !row.template Stays<Group::lanes>(j)) {
      const double other = near_null != nullptr ? near_null[j] : 1;
      part = __dmul_rn(a.values[p], other / near);
    }
    if (group.Ballot(part != 0) == 0) continue;
    weak = group.AddInOrder(weak, part, static_cast<int>(min(int64_t{Group::lanes}, end - first)));
  }
  diagonal = group.Best(diagonal, [](double x, double y) { return x != 0 ? x : y; });
  const double lumped = __dadd_rn(diagonal, weak);
  const double divisor = lumped / diagonal >= least_left ? lumped : diagonal;
  row = staying;
  for (int64_t first = begin; first < end; first += Group::lanes) {
    const int64_t p = first + group.lane;
    const int32_t j = p < end ? a.columns[p] : -1;
    const bool stays = j >= 0 && row.template Stays<Group::lanes>(j);
    const uint32_t all = group.Ballot(stays);
    if (stays) {
      const int before = group.Before(all);
      if (columns != nullptr) columns[before] = j;
      to[before] = j == i ? 1 : a.values[p] / divisor;
    }
    if (columns != nullptr) columns += __popc(all);
    to += __popc(all);
  }
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    FilterKernel(RowsRef a, StrongRef graph, const int32_t* __restrict__ of_node,
                 const double* __restrict__ near_null, double least_left,
                 const int64_t* __restrict__ ptr, int32_t* columns, double* values) {
  ForRowsByLength<kLanes>(a.n, a.Entries(), [&](const auto& group, int64_t i) {
    FilterRow(group, a, i, StayingRow(graph, of_node, i), near_null, least_left, columns + ptr[i],
              values + ptr[i]);
  });
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    FilterOnKernel(RowsRef a, const double* __restrict__ near_null, double least_left,
                   const int64_t* __restrict__ ptr, const int32_t* __restrict__ columns,
                   double* values) {
  ForRowsByLength<kLanes>(a.n, a.Entries(), [&](const auto& group, int64_t i) {
    FilterRow(group, a, i, StayingRow(ptr, columns, i), near_null, least_left, nullptr,
              values + ptr[i]);
  });
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    CountNodesKernel(RowsRef a, StrongRef graph, const int32_t* __restrict__ of_node, int block,
                     int32_t* __restrict__ entries) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    const StayingNodes row(graph, of_node, i / block);
    int32_t own = 0;
    for (int64_t p = a.ptr[i] + group.lane; p < a.ptr[i + 1]; p += kLanes) {
      own += row.Stays(a.columns[p] / block) ? 1 : 0;
    }
    own = group.Best(own, [](int32_t x, int32_t y) { return x + y; });
    if (group.lane == 0) entries[i] = own;
  });
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    FilterNodesKernel(RowsRef a, StrongRef graph, const int32_t* __restrict__ of_node, int block,
                      const int64_t* __restrict__ ptr, int32_t* __restrict__ columns,
                      double* __restrict__ values) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    const StayingNodes row(graph, of_node, i / block);
    const double diagonal = EntryAt({a.n, a.ptr, a.columns}, a.values, i, static_cast<int32_t>(i));
    int64_t to = ptr[i];
    for (int64_t first = a.ptr[i]; first < a.ptr[i + 1]; first += kLanes) {
      const int64_t p = first + group.lane;
      const bool there = p < a.ptr[i + 1];
      const int32_t j = there ? a.columns[p] : 0;
      const bool stays = there && row.Stays(j / block);
      const uint32_t lanes = group.Ballot(stays);
      if (stays) {
        const int64_t at = to + group.Before(lanes);
        columns[at] = j;
        values[at] = j == i ? 1 : a.values[p] / diagonal;
      }
      to += __popc(lanes);
    }
  });
}

// The largest Σ_j |a_ij|, as bits, which are ordered as what they stand for. A NaN counts for
// nothing.
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    LargestRowKernel(RowsRef a, unsigned long long* largest) {
  const LaneGroup<kLanes> group;
  double most = 0;
  group.ForRows(a.n, [&](int64_t i) {
    double sum = 0;
    for (int64_t first = a.ptr[i]; first < a.ptr[i + 1]; first += kLanes) {
      const int64_t left = a.ptr[i + 1] - first;
      const double own = group.lane < left ? fabs(a.values[first + group.lane]) : 0;
      sum = group.AddInOrder(sum, own, static_cast<int>(min(left, int64_t{kLanes})));
    }
    if (sum > most) most = sum;
  });
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) most = fmax(most, __shfl_xor_sync(~0u, most, step));
  if (Lane() == 0) {
    atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(most)));
  }
}

// I - ω D_F⁻¹ A_F in place.
template <int kLanes>
__global__ void __launch_bounds__(kThreads) DampKernel(RowsRef a, double omega, double* values) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    for (int64_t p = a.ptr[i] + group.lane; p < a.ptr[i + 1]; p += kLanes) {
      const double scaled = __dmul_rn(-omega, values[p]);
      values[p] = a.columns[p] == i ? __dadd_rn(1, scaled) : scaled;
    }
  });
}

__global__ void CutLengthsKernel(int64_t n, const int64_t* ptr, int32_t* entries) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    entries[i] = static_cast<int32_t>(min(ptr[i + 1] - ptr[i], int64_t{kMostAggregates}));
  }
}

// An entry of P in the order in which they are kept: the largest first, of equals the first column.
struct Rank {
  double size = -1;
  int32_t column = -1;
  __device__ bool Before(const Rank& other) const {
    return size > other.size || (size == other.size && column < other.column);
  }
};
__device__ Rank RankOf(const RowsRef& a, int64_t p) {
  const double size = __dmul_rn(a.values[p], a.values[p]);
  return {size >= 0 ? size : 0, a.columns[p]};  // a NaN is last
}

// The host's Truncation for one near-null vector: a warp a row.
__global__ void __launch_bounds__(kThreads)
    CutKernel(RowsRef whole, const double* __restrict__ coarse_near,
              const int64_t* __restrict__ ptr, int32_t* columns, double* values) {
  for (int64_t i = WarpOfGrid(); i < whole.n; i += WarpsOfGrid()) {
    const int64_t begin = whole.ptr[i], end = whole.ptr[i + 1];
    int64_t to = ptr[i];
    if (end - begin <= kMostAggregates) {
      if (begin + Lane() < end) {
        columns[to + Lane()] = whole.columns[begin + Lane()];
        values[to + Lane()] = whole.values[begin + Lane()];
      }
      continue;
    }
    Rank last{INFINITY, -1};  // of those chosen so far
    for (int k = 0; k < kMostAggregates; ++k) {
      Rank best;
      for (int64_t p = begin + Lane(); p < end; p += 32) {
        const Rank own = RankOf(whole, p);
        if (last.Before(own) && own.Before(best)) best = own;
      }
      for (int step = 16; step > 0; step /= 2) {
        const Rank other{__shfl_xor_sync(~0u, best.size, step),
                         __shfl_xor_sync(~0u, best.column, step)};
        if (other.Before(best)) best = other;
      }
      last = best;
    }
    // One after the other, as the host does.
    double all = 0, left = 0;
    for (int64_t p = begin; p < end; ++p) {
      const double part = coarse_near != nullptr
                              ? __dmul_rn(whole.values[p], coarse_near[whole.columns[p]])
                              : whole.values[p];
      all += part;
      if (!last.Before(RankOf(whole, p))) left += part;
    }
    const double scale = left != 0 && all / left > 0 ? all / left : 1;
    for (int64_t first = begin; first < end; first += 32) {
      const int64_t p = first + Lane();
      const bool stays = p < end && !last.Before(RankOf(whole, p));
      const uint32_t some = __ballot_sync(~0u, stays);
      if (stays) {
        const int before = __popc(some & ((1u << Lane()) - 1));
        columns[to + before] = whole.columns[p];
        values[to + before] = __dmul_rn(whole.values[p], scale);
      }
      to += __popc(some);
    }
  }
}

// The same on known columns, as the host's Truncation::Fill: a thread a row.
__global__ void __launch_bounds__(kThreads)
    CutOnKernel(RowsRef whole, const double* __restrict__ coarse_near,
                const int64_t* __restrict__ ptr, const int32_t* __restrict__ columns,
                double* values) {
  for (int64_t i = ThreadOfGrid(); i < whole.n; i += ThreadsOfGrid()) {
    const int64_t begin = whole.ptr[i], end = whole.ptr[i + 1], to = ptr[i], last = ptr[i + 1];
    const bool is_cut = last - to < end - begin;
    double all = 0, left = 0;
    int64_t at = to;
    for (int64_t p = begin; is_cut && p < end; ++p) {
      const int32_t j = whole.columns[p];
      const double part =
          coarse_near != nullptr ? __dmul_rn(whole.values[p], coarse_near[j]) : whole.values[p];
      all = __dadd_rn(all, part);
      if (at == last || columns[at] != j) continue;
      left = __dadd_rn(left, part);
      ++at;
    }
    const double scale = is_cut && left != 0 && all / left > 0 ? all / left : 1;
    at = to;
    for (int64_t p = begin; p < end; ++p) {
      if (at == last || columns[at] != whole.columns[p]) continue;
      values[at++] = is_cut ? __dmul_rn(whole.values[p], scale) : whole.values[p];
    }
  }
}

RowMatrix Cut(Context& context, const RowMatrix& whole, const double* coarse_near) {
  RowMatrix cut;
  cut.n = whole.n;
  cut.columns = whole.columns;
  const Buffer<int32_t> entries(context, whole.n);
  CutLengthsKernel<<<Blocks(context, whole.n, kThreads), kThreads, 0, context.stream>>>(
      whole.n, whole.col_ptr.get(), entries.get());
  CheckLaunch("CutLengthsKernel");
  SizeRows(context, entries, cut);
  CutKernel<<<Blocks(context, whole.n, layout::kWarps), kThreads, 0, context.stream>>>(
      RowsRef(whole), coarse_near, cut.col_ptr.get(), cut.row_idx.get(), cut.values.get());
  CheckLaunch("CutKernel");
  return cut;
}

__global__ void FilledLengthsKernel(int64_t n, const int64_t* ptr, int32_t* entries) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    entries[i] = static_cast<int32_t>(max(ptr[i + 1] - ptr[i], int64_t{1}));
  }
}
__global__ void __launch_bounds__(kThreads)
    FillKernel(RowsRef a, const int64_t* __restrict__ ptr, int32_t* columns, double* values) {
  for (int64_t i = WarpOfGrid(); i < a.n; i += WarpsOfGrid()) {
    const int64_t begin = a.ptr[i], count = a.ptr[i + 1] - begin;
    for (int64_t e = Lane(); e < count; e += 32) {
      columns[ptr[i] + e] = a.columns[begin + e];
      values[ptr[i] + e] = a.values[begin + e];
    }
    if (count == 0 && Lane() == 0) {
      columns[ptr[i]] = static_cast<int32_t>(i);
      values[ptr[i]] = 1;
    }
  }
}

// The values alone, of a known pattern.
__global__ void __launch_bounds__(kThreads)
    FillOnKernel(RowsRef a, const int64_t* __restrict__ ptr, double* values) {
  for (int64_t i = WarpOfGrid(); i < a.n; i += WarpsOfGrid()) {
    const int64_t begin = a.ptr[i], count = a.ptr[i + 1] - begin;
    for (int64_t e = Lane(); e < count; e += 32) values[ptr[i] + e] = a.values[begin + e];
    if (count == 0 && Lane() == 0) values[ptr[i]] = 1;
  }
}

RowMatrix FillEmptyRows(Context& context, const RowMatrix& a) {
  RowMatrix filled;
  filled.n = a.n;
  filled.columns = a.columns;
  const Buffer<int32_t> entries(context, a.n);
  FilledLengthsKernel<<<Blocks(context, a.n, kThreads), kThreads, 0, context.stream>>>(
      a.n, a.col_ptr.get(), entries.get());
  CheckLaunch("FilledLengthsKernel");
  SizeRows(context, entries, filled);
  FillKernel<<<Blocks(context, a.n, layout::kWarps), kThreads, 0, context.stream>>>(
      RowsRef(a), filled.col_ptr.get(), filled.row_idx.get(), filled.values.get());
  CheckLaunch("FillKernel");
  return filled;
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    InverseDiagonalKernel(RowsRef a, bool l1, double factor, double* inverse) {
  ForRowsByLength<kLanes>(a.n, a.Entries(), [&](const auto& group, int64_t i) {
    const int64_t end = a.ptr[i + 1];
    double diagonal = 0, sum = 0;
    for (int64_t first = a.ptr[i]; first < end; first += group.lanes) {
      const int64_t p = first + group.lane;
      const double value = p < end ? a.values[p] : 0;
      if (p < end && a.columns[p] == i) diagonal = value;
      if (l1) {
        sum = group.AddInOrder(sum, fabs(value),
                               static_cast<int>(min(int64_t{group.lanes}, end - first)));
      }
    }
    diagonal = group.Best(diagonal, [](double x, double y) { return x != 0 ? x : y; });
    if (group.lane != 0) return;
    const double by = l1 ? copysign(sum, diagonal) : diagonal;
    inverse[i] = by != 0 ? __dmul_rn(1 / by, factor) : 0;
  });
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    OverDiagonalKernel(RowsRef a, const double* __restrict__ inverse, double* values) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    for (int64_t p = a.ptr[i] + group.lane; p < a.ptr[i + 1]; p += kLanes) {
      values[p] = a.values[p] * inverse[i];
    }
  });
}

}  // namespace

RowMatrix FilterWeak(Context& context, const RowMatrix& a, const StrongRef& graph,
                     const int32_t* of_node, const double* near_null, double least_left) {
  RowMatrix filtered;
  filtered.n = a.n;
  filtered.columns = a.columns;
  const Buffer<int32_t> entries(context, a.n);
  WithFewLanes(a.nnz, a.n, [&](auto lanes) {
    const int blocks = Blocks(context, a.n, kThreads / lanes);
    CountStayingKernel<lanes>
        <<<blocks, kThreads, 0, context.stream>>>(RowsRef(a), graph, of_node, entries.get());
    CheckLaunch("CountStayingKernel");
    SizeRows(context, entries, filtered);
    FilterKernel<lanes><<<blocks, kThreads, 0, context.stream>>>(
        RowsRef(a), graph, of_node, near_null, least_left, filtered.col_ptr.get(),
        filtered.row_idx.get(), filtered.values.get());
    CheckLaunch("FilterKernel");
  });
  return filtered;
}

RowMatrix FilterNodes(Context& context, const RowMatrix& a, const StrongRef& graph,
                      const int32_t* of_node, int block) {
  RowMatrix filtered;
  filtered.n = a.n;
  filtered.columns = a.columns;
  const Buffer<int32_t> entries(context, a.n);
  WithLanes(a.nnz, a.n, [&](auto lanes) {
    const int blocks = Blocks(context, a.n, kThreads / lanes);
    CountNodesKernel<lanes>
        <<<blocks, kThreads, 0, context.stream>>>(RowsRef(a), graph, of_node, block, entries.get());
    CheckLaunch("CountNodesKernel");
    SizeRows(context, entries, filtered);
    FilterNodesKernel<lanes><<<blocks, kThreads, 0, context.stream>>>(
        RowsRef(a), graph, of_node, block, filtered.col_ptr.get(), filtered.row_idx.get(),
        filtered.values.get());
    CheckLaunch("FilterNodesKernel");
  });
  return filtered;
}

void FilterWeakOn(Context& context, const RowMatrix& a, const double* near_null, double least_left,
                  RowMatrix& filtered) {
  WithFewLanes(a.nnz, a.n, [&](auto lanes) {
    FilterOnKernel<lanes><<<Blocks(context, a.n, kThreads / lanes), kThreads, 0, context.stream>>>(
        RowsRef(a), near_null, least_left, filtered.col_ptr.get(), filtered.row_idx.get(),
        filtered.values.get());
  });
  CheckLaunch("FilterOnKernel");
}

double RoundedBound(Context& context, double row_sums, double tight, const PowerFactor& a,
                    int steps) {
  double rho = row_sums;
  if (rho > tight) rho = std::min(rho, 1.1 * PowerNorm(context, {a}, steps));
  return std::ceil(rho * tuning::kBoundGrain) / tuning::kBoundGrain;
}

double SpectralBound(Context& context, const PatternRef& rows, const double* values, double tight,
                     int steps) {
  const RowsRef a(rows, values);
  const Buffer<double> largest(context, 1);
  largest.Fill(0);
  LargestRowKernel<8><<<Blocks(context, a.n, kThreads / 8), kThreads, 0, context.stream>>>(
      a, reinterpret_cast<unsigned long long*>(largest.get()));
  CheckLaunch("LargestRowKernel");
  return RoundedBound(context, Read(context, largest, 0), tight, {rows, values}, steps);
}

namespace {

// Makes I - ω D_F⁻¹ A_F of D_F⁻¹ A_F; returns ρ.
double Damp(Context& context, const RowMatrix& filtered) {
  const double rho =
      SpectralBound(context, filtered.pattern(), filtered.values.get(), kTight, kPowerSteps);
  WithLanes(filtered.nnz, filtered.n, [&](auto lanes) {
    DampKernel<lanes>
        <<<Blocks(context, filtered.n, kThreads / lanes), kThreads, 0, context.stream>>>(
            RowsRef(filtered), 4 / (3 * rho), filtered.values.get());
  });
  CheckLaunch("DampKernel");
  return rho;
}

}  // namespace

DeviceProlongation SmoothProlongation(Context& context, RowMatrix filtered,
                                      const RowMatrix& tentative, const double* coarse_near,
                                      int count, KeptProlongation* kept) {
  DeviceProlongation made;
  made.rho = Damp(context, filtered);
  made.p = Multiply(context, filtered, tentative);
  if (made.p.longest > kMostAggregates * count) {
    made.p = count == 1 ? Cut(context, made.p, coarse_near)
                        : CutGroups(context, made.p, count, kMostAggregates);
    if (kept != nullptr) kept->is_cut = true;
  }
  if (kept == nullptr) return made;
  kept->filtered = PatternOf(std::move(filtered));
  kept->p = CopyPattern(context, made.p);
  return made;
}

DeviceProlongation SmoothProlongationOn(Context& context, RowMatrix filtered,
                                        const RowMatrix& tentative, const double* coarse_near,
                                        const KeptProlongation& kept) {
  DeviceProlongation made;
  made.rho = Damp(context, filtered);
  made.p = OnPattern(context, kept.p);
  if (!kept.is_cut) {
    MultiplyOn(context, filtered, tentative, made.p);
    return made;
  }
  const RowMatrix whole = Multiply(context, filtered, tentative);
  CutOnKernel<<<Blocks(context, whole.n, kThreads), kThreads, 0, context.stream>>>(
      RowsRef(whole), coarse_near, made.p.col_ptr.get(), made.p.row_idx.get(), made.p.values.get());
  CheckLaunch("CutOnKernel");
  return made;
}

namespace {

// Returns how many entries of A P there may be at once: as half of what is left has room for.
int64_t ThatFit(const Context& context, int64_t most_between) {
  const int64_t left = context.arena->limit() - context.arena->used();
  return std::min(left / 2 / kernels::kEntryBytes, most_between);
}

}  // namespace

std::optional<RowMatrix> Galerkin(Context& context, int64_t most_entries, const RowMatrix& r,
                                  const RowMatrix& a, const RowMatrix& p, int64_t most_between,
                                  KeptGalerkin* kept) {
  RowMatrix ap = CountProduct(context, a, p);
  std::optional<RowMatrix> coarse;
  if (const int64_t most = ThatFit(context, most_between); ap.nnz > most) {
    coarse = MultiplyInWaves(context, most_entries, most / 4, r, a, p, ap);
  } else {
    FillProduct(context, a, p, ap, RowOrder::kAsFound);
    coarse = MultiplyUpTo(context, most_entries, r, ap);
    if (kept != nullptr && coarse.has_value() && ap.nnz <= kernels::MostProductEntries(a.nnz)) {
      kept->ap = PatternOf(std::move(ap));
    }
  }
  ap = {};
  if (!coarse.has_value() || coarse->empty == 0) return coarse;
  RowMatrix filled = FillEmptyRows(context, *coarse);
  if (kept != nullptr) kept->coarse = PatternOf(*std::move(coarse));
  return filled;
}

RowMatrix GalerkinOn(Context& context, const RowMatrix& r, const RowMatrix& a, const RowMatrix& p,
                     const KeptGalerkin& kept, const RowMatrix& result, int64_t most_between) {
  const bool fills = kept.coarse.n > 0;
  RowMatrix product = OnPattern(context, fills ? kept.coarse : result);
  {
    const bool known = kept.ap.n > 0;
    RowMatrix ap = known ? OnPattern(context, kept.ap) : CountProduct(context, a, p);
    if (const int64_t most = ThatFit(context, most_between); !known && ap.nnz > most) {
      product.values =
          std::move(MultiplyInWaves(context, product.nnz, most / 4, r, a, p, ap)->values);
    } else {
      known ? MultiplyOn(context, a, p, ap) : FillProduct(context, a, p, ap, RowOrder::kAsFound);
      MultiplyOn(context, r, ap, product);
    }
  }
  if (!fills) return product;
  RowMatrix filled = OnPattern(context, result);
  FillOnKernel<<<Blocks(context, product.n, layout::kWarps), kThreads, 0, context.stream>>>(
      RowsRef(product), filled.col_ptr.get(), filled.values.get());
  CheckLaunch("FillOnKernel");
  return filled;
}

std::optional<NodeProduct> Galerkin(Context& context, int64_t most_entries, const NodeMatrix& r,
                                    const NodeMatrix& a, const NodeMatrix& p, RowMatrix* ap) {
  NodeProduct product = *MultiplyNodes(context, kAnyNumber, a, p, RowOrder::kAsFound);
  NodeMatrix by_nodes = NodesOf(product, a.rows, p.columns);
  auto coarse = MultiplyNodes(context, most_entries, r, by_nodes);
  if (coarse && coarse->whole.empty > 0) {
    coarse = NodeProduct{.whole = FillEmptyRows(context, coarse->whole), .nodes = {}};
  }
  *ap = PatternOf(std::move(by_nodes.nodes));
  return coarse;
}

std::optional<NodeProduct> GalerkinOn(Context& context, const NodeMatrix& r, const NodeMatrix& a,
                                      const NodeMatrix& p, const RowMatrix& ap,
                                      const RowMatrix& coarse) {
  auto product = MultiplyNodesOn(context, a, p, ap);
  if (!product) return std::nullopt;
  return MultiplyNodesOn(context, r, NodesOf(*product, a.rows, p.columns), coarse);
}

Buffer<double> InverseDiagonal(Context& context, const RowMatrix& a, bool l1, double factor) {
  Buffer<double> inverse(context, a.n);
  WithFewLanes(a.nnz, a.n, [&](auto lanes) {
    InverseDiagonalKernel<lanes>
        <<<Blocks(context, a.n, kThreads / lanes), kThreads, 0, context.stream>>>(
            RowsRef(a), l1, factor, inverse.get());
  });
  CheckLaunch("InverseDiagonalKernel");
  return inverse;
}

double SmootherRho(Context& context, const RowMatrix& a, const Buffer<double>& inverse) {
  const Buffer<double> values(context, a.nnz);
  WithLanes(a.nnz, a.n, [&](auto lanes) {
    OverDiagonalKernel<lanes>
        <<<Blocks(context, a.n, kThreads / lanes), kThreads, 0, context.stream>>>(
            RowsRef(a), inverse.get(), values.get());
  });
  CheckLaunch("OverDiagonalKernel");
  return SpectralBound(context, a.pattern(), values.get(), kTight, kPowerSteps);
}

double FactoredRho(Context& context, const RowMatrix& a, const NodeMatrix* by_nodes,
                   const RowMatrix& g, const RowMatrix& gt) {
  const double norm = PowerNorm(context,
                                {{gt.pattern(), gt.values.get()},
                                 {a.pattern(), a.values.get(), by_nodes},
                                 {g.pattern(), g.values.get()}},
                                kPowerSteps);
  return std::ceil(kernels::kAboveFactored * norm * tuning::kBoundGrain) / tuning::kBoundGrain;
}

}  // namespace spaid::cuda
