// The factors and solutions of the stencil path where a node has several unknowns: one block of
// threads a node. The lower tiles of its Gram matrix are gathered into shared memory and become
// those of the factor; the right-hand sides of the node's columns stand in a row of tiles below,
// and with them the signs with which the conditioning is tried.
#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/static_spai/cuda/node_factor_cuda.h"
#include "kernels/static_spai/cuda/stencil_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 32 * NodeFactor::kWarps;
static_assert(kMaxNode * kMaxOffsets <= 8 * NodeFactor::kMaxTiles);

struct Pair {
  int32_t from;          // in B, of the column node·products·square
  uint16_t row, column;  // offsets of M
};

struct NodeMemory {
  FactorFacts factor;
  int32_t offset[kMaxOffsets], target[kMaxOffsets];
  // Where an entry stands in the tiles: row_place[row] + column_place[column].
  uint16_t row_place[kMaxNode * kMaxOffsets], column_place[kMaxNode * kMaxOffsets];
  Pair pairs[kMaxOffsets * (kMaxOffsets + 1) / 2];  // as many as there are
};

// Bytes of all shared memory: tiles, a diagonal, NodeMemory.
int SharedBytes(int slots, int offsets) {
  const int tiles = (slots + 7) / 8, pairs = offsets * (offsets + 1) / 2;
  return static_cast<int>((NodeFactor::Size(tiles) + 8 * tiles) * sizeof(double) +
                          offsetof(NodeMemory, pairs) + pairs * sizeof(Pair));
}

template <int kNode>
class Node {
 public:
  static constexpr int kSquare = kNode * kNode;

  __device__ Node(const StencilArgs& args, double* memory)
      : args_(args),
        offsets_(args.tables->offsets),
        products_(args.tables->products),
        slots_(offsets_ * kNode),
        size_((slots_ + 7) / 8),
        tiles_(memory),
        diagonal_(memory + NodeFactor::Size(size_)),
        shared_(*reinterpret_cast<NodeMemory*>(diagonal_ + 8 * size_)),
        factor_(tiles_, diagonal_, size_, args.pivot_limit, shared_.factor),
        lane_(static_cast<int>(threadIdx.x % 32)) {}

