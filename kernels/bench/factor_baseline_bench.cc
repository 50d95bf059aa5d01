// cuSPARSE's IC(0) and ILU(0) with its triangular solves, in CG and BiCGSTAB on the first CUDA
// device, to 1e-7 on the recomputed residual, the right-hand side of a random solution; beside
// them ours without a preconditioner and with Jacobi, by the device's clock. Nothing is registered
// where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <numbers>
#include <random>
#include <string>

#include "kernels/bench/cuda/factors.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels::bench {
namespace {

constexpr double kRtol = 1e-7;
constexpr int64_t kMaxIterations = 3000;
constexpr size_t kRuns = 3;  // after one that warms up

struct Problem {
  const char* name;
  CscMatrix (*make)();
  bool spd;
};

constexpr Problem kProblems[] = {
    {"P7_16", [] { return ConvectionDiffusion(16, 0); }, true},
    {"convdiff_12", [] { return ConvectionDiffusion(12, 100); }, false},
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }, true},
    {"P27_100", [] { return Laplacian27(100); }, true},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }, true},
    {"E80_40", [] { return Elasticity(40); }, true},
    {"E80_60", [] { return Elasticity(60); }, true},
    {"convdiff_100", [] { return ConvectionDiffusion(100, 400); }, false},
    {"circuit_300k", [] { return Circuit(300000, 12, 700); }, false},
};

struct System {
  CscMatrix a, rows;
  Array<double> inverse_diagonal, b;
};

// That of the benchmark before is kept: those of one problem follow one another.
const System& Get(const Problem& problem) {
  static const Problem* made = nullptr;
  static System system;
  if (made == &problem) return system;
  made = &problem;
  system = {};
  system.a = problem.make();
  system.rows = Transpose(system.a);
  const CscMatrix& a = system.a;
  const auto n = static_cast<size_t>(a.n_cols);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Array<double> x(n);
  for (double& v : x) v = uniform(random);
  system.b.assign(n, 0.0);
  ColumnOperator(a).Apply(x, system.b, 1);
  system.inverse_diagonal.assign(n, 0.0);
  for (int64_t k = 0; k < a.n_cols; ++k) {
    for (int64_t p = a.col_ptr[k]; p < a.col_ptr[k + 1]; ++p) {
      if (a.row_idx[p] == k) system.inverse_diagonal[k] = 1 / a.values[p];
    }
  }
  return system;
}

// Set-up and solve of the run of the median total.
void Report(benchmark::State& state, std::array<FactorRun, kRuns> runs) {
  const auto total = [](const FactorRun& run) {
    return run.analysis_ms + run.factor_ms + run.solve_ms;
  };
  std::sort(runs.begin(), runs.end(),
            [&](const FactorRun& a, const FactorRun& b) { return total(a) < total(b); });
  const FactorRun& run = runs[kRuns / 2];
  state.SetIterationTime(total(run) * 1e-3);
  state.counters["analysis_ms"] = run.analysis_ms;
  state.counters["factor_ms"] = run.factor_ms;
  state.counters["solve_ms"] = run.solve_ms;
  state.counters["iterations"] = static_cast<double>(run.iterations);
  state.counters["us_per_iteration"] =
      1e3 * run.solve_ms / static_cast<double>(std::max<int64_t>(run.iterations, 1));
  state.counters["relative_residual"] = run.relative_residual;
  state.counters["converged"] = run.relative_residual <= kRtol ? 1 : 0;
  state.counters["bad_pivot"] = static_cast<double>(run.bad_pivot);
  state.counters["factor_error"] = run.factor_error;
}

void RunFactors(benchmark::State& state, const Problem& problem, FactorOptions options) {
  const System& system = Get(problem);
  options.rtol = kRtol;
  options.max_iterations = kMaxIterations;
  for (auto _ : state) {
    std::array<FactorRun, kRuns> runs;
    const std::string why = SolveByFactors(system.a, system.rows, system.b.data(), options,
                                           runs.data(), static_cast<int>(kRuns));
    if (!why.empty()) {
      state.SkipWithError(why.c_str());
      return;
    }
    Report(state, runs);
  }
}

void RunOurs(benchmark::State& state, const Problem& problem, Method method, bool jacobi) {
  const System& system = Get(problem);
  const auto must = [](auto result) {
    OrDie(result.ok(), result.status().message().c_str());
    return *std::move(result);
  };
  const auto a = must(CudaOperator::OfMatrix(Device(), system.a, false, Context()));
  const auto m = must(CudaOperator::OfDiagonal(Device(), system.inverse_diagonal, a.get()));
  const SolveOptions options{
      .method = method, .rtol = kRtol, .max_iterations = kMaxIterations, .keep_history = false};
  for (auto _ : state) {
    std::array<FactorRun, kRuns> runs;
    for (size_t i = 0; i <= kRuns; ++i) {
      SolveCudaTimings timings;
      const SolveResult result = must(SolveCuda(*a, jacobi ? m.get() : nullptr, system.a, system.b,
                                                {}, options, Context(), &timings));
      FactorRun& run = runs[i == 0 ? 0 : i - 1];
      run = {};
      run.solve_ms = timings.iterate_ms;
      run.iterations = result.rhs[0].iterations;
      run.relative_residual = result.rhs[0].true_relative_residual;
    }
    Report(state, runs);
  }
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  benchmark::AddCustomContext("cusparse", CusparseVersion());
  const auto add = [](const Problem& problem, const std::string& name, auto run) {
    benchmark::RegisterBenchmark(
        ("FactorBaseline/" + std::string(problem.name) + "/" + name).c_str(), run)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(1);
  };
  for (const Problem& problem : kProblems) {
    for (const bool cg : {true, false}) {
      if (cg && !problem.spd) continue;
      const std::string method = cg ? "cg/" : "bicgstab/";
      for (const bool jacobi : {false, true}) {
        add(problem, method + (jacobi ? "jacobi" : "none"), [=, &problem](benchmark::State& state) {
          RunOurs(state, problem, cg ? Method::kCg : Method::kBicgstab, jacobi);
        });
      }
      const auto add_factors = [&](const char* name, FactorOptions options) {
        options.cg = cg;
        add(problem, method + name,
            [options, &problem](benchmark::State& state) { RunFactors(state, problem, options); });
      };
      // What the loop itself takes: the same as ours with Jacobi.
      add_factors("jacobi_by_host", {.kind = FactorKind::kDiagonal});
      const FactorKind kind = cg ? FactorKind::kIc0 : FactorKind::kIlu0;
      const std::string factors = cg ? "ic0" : "ilu0";
      add_factors((factors + "_as_sample").c_str(), {.kind = kind});
      add_factors((factors + "_apart").c_str(), {.kind = kind, .apart = true});
      add_factors((factors + "_apart_levels").c_str(),
                  {.kind = kind, .apart = true, .levels = true});
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
