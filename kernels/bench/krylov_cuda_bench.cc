// CG, BiCGSTAB and GMRES(50) on the first CUDA device to 1e-7, the right-hand side of a random
// solution, by the device's clock: what an iteration takes; and several of them in blocks. Nothing
// is registered where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <numbers>
#include <random>
#include <string>

#include "kernels/base/clock.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/engine/jacobi.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::kernels::bench {
namespace {

struct Solved : Problem {
  bool spd;
  bool by_gmres = false;
};

const Solved kProblems[] = {
    {"P7_37", [] { return ConvectionDiffusion(37, 0); }, true},
    {"P7_50", [] { return ConvectionDiffusion(50, 0); }, true},
    {"E80_20", [] { return Elasticity(20); }, true},
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }, true, true},
    {"P27_100", [] { return Laplacian27(100); }, true},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }, true},
    {"E80_40", [] { return Elasticity(40); }, true},
    {"E80_60", [] { return Elasticity(60); }, true},
    {"P7_128_scattered", [] { return Scattered(ConvectionDiffusion(128, 0), 1); }, true},
    {"convdiff_100", [] { return ConvectionDiffusion(100, 400); }, false, true},
    {"circuit_300k", [] { return Circuit(300000, 12, 700); }, false, true},
};

// FSAI: on the lower triangle of A's pattern. Adaptive: set up in fp32, too; 30 steps of one entry,
// of which those end a row that lower its ψ by less than so much of it.
enum class Kind {
  kNone,
  kJacobi,
  kBlockJacobi3,
  kStaticSpai,
  kStaticSpai32,
  kFsai,
  kFsai32,
  kAfsai32,
  kAfsai32Gain1e3,
  kAfsai32Gain1e2
};
bool IsAdaptive(Kind kind) { return kind >= Kind::kAfsai32; }
bool IsFsai(Kind kind) { return kind >= Kind::kFsai; }

// What making M took: by the device's clock, A and M there, and by the host's until products can
// be formed with it.
struct MadeIn {
  double build_ms = 0, layout_ms = 0;
  double general_ms = 0;  // adaptive: where no row is copied
  double density = 0;     // nnz(G) / nnz(A)
};

// A x on the host, by columns.
Array<double> Product(const CscMatrix& a, const Array<double>& x) {
  Array<double> y;
  y.assign(x.size(), 0.0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      y[a.row_idx[p]] += a.values[p] * x[j];
    }
  }
  return y;
}

std::shared_ptr<const CudaOperator> MakeFsai(const CscMatrix& a, const CudaOperator& a_there,
                                             Kind kind, MadeIn* in) {
  FsaiOptions options;
  options.adaptive = IsAdaptive(kind);
  if (kind == Kind::kAfsai32Gain1e3) options.min_gain = 1e-3;
  if (kind == Kind::kAfsai32Gain1e2) options.min_gain = 1e-2;
  if (kind != Kind::kFsai) options.precision = Precision::kFp32;
  FsaiCudaOutputs outputs;
  const auto build = [&](double* ms) {
    FsaiCudaTimings timings;
    outputs = {};
    Pattern rows;
    if (!options.adaptive) rows = Must(FsaiPattern(a, nullptr, options, Context()));
    const PatternView pattern = rows;
    const auto plan =
        Must(PlanFsaiCuda({&Device(), 1}, a, options.adaptive ? nullptr : &pattern, {}));
    const FsaiResult g =
        Must(options.adaptive
                 ? GrowFsaiCuda(*plan, nullptr, a, options, Context(), &timings, &outputs)
                 : BuildFsaiOnCuda(*plan, pattern, a, options, Context(), &timings, &outputs));
    *ms = timings.device_ms;
    in->density = g.quality.density;
  };
  const int hash_bits = options.repeat_hash_bits;
  options.repeat_hash_bits = 0;
  if (options.adaptive) build(&in->general_ms);
  options.repeat_hash_bits = hash_bits;
  build(&in->build_ms);
  const auto begin = Clock::now();
  auto made = Must(CudaOperator::OfBuilt(*outputs.g, kind != Kind::kFsai, &a_there));
  in->layout_ms = MsSince(begin);
  return made;
}

