// Dynamic SPAI on the CPU: growth, and numbers on what has grown, by problem, options and threads
// ("general": every column grown, none copied); beside it static SPAI on the pattern of A, and
// where that is "equal", dynamic SPAI grown to as many entries. BiCGSTAB iterations of each.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels::bench {
namespace {

const Problem kProblems[] = {
    {"P7_60", [] { return ConvectionDiffusion(60, 0); }},
    {"P7v_60", [] { return WithVaryingCoefficients(ConvectionDiffusion(60, 0)); }},
    {"P27_40", [] { return Laplacian27(40); }},
    {"E80_20", [] { return Elasticity(20); }},
    {"convdiff_50", [] { return ConvectionDiffusion(50, 400); }},
    {"aniso_400", [] { return Anisotropic(400, 1e-3, std::numbers::pi / 8); }},
    {"circuit_50k", [] { return Circuit(50000, 12, 700); }},
};

// BiCGSTAB with M, b = A·1, to 1e-7; not timed. At most 5000: then it is that, and one.
int64_t Iterations(const CscMatrix& a, const CscMatrix& m, const Context& context) {
  const CsrOperator op = CsrOperator::FromColumns(a);
  const CsrOperator by_rows = Must(CsrOperator::FromColumns(m, context));
  const Array<double> ones(static_cast<size_t>(a.n_cols), 1.0);
  Array<double> b(ones.size());
  op.Apply(ones, b, context.threads);
  SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-7, .keep_history = false};
  options.max_iterations = 5000;
  const SolveResult solved = Must(Solve(op, &by_rows, b, {}, options, context));
  return solved.rhs[0].outcome == Outcome::kConverged ? solved.rhs[0].iterations : 5001;
}

void Count(benchmark::State& state, const CscMatrix& a, const StaticSpaiResult& result,
           const Context& context) {
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz_a"] = static_cast<double>(a.nnz());
  state.counters["density"] = result.quality.density;
  state.counters["residual_frobenius"] = result.quality.residual_frobenius;
  state.counters["iterations_bicgstab"] = static_cast<double>(Iterations(a, result.m, context));
}

void RunDynamic(benchmark::State& state, const Problem& problem, const DynamicSpaiOptions& options,
                int threads) {
  const CscMatrix& a = Get(problem);
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  const StaticSpaiOptions numbers = NumbersOf(options);
  DynamicSpaiPattern grown;
  StaticSpaiResult result;
  double growth_ns = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    grown = Must(GrowDynamicSpai(a, nullptr, options, context));
    growth_ns +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    const PatternView of_m = grown.m;
    const auto plan = Must(PlanStaticSpai(a, &of_m, numbers, context));
    result = Must(BuildStaticSpai(*plan, a, numbers, context));
    benchmark::DoNotOptimize(result.m.values.data());
  }
  const DynamicSpaiQuality& quality = grown.quality;
  Count(state, a, result, context);
  state.counters["growth_ms"] = 1e-6 * growth_ns / static_cast<double>(state.iterations());
  state.counters["gram_nnz"] = static_cast<double>(quality.gram_nnz);
  state.counters["converged"] =
      static_cast<double>(quality.converged_columns) / static_cast<double>(a.n_cols);
  state.counters["copied_columns"] = static_cast<double>(quality.copied_columns);
  state.counters["counted_flops"] = quality.flops;
  state.counters["predicted_ms"] =
      BuildMs(TraitsOf(EngineKind::kDynamicSpai).rates,
              Must(EstimateDynamicSpai(a, nullptr, options, context)).work, 1);
}

void RunStatic(benchmark::State& state, const Problem& problem, int threads) {
  const CscMatrix& a = Get(problem);
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  StaticSpaiResult result;
  for (auto _ : state) {
    const auto plan = Must(PlanStaticSpai(a, nullptr, {}, context));
    result = Must(BuildStaticSpai(*plan, a, {}, context));
    benchmark::DoNotOptimize(result.m.values.data());
  }
  Count(state, a, result, context);
}

// As many entries as the columns of A have on the average, by steps of one.
DynamicSpaiOptions AsManyAs(const CscMatrix& a) {
  DynamicSpaiOptions options;
  options.tol = 0;
  options.per_step = 1;
  options.max_steps =
      static_cast<int>(std::lround(static_cast<double>(a.nnz()) / static_cast<double>(a.n_cols))) -
      1;
  return options;
}

const bool kRegistered = [] {
  struct Case {
    const char* name;
    double tol;
    int max_steps, per_step;
    bool fp32, copy_repeats;
  };
  static const Case kCases[] = {
      {"default", 0.3, 10, 5, false, true},     {"default/general", 0.3, 10, 5, false, false},
      {"tol:0.4", 0.4, 10, 5, false, true},     {"tol:0.2", 0.2, 10, 5, false, true},
      {"10x2", 0.3, 10, 2, false, true},        {"30x1", 0, 30, 1, false, true},
      {"30x1/general", 0, 30, 1, false, false}, {"30x1/fp32/general", 0, 30, 1, true, false}};
  const auto add = [](const std::string& name, int threads, auto run) {
    benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(), run)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  };
  for (const Problem& problem : kProblems) {
    for (const int threads : {1, 2}) {
      const std::string prefix = std::string("DynamicSpai/") + problem.name + "/";
      add(prefix + "static", threads,
          [&problem, threads](benchmark::State& state) { RunStatic(state, problem, threads); });
      add(prefix + "equal", threads, [&problem, threads](benchmark::State& state) {
        RunDynamic(state, problem, AsManyAs(Get(problem)), threads);
      });
      for (const Case& c : kCases) {
        DynamicSpaiOptions options;
        options.tol = c.tol;
        options.max_steps = c.max_steps;
        options.per_step = c.per_step;
        options.growth_precision = c.fp32 ? Precision::kFp32 : Precision::kFp64;
        if (!c.copy_repeats) options.repeat_hash_bits = 0;
        add(prefix + c.name, threads, [&problem, options, threads](benchmark::State& state) {
          RunDynamic(state, problem, options, threads);
        });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
