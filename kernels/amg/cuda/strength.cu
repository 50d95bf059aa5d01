#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/nodes.h"
#include "kernels/amg/cuda/strength.h"
#include "kernels/amg/strength.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

// Couplings by rows: those of row i stand from begin[i] to end[i]. What is not positive is none.
struct CouplingsRef {
  int64_t n;
  const int64_t *begin, *end;
  const int32_t* column;
  const double* value;
};

// Signed roots of the diagonal, as the host's DiagonalRoots.
__global__ void __launch_bounds__(kThreads)
    DiagonalRootsKernel(PatternRef a, const double* __restrict__ values,
                        double* __restrict__ roots) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    const double d = EntryAt(a, values, i, static_cast<int32_t>(i));
    roots[i] = d == 0 ? 0 : copysign(sqrt(fabs(d)), d);
  }
}

// For a symmetric A, on its pattern; the diagonal has zeros. `least`: what row i calls strong; 0:
// nothing is.
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    SymmetricKernel(PatternRef a, const double* __restrict__ values,
                    const double* __restrict__ roots, double theta, double* __restrict__ coupling,
                    double* __restrict__ least) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    const double root = roots[i];
    double most = 0;
    for (int64_t p = a.col_ptr[i] + group.lane; p < a.col_ptr[i + 1]; p += kLanes) {
      const int32_t j = a.row_idx[p];
      const double other = roots[j], scaled = values[p] / (root * other);
      const bool counts = j != i && (root > 0) == (other > 0);
      const double s = counts ? (root > 0 ? -scaled : scaled) : 0;
      coupling[p] = s;
      most = fmax(most, s);
    }
    most = group.Best(most, [](double x, double y) { return fmax(x, y); });
    if (group.lane == 0) least[i] = most > 0 ? theta * most : 0;
  });
}

// The same `least` of couplings that are there.
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    LeastKernel(CouplingsRef s, double theta, double* __restrict__ least) {
  const LaneGroup<kLanes> group;
  group.ForRows(s.n, [&](int64_t i) {
    double most = 0;
    for (int64_t p = s.begin[i] + group.lane; p < s.end[i]; p += kLanes) {
      most = fmax(most, s.value[p]);
    }
    most = group.Best(most, [](double x, double y) { return fmax(x, y); });
    if (group.lane == 0) least[i] = most > 0 ? theta * most : 0;
  });
}

// The coupling of two unknowns by a_ij and a_ji, and of two nodes by the norms of both blocks.
struct OfUnknowns {
  const double* roots;
  __device__ double operator()(int64_t i, int32_t j, double own, double mirrored) const {
    const double root = roots[i], other = roots[j];
    return -0.5 * __dadd_rn(own / (root * fabs(other)), mirrored / (fabs(root) * other));
  }
};
struct OfNodes {
  __device__ double operator()(int64_t, int32_t, double own, double mirrored) const {
    return 0.5 * (own + mirrored);
  }
};