std::shared_ptr<const CudaOperator> MakeM(const CscMatrix& a, const CudaOperator& a_there,
                                          Kind kind, MadeIn* in) {
  *in = {};
  if (kind == Kind::kNone) return nullptr;
  if (kind == Kind::kJacobi) {
    const auto built = Must(BuildJacobi(a, Context()));
    return Must(CudaOperator::OfDiagonal(Device(), built.m.values, &a_there));
  }
  if (kind == Kind::kBlockJacobi3) {
    const auto built = Must(BuildBlockJacobi(a, 3, Context()));
    return Must(CudaOperator::OfMatrix(Device(), built.m, false, Context(), &a_there));
  }
  if (IsFsai(kind)) return MakeFsai(a, a_there, kind, in);
  const auto plan = Must(PlanStaticSpaiCuda({&Device(), 1}, a, nullptr, {}, {}));
  std::shared_ptr<const BuiltOnDevice> m;
  Must(BuildStaticSpaiCuda(*plan, a, {}, {}, nullptr, &m));
  const auto begin = Clock::now();
  auto made = Must(CudaOperator::OfBuilt(*m, kind == Kind::kStaticSpai32, &a_there));
  in->layout_ms = MsSince(begin);
  return made;
}

// A problem and its M on the device, kept for the benchmarks that follow of the same.
struct Placed {
  const Solved* problem = nullptr;
  Kind kind = Kind::kNone;
  CscMatrix a;
  bool symmetric = false;  // but for rounding
  double place_ms = 0;     // of A there, from the host
  std::shared_ptr<const CudaOperator> a_there, m_there;
  double setup_ms = 0;  // of M there, from A on the host
  MadeIn in;
};

// With the M that was there for the problem before; none where it comes anew.
Placed& PlaceMatrix(const Solved& problem) {
  static Placed placed;
  if (placed.problem == &problem) return placed;
  placed = {};  // makes room first
  placed.a = problem.make();
  placed.symmetric = Diagnose(placed.a, 0).numerically_symmetric;
  const auto place = [&] {
    return Must(CudaOperator::OfMatrix(Device(), placed.a, false, Context()));
  };
  place();  // the second time finds memory warm
  const auto begin = Clock::now();
  placed.a_there = place();
  placed.place_ms = MsSince(begin);
  placed.problem = &problem;
  return placed;
}

const Placed& Place(const Solved& problem, Kind kind) {
  Placed& placed = PlaceMatrix(problem);
  if (placed.kind == kind) return placed;
  placed.kind = kind;
  placed.m_there = MakeM(placed.a, *placed.a_there, kind, &placed.in);
  placed.m_there = nullptr;  // the second time finds memory warm
  const auto begin = Clock::now();
  placed.m_there = MakeM(placed.a, *placed.a_there, kind, &placed.in);
  placed.setup_ms = MsSince(begin);
  return placed;
}

struct Measured {
  SolveResult last;
  double ms = 0, host_ms = 0;  // of a solve: by the device's clock; from the host and back
  double bytes = 0;            // that its iterations must move
};

// Solves with right-hand sides of random solutions, all in one.
Measured Measure(benchmark::State& state, const Placed& placed, Method method, int n_rhs) {
  const CscMatrix& a = placed.a;
  const auto n = static_cast<size_t>(a.n_cols);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Array<double> b(n * static_cast<size_t>(n_rhs)), x(n);
  for (int k = 0; k < n_rhs; ++k) {
    for (double& v : x) v = uniform(random);
    const Array<double> one = Product(a, x);
    std::copy(one.begin(), one.end(), b.begin() + static_cast<int64_t>(k * n));
  }
  const SolveOptions options{
      .method = method, .rtol = 1e-7, .max_iterations = 3000, .keep_history = false};
  Measured measured;
  SolveCudaTimings timings;
  const auto solve = [&] {
    timings = {};
    measured.last = Must(
        SolveCuda(*placed.a_there, placed.m_there.get(), a, b, {}, options, Context(), &timings));
  };
  solve();
  for (auto _ : state) {
    solve();
    measured.ms += timings.iterate_ms;
    measured.host_ms += measured.last.solve_ms;
    state.SetIterationTime(timings.iterate_ms * 1e-3);
  }
  measured.ms /= static_cast<double>(state.iterations());
  measured.host_ms /= static_cast<double>(state.iterations());
  measured.bytes = timings.bytes;
  state.counters["n"] = static_cast<double>(n);
  state.counters["nnz"] = static_cast<double>(a.nnz());
  return measured;
}

