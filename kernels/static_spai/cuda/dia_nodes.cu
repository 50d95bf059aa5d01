// The factors and solutions of the path by diagonals for nodes of several unknowns: one block of
// threads a node. The lower tiles of its Gram matrix are gathered into shared memory and become
// those of the factor; the right-hand sides of the node's columns form a row of tiles below,
// together with the random signs by which the conditioning is estimated.
#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/static_spai/cuda/dia.h"
#include "kernels/static_spai/cuda/node_factor.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 32 * NodeFactor::kWarps;
static_assert(kMaxNode * kMaxOffsets <= 8 * NodeFactor::kMaxTiles);

struct Pair {
  int32_t from;          // offset in B, from column node · products · square
  uint16_t row, column;  // slots: the first of each node
};

struct NodeMemory {
  double fit[kMaxNode];
  int32_t offset[kMaxOffsets], target[kMaxOffsets];
  // Place of an entry in the tiles: row_place[row] + column_place[column].
  uint16_t row_place[kMaxNode * kMaxOffsets], column_place[kMaxNode * kMaxOffsets];
  Pair pairs[kMaxOffsets * (kMaxOffsets + 1) / 2];  // as many as there are
};

// Bytes of all shared memory: tiles, ratios of pivots, NodeMemory.
int SharedBytes(int slots, int offsets) {
  const int tiles = (slots + 7) / 8, pairs = offsets * (offsets + 1) / 2;
  return static_cast<int>((NodeFactor::Size(tiles) + 8 * tiles) * sizeof(double) +
                          offsetof(NodeMemory, pairs) + pairs * sizeof(Pair));
}

template <int kNode>
class Node {
 public:
  static constexpr int kSquare = kNode * kNode;

  __device__ Node(const DiaArgs& args, double* memory)
      : args_(args),
        offsets_(args.tables->offsets),
        products_(args.tables->products),
        slots_(offsets_ * kNode),
        size_((slots_ + 7) / 8),
        tiles_(memory),
        ratios_(memory + NodeFactor::Size(size_)),
        shared_(*reinterpret_cast<NodeMemory*>(ratios_ + 8 * size_)),
        factor_(tiles_, ratios_, size_),
        warp_(static_cast<int>(threadIdx.x / 32)),
        lane_(static_cast<int>(threadIdx.x % 32)) {}

