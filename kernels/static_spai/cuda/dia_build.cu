#include <algorithm>
#include <cstdlib>
#include <string>

#include "kernels/base/cuda/shared_memory.h"
#include "kernels/static_spai/cuda/dia_build.h"
#include "kernels/static_spai/cuda/scale.h"
#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {
namespace {

// --- A by diagonals ---

constexpr int kConvertThreads = 64;

// One thread a column of the range; the block's columns pass through shared memory, so that both
// sides are coalesced. Scales are those of ScaleColumnsKernel.
__global__ void __launch_bounds__(kConvertThreads)
    ConvertKernel(ColumnRange range, const int64_t* col_ptr, const double* values,
                  const uint64_t* masks, int node, int32_t nodes, int32_t diagonals, double* scale,
                  double* a) {
  extern __shared__ double columns[];
  const int64_t first = range.begin + int64_t{blockIdx.x} * kConvertThreads;
  const int64_t k = first + threadIdx.x;
  const int64_t from = col_ptr[first], to = col_ptr[min(range.end, first + kConvertThreads)];
  for (int64_t p = from + threadIdx.x; p < to; p += kConvertThreads) columns[p - from] = values[p];
  __syncthreads();
  if (k >= range.end) return;
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

// The shared memory of NodeProductsKernel.
struct ProductTables {
  int32_t offset[kMaxProducts], begin[kMaxProducts + 1];
  uint16_t pair[kMaxPairs];

  __device__ void Load(const DiaTables& tables) {
    const int products = tables.products, pairs = tables.pair_begin[products];
    for (int d = static_cast<int>(threadIdx.x); d <= products; d += kProductThreads) {
      begin[d] = tables.pair_begin[d];
      if (d < products) offset[d] = tables.b_offset[d];
    }
    for (int p = static_cast<int>(threadIdx.x); p < pairs; p += kProductThreads) {
      pair[p] = tables.pair[p];
    }
  }
};

// B for nodes of one unknown: one thread a column c. The block's columns of A are kept in shared
// memory, with the list of products; kAhead factors are loaded before one is used. Without a column
// c + d the result is not read by anyone.
struct Product {
  int32_t at;                                 // index in A of the factor in column 0 + d
  uint32_t word;                              // the diagonal of column c, and flags
  static constexpr uint32_t kLast = 1u << 8;  // the last product of a sum
  static constexpr uint32_t kZero = 1u << 9;  // a sum without products
};

constexpr int kAhead = 8;

__host__ __device__ constexpr int WholeAhead(int pairs) {
  return (pairs + kAhead - 1) / kAhead * kAhead;
}

__global__ void __launch_bounds__(kProductThreads) ProductsKernel(DiaArgs args) {
  extern __shared__ double columns[];
  const DiaTables& tables = *args.tables;
  const auto thread = static_cast<int>(threadIdx.x);
  const int products = tables.products, diagonals = tables.diagonals;
  const int pairs = tables.pair_begin[products], count = WholeAhead(pairs);
  auto* const list = reinterpret_cast<Product*>(columns + diagonals * kProductThreads);
  for (int d = thread; d < products; d += kProductThreads) {
    const int end = tables.pair_begin[d + 1];
    for (int p = tables.pair_begin[d]; p < end; ++p) {
      const uint32_t pair = tables.pair[p], last = p + 1 == end ? Product::kLast : 0;
      if (pair == DiaTables::kNoPair) {
        list[p] = {0, Product::kLast | Product::kZero};
      } else {
        list[p] = {static_cast<int32_t>(pair >> 8) * args.nodes + tables.b_offset[d],
                   (pair & 255) | last};
      }
    }
  }
  for (int p = pairs + thread; p < count; p += kProductThreads) list[p] = {0, 0};
  const int64_t local = int64_t{blockIdx.x} * kProductThreads + thread;
  const int64_t c = args.low + local, nodes = args.nodes;
  double* const column = columns + thread;
#pragma unroll 8
  for (int d = 0; d < diagonals; ++d) {
    column[d * kProductThreads] = c < args.high ? __ldg(args.a + d * nodes + c) : 0;
  }
  __syncthreads();
  if (c >= args.high) return;
  double* to = args.b + local;
  double sum = 0;
  for (int p = 0; p < count; p += kAhead) {
    uint32_t words[kAhead];
    double factors[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const Product product = list[p + i];
      words[i] = product.word;
      factors[i] = __ldg(args.a + (product.at + c));
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      sum += column[(words[i] & 255) * kProductThreads] * factors[i];
      if ((words[i] & Product::kLast) == 0) continue;
      *to = (words[i] & Product::kZero) != 0 ? 0 : sum;
      to += args.b_stride;
      sum = 0;
    }
  }
}

// B for nodes of kNode unknowns: one thread a node c, which makes kStage diagonals at a time; those
// of a warp are collected in shared memory and written together. Block i makes share i % shares of
// the diagonals of 128 nodes, so that blocks that run at once read few of A's nodes.
constexpr int kStage = 3;

template <int kNode>
__global__ void __launch_bounds__(kProductThreads) NodeProductsKernel(DiaArgs args, int shares) {
  constexpr int kSquare = kNode * kNode, kPitch = kStage * kSquare + 1;
  __shared__ ProductTables own;
  __shared__ double staged[kProductThreads / 32][32 * kPitch];
  const int products = args.tables->products;
  own.Load(*args.tables);
  __syncthreads();
  const int share = static_cast<int>(blockIdx.x) % shares;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t first = int64_t{blockIdx.x} / shares * kProductThreads + warp * 32;
  const int64_t c = args.low + first + lane;
  const int64_t nodes = args.nodes, stride = kSquare * nodes;
  const auto rows =
      static_cast<int>(min(int64_t{32}, max(int64_t{0}, args.high - args.low - first)));
  if (rows == 0) return;
  const bool real = lane < rows;
  for (int group = share * kStage; group < products; group += shares * kStage) {
    const int count = min(kStage, products - group);
    for (int g = 0; g < count; ++g) {
      const int d = group + g;
      double sums[kNode][kNode] = {};  // rows belong to column c + d
      if (real && c + own.offset[d] < nodes) {
        const double* const left = args.a + c + own.offset[d];
        const double* const right = args.a + c;
        const int end = own.begin[d + 1];
#pragma unroll 1
        for (int p = own.begin[d]; p < end; ++p) {
          if (own.pair[p] == DiaTables::kNoPair) break;
          const double* const x = left + (own.pair[p] >> 8) * stride;
          const double* const y = right + (own.pair[p] & 255) * stride;
          double v[kSquare], w[kSquare];
#pragma unroll
          for (int e = 0; e < kSquare; ++e) {
            v[e] = __ldg(x + e * nodes);
            w[e] = __ldg(y + e * nodes);
          }
#pragma unroll
          for (int row = 0; row < kNode; ++row) {
#pragma unroll
            for (int s = 0; s < kNode; ++s) {
#pragma unroll
              for (int t = 0; t < kNode; ++t) {
                sums[s][t] += v[row * kNode + s] * w[row * kNode + t];
              }
            }
          }
        }
      }
      double* const to = staged[warp] + lane * kPitch + g * kSquare;
#pragma unroll
      for (int s = 0; s < kNode; ++s) {
#pragma unroll
        for (int t = 0; t < kNode; ++t) to[s * kNode + t] = sums[s][t];
      }
    }
    __syncwarp();
    const int length = count * kSquare;
    double* const to = args.b + (first * products + group) * kSquare;
    for (int row = 0; row < rows; ++row) {
      if (lane < length)
        to[int64_t{row} * products * kSquare + lane] = staged[warp][row * kPitch + lane];
    }
    __syncwarp();
  }
}

// --- Residuals ---

constexpr int kResidualThreads = 64;

// Entries that are loaded before one is used; the list is padded to a multiple.
template <int kNode>
constexpr int kBatch = kNode == 1 ? 8 : 2;

template <int kNode>
__host__ __device__ constexpr int WholeBatches(int entries) {
  return (entries + kBatch<kNode> - 1) / kBatch<kNode> * kBatch<kNode>;
}

// One thread a column of M. Its solution is in shared memory, elements kResidualThreads apart, with
// zeros for unknowns that the column lacks and for one offset more, to which the list's padding
// refers.
template <int kNode>
class Column {
 public:
  struct Entry {
    int32_t at;  // index in A for node 0
    uint32_t word;
  };

  __device__ Column(const DiaArgs& args, const Entry* rows, int count, int64_t local, double* x)
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
    for (int slot = 0; slot < (offsets_ + 1) * kNode; ++slot) X(slot) = 0;
    ForSlots([&](int slot, int64_t column, int place) {
      X(slot) = m[place] / args_.scale[column];  // powers of two
    });
    double fit = 0;
    double squared = Residual(fit);
    if (!again) {
      // At the minimum ‖r‖² = 1 − (Âx)_k (GroupSolver::AtMinimum).
      const bool done =
          (state & kStateStrong) != 0 && fabs(squared - (1 - fit)) <= checks::kMinimumTolerance;
      if (!done) {
        Gradient();
        args_.state[local_] = state | kStateAgain;
        *args_.wanted = 1;
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

  // Calls use(slot, column of A, place in the column of M) for all of J.
  template <class Use>
  __device__ void ForSlots(const Use& use) const {
    int place = 0;
    for (int q = 0; q < offsets_; ++q) {
      if ((mask_ >> q & 1) == 0) continue;
      const int64_t column = (node_ + args_.tables->m_offset[q]) * kNode;
#pragma unroll
      for (int t = 0; t < kNode; ++t) use(q * kNode + t, column + t, place++);
    }
  }

  // In row k of Âx: subtracts the right-hand side's 1, returns the value before.
  __device__ double TakeOne(double (&r)[kNode]) const {
    double before = 0;
#pragma unroll
    for (int row = 0; row < kNode; ++row) {
      before = row == own_ ? r[row] : before;
      r[row] -= row == own_ ? 1 : 0;
    }
    return before;
  }

  // Calls use(end, word, r) after each row of Âx, `end` being its last entry.
  template <class Use>
  __device__ void ForRows(const Use& use) const {
    constexpr int kAhead = kBatch<kNode>, kSquare = kNode * kNode;
    double r[kNode] = {};
    for (int p = 0; p < count_; p += kAhead) {
      uint32_t words[kAhead];
      double v[kAhead][kSquare], x[kAhead][kNode];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const Entry entry = rows_[p + i];
        words[i] = entry.word;
        const double* const from = args_.a + (entry.at + node_);
#pragma unroll
        for (int e = 0; e < kSquare; ++e) v[i][e] = __ldg(from + int64_t{e} * args_.nodes);
#pragma unroll
        for (int t = 0; t < kNode; ++t) {
          x[i][t] = X(static_cast<int>(entry.word & 255) * kNode + t);
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int row = 0; row < kNode; ++row) {
#pragma unroll
          for (int t = 0; t < kNode; ++t) r[row] += v[i][row * kNode + t] * x[i][t];
        }
        if ((words[i] & DiaTables::kLast) == 0) continue;
        use(p + i, words[i], r);
#pragma unroll
        for (int row = 0; row < kNode; ++row) r[row] = 0;
      }
    }
  }

  // ‖Âx − e‖²; fit: (Âx)_k.
  __device__ double Residual(double& fit) const {
    double squared = 0, fitted = 0, missing = 1;
    ForRows([&](int, uint32_t word, double(&r)[kNode]) {
      if ((word & DiaTables::kTarget) != 0) {
        fitted = TakeOne(r);
        missing = 0;
      }
#pragma unroll
      for (int row = 0; row < kNode; ++row) squared += r[row] * r[row];
    });
    fit = fitted;
    return squared + missing;  // missing: 1 if no entry of Â is in row k
  }

  // Fills args.gradient of this column: Âᵀ(e − Âx).
  __device__ void Gradient() const {
    double* const g = args_.gradient + local_;
    const int64_t stride = args_.g_stride;
    for (int slot = 0; slot < offsets_ * kNode; ++slot) g[slot * stride] = 0;
    int begin = 0;
    ForRows([&](int end, uint32_t word, double(&r)[kNode]) {
      if ((word & DiaTables::kTarget) != 0) TakeOne(r);
      for (; begin <= end; ++begin) {
        const auto q = static_cast<int>(rows_[begin].word & 255);
        if (q >= offsets_ || (mask_ >> q & 1) == 0) continue;
        const double* const from = args_.a + (rows_[begin].at + node_);
#pragma unroll
        for (int t = 0; t < kNode; ++t) {
          double sum = 0;
#pragma unroll
          for (int row = 0; row < kNode; ++row) {
            sum += __ldg(from + int64_t{row * kNode + t} * args_.nodes) * r[row];
          }
          g[(q * kNode + t) * stride] -= sum;
        }
      }
    });
  }

  // Whether k is in I: a column of J has an entry in row k, even a zero.
  __device__ bool HasRow() const {
    for (int q = 0; q < offsets_; ++q) {
      const int32_t d = args_.tables->target[q];
      if ((mask_ >> q & 1) == 0 || d < 0) continue;
      if ((args_.a_mask[node_ + args_.tables->m_offset[q]] >> d & 1) != 0) return true;
    }
    return false;
  }

  const DiaArgs& args_;
  const Entry* const rows_;
  const int count_, offsets_;
  const int64_t k_, local_, node_;
  const int own_;
  const uint32_t mask_;
  double* const x_;
};

template <int kNode>
__global__ void __launch_bounds__(kResidualThreads)
    ResidualKernel(const __grid_constant__ DiaArgs args, bool again) {
  extern __shared__ double memory[];
  using Entry = typename Column<kNode>::Entry;
  if (again && *args.wanted == 0) return;
  const int64_t local = int64_t{blockIdx.x} * kResidualThreads + threadIdx.x;
  const bool real = local < int64_t{args.end - args.begin} * kNode;
  const uint8_t looked_for = again ? kStateAgain : kStateSolved;
  if (__syncthreads_or(real && (args.state[local] & looked_for) != 0) == 0) return;
  const DiaTables& tables = *args.tables;
  auto* const rows =
      reinterpret_cast<Entry*>(memory + (tables.offsets + 1) * kNode * kResidualThreads);
  const int count = WholeBatches<kNode>(tables.rows);
  for (int p = static_cast<int>(threadIdx.x); p < count; p += kResidualThreads) {
    const uint32_t word = p < tables.rows ? tables.row[p] : tables.offsets;
    const auto diagonal = static_cast<int32_t>(word >> 8 & 255);
    const int32_t offset = p < tables.rows ? tables.m_offset[word & 255] : 0;
    rows[p] = {diagonal * kNode * kNode * args.nodes + offset, word};
  }
  __syncthreads();
  if (real) Column<kNode>(args, rows, count, local, memory + threadIdx.x).Finish(again);
}

// --- All ---

template <int kNode>
void LaunchRange(const Context& context, const DiaPlan& plan, const DiaArgs& args) {
  if (args.high > args.low) {
    const int64_t blocks = (args.high - args.low + kProductThreads - 1) / kProductThreads;
    if constexpr (kNode == 1) {
      const int columns = static_cast<int>(plan.diagonals * kProductThreads * sizeof(double) +
                                           WholeAhead(plan.pairs) * sizeof(Product));
      AllowSharedMemory(context, ProductsKernel, columns);
      ProductsKernel<<<static_cast<int>(blocks), kProductThreads, columns, context.stream>>>(args);
      CheckLaunch("ProductsKernel");
    } else {
      const int shares = std::clamp(plan.products / kStage, 1, 7);
      NodeProductsKernel<kNode>
          <<<static_cast<int>(blocks * shares), kProductThreads, 0, context.stream>>>(args, shares);
      CheckLaunch("NodeProductsKernel");
    }
  }
  const int shared = static_cast<int>(
      (plan.offsets + 1) * kNode * kResidualThreads * sizeof(double) +
      WholeBatches<kNode>(plan.offsets * plan.diagonals) * sizeof(typename Column<kNode>::Entry));
  const auto residuals = ResidualKernel<kNode>;
  AllowSharedMemory(context, residuals, shared);
  const int64_t own = int64_t{args.end - args.begin} * kNode;
  for (const bool again : {false, true}) {
    if (kNode > 1) {
      LaunchDiaNodes(context, args, kNode, plan.offsets, again);
    } else if (plan.slots() <= kMaxThreadSlots) {
      LaunchDiaThreads(context, args, plan.slots(), again);
    } else {
      LaunchDiaTeams(context, args, plan.slots(), again);
    }
    residuals<<<static_cast<int>((own + kResidualThreads - 1) / kResidualThreads), kResidualThreads,
                shared, context.stream>>>(args, again);
    CheckLaunch("ResidualKernel");
  }
}

}  // namespace

void BuildDia(Context& context, const StaticSpaiPlan& plan, const Matrix& a,
              const kernels::StaticSpaiOptions& options, const Caller& caller,
              StaticSpaiResult& result) {
  const DiaPlan& dia = plan.dia;
  const int64_t n = plan.n, node = dia.node, nodes = dia.nodes;
  // So many columns before and after A are read, by offsets of M from a node near either end, and
  // of B from one near the last.
  const int64_t span = int64_t{dia.highest} - dia.lowest;
  const int64_t before = std::max<int64_t>(0, -int64_t{dia.lowest});
  const int64_t after = std::min(nodes, std::max(span, int64_t{dia.highest}));
  const int64_t entries = dia.diagonals * node * n;
  const Buffer<double> scale(context, n), by_diagonals(context, before + entries + after);
  double* const diagonals = by_diagonals.get() + before;
  const auto clear = [&](double* from, int64_t count) {
    Check(cudaMemsetAsync(from, 0, static_cast<size_t>(count) * sizeof(double), context.stream),
          "cudaMemsetAsync");
  };
  clear(by_diagonals.get(), before);
  clear(diagonals + entries, after);
  // From within A they lead into the first columns of the next diagonal, or the last ones of the
  // one before. The values there do not count, but must be finite: with a part of the columns they
  // would be undefined.
  if (!plan.whole()) {
    const auto clear_columns = [&](int64_t begin, int64_t count) {
      Check(cudaMemset2DAsync(diagonals + begin, static_cast<size_t>(nodes) * sizeof(double), 0,
                              static_cast<size_t>(count) * sizeof(double),
                              static_cast<size_t>(dia.diagonals * node * node), context.stream),
            "cudaMemset2DAsync");
    };
    clear_columns(0, std::min(nodes, after));
    clear_columns(std::max<int64_t>(0, nodes - before), std::min(nodes, before));
  }
  const int shared = static_cast<int>(kConvertThreads * node * dia.diagonals * sizeof(double));
  AllowSharedMemory(context, ConvertKernel, shared);
  // Nodes with a column of the plan's range, and the columns of A that these read.
  const int64_t first_node = plan.own.begin / node, last_node = (plan.own.end + node - 1) / node;
  const ColumnRange seen{std::max<int64_t>(0, first_node + dia.lowest) * node,
                         std::min(nodes, last_node + dia.highest) * node};
  const int64_t blocks = (seen.end - seen.begin + kConvertThreads - 1) / kConvertThreads;
  ConvertKernel<<<static_cast<int>(blocks), kConvertThreads, shared, context.stream>>>(
      seen, a.col_ptr.get(), a.values.get(), dia.a_mask.get(), dia.node, dia.nodes, dia.diagonals,
      scale.get(), diagonals);
  CheckLaunch("ConvertKernel");

  const int64_t b_columns = std::min(nodes, dia.range + span);
  const int64_t range_columns = dia.range * node;
  const Buffer<double> b(context, b_columns * dia.products * node * node),
      gradient(context, range_columns * dia.slots());
  const Buffer<uint8_t> state(context, range_columns);
  const Buffer<int32_t> wanted(context, 1);
  DiaArgs args{};
  args.tables = dia.tables.get();
  args.nodes = dia.nodes;
  args.b_stride = static_cast<int32_t>(b_columns);
  args.g_stride = static_cast<int32_t>(range_columns);
  args.a = diagonals;
  args.b = b.get();
  args.a_mask = dia.a_mask.get();
  args.m_mask = dia.m_mask.get();
  args.scale = scale.get();
  args.m_ptr = plan.pattern().col_ptr;
  args.pivot_limit = options.gram_pivot_limit;
  args.post_filter = options.post_filter;
  args.m_values = result.values.get();
  args.residual_norms = result.residual_norms.get();
  args.pivots = result.pivots.get();
  args.flags = result.flags.get();
  args.state = state.get();
  args.wanted = wanted.get();
  args.gradient = gradient.get();
  for (int64_t begin = first_node; begin < last_node; begin += dia.range) {
    args.begin = static_cast<int32_t>(begin);
    args.end = static_cast<int32_t>(std::min(last_node, begin + dia.range));
    args.low = static_cast<int32_t>(std::max<int64_t>(0, begin + dia.lowest));
    args.high = static_cast<int32_t>(std::min(nodes, int64_t{args.end} + dia.highest));
    wanted.Fill(0);
    switch (dia.node) {
      case 1:
        LaunchRange<1>(context, dia, args);
        break;
      case 2:
        LaunchRange<2>(context, dia, args);
        break;
      case 3:
        LaunchRange<3>(context, dia, args);
        break;
      default:
        throw Failure(CudaFault::kError,
                      "no path by diagonals for nodes of " + std::to_string(node));
    }
    if (args.end == last_node) continue;
    context.Synchronize();
    caller.Report(args.end - first_node, last_node - first_node);
  }
}

}  // namespace spaid::cuda