// For the union of the rows of A and Aᵀ: a place for each entry of both.
template <int kLanes, class Coupling>
__global__ void __launch_bounds__(kThreads)
    UnionKernel(PatternRef a, const double* __restrict__ values, PatternRef mirror,
                const double* __restrict__ mirror_values, Coupling coupling_of, double theta,
                int64_t* __restrict__ begin, int64_t* __restrict__ end,
                int32_t* __restrict__ column, double* __restrict__ coupling,
                double* __restrict__ least) {
  const auto begin_of = [&](int64_t i) { return a.col_ptr[i] + mirror.col_ptr[i]; };
  const auto entries = [&](int64_t i) { return begin_of(i + 1) - begin_of(i); };
  ForRowsByLength<kLanes>(a.n, entries, [&](const auto& group, int64_t i) {
    const RowColumns own(a.col_ptr, a.row_idx, i), mirrored(mirror.col_ptr, mirror.row_idx, i);
    const double* const own_values = values + a.col_ptr[i];
    const double* const its_values = mirror_values + mirror.col_ptr[i];
    const auto self = static_cast<int32_t>(i);
    const bool has_self = own.Has(self) || mirrored.Has(self);
    double most = 0;
    int64_t both = 0;
    // Entries of `of`, and those of `other` beside them; with `alone`, those that have none. The
    // diagonal is left out.
    const auto pass = [&](const RowColumns& of, const RowColumns& other, bool alone) {
      both = 0;
      for (int64_t first = 0; first < of.count; first += group.lanes) {
        const int64_t e = first + group.lane;
        const bool there = e < of.count;
        const int32_t j = there ? of.columns[e] : 0;
        const int64_t before = there ? other.Before(j) : 0;
        const bool in_both = there && other.Has(j, before);
        const uint32_t lanes = group.Ballot(in_both);
        if (there && j != self && !(alone && in_both)) {
          const double x = alone ? 0 : own_values[e];
          const double y = alone ? its_values[e] : in_both ? its_values[before] : 0;
          const double s = coupling_of(i, j, x, y);
          const int64_t to = begin_of(i) + e + before - (both + group.Before(lanes)) -
                             (has_self && j > self ? 1 : 0);
          column[to] = j;
          coupling[to] = s;
          most = fmax(most, s);
        }
        both += __popc(lanes);
      }
    };
    pass(own, mirrored, false);
    if (both < mirrored.count) pass(mirrored, own, true);
    most = group.Best(most, [](double x, double y) { return fmax(x, y); });
    if (group.lane != 0) return;
    begin[i] = begin_of(i);
    end[i] = begin_of(i + 1) - both - (has_self ? 1 : 0);
    least[i] = most > 0 ? theta * most : 0;
  });
}

__device__ bool IsStrong(double s, double least, double least_of_other) {
  return s > 0 && s >= least && s >= least_of_other;
}

struct Leading {
  double value;
  int32_t node;
};

// Strong couplings of each row, and its leader.
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    CountKernel(CouplingsRef s, const double* __restrict__ least, int64_t* __restrict__ count,
                int32_t* __restrict__ leader) {
  const LaneGroup<kLanes> group;
  group.ForRows(s.n, [&](int64_t i) {
    const double own = least[i];
    int strong = 0;
    double leading = 0;
    int32_t node = -1;
    for (int64_t p = s.begin[i] + group.lane; p < s.end[i]; p += kLanes) {
      const double value = s.value[p];
      if (!(value > 0) || value < own) continue;
      const int32_t j = s.column[p];
      if (value >= least[j]) {
        ++strong;
      } else if (value > leading) {
        leading = value;
        node = j;
      }
    }
    strong = group.Best(strong, [](int x, int y) { return x + y; });
    const double most = group.Best(leading, [](double x, double y) { return fmax(x, y); });
    // Columns ascend: of equal ones the lower number is the host's first.
    const int32_t first = group.Best(leading == most && node >= 0 ? node : INT32_MAX,
                                     [](int32_t x, int32_t y) { return min(x, y); });
    if (group.lane != 0) return;
    count[i] = strong;
    leader[i] = first == INT32_MAX ? -1 : first;
  });
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    FillKernel(CouplingsRef s, const double* __restrict__ least, const int64_t* __restrict__ ptr,
               int32_t* __restrict__ neighbours, double* __restrict__ weights) {
  const LaneGroup<kLanes> group;
  group.ForRows(s.n, [&](int64_t i) {
    const double own = least[i];
    int64_t to = ptr[i];
    for (int64_t p = s.begin[i]; p < s.end[i]; p += kLanes) {
      const int64_t at = p + group.lane;
      const bool there = at < s.end[i];
      const double value = there ? s.value[at] : 0;
      const int32_t j = there ? s.column[at] : 0;
      const bool strong = there && IsStrong(value, own, least[j]);
      const uint32_t lanes = group.Ballot(strong);
      if (strong) {
        const int64_t place = to + group.Before(lanes);
        neighbours[place] = j;
        weights[place] = value;
      }
      to += __popc(lanes);
    }
  });
}

}  // namespace

