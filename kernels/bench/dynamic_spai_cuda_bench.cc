// Dynamic SPAI on the first CUDA device: A, the grown pattern and M resident there, by the device's
// clock; from host to host beside the CPU. Nothing is registered where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
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
  const std::shared_ptr<CudaDevice>& device = Device();
  const CscMatrix& a = Get(problem);
  const SpaidCudaInterface& api = device->api();
  char message[kCudaMessageBytes] = "";
  SpaidCudaMatrix* const matrix = Upload(device->context(), a);
  std::vector<double> log_ratios(static_cast<size_t>(way.max_steps) + 1);
  const SpaidCudaDynamicOptions options{way.tol,      way.max_steps, way.per_step,      0,
                                        fp32 ? 1 : 0, copy ? 64 : 0, log_ratios.data(), nullptr,
                                        nullptr};
  const SpaidCudaPatternOptions pattern{-1, 1, 0, nullptr, 0, nullptr, nullptr};
  const SpaidCudaBuildOptions numbers{
      StaticSpaiOptions().gram_pivot_limit, 0, 0, 0, nullptr, nullptr};
  SpaidCudaDynamicInfo grown_info{};
  SpaidCudaPlanInfo plan_info{};
  SpaidCudaBuildInfo build_info{};
  const auto build = [&] {
    SpaidCudaPattern* grown = nullptr;
    SpaidCudaPlan* plan = nullptr;
    SpaidCudaM* m = nullptr;
    OrDie(api.grow_dynamic_spai(matrix, nullptr, &options, nullptr, &grown, &grown_info, message,
                                sizeof(message)),
          message);
    const SpaidCudaCsc base{a.n_cols, grown_info.nnz, nullptr, nullptr, nullptr};
    OrDie(api.plan_static_spai(matrix, &base, grown, &pattern, 0, nullptr, &plan, &plan_info,
                               message, sizeof(message)),
          message);
    api.free_pattern(grown);
    OrDie(api.build_static_spai(plan, matrix, &numbers, &m, &build_info, message, sizeof(message)),
          message);
    api.free_m(m);
    api.free_plan(plan);
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
  state.counters["gram_nnz"] = static_cast<double>(grown_info.gram_nnz);
  state.counters["residual"] = std::exp(log_ratios.back() / 2);
  state.counters["converged_columns"] = static_cast<double>(grown_info.converged_columns);
  state.counters["copied_columns"] = static_cast<double>(grown_info.copied_columns);
  state.counters["slow_columns"] = static_cast<double>(grown_info.slow_columns);
  state.counters["dependent_columns"] = static_cast<double>(grown_info.dependent_columns);
  state.counters["host_columns"] = static_cast<double>(grown_info.host_columns);
  state.counters["host_groups"] = static_cast<double>(plan_info.host_groups);
  state.counters["structures"] = static_cast<double>(plan_info.structures);
  state.counters["flops"] = grown_info.flops;
  // What must move at the least: A in, M out.
  state.counters["floor_bytes"] = 12 * (nnz + nnz_m);
  state.counters["device_peak_bytes"] = static_cast<double>(
      std::max({grown_info.peak_bytes, plan_info.peak_bytes, build_info.peak_bytes}));
  api.free_matrix(matrix);
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
