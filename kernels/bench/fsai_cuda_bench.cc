// FSAI on the first CUDA device: A and G resident there, by the device's clock; and from host to
// host beside the CPU, to see from which size on it pays. Nothing is registered where there is no
// device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/cuda/fsai_baseline.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels::bench {
namespace {

const Problem kProblems[] = {
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }},
    {"P7v_128", [] { return WithVaryingCoefficients(ConvectionDiffusion(128, 0)); }},
    {"P27_100", [] { return Laplacian27(100); }},
    {"E80_60", [] { return Elasticity(60); }},
    {"E80_40", [] { return Elasticity(40); }},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }},
    {"P7_128_scattered", [] { return Scattered(ConvectionDiffusion(128, 0), 1); }},
    {"E80_40_scattered", [] { return Scattered(Elasticity(40), 3); }},
};

// The lower triangle of A, by rows.
Pattern LowerTriangle(const CscMatrix& a) {
  Pattern lower;
  lower.n_rows = lower.n_cols = a.n_cols;
  lower.col_ptr.push_back(0);
  for (int64_t i = 0; i < a.n_cols; ++i) {
    for (const int32_t j : a.pattern().column(i)) {
      if (j <= i) lower.row_idx.push_back(j);
    }
    lower.col_ptr.push_back(lower.nnz());
  }
  return lower;
}

// k_max 30, s 1, epsilon 1e-3; or on the pattern of tril(A).
// `copy` false: every row is made.
void Run(benchmark::State& state, const Problem& problem, bool grow, bool fp32, bool copy) {
  const CscMatrix& a = Get(problem);
  if (!Diagnose(a, 0).numerically_symmetric) return state.SkipWithError("A is not symmetric");
  const Pattern lower = grow ? Pattern{} : LowerTriangle(a);
  cuda::Context& context = There(*Device());
  const PatternView rows = lower;
  const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
  FsaiOptions options;
  options.adaptive = grow;
  options.k_max = 30;
  options.epsilon = 1e-3;
  options.precision = fp32 ? Precision::kFp32 : Precision::kFp64;
  options.repeat_hash_bits = copy ? 64 : 0;
  cuda::FsaiFigures figures;
  int64_t nnz_made = 0, peak = 0;
  const auto build = [&] {
    figures = {};
    context.arena->ResetPeak();
    cuda::Stopwatch watch(context);
    const cuda::FsaiG g = cuda::BuildFsai(context, matrix, grow ? nullptr : &rows, nullptr, options,
                                          cuda::Once({0, a.n_cols}), Nobody(), figures);
    const double ms = watch.Stop();
    nnz_made = g.chunks[0].nnz;
    peak = context.arena->peak();
    return ms;
  };
  for (int warm = 0; warm < 2; ++warm) build();
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(build());
    state.SetIterationTime(times.back() * 1e-3);
  }
  std::sort(times.begin(), times.end());
  state.counters["median_ms"] = times[times.size() / 2];
  const auto nnz = static_cast<double>(a.nnz()), nnz_g = static_cast<double>(nnz_made);
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = nnz;
  state.counters["nnz_g"] = nnz_g;
  state.counters["kaporin"] = std::exp(figures.log_ratio);
  state.counters["copied_rows"] = static_cast<double>(figures.quality.copied_rows);
  state.counters["slow_rows"] = static_cast<double>(figures.quality.slow_rows);
  state.counters["flops"] = figures.quality.flops;
  // What must move at the least: A in, G out.
  state.counters["floor_bytes"] = 12 * (nnz + nnz_g);
  state.counters["device_peak_bytes"] = static_cast<double>(peak);
}

