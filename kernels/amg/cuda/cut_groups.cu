#include "kernels/amg/cuda/cut_groups.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::kWarps, layout::Lane;
using layout::WarpOfGrid, layout::WarpsOfGrid;

// An aggregate of a row in the order in which they are kept: the largest first, of equals the lower
// number.
struct Rank {
  double squares = -1;
  int32_t group = -1;
  __device__ bool Before(const Rank& other) const {
    return squares > other.squares || (squares == other.squares && group < other.group);
  }
};

struct RowsRef {
  int64_t n;
  const int64_t* ptr;
  const int32_t* columns;
  const double* values;
  int count;

  // Whether entry p is the first of its aggregate in the row that begins at `begin`.
  __device__ bool Begins(int64_t begin, int64_t p) const {
    return p == begin || columns[p] / count != columns[p - 1] / count;
  }
  // Returns that of the aggregate of entry p.
  __device__ Rank RankOf(int64_t begin, int64_t end, int64_t p) const {
    const int32_t group = columns[p] / count;
    while (!Begins(begin, p)) --p;
    double squares = 0;
    for (; p < end && columns[p] / count == group; ++p) {
      squares = __dadd_rn(squares, __dmul_rn(values[p], values[p]));
    }
    return {squares >= 0 ? squares : 0, group};  // a NaN is last
  }
};

// The last of the `most` aggregates that each row keeps, and the entries of these. A warp a row.
__global__ void __launch_bounds__(kThreads)
    ChooseKernel(RowsRef p_of, int most, Rank* __restrict__ last_of,
                 int32_t* __restrict__ entries) {
  for (int64_t i = WarpOfGrid(); i < p_of.n; i += WarpsOfGrid()) {
    const int64_t begin = p_of.ptr[i], end = p_of.ptr[i + 1];
    Rank last{INFINITY, -1};  // of those chosen so far
    if (end - begin <= most) {
      last = {-1, INT32_MAX};
    }
    for (int k = 0; k < most && last.squares >= 0; ++k) {
      Rank best;
      for (int64_t p = begin + Lane(); p < end; p += 32) {
        if (!p_of.Begins(begin, p)) continue;
        const Rank own = p_of.RankOf(begin, end, p);
        if (last.Before(own) && own.Before(best)) best = own;
      }
      for (int step = 16; step > 0; step /= 2) {
        const Rank other{__shfl_xor_sync(~0u, best.squares, step),
                         __shfl_xor_sync(~0u, best.group, step)};
        if (other.Before(best)) best = other;
      }
      last = best;  // below zero: there are no more, and all stay
    }
    int32_t stay = 0;
    for (int64_t p = begin + Lane(); p < end; p += 32) {
      stay += last.squares < 0 || !last.Before(p_of.RankOf(begin, end, p)) ? 1 : 0;
    }
    stay = __reduce_add_sync(~0u, stay);
    if (Lane() != 0) continue;
    entries[i] = stay;
    last_of[i] = last;
  }
}

__global__ void __launch_bounds__(kThreads)
    CutKernel(RowsRef p_of, const Rank* __restrict__ last_of, const int64_t* __restrict__ ptr,
              int32_t* __restrict__ columns, double* __restrict__ values) {
  for (int64_t i = WarpOfGrid(); i < p_of.n; i += WarpsOfGrid()) {
    const int64_t begin = p_of.ptr[i], end = p_of.ptr[i + 1];
    const Rank last = last_of[i];
    int64_t to = ptr[i];
    for (int64_t first = begin; first < end; first += 32) {
      const int64_t p = first + Lane();
      const bool stays = p < end && (last.squares < 0 || !last.Before(p_of.RankOf(begin, end, p)));
      const uint32_t some = __ballot_sync(~0u, stays);
      if (stays) {
        const int64_t at = to + __popc(some & ((1u << Lane()) - 1));
        columns[at] = p_of.columns[p];
        values[at] = p_of.values[p];
      }
      to += __popc(some);
    }
  }
}

}  // namespace

RowMatrix CutGroups(Context& context, const RowMatrix& whole, int count, int most) {
  RowMatrix cut;
  cut.n = whole.n;
  cut.columns = whole.columns;
  const RowsRef of{whole.n, whole.col_ptr.get(), whole.row_idx.get(), whole.values.get(), count};
  const Buffer<int32_t> entries(context, whole.n);
  const Buffer<Rank> last(context, whole.n);
  const int blocks = Blocks(context, whole.n, kWarps);
  ChooseKernel<<<blocks, kThreads, 0, context.stream>>>(of, most, last.get(), entries.get());
  CheckLaunch("ChooseKernel");
  SizeRows(context, entries, cut);
  CutKernel<<<blocks, kThreads, 0, context.stream>>>(of, last.get(), cut.col_ptr.get(),
                                                     cut.row_idx.get(), cut.values.get());
  CheckLaunch("CutKernel");
  return cut;
}

}  // namespace spaid::cuda
