// Static SPAI on the first CUDA device, matrix and M resident there: plan, build (plan and
// numbers), rebuild, by the device's clock; and the whole from host to host. Nothing is registered
// where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <numbers>
#include <string>

#include "kernels/bench/cuda/baseline.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::kernels::bench {
namespace {

const Problem kProblems[] = {
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }},
    {"P27_100", [] { return Laplacian27(100); }},
    {"E80_60", [] { return Elasticity(60); }},
    {"E80_40", [] { return Elasticity(40); }},
    {"convdiff_100", [] { return ConvectionDiffusion(100, 400); }},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }},
    {"P7_128_scattered", [] { return Scattered(ConvectionDiffusion(128, 0), 1); }},
    {"E80_40_scattered", [] { return Scattered(Elasticity(40), 3); }},
    {"P7_160_voxels", [] { return Voxels(160); }},
    {"circuit_300k", [] { return Circuit(300000, 12, 700); }},
};

// From where on the device is ahead of the CPU, transfers included (kernels/engine/cost.h).
const Problem kCrossover[] = {
    {"P7_16", [] { return ConvectionDiffusion(16, 0); }},
    {"P7_32", [] { return ConvectionDiffusion(32, 0); }},
    {"P7_64", [] { return ConvectionDiffusion(64, 0); }},
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }},
    {"E80_6", [] { return Elasticity(6); }},
    {"E80_12", [] { return Elasticity(12); }},
    {"E80_24", [] { return Elasticity(24); }},
    {"circuit_5k", [] { return Circuit(5000, 4, 60); }},
    {"circuit_50k", [] { return Circuit(50000, 12, 700); }},
};

// Patterns of powers, against the CPU's.
const Problem kPatterns[] = {
    {"P7_64", [] { return ConvectionDiffusion(64, 0); }},
    {"P27_50", [] { return Laplacian27(50); }},
    {"E80_20", [] { return Elasticity(20); }},
    {"circuit_50k", [] { return Circuit(50000, 12, 700); }},
};

enum class Phase { kPlan, kBuild, kRebuild };

// From A on the host to M there, by the host's clock: transfers, and what is left to the host.
void RunWhole(benchmark::State& state, const Problem& problem) {
  const CscMatrix a = problem.make();
  StaticSpaiCudaTimings timings, sums;
  const auto whole = [&] {
    timings = {};
    const auto plan = Must(PlanStaticSpaiCuda({&Device(), 1}, a, nullptr, {}, {}, &timings));
    const auto m = Must(BuildStaticSpaiCuda(*plan, a, {}, {}, &timings));
    sums.host_to_device_ms += timings.host_to_device_ms;
    sums.device_plan_ms += timings.device_plan_ms;
    sums.device_build_ms += timings.device_build_ms;
    sums.device_to_host_ms += timings.device_to_host_ms;
    sums.host_solve_ms += timings.host_solve_ms;
  };
  whole();
  sums = {};
  for (auto _ : state) whole();
  const auto mean = [&](double sum) {
    return benchmark::Counter(sum, benchmark::Counter::kAvgIterations);
  };
  state.counters["host_to_device_ms"] = mean(sums.host_to_device_ms);
  state.counters["device_plan_ms"] = mean(sums.device_plan_ms);
  state.counters["device_build_ms"] = mean(sums.device_build_ms);
  state.counters["device_to_host_ms"] = mean(sums.device_to_host_ms);
  state.counters["host_solve_ms"] = mean(sums.host_solve_ms);
  state.counters["host_columns"] = static_cast<double>(timings.host_columns);
}

// The same on all cores.
void RunHost(benchmark::State& state, const Problem& problem) {
  const CscMatrix a = problem.make();
  for (auto _ : state) {
    const auto plan = Must(PlanStaticSpai(a, nullptr, {}, {}));
    const auto m = Must(BuildStaticSpai(*plan, a, {}, {}));
  }
  const auto counts = Must(EstimateStaticSpai(a.pattern(), nullptr, {}, {}));
  state.counters["predicted_one_thread_ms"] =
      BuildMs(TraitsOf(EngineKind::kStaticSpai).rates, counts.work, 1);
}

