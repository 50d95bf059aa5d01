#include "kernels/sparse/cuda/blocks_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one node

// wrong: 1 where a block is not whole.
__global__ void __launch_bounds__(kThreads)
    WholeBlocksKernel(PatternRef a, int node, int32_t* wrong) {
  const int64_t own = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  if (own < a.n / node && !NodeAgrees(a, own * node, node, lane, kTeam)) *wrong = 1;
}

}  // namespace

bool HasWholeBlocks(Context& context, const PatternRef& a, int node) {
  if (a.n % node != 0) return false;
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  const auto blocks = static_cast<int>((a.n / node * kTeam + kThreads - 1) / kThreads);
  WholeBlocksKernel<<<blocks, kThreads, 0, context.stream>>>(a, node, wrong.get());
  CheckLaunch("WholeBlocksKernel");
  int32_t found = 0;
  wrong.CopyOut(&found, 1);
  context.Synchronize();
  return found == 0;
}

}  // namespace spaid::cuda