  // Called once a block, first.
  __device__ void Prepare() const {
    const DiaTables& tables = *args_.tables;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < offsets_) {
      shared_.offset[thread] = tables.m_offset[thread];
      shared_.target[thread] = tables.target[thread];
    }
    if (thread < slots_) {
      shared_.row_place[thread] =
          static_cast<uint16_t>(TileIndex(thread / 8, 0) * 64 + NodeFactor::Place(thread % 8, 0));
      shared_.column_place[thread] =
          static_cast<uint16_t>(thread / 8 * 64 + NodeFactor::Place(0, thread % 8));
    }
    // By columns, so that neighbours in B are read together.
    for (int q = 0; q < offsets_; ++q) {
      const int begin = q * offsets_ - q * (q - 1) / 2;
      for (int p = q + thread; p < offsets_; p += kThreads) {
        shared_.pairs[begin + p - q] = {
            (tables.m_offset[q] * products_ + tables.place[p * (p + 1) / 2 + q]) * kSquare,
            static_cast<uint16_t>(p * kNode), static_cast<uint16_t>(q * kNode)};
      }
    }
    __syncthreads();
  }

  // Called by all threads; `again`: adds the corrected step to the columns that want one. `clean`:
  // the tiles are as a node without missing unknowns leaves them.
  __device__ void Solve(int32_t node, bool again, bool& clean) const {
    const int64_t local = int64_t{node - args_.begin} * kNode;
    if (again) {
      bool wanted = false;
      for (int t = 0; t < kNode; ++t) {
        wanted = wanted || (args_.state[local + t] & kStateAgain) != 0;
      }
      if (!wanted) return;
    }
    const uint32_t mask = args_.m_mask[node];
    const bool whole = __popc(mask) == offsets_;
    if (!clean || !whole) Clear(mask);
    if (whole) {
      Gather<true>(node, mask);
    } else {
      Gather<false>(node, mask);
    }
    GatherSides(node, local, mask, again);
    WaitForCopies();
    __syncthreads();
    double pivot, determinant;
    bool fine = factor_.Factor(args_.pivot_limit, pivot, determinant);
    if (warp_ < kNode) {  // ‖L⁻¹b‖² = bᵀm = (Âm)_k
      double fit = 0;
      for (int slot = lane_; slot < slots_; slot += 32) {
        const double y = factor_.Side(warp_, slot);
        fit += y * y;
      }
      fit = WarpSum(fit);
      if (lane_ == 0) shared_.fit[warp_] = fit;
    }
    double inverse = 0;
    if (fine) {
      factor_.SubstituteBack();
      inverse = Inverse();
      // Without further refinement: otherwise the node is left to the host.
      fine = again || determinant / 3 >= checks::kGoodEigenvalue ||
             checks::kStartShare * inverse * checks::kGoodEigenvalue <= 1;
    }
    const auto thread = static_cast<int>(threadIdx.x);
    const int q = thread / kNode;
    bool finite = true;
    if (fine && thread < slots_ && (mask >> q & 1) != 0) {
      const int place = __popc(mask & ((1u << q) - 1)) * kNode + thread % kNode;
      const int64_t k = int64_t{node} * kNode;
      const double scale = args_.scale[k + shared_.offset[q] * kNode + thread % kNode];
#pragma unroll
      for (int t = 0; t < kNode; ++t) {
        if (again && (args_.state[local + t] & kStateAgain) == 0) continue;
        double& m = args_.m_values[args_.m_ptr[k + t] + place];
        const double value = factor_.Side(t, thread) * scale;
        m = again ? m + value : value;
        finite = finite && isfinite(value);
      }
    }
    finite = __syncthreads_and(finite ? 1 : 0) != 0;
    clean = whole && fine;
    if (again || thread >= kNode) return;
    const int64_t k = int64_t{node} * kNode + thread;
    const double fit = shared_.fit[thread];
    args_.pivots[k] = pivot;
    if (fine && finite && args_.post_filter == 0 && IsCertain(slots_, inverse, fit)) {
      args_.state[local + thread] = 0;
      args_.residual_norms[k] = sqrt(1 - fit);
      args_.flags[k] = kernels::kColumnGram;
    } else {
      const auto strong = pivot >= checks::kStrongPivot ? kStateStrong : 0;
      args_.state[local + thread] = static_cast<uint8_t>(fine ? kStateSolved | strong : 0);
    }
  }

 private:
  // Writes zeros, and ones on the diagonal of unknowns that the node lacks.
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

  // A warp loads several blocks of B at once, a lane always the same element of one.
  template <bool kWhole>
  __device__ void Gather(int32_t node, uint32_t mask) const {
    constexpr int kAtOnce = 32 / kSquare;
    const int element = lane_ % kSquare, row = element / kNode, column = element % kNode;
    const double* const from = args_.b + int64_t{node - args_.low} * products_ * kSquare + element;
    const int count = lane_ < kAtOnce * kSquare ? offsets_ * (offsets_ + 1) / 2 : 0;
#pragma unroll 4
    for (int p = warp_ * kAtOnce + lane_ / kSquare; p < count; p += NodeFactor::kWarps * kAtOnce) {
      const Pair pair = shared_.pairs[p];
      if (!kWhole && (mask >> pair.row / kNode & mask >> pair.column / kNode & 1) == 0) continue;
      if (row < column && pair.row == pair.column) continue;
      CopyAsync(
          &tiles_[shared_.row_place[pair.row + row] + shared_.column_place[pair.column + column]],
          from + pair.from);
    }
  }

  // Loads right-hand side t: row k of Â, k the node's unknown t, or its gradient; then the signs.
  __device__ void GatherSides(int32_t node, int64_t local, uint32_t mask, bool again) const {
    const auto slot = static_cast<int>(threadIdx.x);
    const int q = slot / kNode, column = slot % kNode;
    if (slot >= slots_ || (mask >> q & 1) == 0) return;
    const int d = shared_.target[q];
#pragma unroll
    for (int t = 0; t < kNode; ++t) {
      double value = 0;
      if (again) {
        const bool wanted = (args_.state[local + t] & kStateAgain) != 0;
        if (wanted) value = args_.gradient[int64_t{slot} * args_.g_stride + local + t];
      } else if (d >= 0) {
        value = __ldg(args_.a + ((int64_t{d} * kNode + t) * kNode + column) * args_.nodes + node +
                      shared_.offset[q]);
      }
      factor_.Side(t, slot) = value;
    }
    factor_.Side(kNode, slot) = StartSign(slot);
  }

  // Estimates the norm of the inverse from the signs.
  __device__ double Inverse() const {
    double sum = 0;
    for (int slot = lane_; slot < slots_; slot += 32) {
      const double z = factor_.Side(kNode, slot);
      sum += z * z;
    }
    return sqrt(WarpSum(sum));
  }

  const DiaArgs& args_;
  const int offsets_, products_, slots_, size_;
  double* const tiles_;
  double* const ratios_;
  NodeMemory& shared_;
  const NodeFactor factor_;
  const int warp_, lane_;
};

template <int kNode>
__global__ void __launch_bounds__(kThreads, 5)
    NodeKernel(const __grid_constant__ DiaArgs args, bool again) {
  extern __shared__ double2 memory[];
  if (again && *args.wanted == 0) return;
  const Node<kNode> own(args, reinterpret_cast<double*>(memory));
  own.Prepare();
  bool clean = false;
  for (int32_t node = args.begin + static_cast<int32_t>(blockIdx.x); node < args.end;
       node += static_cast<int32_t>(gridDim.x)) {
    own.Solve(node, again, clean);
  }
}

template <int kNode>
void Launch(const Context& context, const DiaArgs& args, int offsets, bool again) {
  const int shared = SharedBytes(kNode * offsets, offsets);
  const auto kernel = NodeKernel<kNode>;
  AllowSharedMemory(context, kernel, shared);
  int blocks = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  kernel<<<std::min(blocks * context.multiprocessors, args.end - args.begin), kThreads, shared,
           context.stream>>>(args, again);
  CheckLaunch("NodeKernel");
}

}  // namespace

void LaunchDiaNodes(const Context& context, const DiaArgs& args, int node, int offsets,
                    bool again) {
  switch (node) {
    case 2:
      return Launch<2>(context, args, offsets, again);
    case 3:
      return Launch<3>(context, args, offsets, again);
    default:
      throw Failure(CudaFault::kError, "no node kernel for " + std::to_string(node) + " unknowns");
  }
}

}  // namespace spaid::cuda
