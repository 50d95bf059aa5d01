#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/sparse/cuda/symmetry.h"
#include "kernels/sparse/cuda/transpose.h"
#include "kernels/sparse/symmetry.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one column

// Whether a_ij = v and a_ji = w differ by more than rounding; noise: what the diagonal allows.
__device__ bool Differ(const PatternRef& a, const double* values, int32_t i, int64_t j, double v,
                       double w) {
  // Quotients first: the difference of two huge values may overflow.
  const double size = fmax(fabs(v), fabs(w)), relative = fabs(v / size - w / size);
  if (relative <= kernels::kSymmetryTolerance) return false;
  const double own = EntryAt(a, values, i, i),
               other = EntryAt(a, values, j, static_cast<int32_t>(j));
  return !(relative * size <= kernels::kAssemblyNoise * sqrt(fabs(own)) * sqrt(fabs(other)));
}

// wrong: 1 where an entry has no mirror, or one that differs; nobody looks where that is known.
template <bool kExact>
__global__ void __launch_bounds__(kThreads)
    MirrorKernel(PatternRef a, const double* values, int64_t columns, int32_t* wrong) {
  if (*const_cast<volatile int32_t*>(wrong) != 0) return;
  const int64_t teams = int64_t{gridDim.x} * kThreads / kTeam;
  for (int64_t j = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; j < columns;
       j += teams) {
    for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
      const int64_t mirror = FindEntry(a, j, a.row_idx[p]);
      if (mirror == p) continue;
      if constexpr (kExact) {
        if (mirror < 0 || !(values[mirror] == values[p])) *wrong = 1;
      } else {
        const double w = mirror < 0 ? 0 : values[mirror];
        if (values[p] != w && Differ(a, values, a.row_idx[p], j, values[p], w)) *wrong = 1;
      }
    }
  }
}

// The same by nodes: a lane a block of those above the diagonal; of others, whether they have a
// mirror. wrong[1]: 1 where an entry has no mirror that is equal.
__global__ void __launch_bounds__(kThreads)
    NodeMirrorKernel(PatternRef nodes, PatternRef a, const double* __restrict__ values, int block,
                     int32_t* wrong) {
  const int64_t teams = int64_t{gridDim.x} * kThreads / kTeam;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; i < nodes.n;
       i += teams) {
    if (*const_cast<volatile int32_t*>(wrong) != 0) return;
    const int64_t begin = nodes.col_ptr[i], length = (nodes.col_ptr[i + 1] - begin) * block;
    for (int64_t q = begin + threadIdx.x % kTeam; q < nodes.col_ptr[i + 1]; q += kTeam) {
      const int32_t j = nodes.row_idx[q];
      const int64_t mirror = j == i ? q : FindEntry(nodes, i, j);
      if (j < i && mirror >= 0) continue;  // the other one is compared
      bool equal = mirror >= 0;
      const int64_t first = nodes.col_ptr[j], other = (nodes.col_ptr[j + 1] - first) * block;
      const double* const own = values + begin * block * block + (q - begin) * block;
      const double* const its = values + first * block * block + (mirror - first) * block;
      for (int r = 0; r < block; ++r) {
        for (int c = 0; c < block; ++c) {
          const double v = own[r * length + c], w = mirror < 0 ? 0 : its[c * other + r];
          if (v == w) continue;
          equal = false;
          const auto column = static_cast<int32_t>(j * block + c);
          if (Differ(a, values, column, i * block + r, v, w)) *wrong = 1;
        }
      }
      if (!equal) wrong[1] = 1;
    }
  }
}

template <bool kExact>
bool IsSymmetric(Context& context, const PatternRef& a, const double* values) {
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  // The first columns mostly tell where it is not.
  constexpr int64_t kFirst = 1024;
  for (const int64_t columns : {std::min(kFirst, a.n), a.n}) {
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(
        (columns * kTeam + kThreads - 1) / kThreads, 1, int64_t{16} * context.multiprocessors));
    MirrorKernel<kExact><<<blocks, kThreads, 0, context.stream>>>(a, values, columns, wrong.get());
    CheckLaunch("MirrorKernel");
  }
  return Read(context, wrong, 0) == 0;
}

}  // namespace

bool IsExactlySymmetric(Context& context, const PatternRef& a, const double* values) {
  return IsSymmetric<true>(context, a, values);
}
bool IsNumericallySymmetric(Context& context, const PatternRef& a, const double* values) {
  return IsSymmetric<false>(context, a, values);
}

bool IsNumericallySymmetric(Context& context, const NodeMatrix& a, bool* exactly) {
  const Buffer<int32_t> wrong(context, 2);
  wrong.Fill(0);
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(
      (a.nodes.n * kTeam + kThreads - 1) / kThreads, 1, int64_t{16} * context.multiprocessors));
  NodeMirrorKernel<<<blocks, kThreads, 0, context.stream>>>(a.nodes.pattern(), a.of->pattern(),
                                                            a.values, a.rows, wrong.get());
  CheckLaunch("NodeMirrorKernel");
  int32_t found[2] = {};
  context.Download({wrong.To(found, 2)});
  *exactly = found[1] == 0;
  return found[0] == 0;
}

}  // namespace spaid::cuda
