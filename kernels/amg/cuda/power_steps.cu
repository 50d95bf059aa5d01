#include <iterator>
#include <utility>
#include <vector>

#include "kernels/amg/cuda/keys.h"
#include "kernels/amg/cuda/power_steps.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {
namespace {

constexpr int kTeam = 8;    // lanes of a row
constexpr int kAtOnce = 3;  // loads of a lane that are on their way, of rows of 27 nodes all

// norm[0] = ‖x‖ of the first x.
__global__ void __launch_bounds__(kSumThreads)
    StartKernel(int64_t n, double* __restrict__ x, double* norm, SumSpace space) {
  double sums[1][1] = {};
  ForOwn<1>(n, [&](int64_t i, int64_t, int) {
    x[i] = fma(0x1p-64, static_cast<double>(AggregationKey(i, 0)), -0.5);
    sums[0][0] = fma(x[i], x[i], sums[0][0]);
  });
  SumGrid<1, 1>(sums, space, [&](const double(&total)[1]) { norm[0] = sqrt(total[0]); });
}

// Takes the elements of a product. `norm` null: they are y. Else y = A x / norm[0], and
// norm[1] = ‖y‖; a norm that is not positive stays.
struct Product {
  double* y;
  double* norm;
  SumSpace space;
};

struct Elements {
  explicit __device__ Elements(const Product& of)
      : to(of), before(of.norm != nullptr ? of.norm[0] : 1) {}
  __device__ void Put(int64_t i, double sum) {
    if (!(before > 0)) return;
    const double own = to.norm != nullptr ? sum / before : sum;
    to.y[i] = own;
    sums[0][0] = fma(own, own, sums[0][0]);
  }
  __device__ void Finish() {
    if (to.norm == nullptr) return;
    SumGrid<1, 1>(sums, to.space, [&](const double(&total)[1]) {
      to.norm[1] = before > 0 ? sqrt(total[0]) : before;
    });
  }

