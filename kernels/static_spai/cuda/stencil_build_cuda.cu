#include <algorithm>
#include <string>

#include "kernels/static_spai/cuda/scale_cuda.h"
#include "kernels/static_spai/cuda/stencil_build_cuda.h"
#include "kernels/static_spai/cuda/tiles_cuda.h"

namespace spaid::cuda {
namespace {

// --- A by diagonals ---

constexpr int kConvertThreads = 64;

// One thread a column; the block's columns pass through shared memory, so that both sides are
// coalesced. Scales are those of ScaleColumnsKernel.
__global__ void __launch_bounds__(kConvertThreads)
    ConvertKernel(const int64_t* col_ptr, const double* values, const uint64_t* masks, int node,
                  int32_t nodes, int32_t diagonals, double* scale, double* a) {
  extern __shared__ double columns[];
  const int64_t n = int64_t{nodes} * node;
  const int64_t first = int64_t{blockIdx.x} * kConvertThreads, k = first + threadIdx.x;
  const int64_t from = col_ptr[first], to = col_ptr[min(n, first + kConvertThreads)];
  for (int64_t p = from + threadIdx.x; p < to; p += kConvertThreads) columns[p - from] = values[p];
  __syncthreads();
  if (k >= n) return;
  const double* own = columns + (col_ptr[k] - from);
  const auto length = static_cast<int>(col_ptr[k + 1] - col_ptr[k]);
  double largest = 0;
  for (int i = 0; i < length; ++i) largest = fmax(largest, fabs(own[i]));
  const int coarse = CoarseExponent(largest);
  const double coarsely = PowerOfTwo(coarse);
  double sum = 0;
  for (int i = 0; i < length; ++i) {
    const double v = own[i] * coarsely;
    sum += v * v;
  }
  const double by = ScaleOf(largest, coarse, sum);
  scale[k] = by;
  const auto i = static_cast<int32_t>(k / node), t = static_cast<int32_t>(k % node);
  const uint64_t mask = masks[i];
  double* at = a + int64_t{t} * nodes + i;
  for (int d = 0; d < diagonals; ++d) {
    const bool present = (mask >> d & 1) != 0;
    for (int row = 0; row < node; ++row) {
      *at = present ? *own++ * by : 0;
      at += int64_t{node} * nodes;
    }
  }
}

// --- B = AᵀA by diagonals ---

constexpr int kProductThreads = 128;

// One thread a node c of the range's columns of B; blockIdx.y: a share of the diagonals.
template <int kNode>
__global__ void __launch_bounds__(kProductThreads) ProductsKernel(StencilArgs args) {
  __shared__ int32_t offset[kMaxProducts], begin[kMaxProducts + 1];
  __shared__ uint16_t pair[kMaxPairs];
  const StencilTables& tables = *args.tables;
  const int products = tables.products;
  for (int d = static_cast<int>(threadIdx.x); d <= products; d += kProductThreads) {
    begin[d] = tables.pair_begin[d];
    if (d < products) offset[d] = tables.b_offset[d];
  }
  const int pairs = tables.pair_begin[products];
  for (int p = static_cast<int>(threadIdx.x); p < pairs; p += kProductThreads) {
    pair[p] = tables.pair[p];
  }
  __syncthreads();
  const int64_t local = int64_t{blockIdx.x} * kProductThreads + threadIdx.x;
  const int64_t c = args.low + local;
  if (c >= args.high) return;
  constexpr int kSquare = kNode * kNode;
  const int64_t nodes = args.nodes, stride = kSquare * nodes;
  for (int d = static_cast<int>(blockIdx.y); d < products; d += static_cast<int>(gridDim.y)) {
    double sums[kNode][kNode] = {};  // row: of column c + d
    if (c + offset[d] < nodes) {
      const double* const left = args.a + c + offset[d];
      const double* const right = args.a + c;
#pragma unroll(kNode == 1 ? 4 : 1)
      for (int p = begin[d]; p < begin[d + 1]; ++p) {
        const double* const x = left + (pair[p] >> 8) * stride;
        const double* const y = right + (pair[p] & 255) * stride;
#pragma unroll
        for (int row = 0; row < kNode; ++row) {
          double v[kNode], w[kNode];
#pragma unroll
          for (int t = 0; t < kNode; ++t) {
            v[t] = __ldg(x + (row * kNode + t) * nodes);
            w[t] = __ldg(y + (row * kNode + t) * nodes);
          }
#pragma unroll
          for (int s = 0; s < kNode; ++s) {
#pragma unroll
            for (int t = 0; t < kNode; ++t) sums[s][t] += v[s] * w[t];
          }
        }
      }
    }
    double* const to = kNode == 1 ? args.b + int64_t{d} * args.b_stride + local
                                  : args.b + (local * products + d) * kSquare;
#pragma unroll
    for (int s = 0; s < kNode; ++s) {
#pragma unroll
      for (int t = 0; t < kNode; ++t) to[s * kNode + t] = sums[s][t];
    }
  }
}

// --- Residuals ---

constexpr int kResidualThreads = 64;

// One thread a column of M. What it reads of its solution and adds to its gradient stands in shared
// memory, element · kResidualThreads apart.
template <int kNode>
class Column {
 public:
  struct Entry {
    int32_t at;  // in A, of node 0
    uint32_t word;
  };

