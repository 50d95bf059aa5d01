// FSAI on the CPU: builds, adaptive and static, by problem, precision and threads ("general": every
// row grown, none copied); quality and CG iterations beside them.

#include <benchmark/benchmark.h>

#include <numbers>
#include <string>

#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"

namespace spaid::kernels::bench {
namespace {

const Problem kProblems[] = {
    {"P7_60", [] { return ConvectionDiffusion(60, 0); }},
    {"P7v_60", [] { return WithVaryingCoefficients(ConvectionDiffusion(60, 0)); }},
    {"P27_40", [] { return Laplacian27(40); }},
    {"E80_20", [] { return Elasticity(20); }},
    {"aniso_400", [] { return Anisotropic(400, 1e-3, std::numbers::pi / 8); }},
};

struct Case {
  const char* name;
  FsaiOptions options;
};

FsaiOptions Grown(int k_max, int s, Precision precision, bool copy_repeats = true) {
  FsaiOptions options;
  options.k_max = k_max;
  options.s = s;
  options.precision = precision;
  if (!copy_repeats) options.repeat_hash_bits = 0;
  return options;
}

FsaiOptions Prescribed(int power) {
  FsaiOptions options;
  options.adaptive = false;
  options.power = power;
  return options;
}

// CG with M = GᵀG, b = A·1, to 1e-7; not timed.
int64_t Iterations(const CscMatrix& a, const FsaiResult& g, const Context& context) {
  const CsrOperator op = CsrOperator::FromColumns(a);
  const FactoredOperator m = Must(FactoredOperator::FromRows(g.g_rows, context));
  const Array<double> ones(static_cast<size_t>(a.n_cols), 1.0);
  Array<double> b(ones.size());
  op.Apply(ones, b, context.threads);
  const SolveOptions cg{.method = Method::kCg, .rtol = 1e-7, .keep_history = false};
  return Must(Solve(op, &m, b, {}, cg, context)).rhs[0].iterations;
}

void Run(benchmark::State& state, const Problem& problem, const FsaiOptions& options, int threads) {
  const CscMatrix& a = Get(problem);
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  FsaiResult g;
  for (auto _ : state) {
    g = Must(BuildFsai(a, nullptr, options, context));
    benchmark::DoNotOptimize(g.g_rows.values.data());
  }
  const FsaiQuality& quality = g.quality;
  const FsaiCounts counts = Must(EstimateFsai(a.pattern(), nullptr, options, context));
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz_a"] = static_cast<double>(a.nnz());
  state.counters["nnz_g"] = static_cast<double>(g.g_rows.nnz());
  state.counters["density"] = quality.density;
  state.counters["kaporin"] = quality.kaporin;
  state.counters["copied_rows"] = static_cast<double>(quality.copied_rows);
  state.counters["cg_iterations"] = static_cast<double>(Iterations(a, g, context));
  state.counters["floor_bytes"] = 12.0 * static_cast<double>(a.nnz() + g.g_rows.nnz());
  state.counters["counted_flops"] = quality.flops;
  state.counters["flops_rate"] =
      benchmark::Counter(quality.flops, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["predicted_ms"] = BuildMs(
      TraitsOf(options.adaptive ? EngineKind::kAfsai : EngineKind::kFsai).rates, counts.work, 1);
}

const bool kRegistered = [] {
  static const Case kCases[] = {{"30x1", Grown(30, 1, Precision::kFp64)},
                                {"30x1/fp32", Grown(30, 1, Precision::kFp32)},
                                {"3x5", Grown(3, 5, Precision::kFp64)},
                                {"30x1/general", Grown(30, 1, Precision::kFp64, false)},
                                {"30x1/fp32/general", Grown(30, 1, Precision::kFp32, false)},
                                {"3x5/general", Grown(3, 5, Precision::kFp64, false)},
                                {"static/p:1", Prescribed(1)},
                                {"static/p:2", Prescribed(2)}};
  for (const Problem& problem : kProblems) {
    for (const Case& fsai : kCases) {
      for (const int threads : {1, 2}) {
        const std::string name = std::string("Fsai/") + problem.name + "/" + fsai.name +
                                 "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&problem, &fsai, threads](benchmark::State& state) {
                                       Run(state, problem, fsai.options, threads);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