  const Product& to;
  const double before;
  double sums[1][1] = {};
};

// kTeam lanes a row.
__global__ void __launch_bounds__(kSumThreads)
    RowsKernel(PatternRef a, const double* __restrict__ values, const double* __restrict__ x,
               Product product) {
  Elements elements(product);
  const int lane = static_cast<int>(threadIdx.x) % kTeam;
  const int64_t rounded = (a.n + 31) / 32 * 32;
  for (int64_t i = (int64_t{blockIdx.x} * kSumThreads + threadIdx.x) / kTeam; i < rounded;
       i += int64_t{gridDim.x} * (kSumThreads / kTeam)) {
    double sum = 0;
    if (i < a.n) {
      for (int64_t p = a.col_ptr[i] + lane; p < a.col_ptr[i + 1]; p += kTeam) {
        sum = fma(values[p], x[a.row_idx[p]], sum);
      }
    }
    for (int step = kTeam / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0 && i < a.n) elements.Put(i, sum);
  }
  elements.Finish();
}

__global__ void __launch_bounds__(kSumThreads)
    RoundKernel(int64_t count, const double* __restrict__ from, float* __restrict__ to) {
  for (int64_t e = int64_t{blockIdx.x} * kSumThreads + threadIdx.x; e < count;
       e += int64_t{gridDim.x} * kSumThreads) {
    to[e] = static_cast<float>(from[e]);
  }
}

// A warp a node of kNode rows, which read x once.
template <int kNode>
__global__ void __launch_bounds__(kSumThreads)
    NodesKernel(PatternRef nodes, const float* __restrict__ values, const double* __restrict__ x,
                Product product) {
  Elements elements(product);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t node = (int64_t{blockIdx.x} * kSumThreads + threadIdx.x) / 32; node < nodes.n;
       node += int64_t{gridDim.x} * (kSumThreads / 32)) {
    const int64_t first = nodes.col_ptr[node];
    const auto length = static_cast<int>(nodes.col_ptr[node + 1] - first) * kNode;
    const float* const own = values + first * (kNode * kNode);
    double sums[kNode] = {};
    for (int base = lane; base < length; base += 32 * kAtOnce) {
      double of_x[kAtOnce];
      float value[kAtOnce][kNode];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int e = base + 32 * u;
        const bool there = e < length;
        of_x[u] = there ? x[int64_t{nodes.row_idx[first + e / kNode]} * kNode + e % kNode] : 0;
#pragma unroll
        for (int r = 0; r < kNode; ++r) value[u][r] = there ? own[r * length + e] : 0;
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
        for (int r = 0; r < kNode; ++r) {
          sums[r] = fma(static_cast<double>(value[u][r]), of_x[u], sums[r]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kNode; ++r) {
      for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
      if (lane == r) elements.Put(node * kNode + r, sums[r]);
    }
  }
  elements.Finish();
}

template <int kNode>
void LaunchNodes(const Context& context, const NodeMatrix& nodes, const float* values,
                 const double* x, const Product& product) {
  const int blocks = SumBlocks(context, 32 * nodes.nodes.n);
  NodesKernel<kNode>
      <<<blocks, kSumThreads, 0, context.stream>>>(nodes.nodes.pattern(), values, x, product);
  CheckLaunch("NodesKernel");
}

// `rounded`: values of the nodes.
void Launch(const Context& context, const PowerFactor& a, const float* rounded, const double* x,
            const Product& product) {
  switch (a.nodes != nullptr ? a.nodes->rows : 1) {
    case 2:
      return LaunchNodes<2>(context, *a.nodes, rounded, x, product);
    case 3:
      return LaunchNodes<3>(context, *a.nodes, rounded, x, product);
    case 4:
      return LaunchNodes<4>(context, *a.nodes, rounded, x, product);
    case 6:
      return LaunchNodes<6>(context, *a.nodes, rounded, x, product);
    default:
      break;
  }
  RowsKernel<<<SumBlocks(context, kTeam * a.rows.n), kSumThreads, 0, context.stream>>>(
      a.rows, a.values, x, product);
  CheckLaunch("RowsKernel");
}

}  // namespace

double PowerNorm(Context& context, std::initializer_list<PowerFactor> factors, int steps) {
  return Read(context, PowerNorms(context, factors, steps), steps);
}

Buffer<double> PowerNorms(Context& context, std::initializer_list<PowerFactor> factors, int steps) {
  const int64_t n = factors.begin()->rows.n;
  Buffer<double> x(context, n), y(context, n);
  Buffer<double> norms(context, steps + 1);
  const Buffer<double> partial(context, int64_t{kMostSumBlocks} * kMostSums);
  const Buffer<unsigned> arrived(context, 1);
  arrived.Fill(0);
  const SumSpace space{partial.get(), arrived.get()};
  std::vector<Buffer<float>> rounded;
  for (const PowerFactor& factor : factors) {
    const int64_t count = factor.nodes == nullptr || factor.rounded != nullptr
                              ? 0
                              : factor.nodes->nodes.nnz * factor.nodes->rows * factor.nodes->rows;
    rounded.emplace_back(context, count);
    if (count == 0) continue;
    RoundKernel<<<SumBlocks(context, count), kSumThreads, 0, context.stream>>>(
        count, factor.nodes->values, rounded.back().get());
    CheckLaunch("RoundKernel");
  }
  StartKernel<<<SumBlocks(context, n), kSumThreads, 0, context.stream>>>(n, x.get(), norms.get(),
                                                                         space);
  CheckLaunch("StartKernel");
  for (int step = 0; step < steps; ++step) {
    for (const PowerFactor& factor : factors) {
      const bool last = &factor == std::prev(factors.end());
      const float* const own = rounded[static_cast<size_t>(&factor - factors.begin())].get();
      Launch(context, factor, own != nullptr ? own : factor.rounded, x.get(),
             {y.get(), last ? norms.get() + step : nullptr, space});
      std::swap(x, y);
    }
  }
  return norms;
}

}  // namespace spaid::cuda