  __device__ Column(const StencilArgs& args, const Entry* rows, int count, int64_t local, double* x)
      : args_(args),
        rows_(rows),
        count_(count),
        offsets_(args.tables->offsets),
        k_(int64_t{args.begin} * kNode + local),
        local_(local),
        node_(k_ / kNode),
        own_(static_cast<int>(k_ % kNode)),
        mask_(args.m_mask[node_]),
        x_(x) {}

  __device__ void Finish(bool again) {
    const uint8_t state = args_.state[local_];
    if (again ? (state & kStateAgain) == 0 : (state & kStateSolved) == 0) return;
    double* const m = args_.m_values + args_.m_ptr[k_];
    ForSlots([&](int slot, int64_t column, int place) {
      X(slot) = m[place] / args_.scale[column];  // powers of two
    });
    double fit;
    double squared = Residual(fit);
    if (!again) {
      // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
      const bool done =
          (state & kStateStrong) != 0 && fabs(squared - (1 - fit)) <= checks::kMinimumTolerance;
      if (!done) {
        Gradient();
        args_.state[local_] = state | kStateAgain;
        return;
      }
    }
    if (!(sqrt(squared) <= checks::kWorthlessResidual)) return;  // left to the host
    if (args_.post_filter > 0) {
      double largest = 0;
      ForSlots([&](int, int64_t, int place) { largest = fmax(largest, fabs(m[place])); });
      ForSlots([&](int slot, int64_t column, int place) {
        if (fabs(m[place]) < args_.post_filter * largest && column != k_) m[place] = X(slot) = 0;
      });
      squared = Residual(fit);
    }
    args_.residual_norms[k_] = sqrt(squared);
    args_.flags[k_] = kernels::kColumnGram | (HasRow() ? 0 : kernels::kColumnZero);
  }

 private:
  __device__ double& X(int slot) const { return x_[slot * kResidualThreads]; }
  __device__ double& G(int slot) const { return x_[(offsets_ * kNode + slot) * kResidualThreads]; }

  // use(slot, column of A, place in the column of M) for all of J; slots outside hold zero.
  template <class Use>
  __device__ void ForSlots(const Use& use) const {
    int place = 0;
    for (int q = 0; q < offsets_; ++q) {
      const bool present = (mask_ >> q & 1) != 0;
#pragma unroll
      for (int t = 0; t < kNode; ++t) {
        if (present) {
          use(q * kNode + t, (node_ + args_.tables->m_offset[q]) * kNode + t, place++);
        }
      }
    }
  }

  // r += the entry's columns times x.
  __device__ void AddEntry(const Entry& entry, double (&r)[kNode]) const {
    const int q = static_cast<int>(entry.word & 255);
    if ((mask_ >> q & 1) == 0) return;
    const double* const from = args_.a + (entry.at + node_);
#pragma unroll
    for (int t = 0; t < kNode; ++t) {
      const double x = X(q * kNode + t);
#pragma unroll
      for (int row = 0; row < kNode; ++row) {
        r[row] += __ldg(from + int64_t{row * kNode + t} * args_.nodes) * x;
      }
    }
  }

  // Of row k of Â: takes the right-hand side's one off, returns what stood there.
  __device__ double TakeOne(double (&r)[kNode]) const {
    double before = 0;
#pragma unroll
    for (int row = 0; row < kNode; ++row) {
      before = row == own_ ? r[row] : before;
      r[row] -= row == own_ ? 1 : 0;
    }
    return before;
  }

