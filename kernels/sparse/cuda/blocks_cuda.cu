#include <algorithm>

#include "kernels/sparse/cuda/blocks_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one node

// wrong: 1 where a block is not whole; whoever sees that looks no further.
__global__ void __launch_bounds__(kThreads)
    WholeBlocksKernel(PatternRef a, int node, int32_t* wrong) {
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  const int64_t teams = int64_t{gridDim.x} * kThreads / kTeam;
  for (int64_t own = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; own < a.n / node;
       own += teams) {
    if (*const_cast<volatile int32_t*>(wrong) != 0) return;
    if (!NodeAgrees(a, own * node, node, lane, kTeam)) *wrong = 1;
  }
}

}  // namespace

bool HasWholeBlocks(Context& context, const PatternRef& a, int node) {
  if (a.n % node != 0) return false;
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  const int64_t blocks = std::clamp<int64_t>((a.n / node * kTeam + kThreads - 1) / kThreads, 1,
                                             int64_t{16} * context.multiprocessors);
  WholeBlocksKernel<<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(a, node,
                                                                                    wrong.get());
  CheckLaunch("WholeBlocksKernel");
  int32_t found = 0;
  wrong.CopyOut(&found, 1);
  context.Synchronize();
  return found == 0;
}

}  // namespace spaid::cuda