  // Once a block, before all else.
  __device__ void Prepare() const {
    const StencilTables& tables = *args_.tables;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < offsets_) {
      shared_.offset[thread] = tables.m_offset[thread];
      shared_.target[thread] = tables.target[thread];
    }
    if (thread < slots_) {
      shared_.row_place[thread] =
          static_cast<uint16_t>(TileIndex(thread / 8, 0) * 64 + thread % 8 * 8);
      shared_.column_place[thread] = static_cast<uint16_t>(thread / 8 * 64 + thread % 8);
    }
    // By columns, so that what stands together in B is read together.
    for (int q = 0; q < offsets_; ++q) {
      const int begin = q * offsets_ - q * (q - 1) / 2;
      for (int p = q + thread; p < offsets_; p += kThreads) {
        shared_.pairs[begin + p - q] = {
            (tables.m_offset[q] * products_ + tables.place[p * (p + 1) / 2 + q]) * kSquare,
            static_cast<uint16_t>(p), static_cast<uint16_t>(q)};
      }
    }
    __syncthreads();
  }

  // Called by all threads; `again`: adds the corrected step to the columns that want one.
  __device__ void Solve(int32_t node, bool again) const {
    const int64_t local = int64_t{node - args_.begin} * kNode;
    if (again) {
      bool wanted = false;
      for (int t = 0; t < kNode; ++t) {
        wanted = wanted || (args_.state[local + t] & kStateAgain) != 0;
      }
      if (!wanted) return;
    }
    const uint32_t mask = args_.m_mask[node];
    Clear(mask);
    Gather(node, mask);
    if (again) {
      GatherGradient(local, mask);
    } else {
      GatherTargets(node, mask);
    }
    __syncthreads();
    bool fine = factor_.Factor();
    if (fine) {
      factor_.SubstituteBack();
      fine = again || WellConditioned();
    }
    const auto thread = static_cast<int>(threadIdx.x);
    if (fine) {
      for (int t = 0; t < kNode; ++t) {
        if (again && (args_.state[local + t] & kStateAgain) == 0) continue;
        double* const m = args_.m_values + args_.m_ptr[int64_t{node} * kNode + t];
        if (thread >= slots_ || (mask >> thread / kNode & 1) == 0) continue;
        const int q = thread / kNode;
        const int place = __popc(mask & ((1u << q) - 1)) * kNode + thread % kNode;
        const int64_t column = int64_t{node + shared_.offset[q]} * kNode + thread % kNode;
        const double value = factor_.Side(t, thread) * args_.scale[column];
        m[place] = again ? m[place] + value : value;
      }
    }
    if (!again && thread < kNode) {
      const double pivot = shared_.factor.pivot;
      const auto strong = pivot >= checks::kStrongPivot ? kStateStrong : 0;
      args_.state[local + thread] = static_cast<uint8_t>(fine ? kStateSolved | strong : 0);
      if (fine) args_.pivots[int64_t{node} * kNode + thread] = pivot;
    }
    __syncthreads();
  }

 private:
  // Zeros, and ones on the diagonal of unknowns that the node lacks.
  __device__ void Clear(uint32_t mask) const {
    auto* const zero = reinterpret_cast<double2*>(tiles_);
    for (int i = static_cast<int>(threadIdx.x); i < NodeFactor::Size(size_) / 2; i += kThreads) {
      zero[i] = {0, 0};
    }
    __syncthreads();
    const auto slot = static_cast<int>(threadIdx.x);
    if (slot < 8 * size_ && (slot >= slots_ || (mask >> slot / kNode & 1) == 0)) {
      tiles_[TileIndex(slot / 8, slot / 8) * 64 + NodeFactor::Place(slot % 8, slot % 8)] = 1;
    }
  }

  __device__ void Gather(int32_t node, uint32_t mask) const {
    const double* const from = args_.b + int64_t{node - args_.low} * products_ * kSquare;
    const int count = offsets_ * (offsets_ + 1) / 2 * kSquare;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      const Pair pair = shared_.pairs[i / kSquare];
      const int row = i % kSquare / kNode, column = i % kNode;
      if ((mask >> pair.row & mask >> pair.column & 1) == 0) continue;
      if (pair.row == pair.column && row < column) continue;
      // Every second two rows of a tile have their halves exchanged (NodeFactor::Place).
      const int slot = pair.row * kNode + row;
      tiles_[shared_.row_place[slot] + (shared_.column_place[pair.column * kNode + column] ^
                                        (slot & 2) << 1)] = __ldg(from + pair.from + i % kSquare);
    }
  }

  // Right-hand side t: row k of Â, k the node's unknown t; then the signs.
  __device__ void GatherTargets(int32_t node, uint32_t mask) const {
    for (int i = static_cast<int>(threadIdx.x); i < slots_ * (kNode + 1); i += kThreads) {
      const int slot = i % slots_, t = i / slots_, q = slot / kNode;
      if ((mask >> q & 1) == 0) continue;
      const int d = shared_.target[q];
      if (t == kNode) {
        factor_.Side(t, slot) = StartSign(slot);
      } else if (d >= 0) {
        factor_.Side(t, slot) =
            __ldg(args_.a + ((int64_t{d} * kNode + t) * kNode + slot % kNode) * args_.nodes + node +
                  shared_.offset[q]);
      }
    }
  }

  __device__ void GatherGradient(int64_t local, uint32_t mask) const {
    for (int i = static_cast<int>(threadIdx.x); i < slots_ * kNode; i += kThreads) {
      const int slot = i / kNode, t = i % kNode;
      if ((mask >> slot / kNode & 1) == 0) continue;
      if ((args_.state[local + t] & kStateAgain) == 0) continue;
      factor_.Side(t, slot) = args_.gradient[int64_t{slot} * args_.g_stride + local + t];
    }
  }

  // As TeamSolver: the host's where one step does not do.
  __device__ bool WellConditioned() const {
    if (shared_.factor.determinant / 3 >= checks::kGoodEigenvalue) return true;
    double sum = 0;
    for (int slot = lane_; slot < slots_; slot += 32) {
      const double z = factor_.Side(kNode, slot);
      sum += z * z;
    }
    return checks::kStartShare * sqrt(WarpSum(sum)) * checks::kGoodEigenvalue <= 1;
  }

  const StencilArgs& args_;
  const int offsets_, products_, slots_, size_;
  double* const tiles_;
  double* const diagonal_;
  NodeMemory& shared_;
  const NodeFactor factor_;
  const int lane_;
};

template <int kNode>
__global__ void __launch_bounds__(kThreads, 5)
    NodeKernel(const __grid_constant__ StencilArgs args, bool again) {
  extern __shared__ double2 memory[];
  if (again && *args.wanted == 0) return;
  const Node<kNode> own(args, reinterpret_cast<double*>(memory));
  own.Prepare();
  for (int32_t node = args.begin + static_cast<int32_t>(blockIdx.x); node < args.end;
       node += static_cast<int32_t>(gridDim.x)) {
    own.Solve(node, again);
  }
}

template <int kNode>
void Launch(const Context& context, const StencilArgs& args, int offsets, bool again) {
  const int shared = SharedBytes(kNode * offsets, offsets);
  const auto kernel = NodeKernel<kNode>;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        "cudaFuncSetAttribute");
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  kernel<<<std::min(blocks * context.multiprocessors, args.end - args.begin), kThreads, shared,
           context.stream>>>(args, again);
  CheckLaunch("NodeKernel");
}

}  // namespace

void LaunchStencilNodes(const Context& context, const StencilArgs& args, int node, int offsets,
                        bool again) {
  switch (node) {
    case 2:
      return Launch<2>(context, args, offsets, again);
    case 3:
      return Launch<3>(context, args, offsets, again);
    default:
      throw Failure(kSpaidCudaError, "no node kernel for " + std::to_string(node) + " unknowns");
  }
}

}  // namespace spaid::cuda
