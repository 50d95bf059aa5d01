#include <algorithm>

#include "kernels/sparse/cuda/blocks.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one node

// wrong: 1 where a block of the first nodes is not whole; nobody looks where that is known.
__global__ void __launch_bounds__(kThreads)
    WholeBlocksKernel(PatternRef a, int node, int64_t nodes, int32_t* wrong) {
  if (*const_cast<volatile int32_t*>(wrong) != 0) return;
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  const int64_t teams = int64_t{gridDim.x} * kThreads / kTeam;
  for (int64_t own = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; own < nodes;
       own += teams) {
    if (!NodeAgrees(a, own * node, node, lane, kTeam)) *wrong = 1;
  }
}

}  // namespace

bool HasWholeBlocks(Context& context, const PatternRef& a, int node) {
  if (a.n % node != 0) return false;
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  // Where they are not, the first ones mostly tell.
  constexpr int64_t kFirst = 1024;
  for (const int64_t nodes : {std::min(kFirst, a.n / node), a.n / node}) {
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(
        (nodes * kTeam + kThreads - 1) / kThreads, 1, int64_t{16} * context.multiprocessors));
    WholeBlocksKernel<<<blocks, kThreads, 0, context.stream>>>(a, node, nodes, wrong.get());
    CheckLaunch("WholeBlocksKernel");
  }
  int32_t found = 0;
  wrong.CopyOut(&found, 1);
  context.Synchronize();
  return found == 0;
}

}  // namespace spaid::cuda