StrongGraph FindStrong(Context& context, const RowMatrix& of, const RowMatrix* of_mirror,
                       double theta, int block, const NodeMatrix* nodes) {
  const double tied = theta * kernels::kStrengthTie;
  const Buffer<double> roots(context, of.n), least(context, of.n / block);
  DiagonalRootsKernel<<<Blocks(context, of.n, kThreads), kThreads, 0, context.stream>>>(
      of.pattern(), of.values.get(), roots.get());
  CheckLaunch("DiagonalRootsKernel");
  RowMatrix norms, norms_mirror;
  const bool by_nodes = nodes != nullptr && of_mirror == nullptr;
  if (block > 1 && !by_nodes) {
    norms = NodeNorms(context, of, roots, block);
    if (of_mirror != nullptr) norms_mirror = Transpose(context, norms);
  }
  const RowMatrix& a = by_nodes ? nodes->nodes : block > 1 ? norms : of;
  const RowMatrix* const mirror = block > 1 && of_mirror != nullptr ? &norms_mirror : of_mirror;
  const int64_t n = a.n;
  StrongGraph graph;
  graph.n = n;
  graph.most_entries = a.nnz + (mirror != nullptr ? mirror->nnz : 0);
  const bool are_there = block > 1 && mirror == nullptr;
  const Buffer<double> value = by_nodes
                                   ? NodeNorms(context, *nodes, roots)
                                   : Buffer<double>(context, are_there ? 0 : graph.most_entries);
  Buffer<int64_t> begin, end;
  Buffer<int32_t> column;
  CouplingsRef s{n, a.col_ptr.get(), a.col_ptr.get() + 1, a.row_idx.get(),
                 are_there && !by_nodes ? a.values.get() : value.get()};
  if (are_there) {
    WithLanes(a.nnz, n, [&](auto lanes) {
      LeastKernel<lanes><<<Blocks(context, n, kThreads / lanes), kThreads, 0, context.stream>>>(
          s, tied, least.get());
    });
    CheckLaunch("LeastKernel");
  } else if (mirror == nullptr) {
    WithLanes(a.nnz, n, [&](auto lanes) {
      SymmetricKernel<lanes><<<Blocks(context, n, kThreads / lanes), kThreads, 0, context.stream>>>(
          a.pattern(), a.values.get(), roots.get(), tied, value.get(), least.get());
    });
    CheckLaunch("SymmetricKernel");
  } else {
    begin = Buffer<int64_t>(context, n);
    end = Buffer<int64_t>(context, n);
    column = Buffer<int32_t>(context, graph.most_entries);
    const auto launch = [&](const auto& coupling_of) {
      WithLanes(a.nnz, n, [&](auto lanes) {
        UnionKernel<lanes><<<Blocks(context, n, kThreads / lanes), kThreads, 0, context.stream>>>(
            a.pattern(), a.values.get(), mirror->pattern(), mirror->values.get(), coupling_of, tied,
            begin.get(), end.get(), column.get(), value.get(), least.get());
      });
    };
    block > 1 ? launch(OfNodes{}) : launch(OfUnknowns{roots.get()});
    CheckLaunch("UnionKernel");
    s = {n, begin.get(), end.get(), column.get(), value.get()};
  }
  graph.ptr = Buffer<int64_t>(context, n + 1);
  graph.leader = Buffer<int32_t>(context, n);
  graph.neighbours = Buffer<int32_t>(context, graph.most_entries);
  graph.weights = Buffer<double>(context, graph.most_entries);
  WithLanes(a.nnz, n, [&](auto lanes) {
    const int blocks = Blocks(context, n, kThreads / lanes);
    CountKernel<lanes><<<blocks, kThreads, 0, context.stream>>>(s, least.get(), graph.ptr.get(),
                                                                graph.leader.get());
    CheckLaunch("CountKernel");
    Scan(context, graph.ptr, n + 1);
    FillKernel<lanes><<<blocks, kThreads, 0, context.stream>>>(
        s, least.get(), graph.ptr.get(), graph.neighbours.get(), graph.weights.get());
  });
  CheckLaunch("FillKernel");
  return graph;
}

}  // namespace spaid::cuda