void Run(benchmark::State& state, const Problem& problem, LocalSolver solver, Phase phase) {
  const CscMatrix a = problem.make();
  cuda::Context& context = There(*Device());
  const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
  StaticSpaiOptions options;
  options.local_solver = solver;
  PlanThere plan;
  int64_t peak = 0, build_peak = 0;
  const auto make_plan = [&] {
    plan = {};
    plan = PlanSpaiThere(context, matrix, options, {0, a.n_cols});
    return plan.ms;
  };
  const auto build = [&] {
    const BuildThere built = BuildSpaiThere(context, plan.plan, matrix, options);
    build_peak = built.peak_bytes;
    return built.ms;
  };
  for (int warm = 0; warm < 2; ++warm) {
    make_plan();
    build();
  }
  for (auto _ : state) {
    double ms = 0;
    if (phase != Phase::kRebuild) ms += make_plan();
    if (phase != Phase::kPlan) ms += build();
    state.SetIterationTime(ms * 1e-3);
    peak = std::max({peak, plan.peak_bytes, build_peak});
  }
  // What must move at the least: A in, M out.
  const double bytes = 12.0 * static_cast<double>(a.nnz() + plan.plan.m.nnz);
  const cuda::StaticSpaiPlan& own = plan.plan;
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = static_cast<double>(a.nnz());
  state.counters["groups"] = static_cast<double>(own.grouped ? own.n_groups : own.dia.nodes);
  state.counters["structures"] = own.grouped ? own.n_structures : 1;
  state.counters["host_groups"] =
      own.class_begin[cuda::kOtherClass] - own.class_begin[cuda::kHostClass];
  state.counters["device_peak_bytes"] = static_cast<double>(peak);
  state.counters["floor_bytes"] = bytes;
}

// Plan and build in `percent` of the memory that they take where there is plenty: where the plan's
// tables have no room, the build makes them in waves.
void RunWaves(benchmark::State& state, const Problem& problem, int percent) {
  const CscMatrix a = problem.make();
  StaticSpaiCudaTimings timings;
  const auto build = [&](const std::shared_ptr<CudaDevice>& device) {
    timings = {};
    const auto plan = Must(PlanStaticSpaiCuda({&device, 1}, a, nullptr, {}, {}, &timings));
    const auto m = Must(BuildStaticSpaiCuda(*plan, a, {}, {}, &timings));
  };
  build(Device());
  const auto opened =
      Must(cuda::OpenDevice(ListCudaDevices().devices[0], timings.device_bytes * percent / 100));
  build(opened);
  double plan_ms = 0;
  for (auto _ : state) {
    build(opened);
    plan_ms += timings.device_plan_ms;
    state.SetIterationTime((timings.device_plan_ms + timings.device_build_ms) * 1e-3);
  }
  state.counters["plan_ms"] = benchmark::Counter(plan_ms, benchmark::Counter::kAvgIterations);
  state.counters["in_waves"] = timings.tables_in_waves ? 1 : 0;
  state.counters["device_peak_bytes"] = static_cast<double>(timings.device_bytes);
}

// (E + |A|)^power, A and the result resident on the device, by its clock.
void RunPattern(benchmark::State& state, const Problem& problem, int power) {
  const CscMatrix a = problem.make();
  cuda::Context& context = There(*Device());
  const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
  StaticSpaiOptions options;
  options.pattern.power = power;
  PlanThere plan;
  const auto make_plan = [&] {
    plan = {};
    plan = PlanSpaiThere(context, matrix, options, {0, a.n_cols});
  };
  make_plan();
  double plan_ms = 0;
  for (auto _ : state) {
    make_plan();
    plan_ms += plan.ms;
    state.SetIterationTime(plan.pattern_ms * 1e-3);
  }
  state.counters["plan_ms"] = benchmark::Counter(plan_ms, benchmark::Counter::kAvgIterations);
  state.counters["nnz_m"] = static_cast<double>(plan.plan.m.nnz);
}

// The same on all cores.
void RunHostPattern(benchmark::State& state, const Problem& problem, int power) {
  const CscMatrix a = problem.make();
  PatternOptions options;
  options.power = power;
  for (auto _ : state) {
    const auto pattern = Must(BuildPattern(a, nullptr, options, {}));
    benchmark::DoNotOptimize(pattern.row_idx.data());
  }
}

