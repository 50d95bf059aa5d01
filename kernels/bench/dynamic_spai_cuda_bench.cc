// Dynamic SPAI on the first CUDA device: A, the grown pattern and M resident there, by the device's
// clock; from host to host beside the CPU. Nothing is registered where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/dynamic_spai/cuda_growth.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"

namespace spaid::kernels::bench {
namespace {

constexpr Problem kP27{"P27_100", [] { return Laplacian27(100); }};
constexpr Problem kProblems[] = {
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }},
    kP27,
    {"E80_40", [] { return Elasticity(40); }},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }},
    {"circuit_300k", [] { return Circuit(300'000, 12, 700); }},
};

// max_steps x s, tol.
struct Way {
  const char* name;
  int max_steps, per_step;
  double tol;
};
constexpr Way kTo30{"29x1", 29, 1, 0};
constexpr Way kDefault{"10x2", 10, 2, 0.3};
constexpr Way kFew{"5x3", 5, 3, 0};

// `copy` false: every column is grown.
void Run(benchmark::State& state, const Problem& problem, const Way& way, bool fp32, bool copy) {
  const CscMatrix& a = Get(problem);
  const auto matrix = Upload(Device()->context(), a);
  DynamicSpaiOptions options;
  options.tol = way.tol;
  options.max_steps = way.max_steps;
  options.per_step = way.per_step;
  options.fp32_growth = fp32;
  options.repeat_hash_bits = copy ? 64 : 0;
  CudaGrowthFigures grown_info;
  CudaPlanFigures plan_info;
  CudaBuildFigures build_info;
  const auto build = [&] {
    CudaGrowth grown = Must(matrix->GrowDynamicSpai(nullptr, options, std::nullopt, {}));
    CudaPatternRequest pattern;
    pattern.base_there = grown.pattern.get();
    const auto plan = Must(matrix->PlanStaticSpai(pattern, LocalSolver::kAuto, std::nullopt, {}));
    grown.pattern.reset();
    const auto m = Must(plan->Build(*matrix, {}, {}));
    grown_info = std::move(grown.figures);
    plan_info = plan->figures;
    build_info = m->figures;
    return grown_info.ms + plan_info.ms + build_info.ms;
  };
  for (int warm = 0; warm < 2; ++warm) build();
  struct Times {
    double all, gram, growth, plan, numbers;
  };
  std::vector<Times> times;
  for (auto _ : state) {
    const double all = build();
    times.push_back(
        {all, grown_info.gram_ms, grown_info.ms - grown_info.gram_ms, plan_info.ms, build_info.ms});
    state.SetIterationTime(all * 1e-3);
  }
  const auto median = [&](double Times::*part) {
    std::vector<double> values;
    for (const Times& t : times) values.push_back(t.*part);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  state.counters["median_ms"] = median(&Times::all);
  state.counters["gram_ms"] = median(&Times::gram);
  state.counters["growth_ms"] = median(&Times::growth);
  state.counters["plan_ms"] = median(&Times::plan);
  state.counters["numbers_ms"] = median(&Times::numbers);
  const auto nnz = static_cast<double>(a.nnz()), nnz_m = static_cast<double>(plan_info.nnz_m);
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = nnz;
  state.counters["nnz_m"] = nnz_m;
  state.counters["gram_nnz"] = static_cast<double>(grown_info.quality.gram_nnz);
  state.counters["residual"] = std::exp(grown_info.log_ratios.back() / 2);
  state.counters["converged_columns"] = static_cast<double>(grown_info.quality.converged_columns);
  state.counters["copied_columns"] = static_cast<double>(grown_info.quality.copied_columns);
  state.counters["slow_columns"] = static_cast<double>(grown_info.quality.slow_columns);
  state.counters["dependent_columns"] = static_cast<double>(grown_info.quality.dependent_columns);
  state.counters["host_columns"] = static_cast<double>(grown_info.host_columns);
  state.counters["host_groups"] = static_cast<double>(plan_info.host_groups);
  state.counters["structures"] = static_cast<double>(plan_info.structures);
  state.counters["flops"] = grown_info.quality.flops;
  // What must move at the least: A in, M out.
  state.counters["floor_bytes"] = 12 * (nnz + nnz_m);
  state.counters["device_peak_bytes"] = static_cast<double>(
      std::max({grown_info.peak_bytes, plan_info.peak_bytes, build_info.peak_bytes}));
}

constexpr Problem kCrossover[] = {
    {"P7_16", [] { return ConvectionDiffusion(16, 0); }},
    {"P7_64", [] { return ConvectionDiffusion(64, 0); }},
    {"P27_40", [] { return Laplacian27(40); }},
    {"E80_12", [] { return Elasticity(12); }},
    {"circuit_50k", [] { return Circuit(50'000, 12, 700); }},
};

DynamicSpaiOptions Of(const Way& way) {
  DynamicSpaiOptions options;
  options.max_steps = way.max_steps;
  options.per_step = way.per_step;
  options.tol = way.tol;
  return options;
}

// From A on the host to M there, by a device and by all cores.
void RunWhole(benchmark::State& state, const Problem& problem, const Way& way, bool cuda) {
  const CscMatrix a = problem.make();
  const DynamicSpaiOptions options = Of(way);
  const StaticSpaiOptions numbers = NumbersOf(options);
  DynamicSpaiCudaTimings last;
  const auto build = [&] {
    if (!cuda) {
      const DynamicSpaiPattern grown = Must(GrowDynamicSpai(a, nullptr, options, {}));
      const PatternView of_m = grown.m;
      const auto plan = Must(PlanStaticSpai(a, &of_m, numbers, {}));
      benchmark::DoNotOptimize(Must(BuildStaticSpai(*plan, a, numbers, {})).m.values.data());
      return;
    }
    std::unique_ptr<SpaiOnDevice> there;
    last = {};
    const std::span devices(&Device(), 1);
    const DynamicSpaiPattern grown =
        Must(GrowDynamicSpaiCuda(devices, a, nullptr, options, {}, &last, &there));
    const PatternView of_m = grown.m;
    const auto plan =
        Must(PlanStaticSpaiCuda(devices, a, &of_m, numbers, {}, nullptr, std::move(there)));
    benchmark::DoNotOptimize(Must(BuildStaticSpaiCuda(*plan, a, numbers, {})).m.values.data());
  };
  build();
  for (auto _ : state) build();
  if (!cuda) return;
  state.counters["host_to_device_ms"] = last.host_to_device_ms;
  state.counters["device_ms"] = last.device_ms;
  state.counters["device_to_host_ms"] = last.device_to_host_ms;
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  const auto add = [](const Problem& problem, const Way& way, int times) {
    for (const bool fp32 : {true, false}) {
      for (const bool copy : {true, false}) {
        const std::string name = std::string("DynamicSpaiCuda/") + problem.name + "/" + way.name +
                                 (fp32 ? "/fp32" : "/fp64") + (copy ? "" : "/general");
        benchmark::RegisterBenchmark(name.c_str(),
                                     [problem, way, fp32, copy](benchmark::State& state) {
                                       Run(state, problem, way, fp32, copy);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseManualTime()
            ->Iterations(times);
      }
    }
  };
  add(kP27, kTo30, 9);
  for (const Problem& problem : kProblems) {
    add(problem, kDefault, 5);
    add(problem, kFew, 5);
  }
  for (const Problem& problem : kCrossover) {
    for (const bool cuda : {true, false}) {
      const std::string name =
          std::string("DynamicSpaiCrossover/") + problem.name + (cuda ? "/cuda" : "/cpu");
      benchmark::RegisterBenchmark(
          name.c_str(),
          [&problem, cuda](benchmark::State& state) { RunWhole(state, problem, kDefault, cuda); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
