#include <algorithm>
#include <vector>

#include "kernels/static_spai/cuda/build_cuda.h"
#include "kernels/static_spai/cuda/gram_cuda.h"
#include "kernels/static_spai/cuda/lanes_cuda.h"
#include "kernels/static_spai/cuda/scale_cuda.h"
#include "kernels/static_spai/cuda/stencil_build_cuda.h"

namespace spaid::cuda {
namespace {

// Groups of one wave, the grain of cancellation and progress: some milliseconds of work.
constexpr int32_t kWarpWave = 1 << 20;
constexpr int32_t kBlockWave = 1 << 16;
constexpr int32_t kLargeWave = 1 << 10;
constexpr int kTeam = 8;  // threads that sum one column

// scale[j]: ScaleOf column j; scaled: the columns times that.
__global__ void ScaleColumnsKernel(int64_t n, const int64_t* col_ptr, const double* values,
                                   double* scale, double* scaled) {
  const int64_t j = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kTeam;
  const int64_t begin = j < n ? col_ptr[j] + threadIdx.x % kTeam : 0,
                end = j < n ? col_ptr[j + 1] : 0;
  double largest = 0;
  for (int64_t p = begin; p < end; p += kTeam) largest = fmax(largest, fabs(values[p]));
  for (int step = kTeam / 2; step > 0; step /= 2) {
    largest = fmax(largest, __shfl_xor_sync(~0u, largest, step, kTeam));
  }
  const int coarse = CoarseExponent(largest);
  double sum = 0;
  for (int64_t p = begin; p < end; p += kTeam) {
    const double v = values[p] * PowerOfTwo(coarse);
    sum += v * v;
  }
  for (int step = kTeam / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(~0u, sum, step, kTeam);
  }
  const double by = ScaleOf(largest, coarse, sum);
  for (int64_t p = begin; p < end; p += kTeam) scaled[p] = values[p] * by;
  if (j < n && threadIdx.x % kTeam == 0) scale[j] = by;
}

struct Wave {
  int size_class;
  int32_t begin, count;
};

std::vector<Wave> Waves(const StaticSpaiPlan& plan) {
  std::vector<Wave> waves;
  for (int c = kHostClass - 1; c >= 0; --c) {  // large problems first
    const int32_t grain = c < 2 * kWarpSizes ? kWarpWave
                          : c < kLargeClass  ? kBlockWave
                                             : kLargeWave;
    for (int32_t at = plan.class_begin[c]; at < plan.class_begin[c + 1]; at += grain) {
      waves.push_back({c, at, std::min(grain, plan.class_begin[c + 1] - at)});
    }
  }
  return waves;
}

}  // namespace

StaticSpaiResult Build(Context& context, const StaticSpaiPlan& plan, const Matrix& a,
                       const SpaidCudaBuildOptions& options) {
  if (a.pattern_hash != plan.pattern_hash || a.n != plan.n || a.nnz != plan.nnz_a) {
    throw Failure(kSpaidCudaPlanMismatch, "the matrix does not have the plan's pattern");
  }
  StaticSpaiResult result;
  result.values = Buffer<double>(context, plan.nnz_m);
  result.residual_norms = Buffer<double>(context, plan.n);
  result.pivots = Buffer<double>(context, plan.n);
  result.flags = Buffer<uint8_t>(context, plan.n);
  result.flags.Fill(0);
  if (plan.stencil.node > 0) {
    BuildStencil(context, plan, a, options, result);
    context.Synchronize();
    return result;
  }
  const Buffer<double> scale(context, plan.n), scaled(context, plan.nnz_a);
  ScaleColumnsKernel<<<static_cast<int>((plan.n * kTeam + 255) / 256), 256, 0, context.stream>>>(
      plan.n, a.col_ptr.get(), a.values.get(), scale.get(), scaled.get());
  CheckLaunch("ScaleColumnsKernel");

  const std::vector<Wave> waves = Waves(plan);
  const Buffer<int32_t> queues(context, static_cast<int64_t>(waves.size()));
  queues.Fill(0);
  GramArgs args{};
  args.a_ptr = a.col_ptr.get();
  args.a_values = scaled.get();
  args.scale = scale.get();
  args.m_ptr = plan.m_ptr.get();
  args.m_idx = plan.m_idx.get();
  args.members = plan.members.get();
  args.group_ptr = plan.group_ptr.get();
  args.structure_of = plan.structure_of.get();
  args.structures = plan.structures.get();
  args.tables = plan.tables.get();
  args.groups = plan.order.get();
  args.pivot_limit = options.pivot_limit;
  args.post_filter = options.post_filter;
  args.m_values = result.values.get();
  args.residual_norms = result.residual_norms.get();
  args.pivots = result.pivots.get();
  args.flags = result.flags.get();
  int32_t done = 0;
  for (size_t w = 0; w < waves.size(); ++w) {
    const Wave& wave = waves[w];
    args.groups = plan.order.get() + wave.begin;
    args.count = wave.count;
    args.next = queues.get() + w;
    if (wave.size_class == kLargeClass) {
      LaunchLargeGram(context, plan.large, a.row_idx.get(), plan.n, args);
    } else if (wave.size_class < 2 * kWarpSizes) {
      LaunchWarpGram(context, wave.size_class / 2 + 1, wave.size_class % 2 != 0, args);
    } else {
      LaunchBlockGram(context, BlockSize(wave.size_class - 2 * kWarpSizes) / 8, args);
    }
    done += wave.count;
    const bool full =
        wave.count == kWarpWave || wave.count == kBlockWave || wave.count == kLargeWave;
    if (!full || options.progress == nullptr) continue;
    context.Synchronize();
    if (options.progress(options.caller, done, plan.n_groups) != 0) {
      throw Failure(kSpaidCudaStopped, "stopped");
    }
  }
  args.groups = plan.order.get();
  for (int n2 = 1; n2 <= kMaxLaneColumns; ++n2) {
    if (plan.lane_entries[n2] > 0) LaunchLanes(context, n2, plan, args);
  }
  context.Synchronize();
  return result;
}

}  // namespace spaid::cuda