  // ‖Âx − e‖²; fit: (Âx)_k.
  __device__ double Residual(double& fit) const {
    double squared = 0, r[kNode] = {};
    bool met = false;
    fit = 0;
#pragma unroll 2
    for (int p = 0; p < count_; ++p) {
      const Entry entry = rows_[p];
      AddEntry(entry, r);
      if ((entry.word & StencilTables::kLast) == 0) continue;
      if ((entry.word & StencilTables::kTarget) != 0) {
        fit = TakeOne(r);
        met = true;
      }
#pragma unroll
      for (int row = 0; row < kNode; ++row) {
        squared += r[row] * r[row];
        r[row] = 0;
      }
    }
    return met ? squared : squared + 1;  // no diagonals meet in row k
  }

  // args.gradient of this column: Âᵀ(e − Âx).
  __device__ void Gradient() const {
    for (int slot = 0; slot < offsets_ * kNode; ++slot) G(slot) = 0;
    double r[kNode] = {};
    for (int p = 0, begin = 0; p < count_; ++p) {
      const Entry entry = rows_[p];
      AddEntry(entry, r);
      if ((entry.word & StencilTables::kLast) == 0) continue;
      if ((entry.word & StencilTables::kTarget) != 0) TakeOne(r);
      for (; begin <= p; ++begin) {
        const int q = static_cast<int>(rows_[begin].word & 255);
        if ((mask_ >> q & 1) == 0) continue;
        const double* const from = args_.a + (rows_[begin].at + node_);
#pragma unroll
        for (int t = 0; t < kNode; ++t) {
          double sum = 0;
#pragma unroll
          for (int row = 0; row < kNode; ++row) {
            sum += __ldg(from + int64_t{row * kNode + t} * args_.nodes) * r[row];
          }
          G(q * kNode + t) -= sum;
        }
      }
#pragma unroll
      for (int row = 0; row < kNode; ++row) r[row] = 0;
    }
    for (int slot = 0; slot < offsets_ * kNode; ++slot) {
      args_.gradient[int64_t{slot} * args_.g_stride + local_] = G(slot);
    }
  }

  // Whether k is in I: a column of J has an entry in row k, be it zero.
  __device__ bool HasRow() const {
    for (int q = 0; q < offsets_; ++q) {
      const int32_t d = args_.tables->target[q];
      if ((mask_ >> q & 1) == 0 || d < 0) continue;
      if ((args_.a_mask[node_ + args_.tables->m_offset[q]] >> d & 1) != 0) return true;
    }
    return false;
  }

