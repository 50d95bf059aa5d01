// The factors and solutions of the stencil path where a node has several unknowns: one block of
// threads a node. The lower tiles of its Gram matrix are gathered into shared memory and become
// those of the factor; the right-hand sides of the node's columns stand in a row of tiles below,
// and with them the signs with which the conditioning is tried.
#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/static_spai/cuda/stencil_cuda.h"
#include "kernels/static_spai/cuda/tile_factor_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// In doubles; `tiles`: those of the matrix in each direction.
__host__ __device__ constexpr int TileDoubles(int tiles) { return 64 * TileIndex(tiles, tiles); }

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
  return static_cast<int>((TileDoubles(tiles) + 8 * tiles) * sizeof(double) +
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
        diagonal_(memory + TileDoubles(size_)),
        shared_(*reinterpret_cast<NodeMemory*>(diagonal_ + 8 * size_)),
        warp_(static_cast<int>(threadIdx.x / 32)),
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
    const TileFactor<kWarps> factor(tiles_, diagonal_, slots_, args_.pivot_limit, shared_.factor,
                                    1);
    bool fine = factor.Factor();
    if (fine) {
      SubstituteBack();
      fine = again || WellConditioned(factor);
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
        const double value = Side(t, thread) * args_.scale[column];
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
  // Of right-hand side t, its element `slot`.
  __device__ double& Side(int t, int slot) const {
    return tiles_[TileIndex(size_, slot / 8) * 64 + t * 8 + slot % 8];
  }

  // Zeros, and ones on the diagonal of unknowns that the node lacks.
  __device__ void Clear(uint32_t mask) const {
    auto* const zero = reinterpret_cast<double2*>(tiles_);
    for (int i = static_cast<int>(threadIdx.x); i < TileDoubles(size_) / 2; i += kThreads) {
      zero[i] = {0, 0};
    }
    __syncthreads();
    const auto slot = static_cast<int>(threadIdx.x);
    if (slot < 8 * size_ && (slot >= slots_ || (mask >> slot / kNode & 1) == 0)) {
      tiles_[TileIndex(slot / 8, slot / 8) * 64 + slot % 8 * 9] = 1;
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
      tiles_[shared_.row_place[pair.row * kNode + row] +
             shared_.column_place[pair.column * kNode + column]] =
          __ldg(from + pair.from + i % kSquare);
    }
  }

  // Right-hand side t: row k of Â, k the node's unknown t; then the signs.
  __device__ void GatherTargets(int32_t node, uint32_t mask) const {
    for (int i = static_cast<int>(threadIdx.x); i < slots_ * (kNode + 1); i += kThreads) {
      const int slot = i % slots_, t = i / slots_, q = slot / kNode;
      if ((mask >> q & 1) == 0) continue;
      const int d = shared_.target[q];
      if (t == kNode) {
        Side(t, slot) = StartSign(slot);
      } else if (d >= 0) {
        Side(t, slot) =
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
      Side(t, slot) = args_.gradient[int64_t{slot} * args_.g_stride + local + t];
    }
  }

  // Xᵀ := Yᵀ L⁻¹ of the row of tiles below, from its last tile on. Every warp makes the tile that
  // is next; which tiles before it are a warp's to update goes by turns.
  __device__ void SubstituteBack() const {
    const int row = lane_ / 4, column = lane_ % 4, at = row * 8 + column;
    double c0 = 0, c1 = 0;
    for (int k = size_ - 1; k >= 0; --k) {
      __syncthreads();
      if (warp_ == 0 && k + 1 < size_) StoreSide(k + 1, c0, c1);
      const double* const own = tiles_ + TileIndex(size_, k) * 64;
      const double* const inverse = tiles_ + TileIndex(k, k) * 64 + column * 8 + row;
      c0 = c1 = 0;
      MultiplyTiles(own[at], inverse[0], c0, c1);
      MultiplyTiles(own[at + 4], inverse[32], c0, c1);
      // From the lanes that have a result to those that want it as an operand.
      const int first = lane_ - column + column / 2;
      const double even0 = __shfl_sync(kAllLanes, c0, first);
      const double odd0 = __shfl_sync(kAllLanes, c1, first);
      const double even1 = __shfl_sync(kAllLanes, c0, first + 2);
      const double odd1 = __shfl_sync(kAllLanes, c1, first + 2);
      const double x0 = column % 2 == 0 ? even0 : odd0, x1 = column % 2 == 0 ? even1 : odd1;
      for (int i = k - 1 - warp_; i >= 0; i -= kWarps) {
        const double* const l = tiles_ + TileIndex(k, i) * 64 + column * 8 + row;
        auto* const sum =
            reinterpret_cast<double2*>(tiles_ + TileIndex(size_, i) * 64 + row * 8 + 2 * column);
        double2 c = *sum;
        MultiplyTiles(-x0, l[0], c.x, c.y);
        MultiplyTiles(-x1, l[32], c.x, c.y);
        *sum = c;
      }
    }
    __syncthreads();
    if (warp_ == 0) StoreSide(0, c0, c1);
    __syncthreads();
  }

  __device__ void StoreSide(int k, double c0, double c1) const {
    *reinterpret_cast<double2*>(tiles_ + TileIndex(size_, k) * 64 + lane_ / 4 * 8 +
                                2 * (lane_ % 4)) = {c0, c1};
  }

  // As TileFactor::WellConditioned; its first step is there already.
  __device__ bool WellConditioned(const TileFactor<kWarps>& factor) const {
    if (shared_.factor.determinant / 3 >= checks::kGoodEigenvalue) return true;
    double sum = 0;
    for (int slot = lane_; slot < slots_; slot += 32) sum += Side(kNode, slot) * Side(kNode, slot);
    if (checks::kStartShare * sqrt(WarpSum(sum)) * checks::kGoodEigenvalue <= 1) return true;
    return factor.WellConditioned(diagonal_);
  }

  const StencilArgs& args_;
  const int offsets_, products_, slots_, size_;
  double* const tiles_;
  double* const diagonal_;
  NodeMemory& shared_;
  const int warp_, lane_;
};

template <int kNode>
__global__ void __launch_bounds__(kThreads, 5)
    NodeKernel(const __grid_constant__ StencilArgs args, bool again) {
  extern __shared__ double2 memory[];
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
