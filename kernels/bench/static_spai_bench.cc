// Static SPAI: plan, build, values-only rebuild, by problem, local solver and threads.

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <numbers>
#include <string>

#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels::bench {
namespace {

const Problem kProblems[] = {
    {"P7_60", [] { return ConvectionDiffusion(60, 0); }},
    {"P27_40", [] { return Laplacian27(40); }},
    {"E80_20", [] { return Elasticity(20); }},
    {"convdiff_50", [] { return ConvectionDiffusion(50, 400); }},
    {"aniso_400", [] { return Anisotropic(400, 1e-3, std::numbers::pi / 8); }},
    {"circuit_50k", [] { return Circuit(50000, 12, 700); }},
};

enum class Phase { kPlan, kBuild, kRebuild };

// kBuild is plan and numbers, from nothing; kRebuild is numbers with a plan at hand.
void Run(benchmark::State& state, const Problem& problem, LocalSolver solver, Phase phase,
         int threads) {
  const CscMatrix& a = Get(problem);
  StaticSpaiOptions options;
  options.local_solver = solver;
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  auto plan = Must(PlanStaticSpai(a, nullptr, options, context));
  double residual = 0;
  for (auto _ : state) {
    if (phase != Phase::kRebuild) plan = Must(PlanStaticSpai(a, nullptr, options, context));
    if (phase == Phase::kPlan) continue;
    StaticSpaiResult result = Must(BuildStaticSpai(*plan, a, options, context));
    benchmark::DoNotOptimize(result.m.values.data());
    residual = result.quality.residual_frobenius;
  }
  const StaticSpaiCounts& counts = Counts(*plan);
  // What must move at the least: A in, M out.
  const double bytes = 12.0 * static_cast<double>(counts.nnz_a + counts.nnz_m);
  const double flops = solver == LocalSolver::kQr ? counts.qr_flops : counts.gram_flops;
  state.counters["n"] = static_cast<double>(counts.n);
  state.counters["nnz_a"] = static_cast<double>(counts.nnz_a);
  state.counters["nnz_m"] = static_cast<double>(counts.nnz_m);
  state.counters["n1_max"] = static_cast<double>(counts.n1_max);
  state.counters["n2_max"] = static_cast<double>(counts.n2_max);
  state.counters["floor_bytes"] = bytes;
  if (phase != Phase::kPlan) {
    state.counters["residual_frobenius"] = residual;
    state.counters["counted_flops"] = flops;
    state.counters["flops_rate"] =
        benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
    state.counters["floor_bytes_rate"] =
        benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
  }
}

const bool kRegistered = [] {
  constexpr std::pair<const char*, LocalSolver> kSolvers[] = {
      {"auto", LocalSolver::kAuto}, {"gram", LocalSolver::kGram}, {"qr", LocalSolver::kQr}};
  constexpr std::pair<const char*, Phase> kPhases[] = {
      {"plan", Phase::kPlan}, {"build", Phase::kBuild}, {"rebuild", Phase::kRebuild}};
  for (const Problem& problem : kProblems) {
    for (const auto& [solver_name, solver] : kSolvers) {
      for (const auto& [phase_name, phase] : kPhases) {
        if (phase == Phase::kPlan && solver != LocalSolver::kAuto) continue;
        for (const int threads : {1, 2}) {
          const std::string name = std::string("StaticSpai/") + problem.name + "/" + solver_name +
                                   "/" + phase_name + "/threads:" + std::to_string(threads);
          benchmark::RegisterBenchmark(
              name.c_str(),
              [&problem, solver = solver, phase = phase, threads](benchmark::State& state) {
                Run(state, problem, solver, phase, threads);
              })
              ->Unit(benchmark::kMillisecond)
              ->UseRealTime();
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
