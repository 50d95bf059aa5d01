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

#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/dynamic_spai/cuda/normal_rows.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"

namespace spaid::kernels::bench {
namespace {

const Problem kP27{"P27_100", [] { return Laplacian27(100); }};
const Problem kProblems[] = {
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }},
    kP27,
    {"E80_40", [] { return Elasticity(40); }},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }},
    {"P7_128_scattered", [] { return Scattered(ConvectionDiffusion(128, 0), 1); }},
    {"E80_40_scattered", [] { return Scattered(Elasticity(40), 3); }},
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
  cuda::Context& context = There(*Device());
  const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
  FsaiOptions options;  // of growth
  options.k_max = way.max_steps;
  options.s = way.per_step;
  options.epsilon = way.tol * way.tol;
  options.repeat_hash_bits = copy ? 64 : 0;
  double growth_ms = 0, gram_ms = 0;
  int64_t growth_peak = 0, host_columns = 0, nnz_made = 0;
  cuda::GramInfo gram;
  cuda::FsaiFigures grown;
  PlanThere plan;
  BuildThere built;
  const auto grow = [&](auto real) {
    using Real = decltype(real);
    cuda::Stopwatch watch(context);
    auto rows = cuda::MakeNormalRows<Real>(context, matrix, Nobody(), gram);
    watch.Mark();
    auto columns = cuda::fsai::GrowColumns<Real>(context, std::move(rows), nullptr, options,
                                                 a.n_cols, {0, a.n_cols}, Nobody(), grown);
    growth_ms = watch.Stop();
    gram_ms = watch.Marked();
    return columns;
  };
  const auto build = [&] {
    plan = {};
    built = {};
    grown = {};
    context.arena->ResetPeak();
    auto columns = fp32 ? grow(float()) : grow(double());
    growth_peak = context.arena->peak();
    host_columns = columns.left;
    const int64_t nnz = columns.row_idx.size();
    cuda::DevicePattern m{
        a.n_cols, nnz, std::move(columns.col_ptr), std::move(columns.row_idx), {}};
    plan = PlanSpaiThere(context, matrix, {}, {0, a.n_cols}, &m);
    built = BuildSpaiThere(context, plan.plan, matrix, {});
    nnz_made = plan.plan.m.nnz;
    return growth_ms + plan.ms + built.ms;
  };
  for (int warm = 0; warm < 2; ++warm) build();
  struct Times {
    double all, gram, growth, plan, numbers;
  };
  std::vector<Times> times;
  for (auto _ : state) {
    const double all = build();
    times.push_back({all, gram_ms, growth_ms - gram_ms, plan.ms, built.ms});
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
  const auto nnz = static_cast<double>(a.nnz()), nnz_m = static_cast<double>(nnz_made);
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = nnz;
  state.counters["nnz_m"] = nnz_m;
  state.counters["gram_nnz"] = static_cast<double>(gram.nnz);
  state.counters["residual"] = std::exp(grown.log_ratios.back() / 2);
  state.counters["converged_columns"] = static_cast<double>(grown.quality.converged_rows);
  state.counters["copied_columns"] = static_cast<double>(grown.quality.copied_rows);
  state.counters["slow_columns"] = static_cast<double>(grown.quality.slow_rows);
  state.counters["dependent_columns"] = static_cast<double>(grown.quality.not_spd_rows);
  state.counters["host_columns"] = static_cast<double>(host_columns);
  state.counters["host_groups"] =
      plan.plan.class_begin[cuda::kOtherClass] - plan.plan.class_begin[cuda::kHostClass];
  state.counters["structures"] = plan.plan.grouped ? plan.plan.n_structures : 1;
  state.counters["flops"] = (grown.quality.flops + gram.flops);
  // What must move at the least: A in, M out.
  state.counters["floor_bytes"] = 12 * (nnz + nnz_m);
  state.counters["device_peak_bytes"] =
      static_cast<double>(std::max({growth_peak, plan.peak_bytes, built.peak_bytes}));
}

const Problem kCrossover[] = {
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
    std::shared_ptr<SpaiOnDevice> there;
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
  for (const Problem& problem : FileProblems()) add(problem, kDefault, 5);
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
