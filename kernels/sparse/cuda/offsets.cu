#include <algorithm>

#include "kernels/sparse/cuda/blocks.h"
#include "kernels/sparse/cuda/offsets.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one node
constexpr int kSampleThreads = 1024;
constexpr int kSample = 512;  // nodes
constexpr int kNone = INT32_MIN;

struct Survey {
  int32_t broken[kMaxNode + 1];    // 1 where the columns of a node of so many unknowns disagree
  int32_t node;                    // unknowns of a node
  int32_t count;                   // of offsets; over kMaxDiagonals: too many
  int32_t offsets[kMaxDiagonals];  // in no order
};

// A node of [0, nodes), all of them where they are few; else spread without a period, which a grid
// might share.
__device__ int64_t SampleNode(int i, int64_t nodes) {
  if (nodes <= kSample) return i;
  const uint64_t word = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<int64_t>(__umul64hi(word, static_cast<uint64_t>(nodes)));
}

// Fills survey->broken, which is 0 before. A warp looks at a node of each size.
__global__ void __launch_bounds__(kThreads) BlockSizesKernel(PatternRef a, Survey* survey) {
  const int i = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int size = 2; size <= kMaxNode; ++size) {
    const int64_t nodes = a.n / size;
    const bool agrees = a.n % size == 0 &&
                        (i >= nodes || NodeAgrees(a, SampleNode(i, nodes) * size, size, lane, 32));
    if (!agrees) survey->broken[size] = 1;
  }
}

// `node` 0: the largest block size that is not broken. `whole`: its blocks have all of their
// entries, so that one of each tells. One block; a team looks at a node.
__global__ void __launch_bounds__(kSampleThreads)
    OffsetsKernel(PatternRef a, bool whole, int node, Survey* survey) {
  constexpr int kSlots = 4 * kMaxDiagonals;
  __shared__ int32_t table[kSlots];
  __shared__ int32_t count, places[kMaxDiagonals];
  const int team = static_cast<int>(threadIdx.x / kTeam);
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  for (int i = static_cast<int>(threadIdx.x); i < kSlots; i += kSampleThreads) table[i] = kNone;
  if (threadIdx.x == 0) count = 0;
  if (node == 0) {
    node = 1;
    for (int size = 2; size <= kMaxNode; ++size) node = survey->broken[size] == 0 ? size : node;
  }
  __syncthreads();
  const int64_t nodes = a.n / node;
  for (int i = team; i < kSample && i < nodes; i += kSampleThreads / kTeam) {
    const int64_t own = SampleNode(i, nodes);
    const int step = whole ? node : 1;
    const int64_t end = a.col_ptr[own * node + (whole ? 1 : node)];
    for (int64_t p = a.col_ptr[own * node] + lane * step; p < end; p += kTeam * step) {
      const auto offset = static_cast<int32_t>(a.row_idx[p] / node - own);
      uint32_t at = static_cast<uint32_t>(offset) * 0x9e3779b9u >> 16;
      // Too many offsets: nothing more is wanted, and a full table is slow to search.
      if (*const_cast<volatile int32_t*>(&count) > kMaxDiagonals) break;
      for (int probe = 0; probe < kSlots; ++probe, ++at) {
        int32_t* const slot = &table[at % kSlots];
        int32_t key = *const_cast<volatile int32_t*>(slot);
        if (key == kNone) key = atomicCAS(slot, kNone, offset);
        if (key == offset) break;
        if (key == kNone) {
          const int32_t place = atomicAdd(&count, 1);
          if (place < kMaxDiagonals) places[place] = offset;
          break;
        }
      }
    }
    if (*const_cast<volatile int32_t*>(&count) > kMaxDiagonals) break;
  }
  __syncthreads();
  if (threadIdx.x < kMaxDiagonals) survey->offsets[threadIdx.x] = places[threadIdx.x];
  if (threadIdx.x == 0) {
    survey->node = node;
    survey->count = count;
  }
}

// The diagonals that each node has, to what is not null (the low ones, to `low`); wrong: 1 where a
// column does not fit.
__global__ void __launch_bounds__(kThreads)
    MaskKernel(PatternRef a, int node, Offsets offsets, uint64_t* masks, uint32_t* low,
               int32_t* wrong) {
  __shared__ int32_t sorted[kMaxDiagonals];
  if (threadIdx.x < kMaxDiagonals) {
    sorted[threadIdx.x] =
        static_cast<int>(threadIdx.x) < offsets.count ? offsets.at[threadIdx.x] : INT32_MAX;
  }
  __syncthreads();
  const int64_t own = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
  const int lane = static_cast<int>(threadIdx.x % kTeam);
  const bool real = own < a.n / node;
  uint64_t mask = 0;
  bool fits = true;
  int64_t count = 0;
  if (real) {
    const int64_t begin = a.col_ptr[own * node];
    count = a.col_ptr[own * node + 1] - begin;
    if (node > 1) fits = NodeAgrees(a, own * node, node, lane, kTeam);
    for (int64_t p = int64_t{lane} * node; p < count; p += kTeam * node) {
      const auto offset = static_cast<int32_t>(a.row_idx[begin + p] / node - own);
      int at = 0;
#pragma unroll
      for (int step = kMaxDiagonals / 2; step > 0; step /= 2) {
        if (sorted[at + step] <= offset) at += step;
      }
      fits = fits && sorted[at] == offset;
      mask |= uint64_t{1} << at;
    }
  }
  for (int step = kTeam / 2; step > 0; step /= 2) mask |= __shfl_xor_sync(~0u, mask, step, kTeam);
  if (!real) return;
  if (!fits || count != int64_t{node} * __popcll(mask)) *wrong = 1;
  if (lane == 0 && masks != nullptr) masks[own] = mask;
  if (lane == 0 && low != nullptr) low[own] = static_cast<uint32_t>(mask);
}

}  // namespace

Offsets FindOffsets(Context& context, const PatternRef& a, bool whole, int limit, int& node) {
  const Buffer<Survey> survey(context, 1);
  if (node == 0) {
    survey.Fill(0);
    BlockSizesKernel<<<32 * kSample / kThreads, kThreads, 0, context.stream>>>(a, survey.get());
    CheckLaunch("BlockSizesKernel");
  }
  OffsetsKernel<<<1, kSampleThreads, 0, context.stream>>>(a, whole, node, survey.get());
  CheckLaunch("OffsetsKernel");
  Survey found{};
  survey.CopyOut(&found, 1);
  context.Synchronize();
  node = found.node;
  Offsets offsets;
  if (found.count > limit) return offsets;
  offsets.count = found.count;
  std::copy_n(found.offsets, found.count, offsets.at);
  std::sort(offsets.at, offsets.at + offsets.count);
  return offsets;
}

void FillMasks(const Context& context, const PatternRef& a, int node, const Offsets& offsets,
               uint64_t* masks, uint32_t* low, int32_t* wrong) {
  const int64_t nodes = a.n / node;
  const auto blocks = static_cast<int>((nodes * kTeam + kThreads - 1) / kThreads);
  MaskKernel<<<blocks, kThreads, 0, context.stream>>>(a, node, offsets, masks, low, wrong);
  CheckLaunch("MaskKernel");
}

}  // namespace spaid::cuda