void Run(benchmark::State& state, const Solved& problem, Method method, Kind kind) {
  if (method == Method::kCg && !PlaceMatrix(problem).symmetric) {
    return state.SkipWithError("A is not symmetric");
  }
  const Placed& placed = Place(problem, kind);
  const Measured measured = Measure(state, placed, method, 1);
  const RhsResult& rhs = measured.last.rhs[0];
  state.counters["iterations"] = static_cast<double>(rhs.iterations);
  const auto iterations = static_cast<double>(std::max<int64_t>(rhs.iterations, 1));
  state.counters["us_per_iteration"] = 1e3 * measured.ms / iterations;
  state.counters["floor_us"] = 1e6 * measured.bytes / iterations / Device()->CopyBytesPerSecond();
  state.counters["layout_ms"] = placed.in.layout_ms;
  if (IsFsai(kind)) {
    state.counters["build_ms"] = placed.in.build_ms;
    state.counters["density"] = placed.in.density;
  }
  if (IsAdaptive(kind)) state.counters["build_general_ms"] = placed.in.general_ms;
  state.counters["host_to_host_ms"] = measured.host_ms;
  state.counters["place_ms"] = placed.place_ms;
  state.counters["in_order"] = placed.a_there->order() != nullptr ? 1 : 0;
  state.counters["setup_host_ms"] = placed.setup_ms;
  state.counters["converged"] = rhs.outcome == Outcome::kConverged ? 1 : 0;
}

void RunBlock(benchmark::State& state, const Solved& problem, Method method, Kind kind, int n_rhs) {
  const Measured measured = Measure(state, Place(problem, kind), method, n_rhs);
  double iterations = 0, converged = 0, longest = 0;
  for (const RhsResult& rhs : measured.last.rhs) {
    iterations += static_cast<double>(rhs.iterations);
    longest = std::max(longest, static_cast<double>(rhs.iterations));
    converged += rhs.outcome == Outcome::kConverged ? 1 : 0;
  }
  state.counters["ms_per_rhs"] = measured.ms / n_rhs;
  state.counters["host_to_host_ms_per_rhs"] = measured.host_ms / n_rhs;
  state.counters["iterations_mean"] = iterations / n_rhs;
  state.counters["iterations_most"] = longest;
  state.counters["converged"] = converged;
}