// The structure of [aFSAI]; what it makes is told by the Kaporin number, which is to be ours.
void RunYardstick(benchmark::State& state, const Problem& problem, FsaiGradient gradient,
                  bool fp32) {
  const CscMatrix& a = Get(problem);
  FsaiBaselineOptions options;
  options.gradient = gradient;
  options.fp32 = fp32;
  options.runs = 5;
  FsaiBaselineResult g;
  for (auto _ : state) {
    const std::string failed =
        RunFsaiBaseline(a.n_cols, a.col_ptr.data(), a.row_idx.data(), a.values.data(), options, &g);
    OrDie(failed.empty(), failed.c_str());
    state.SetIterationTime(g.times.total_ms * 1e-3);
  }
  // The last entry of row i of G is ψ_i to the power of −1/2.
  double log_ratio = 0;
  for (int64_t i = 0; i < a.n_cols; ++i) {
    const double last = g.values[static_cast<size_t>(g.row_ptr[static_cast<size_t>(i) + 1]) - 1];
    const CscView columns = a;
    const auto indices = columns.column(i);
    const auto at = std::lower_bound(indices.begin(), indices.end(), i) - indices.begin();
    log_ratio -= std::log(last * last * columns.column_values(i)[static_cast<size_t>(at)]);
  }
  const double total = g.times.total_ms;
  state.counters["median_ms"] = total;
  state.counters["gradient_share"] = g.times.gradient_ms / total;
  state.counters["gather_share"] = g.times.gather_ms / total;
  state.counters["cholesky_share"] = g.times.cholesky_ms / total;
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz_g"] = static_cast<double>(g.row_ptr.back());
  state.counters["kaporin"] = std::exp(log_ratio / static_cast<double>(a.n_cols));
  state.counters["warps"] = static_cast<double>(g.warps);
  state.counters["system_rows"] = static_cast<double>(g.system_rows);
}

const Problem kCrossover[] = {
    {"P7_8", [] { return ConvectionDiffusion(8, 0); }},
    {"P7_16", [] { return ConvectionDiffusion(16, 0); }},
    {"P7_32", [] { return ConvectionDiffusion(32, 0); }},
    {"P7_64", [] { return ConvectionDiffusion(64, 0); }},
    {"P27_16", [] { return Laplacian27(16); }},
    {"P27_40", [] { return Laplacian27(40); }},
    {"E80_6", [] { return Elasticity(6); }},
    {"E80_12", [] { return Elasticity(12); }},
    {"E80_24", [] { return Elasticity(24); }},
    {"aniso_50", [] { return Anisotropic(50, 1e-3, std::numbers::pi / 8); }},
    {"aniso_200", [] { return Anisotropic(200, 1e-3, std::numbers::pi / 8); }},
};

struct Way {
  const char* name;
  bool adaptive;
  int k_max, s;
};
constexpr Way kWays[] = {{"30x1", true, 30, 1}, {"3x5", true, 3, 5}, {"static", false, 0, 1}};

constexpr Way kLongWays[] = {
    {"60x1", true, 60, 1}, {"90x1", true, 90, 1}, {"120x1", true, 120, 1}, {"200x1", true, 200, 1}};

FsaiOptions Of(const Way& way) {
  FsaiOptions options;
  options.adaptive = way.adaptive;
  options.k_max = way.k_max;
  options.s = way.s;
  return options;
}

// From A on the host to G there by rows and by columns, as the daemon needs it, plan included.
void RunWhole(benchmark::State& state, const Problem& problem, const Way& way) {
  const CscMatrix a = problem.make();
  const FsaiOptions options = Of(way);
  FsaiCudaTimings sums;
  double slow_rows = 0;
  const auto build = [&] {
    Pattern rows;
    if (!way.adaptive) rows = Must(FsaiPattern(a, nullptr, options, {}));
    const PatternView pattern = rows;
    FsaiCudaTimings timings;
    FsaiCudaOutputs outputs;
    const auto plan =
        Must(PlanFsaiCuda({&Device(), 1}, a, way.adaptive ? nullptr : &pattern, {}, &timings));
    const FsaiResult g =
        Must(way.adaptive ? GrowFsaiCuda(*plan, nullptr, a, options, {}, &timings, &outputs)
                          : BuildFsaiOnCuda(*plan, pattern, a, options, {}, &timings, &outputs));
    benchmark::DoNotOptimize(g.g_rows.values.data());
    sums.host_to_device_ms += timings.host_to_device_ms;
    sums.device_ms += timings.device_ms;
    sums.device_to_host_ms += timings.device_to_host_ms;
    slow_rows += static_cast<double>(g.quality.slow_rows);
  };
  build();
  sums = {};
  slow_rows = 0;
  for (auto _ : state) build();
  const auto mean = [](double sum) {
    return benchmark::Counter(sum, benchmark::Counter::kAvgIterations);
  };
  state.counters["host_to_device_ms"] = mean(sums.host_to_device_ms);
  state.counters["device_ms"] = mean(sums.device_ms);
  state.counters["device_to_host_ms"] = mean(sums.device_to_host_ms);
  state.counters["slow_rows"] = mean(slow_rows);
  const FsaiCounts counts = Must(EstimateFsai(a.pattern(), nullptr, options, {}));
  state.counters["predicted_device_ms"] = DeviceBuildMs(
      TraitsOf(options.adaptive ? EngineKind::kAfsai : EngineKind::kFsai).rates, counts.work);
}