  const StencilArgs& args_;
  const Entry* const rows_;
  const int count_, offsets_;
  const int64_t k_, local_, node_;
  const int own_;
  const uint32_t mask_;
  double* const x_;
};

template <int kNode>
__global__ void __launch_bounds__(kResidualThreads)
    ResidualKernel(const __grid_constant__ StencilArgs args, bool again) {
  extern __shared__ double memory[];
  using Entry = typename Column<kNode>::Entry;
  const StencilTables& tables = *args.tables;
  const int slots = tables.offsets * kNode;
  auto* const rows = reinterpret_cast<Entry*>(memory + 2 * slots * kResidualThreads);
  const int64_t local = int64_t{blockIdx.x} * kResidualThreads + threadIdx.x;
  const bool real = local < int64_t{args.end - args.begin} * kNode;
  if (__syncthreads_or(real && (!again || (args.state[local] & kStateAgain) != 0)) == 0) return;
  for (int p = static_cast<int>(threadIdx.x); p < tables.rows; p += kResidualThreads) {
    const uint32_t word = tables.row[p];
    rows[p] = {static_cast<int32_t>(word >> 8 & 255) * kNode * kNode * args.nodes +
                   tables.m_offset[word & 255],
               word};
  }
  __syncthreads();
  if (real) {
    Column<kNode>(args, rows, tables.rows, local, memory + threadIdx.x).Finish(again);
  }
}

// --- All ---

template <int kNode>
void LaunchRange(const Context& context, const StencilPlan& plan, const StencilArgs& args) {
  if (args.high > args.low) {
    const int64_t blocks = (args.high - args.low + kProductThreads - 1) / kProductThreads;
    // Few nodes: their diagonals are shared out, so that all multiprocessors have threads enough.
    const int64_t shares =
        std::clamp<int64_t>(32 * context.multiprocessors / blocks, 1, std::min(plan.products, 16));
    ProductsKernel<kNode><<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(shares)),
                            kProductThreads, 0, context.stream>>>(args);
    CheckLaunch("ProductsKernel");
  }
  const int shared = static_cast<int>(2 * plan.slots() * kResidualThreads * sizeof(double) +
                                      int64_t{plan.offsets} * plan.diagonals * 8);
  const auto residuals = ResidualKernel<kNode>;
  Check(cudaFuncSetAttribute(residuals, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        "cudaFuncSetAttribute");
  const int64_t own = int64_t{args.end - args.begin} * kNode;
  for (const bool again : {false, true}) {
    if (kNode > 1) {
      LaunchStencilNodes(context, args, kNode, plan.offsets, again);
    } else if (plan.slots() <= kMaxThreadSlots) {
      LaunchStencilThreads(context, args, plan.slots(), again);
    } else {
      LaunchStencilTeams(context, args, plan.slots(), again);
    }
    residuals<<<static_cast<int>((own + kResidualThreads - 1) / kResidualThreads), kResidualThreads,
                shared, context.stream>>>(args, again);
    CheckLaunch("ResidualKernel");
  }
}

}  // namespace

void BuildStencil(Context& context, const StaticSpaiPlan& plan, const Matrix& a,
                  const SpaidCudaBuildOptions& options, StaticSpaiResult& result) {
  const StencilPlan& stencil = plan.stencil;
  const int64_t n = plan.n, node = stencil.node, nodes = stencil.nodes;
  const Buffer<double> scale(context, n), by_diagonals(context, stencil.diagonals * node * n);
  const int shared = static_cast<int>(kConvertThreads * node * stencil.diagonals * sizeof(double));
  Check(cudaFuncSetAttribute(ConvertKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        "cudaFuncSetAttribute");
  ConvertKernel<<<static_cast<int>((n + kConvertThreads - 1) / kConvertThreads), kConvertThreads,
                  shared, context.stream>>>(a.col_ptr.get(), a.values.get(), stencil.a_mask.get(),
                                            stencil.node, stencil.nodes, stencil.diagonals,
                                            scale.get(), by_diagonals.get());
  CheckLaunch("ConvertKernel");

  const int64_t halo = int64_t{stencil.highest} - stencil.lowest;
  const int64_t b_columns = std::min(nodes, stencil.range + halo);
  const int64_t range_columns = stencil.range * node;
  const Buffer<double> b(context, b_columns * stencil.products * node * node),
      gradient(context, range_columns * stencil.slots());
  const Buffer<uint8_t> state(context, range_columns);
  StencilArgs args{};
  args.tables = stencil.tables.get();
  args.nodes = stencil.nodes;
  args.b_stride = static_cast<int32_t>(b_columns);
  args.g_stride = static_cast<int32_t>(range_columns);
  args.a = by_diagonals.get();
  args.b = b.get();
  args.a_mask = stencil.a_mask.get();
  args.m_mask = stencil.m_mask.get();
  args.scale = scale.get();
  args.m_ptr = plan.m_ptr.get();
  args.pivot_limit = options.pivot_limit;
  args.post_filter = options.post_filter;
  args.m_values = result.values.get();
  args.residual_norms = result.residual_norms.get();
  args.pivots = result.pivots.get();
  args.flags = result.flags.get();
  args.state = state.get();
  args.gradient = gradient.get();
  for (int64_t begin = 0; begin < nodes; begin += stencil.range) {
    args.begin = static_cast<int32_t>(begin);
    args.end = static_cast<int32_t>(std::min(nodes, begin + stencil.range));
    args.low = static_cast<int32_t>(std::max<int64_t>(0, begin + stencil.lowest));
    args.high = static_cast<int32_t>(std::min(nodes, int64_t{args.end} + stencil.highest));
    switch (stencil.node) {
      case 1:
        LaunchRange<1>(context, stencil, args);
        break;
      case 2:
        LaunchRange<2>(context, stencil, args);
        break;
      case 3:
        LaunchRange<3>(context, stencil, args);
        break;
      default:
        throw Failure(kSpaidCudaError, "no stencil of " + std::to_string(node) + " unknowns");
    }
    if (args.end == nodes || options.progress == nullptr) continue;
    context.Synchronize();
    if (options.progress(options.caller, args.end, nodes) != 0) {
      throw Failure(kSpaidCudaStopped, "stopped");
    }
  }
}

}  // namespace spaid::cuda