// Jacobi-BiCGSTAB from A on the host to x there, A's way to the device included, and the same on
// all cores: from where on the device is ahead (kernels/engine/cost.h).
void RunCrossover(benchmark::State& state, int m, bool on_device, bool a_is_there) {
  const CscMatrix a = ConvectionDiffusion(m, 40);
  Array<double> x;
  x.assign(static_cast<size_t>(a.n_cols), 1.0);
  const Array<double> b = Product(a, x);
  Array<double> inverse(static_cast<size_t>(a.n_cols));
  for (int64_t k = 0; k < a.n_cols; ++k) {
    for (int64_t p = a.col_ptr[k]; p < a.col_ptr[k + 1]; ++p) {
      if (a.row_idx[p] == k) inverse[k] = 1 / a.values[p];
    }
  }
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8, .keep_history = false};
  const DiagonalOperator diagonal(inverse);
  std::shared_ptr<const CudaOperator> a_there, m_there;
  int64_t iterations = 0;
  const auto solve = [&] {
    if (!on_device) {
      const auto rows = Must(CsrOperator::FromColumns(a, Context()));
      iterations = Must(Solve(rows, &diagonal, b, {}, options, Context())).rhs[0].iterations;
      return;
    }
    if (a_there == nullptr || !a_is_there) {
      a_there = Must(CudaOperator::OfMatrix(Device(), a, false, Context()));
      m_there = Must(CudaOperator::OfDiagonal(Device(), inverse, a_there.get()));
    }
    iterations =
        Must(SolveCuda(*a_there, m_there.get(), a, b, {}, options, Context())).rhs[0].iterations;
  };
  solve();
  for (auto _ : state) solve();
  state.counters["iterations"] = static_cast<double>(iterations);
  // As the daemon predicts it: a hundred iterations at 5 GB/s.
  state.counters["predicted_ms"] =
      100 *
      (12.0 * static_cast<double>(a.nnz() + a.n_cols) + 80.0 * static_cast<double>(a.n_cols)) / 5e6;
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  constexpr std::pair<const char*, Kind> kKinds[] = {
      {"none", Kind::kNone},
      {"jacobi", Kind::kJacobi},
      {"block_jacobi_3", Kind::kBlockJacobi3},
      {"static_spai", Kind::kStaticSpai},
      {"static_spai_fp32", Kind::kStaticSpai32},
      {"fsai", Kind::kFsai},
      {"fsai_fp32", Kind::kFsai32},
      {"afsai_fp32", Kind::kAfsai32},
      {"afsai_fp32_gain_1e-3", Kind::kAfsai32Gain1e3},
      {"afsai_fp32_gain_1e-2", Kind::kAfsai32Gain1e2}};
  constexpr std::pair<const char*, Method> kMethods[] = {
      {"cg", Method::kCg}, {"bicgstab", Method::kBicgstab}, {"gmres", Method::kGmres}};
  for (const int m : {8, 12, 16, 24, 32, 64}) {
    const std::string name = "KrylovCrossover/P7_" + std::to_string(m);
    const auto add = [&](const char* where, bool on_device, bool a_is_there) {
      benchmark::RegisterBenchmark((name + where).c_str(),
                                   [m, on_device, a_is_there](benchmark::State& state) {
                                     RunCrossover(state, m, on_device, a_is_there);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->Iterations(9);
    };
    add("/cuda", true, false);
    add("/cuda_a_there", true, true);
    add("/cpu", false, false);
  }
  struct Block {
    const char *problem, *name;
    Method method;
    Kind kind;
  };
  constexpr Block kBlocks[] = {
      {"P7_128", "/cg/jacobi", Method::kCg, Kind::kJacobi},
      {"E80_40", "/bicgstab/static_spai", Method::kBicgstab, Kind::kStaticSpai},
      {"convdiff_100", "/bicgstab/jacobi", Method::kBicgstab, Kind::kJacobi},
  };
  for (const Block& block : kBlocks) {
    const Solved& problem =
        *std::find_if(std::begin(kProblems), std::end(kProblems),
                      [&](const Solved& one) { return one.name == block.problem; });
    for (int n_rhs = 1; n_rhs <= 8; n_rhs *= 2) {
      const std::string name = std::string("KrylovBlock/") + block.problem + block.name +
                               "/rhs:" + std::to_string(n_rhs);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&problem, block, n_rhs](benchmark::State& state) {
                                     RunBlock(state, problem, block.method, block.kind, n_rhs);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime()
          ->Iterations(3);
    }
  }
  const auto add = [&](const Solved& problem) {
    for (const auto& [method_name, method] : kMethods) {
      for (const auto& [kind_name, kind] : kKinds) {
        const bool spai = kind == Kind::kStaticSpai || kind == Kind::kStaticSpai32;
        if (method == Method::kCg && (!problem.spd || spai)) continue;
        if (method != Method::kCg && IsFsai(kind)) continue;
        if (method == Method::kGmres && (!problem.by_gmres || kind == Kind::kStaticSpai32)) {
          continue;
        }
        if (kind == Kind::kBlockJacobi3 && problem.name[0] != 'E') continue;  // 3 unknowns a node
        const std::string name = "KrylovCuda/" + problem.name + "/" + method_name + "/" + kind_name;
        benchmark::RegisterBenchmark(
            name.c_str(), [&problem, method = method, kind = kind](
                              benchmark::State& state) { Run(state, problem, method, kind); })
            ->Unit(benchmark::kMillisecond)
            ->UseManualTime()
            ->Iterations(3);
      }
    }
  };
  for (const Solved& problem : kProblems) add(problem);
  // Whether CG may solve a file's matrix is known when it is read.
  static std::vector<Solved> files;
  for (const Problem& file : FileProblems()) files.push_back({file, /*spd=*/true});
  for (const Solved& problem : files) add(problem);
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