// The same on all cores.
void RunHost(benchmark::State& state, const Problem& problem, const Way& way) {
  const CscMatrix a = problem.make();
  const FsaiOptions options = Of(way);
  for (auto _ : state) {
    const FsaiResult g = Must(BuildFsai(a, nullptr, options, {}));
    const CscMatrix columns = Must(Transpose(g.g_rows, {}));
    benchmark::DoNotOptimize(columns.values.data());
  }
  const FsaiCounts counts = Must(EstimateFsai(a.pattern(), nullptr, options, {}));
  state.counters["predicted_one_thread_ms"] = BuildMs(
      TraitsOf(options.adaptive ? EngineKind::kAfsai : EngineKind::kFsai).rates, counts.work, 1);
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  for (const Problem& problem : kCrossover) {
    for (const Way& way : kWays) {
      const std::string name = std::string("FsaiCrossover/") + problem.name + "/" + way.name;
      benchmark::RegisterBenchmark(
          (name + "/cuda").c_str(),
          [&problem, &way](benchmark::State& state) { RunWhole(state, problem, way); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
      benchmark::RegisterBenchmark(
          (name + "/cpu").c_str(),
          [&problem, &way](benchmark::State& state) { RunHost(state, problem, way); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  // More and more steps, until rows leave shared memory.
  for (const Problem& problem : {kCrossover[1], kCrossover[6], kCrossover[9]}) {
    for (const Way& way : kLongWays) {
      const std::string name = std::string("FsaiCrossover/") + problem.name + "/" + way.name;
      benchmark::RegisterBenchmark(
          (name + "/cuda").c_str(),
          [problem, &way](benchmark::State& state) { RunWhole(state, problem, way); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->Iterations(2);
      benchmark::RegisterBenchmark(
          (name + "/cpu").c_str(),
          [problem, &way](benchmark::State& state) { RunHost(state, problem, way); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->Iterations(2);
    }
  }
  const auto add = [](const Problem& problem) {
    for (const bool grow : {true, false}) {
      for (const bool fp32 : {true, false}) {
        for (const bool copy : {true, false}) {
          const std::string name = std::string("FsaiCuda/") + problem.name +
                                   (grow ? "/adaptive" : "/static") + (fp32 ? "/fp32" : "/fp64") +
                                   (copy ? "" : "/general");
          benchmark::RegisterBenchmark(name.c_str(),
                                       [&problem, grow, fp32, copy](benchmark::State& state) {
                                         Run(state, problem, grow, fp32, copy);
                                       })
              ->Unit(benchmark::kMillisecond)
              ->UseManualTime()
              ->Iterations(9);
        }
      }
    }
  };
  for (const Problem& problem : kProblems) add(problem);
  for (const Problem& problem : FileProblems()) add(problem);
  for (const Problem& problem : kProblems) {
    for (const auto gradient : {FsaiGradient::kIndicator, FsaiGradient::kMerge}) {
      for (const bool fp32 : {true, false}) {
        const std::string name = std::string("FsaiBaseline/") + problem.name +
                                 (gradient == FsaiGradient::kMerge ? "/merge" : "/indicator") +
                                 (fp32 ? "/fp32" : "/fp64");
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&problem, gradient, fp32](benchmark::State& state) {
                                       RunYardstick(state, problem, gradient, fp32);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseManualTime()
            ->Iterations(1);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