// The paper's kernels, plainly; their M against ours.
void RunYardstick(benchmark::State& state, const Problem& problem) {
  const CscMatrix a = problem.make();
  Array<double> m(a.row_idx.size());
  BaselineTimes times;
  for (auto _ : state) {
    times = {};
    const std::string failed = RunBaseline(a.n_cols, a.col_ptr.data(), a.row_idx.data(),
                                           a.values.data(), int64_t{8} << 30, m.data(), &times);
    OrDie(failed.empty(), failed.c_str());
    state.SetIterationTime(times.total_ms() * 1e-3);
  }
  const auto plan = Must(PlanStaticSpaiCuda({&Device(), 1}, a, nullptr, {}, {}));
  const auto ours = Must(BuildStaticSpaiCuda(*plan, a, {}, {}));
  double largest = 0, difference = 0;
  for (size_t p = 0; p < m.size(); ++p) {
    largest = std::max(largest, std::abs(m[p]));
    difference = std::max(difference, std::abs(m[p] - ours.m.values[p]));
  }
  state.counters["find_ms"] = times.find_ms;
  state.counters["build_ms"] = times.build_ms;
  state.counters["qr_ms"] = times.qr_ms;
  state.counters["solve_ms"] = times.solve_ms;
  state.counters["difference"] = difference / largest;
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  constexpr std::pair<const char*, Phase> kPhases[] = {
      {"plan", Phase::kPlan}, {"build", Phase::kBuild}, {"rebuild", Phase::kRebuild}};
  const auto add = [&](const Problem& problem) {
    for (const auto& [phase_name, phase] : kPhases) {
      const std::string name = "StaticSpaiCuda/" + problem.name + "/gram/" + phase_name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&problem, phase = phase](benchmark::State& state) {
                                     Run(state, problem, LocalSolver::kGram, phase);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(9);
    }
    benchmark::RegisterBenchmark(
        (std::string("StaticSpaiCuda/") + problem.name + "/qr/rebuild").c_str(),
        [&problem](benchmark::State& state) {
          Run(state, problem, LocalSolver::kQr, Phase::kRebuild);
        })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(5);
    benchmark::RegisterBenchmark(
        (std::string("StaticSpaiCuda/") + problem.name + "/gram/whole").c_str(),
        [&problem](benchmark::State& state) { RunWhole(state, problem); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime()
        ->Iterations(5);
  };
  for (const Problem& problem : kProblems) add(problem);
  for (const Problem& problem : FileProblems()) add(problem);
  for (const Problem& problem : kProblems) {
    benchmark::RegisterBenchmark(
        (std::string("StaticSpaiBaseline/") + problem.name).c_str(),
        [&problem](benchmark::State& state) { RunYardstick(state, problem); })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(1);
  }
  for (const Problem& problem : kCrossover) {
    const std::string name = std::string("StaticSpaiCrossover/") + problem.name;
    benchmark::RegisterBenchmark((name + "/cuda").c_str(),
                                 [&problem](benchmark::State& state) { RunWhole(state, problem); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark((name + "/cpu").c_str(),
                                 [&problem](benchmark::State& state) { RunHost(state, problem); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  for (const int percent : {100, 60}) {
    benchmark::RegisterBenchmark(
        ("StaticSpaiWaves/circuit_300k/percent:" + std::to_string(percent)).c_str(),
        [percent](benchmark::State& state) {
          RunWaves(state, kProblems[std::size(kProblems) - 1], percent);
        })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(5);
  }
  for (const Problem& problem : kPatterns) {
    for (const int power : {2, 3}) {
      const std::string name =
          std::string("StaticSpaiPattern/") + problem.name + "/power:" + std::to_string(power);
      benchmark::RegisterBenchmark(
          (name + "/cuda").c_str(),
          [&problem, power](benchmark::State& state) { RunPattern(state, problem, power); })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(9);
      benchmark::RegisterBenchmark(
          (name + "/cpu").c_str(),
          [&problem, power](benchmark::State& state) { RunHostPattern(state, problem, power); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->Iterations(9);
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
