#include <algorithm>

#include "kernels/sparse/cuda/symmetry.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one column

// wrong: 1 where an entry has no mirror; nobody looks where that is known.
__global__ void __launch_bounds__(kThreads)
    MirrorKernel(PatternRef a, const double* values, int64_t columns, int32_t* wrong) {
  if (*const_cast<volatile int32_t*>(wrong) != 0) return;
  const int64_t teams = int64_t{gridDim.x} * kThreads / kTeam;
  for (int64_t j = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; j < columns;
       j += teams) {
    for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
      const int64_t mirror = FindEntry(a, j, a.row_idx[p]);
      if (mirror == p) continue;
      if (mirror < 0 || !(values[mirror] == values[p])) *wrong = 1;
    }
  }
}

}  // namespace

bool IsExactlySymmetric(Context& context, const PatternRef& a, const double* values) {
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  // The first columns mostly tell where it is not.
  constexpr int64_t kFirst = 1024;
  for (const int64_t columns : {std::min(kFirst, a.n), a.n}) {
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(
        (columns * kTeam + kThreads - 1) / kThreads, 1, int64_t{16} * context.multiprocessors));
    MirrorKernel<<<blocks, kThreads, 0, context.stream>>>(a, values, columns, wrong.get());
    CheckLaunch("MirrorKernel");
  }
  int32_t found = 0;
  wrong.CopyOut(&found, 1);
  context.Synchronize();
  return found == 0;
}

}  // namespace spaid::cuda
