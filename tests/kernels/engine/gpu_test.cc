// The engine on a CUDA device: what it builds there preconditions as well as what the CPU builds,
// within the bytes that were promised.
#include <cstdlib>
#include <map>
#include <numbers>
#include <numeric>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/engine/gpu_helpers.h"

namespace spaid::kernels::engine_test {
namespace {

TEST_F(GpuEngine, KnowsItsDevices) {
  const std::vector<DeviceInfo> devices = engine_->Devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[kCpu].backend, Backend::kCpu);
  EXPECT_EQ(devices[kGpu].backend, Backend::kCuda);
  EXPECT_TRUE(engine_->Probe(kGpu).ok());
  const DeviceState state = engine_->State(kGpu);
  EXPECT_FALSE(state.lost);
  EXPECT_EQ(state.limit_bytes, devices[kGpu].memory_bytes);
  EXPECT_EQ(MakeEngine(false, {device_})->Devices().size(), 1u);
}

TEST_F(GpuEngine, SolvesAsFastWithWhatTheDeviceBuilt) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"P7_20", bench::ConvectionDiffusion(20, 0), 1},
      {"convdiff_20", bench::ConvectionDiffusion(20, 400), 1},
      {"convdiff_20, power 2", bench::ConvectionDiffusion(20, 400), 2},
      {"aniso_60", bench::Anisotropic(60, 1e-3, std::numbers::pi / 8), 1},
      {"elasticity_7", bench::Elasticity(7), 1},
      {"circuit_8k", bench::Circuit(8000, 12, 300), 1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const BuildResult cpu = MustBuild(*engine_, Spai(c.power), c.a, {.device = kCpu});
    const BuildResult gpu = MustBuild(*engine_, Spai(c.power), c.a, {.device = kGpu});
    ASSERT_TRUE(cpu.preconditioner && gpu.preconditioner);
    EXPECT_NEAR(gpu.quality.residual_frobenius, cpu.quality.residual_frobenius,
                1e-6 * cpu.quality.residual_frobenius);
    EXPECT_GT(gpu.timings.host_to_device_ms, 0);
    EXPECT_GT(gpu.timings.device_to_host_ms, 0);
    EXPECT_EQ(cpu.timings.host_to_device_ms, 0);
    const Agreement its = Compare(c.a, *cpu.preconditioner, *gpu.preconditioner);
    EXPECT_LT(its.first, kNever);
    EXPECT_TRUE(its.by_single_runs) << its.first << " and " << its.second;
  }
}

TEST_F(GpuEngine, StaysWithinTheBytesOfItsEstimate) {
  struct Case {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
  };
  PreconditionerSpec thin = Spai(2);
  thin.static_spai.pattern.keep_tau = 0.5;
  PreconditionerSpec rows = Spai(1);
  rows.static_spai.pattern.ensure_row = true;
  PreconditionerSpec by_qr = Spai();
  by_qr.static_spai.local_solver = LocalSolver::kQr;
  const Case cases[] = {
      {"tiny", Rows({{2, 1}, {0, 4}}), Spai()},
      {"P7_30", bench::ConvectionDiffusion(30, 10), Spai()},
      {"P7_16, power 2", bench::ConvectionDiffusion(16, 10), Spai(2)},
      {"P27_16", bench::Laplacian27(16), Spai()},
      {"elasticity_9", bench::Elasticity(9), Spai()},
      {"circuit_40k", bench::Circuit(40000, 12, 300), Spai()},
      {"circuit_8k, threshold", bench::Circuit(8000, 12, 300), thin},
      {"irregular", oracle::RandomIrregular(3000, 12, 5), Spai(2)},
      {"irregular, rows", oracle::RandomIrregular(3000, 12, 5), rows},
      {"dense", oracle::RandomIrregular(300, 200, 5), Spai()},
      {"irregular, many tables", oracle::RandomIrregular(60000, 10, 1), Spai()},
      {"irregular, many tables by QR", oracle::RandomIrregular(60000, 10, 1), by_qr},
  };
  int in_waves = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto estimate = engine_->Estimate(c.spec, c.a, nullptr, {});
    ASSERT_TRUE(estimate.ok()) << estimate.status().message();
    // With more memory a build may take more, to run more at once; with less its tables go in
    // waves.
    for (const int64_t bytes : {estimate->device_bytes, estimate->device_bytes_min}) {
      auto exact = CudaDevice::Open(device_->info(), bytes);
      ASSERT_TRUE(exact.ok()) << exact.status().message();
      const auto engine = MakeEngine(true, {*exact});
      ASSERT_EQ(engine->State(kGpu).used_bytes, 0);
      const auto plan = engine->MakePlan(c.spec, c.a, nullptr, {.device = kGpu});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ((*plan)->device(), kGpu);
      EXPECT_LE((*plan)->timings().device_bytes, bytes);
      EXPECT_LE((*plan)->device_bytes(), bytes);
      EXPECT_GT(engine->State(kGpu).used_bytes, 0);
      const auto built = (*plan)->Build(c.spec, c.a, {.device = kGpu});
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_LE(built->timings.device_bytes, bytes);
      built->preconditioner->DropDeviceCopy();
      const int64_t held = engine->State(kGpu).used_bytes;
      EXPECT_LE(std::abs(held - (*plan)->device_bytes()), 64 * 256)
          << held << ": a plan holds what it says, but for the rounding of its blocks";
      const bool waves = built->timings.tables_in_waves;
      EXPECT_EQ((*plan)->timings().tables_in_waves, waves);
      EXPECT_TRUE(!waves || bytes < estimate->device_bytes);
      const std::vector<std::string>& warnings = built->quality.warnings;
      EXPECT_EQ(!warnings.empty() && warnings.back().find("in waves") != std::string::npos, waves);
      in_waves += waves ? 1 : 0;
    }
  }
  EXPECT_GE(in_waves, 2);
}

TEST_F(GpuEngine, APlanServesNewValuesOnItsOwnDeviceOnly) {
  CscMatrix a = bench::ConvectionDiffusion(10, 10);
  const auto plan = engine_->MakePlan(Spai(), a, nullptr, {.device = kGpu});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE((*plan)->serves_new_values());
  EXPECT_EQ((*plan)->timings().device_to_host_ms, 0) << "M has A's pattern, which the host has";
  EXPECT_GT(
      (*engine_->MakePlan(Spai(2), a, nullptr, {.device = kGpu}))->timings().device_to_host_ms, 0)
      << "the pattern, which the device made";
  PreconditionerSpec limited = Spai();
  limited.static_spai.pattern.max_nnz = a.nnz() + a.n_cols;
  EXPECT_GT(
      (*engine_->MakePlan(limited, a, nullptr, {.device = kGpu}))->timings().host_to_device_ms, 0)
      << "a limit that cannot be met is none: the device looks";
  for (double& value : a.values) value *= 3;
  const auto rebuilt = (*plan)->Build(Spai(), a, {.device = kGpu});
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status().message();
  const BuildResult fresh = MustBuild(*engine_, Spai(), a, {.device = kGpu});
  const Array<double>& x = rebuilt->preconditioner->matrix().values;
  const Array<double>& y = fresh.preconditioner->matrix().values;
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-12) << i;  // all under 1
  EXPECT_EQ((*plan)->Build(Spai(), a, {.device = kCpu}).status().reason(), "PLAN_MISMATCH");
}

TEST_F(GpuEngine, LeavesACopyOnItsDevice) {
  const CscMatrix a = bench::ConvectionDiffusion(12, 10);
  const int64_t before = engine_->State(kGpu).used_bytes;
  for (const double filter : {0.0, 0.2}) {
    PreconditionerSpec spec = Spai();
    spec.static_spai.post_filter = filter;
    BuildResult built = MustBuild(*engine_, spec, a, {.device = kGpu});
    const int64_t nnz = built.preconditioner->matrix().nnz();
    EXPECT_GE(built.preconditioner->device_bytes(), 8 * nnz + (filter > 0 ? 4 * nnz : 0));
    // The plan that it took its pattern from is counted, and goes with it.
    const int64_t held = engine_->State(kGpu).used_bytes - before;
    EXPECT_LE(std::abs(held - built.preconditioner->device_bytes()), 64 * 256) << held;
    built.preconditioner->DropDeviceCopy();
    EXPECT_EQ(built.preconditioner->device_bytes(), 0);
    EXPECT_EQ(engine_->State(kGpu).used_bytes, before);
    EXPECT_EQ(built.preconditioner->matrix().nnz(), nnz);
    // Or with the preconditioner.
    built = MustBuild(*engine_, spec, a, {.device = kGpu});
    EXPECT_GT(engine_->State(kGpu).used_bytes, before);
    built = {};
    EXPECT_EQ(engine_->State(kGpu).used_bytes, before);
  }
  EXPECT_EQ(MustBuild(*engine_, Spai(), a, {.device = kCpu}).preconditioner->device_bytes(), 0);
}

TEST_F(GpuEngine, SaysWhatWasLeftToTheHost) {
  // Two equal columns in every local problem: rank-deficient, which the device leaves.
  CscMatrix a = oracle::Arrow(6);
  const BuildResult whole = MustBuild(*engine_, Spai(), a, {.device = kGpu});
  EXPECT_EQ(whole.timings.host_columns, 0);
  const CscMatrix equal = oracle::FromDense([] {
    oracle::Dense dense(4, 4);
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) dense(i, j) = i + 1.0;
    }
    return dense;
  }());
  const BuildResult built = MustBuild(*engine_, Spai(), equal, {.device = kGpu});
  EXPECT_EQ(built.timings.host_columns, 4);
  EXPECT_EQ(built.preconditioner->device_bytes(), 0) << "the device's M lacks columns";
  ASSERT_FALSE(built.quality.warnings.empty());
  EXPECT_NE(built.quality.warnings.back().find("4 of 4 columns were left to the host"),
            std::string::npos)
      << built.quality.warnings.back();
  // Jacobi and solves are the host's work.
  const BuildResult jacobi = MustBuild(*engine_, Spec(EngineKind::kJacobi), a, {.device = kGpu});
  EXPECT_EQ(jacobi.timings.device_bytes, 0);
}

TEST_F(GpuEngine, BlockJacobiGoesWithCgThere) {
  const CscMatrix a = bench::Elasticity(8);
  PreconditionerSpec spec = Spec(EngineKind::kJacobi);
  const Vector b = RowSums(a);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-9};
  const auto a_there = engine_->Place(a, {.device = kGpu});
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  for (const int size : {1, 3, 7, 32}) {
    spec.block_size = size;
    const auto m = MustBuild(*engine_, spec, a, {.device = kGpu}).preconditioner;
    const auto m_there = engine_->Place(*m, Storage::kFp64, {.device = kGpu});
    ASSERT_TRUE(m_there.ok()) << m_there.status().message();
    EXPECT_GE((*m_there)->device_bytes(), 8 * m->matrix().nnz());
    const auto cpu = engine_->Solve(a, m.get(), b, {}, options, {.device = kCpu});
    const SolveResult gpu = MustSolveThere(*engine_, a, **a_there, *m, b, options);
    ASSERT_TRUE(cpu.ok() && !gpu.rhs.empty());
    EXPECT_EQ(gpu.rhs[0].outcome, Outcome::kConverged) << gpu.rhs[0].detail;
    EXPECT_LE(TrueRelative(a, gpu.x, b), 1.0001e-9);
    EXPECT_LE(std::abs(gpu.rhs[0].iterations - cpu->rhs[0].iterations), 3) << size;
  }
}

TEST_F(GpuEngine, FsaiOfTheHostGoesWithEveryMethodThere) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  const Vector b = RowSums(a);
  const auto a_there = engine_->Place(a, {.device = kGpu});
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  for (const EngineKind kind : {EngineKind::kFsai, EngineKind::kAfsai}) {
    PreconditionerSpec spec = Spec(kind);
    spec.fsai.k_max = 8;
    const BuildResult built = MustBuild(*engine_, spec, a, {.device = kCpu});
    const Preconditioner& m = *built.preconditioner;
    EXPECT_EQ(m.device_bytes(), 0);
    for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
      for (const Storage storage : {Storage::kFp64, Storage::kFp32, Storage::kAuto}) {
        SCOPED_TRACE(static_cast<int>(method) * 10 + static_cast<int>(storage));
        const SolveOptions options{.method = method, .rtol = 1e-9, .m_storage = storage};
        const auto cpu = engine_->Solve(a, &m, b, {}, options, {.device = kCpu});
        const SolveResult gpu = MustSolveThere(*engine_, a, **a_there, m, b, options);
        ASSERT_TRUE(cpu.ok() && !gpu.rhs.empty());
        EXPECT_EQ(gpu.rhs[0].outcome, Outcome::kConverged) << gpu.rhs[0].detail;
        EXPECT_LE(TrueRelative(a, gpu.x, b), 1.0001e-9);
        EXPECT_LE(std::abs(gpu.rhs[0].iterations - cpu->rhs[0].iterations), 3);
        EXPECT_EQ(gpu.m_storage, cpu->m_storage);
      }
    }
    const auto m_there = engine_->Place(m, Storage::kFp64, {.device = kGpu});
    ASSERT_TRUE(m_there.ok()) << m_there.status().message();
    EXPECT_GE((*m_there)->device_bytes(), 2 * 8 * m.matrix().nnz());
    EXPECT_LE((*a_there)->device_bytes() + (*m_there)->device_bytes(),
              engine_->SolveDeviceBytes(a.n_cols, a.nnz(), 2 * m.matrix().nnz(), 1,
                                        {.method = Method::kCg}));
  }
}

TEST_F(GpuEngine, QrSaysItsThreadStrategy) {
  const CscMatrix a = bench::ConvectionDiffusion(8, 10);
  PreconditionerSpec qr = Spai();
  qr.static_spai.local_solver = LocalSolver::kQr;
  for (const ThreadStrategy strategy : {ThreadStrategy::kConstant, ThreadStrategy::kVariable}) {
    qr.static_spai.thread_strategy = strategy;
    const BuildResult built = MustBuild(*engine_, qr, a, {.device = kGpu});
    EXPECT_EQ(built.timings.host_columns, 0);
    EXPECT_EQ(built.quality.qr_columns, a.n_cols);
    EXPECT_EQ(built.quality.thread_strategy, strategy);
  }
  qr.static_spai.thread_strategy = ThreadStrategy::kAuto;
  EXPECT_NE(MustBuild(*engine_, qr, a, {.device = kGpu}).quality.thread_strategy,
            ThreadStrategy::kAuto);
  EXPECT_EQ(MustBuild(*engine_, qr, a, {.device = kCpu}).quality.thread_strategy,
            ThreadStrategy::kAuto);
}

// A solve there with what `place` makes of A.
template <class Place>
SolveResult SolvedWith(const Engine& engine, const CscView& a, const Preconditioner& m,
                       const SolveOptions& options, const Place& place) {
  const auto a_there = place();
  EXPECT_TRUE(a_there.ok()) << a_there.status().message();
  if (!a_there.ok()) return {};
  return MustSolveThere(engine, a, **a_there, m, SmoothRhs(a), options);
}

TEST_F(GpuEngine, NewValuesInAnOldLayoutAreTheNewMatrix) {
  const Context context{.device = kGpu};
  for (const CscMatrix& a : {bench::ConvectionDiffusion(20, 400), bench::ConvectionDiffusion(20, 0),
                             bench::Circuit(8000, 12, 300)}) {
    const BuildResult built = MustBuild(*engine_, Spai(), a, context);
    CscMatrix next = a;
    for (double& value : next.values) value *= 1.5;  // symmetric where it was
    const SolveOptions options{.rtol = 1e-9, .m_storage = Storage::kFp64};
    const SolveResult fresh = SolvedWith(*engine_, next, *built.preconditioner, options,
                                         [&] { return engine_->Place(next, context); });
    const int64_t before = engine_->State(kGpu).used_bytes;
    const SolveResult replaced = SolvedWith(*engine_, next, *built.preconditioner, options, [&] {
      auto old = engine_->Place(a, context);
      return engine_->Replace(*std::move(old), next, context);
    });
    EXPECT_EQ(fresh.rhs[0].outcome, Outcome::kConverged);
    EXPECT_EQ(replaced.x, fresh.x) << "the same bits";
    EXPECT_EQ(engine_->State(kGpu).used_bytes, before) << "nothing is left";
  }
  // Columns that are rows no more are no rows.
  const CscMatrix symmetric = bench::ConvectionDiffusion(8, 0);
  CscMatrix skew = symmetric;
  skew.values[1] *= 2;
  auto old = engine_->Place(symmetric, context);
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(engine_->Replace(*std::move(old), skew, context).status().reason(), "PLAN_MISMATCH");
  const CscMatrix other = bench::ConvectionDiffusion(9, 0);
  old = engine_->Place(symmetric, context);
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(engine_->Replace(*std::move(old), other, context).status().reason(), "PLAN_MISMATCH");
}

TEST_F(GpuEngine, StoresMAsToldAndTellsTheFigures) {
  const Context context{.device = kGpu};
  const CscMatrix a = bench::ConvectionDiffusion(24, 400);
  const BuildResult built = MustBuild(*engine_, Spai(), a, context);
  double bytes[3] = {};
  for (const Storage storage : {Storage::kAuto, Storage::kFp64, Storage::kFp32}) {
    const SolveResult solved =
        SolvedWith(*engine_, a, *built.preconditioner, {.rtol = 1e-9, .m_storage = storage},
                   [&] { return engine_->Place(a, context); });
    ASSERT_EQ(solved.rhs.size(), 1u);
    EXPECT_EQ(solved.rhs[0].outcome, Outcome::kConverged) << solved.rhs[0].detail;
    EXPECT_LE(TrueRelative(a, solved.x, SmoothRhs(a)), 1.01e-9);
    EXPECT_EQ(solved.storage_reason.empty(), storage != Storage::kAuto);
    EXPECT_TRUE(storage == Storage::kAuto || solved.m_storage == storage);
    const SolveFigures& figures = solved.figures;
    EXPECT_EQ(figures.iterations, solved.rhs[0].iterations);
    EXPECT_GT(figures.host_to_device_ms, 0);
    EXPECT_GT(figures.iterate_ms, 0);
    EXPECT_GT(figures.check_ms, 0);
    EXPECT_GT(figures.device_to_host_ms, 0);
    bytes[static_cast<int>(storage)] = figures.bytes / static_cast<double>(figures.iterations);
  }
  const auto nnz_m = static_cast<double>(built.preconditioner->matrix().nnz());
  EXPECT_NEAR(bytes[static_cast<int>(Storage::kFp64)] - bytes[static_cast<int>(Storage::kFp32)],
              2 * 4 * nnz_m, 0.01 * nnz_m);
  const double copy = engine_->CopyBytesPerSecond(context, /*on_host=*/false);
  EXPECT_GT(copy, 1e11) << "bytes a second";
  EXPECT_EQ(engine_->CopyBytesPerSecond(context, /*on_host=*/false), copy);
}

// Residuals of each right-hand side, in their order.
class Residuals final : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t, int64_t) override {}
  void OnResidual(const ResidualPoint& point) override { of[point.rhs].push_back(point.iteration); }
  std::map<int32_t, std::vector<int32_t>> of;
};

TEST_F(GpuEngine, EveryResidualOfABlockIsTold) {
  const CscMatrix a = bench::ConvectionDiffusion(30, 40);
  const BuildResult built = MustBuild(*engine_, Spai(), a, {.device = kGpu});
  constexpr int32_t kRhs = 5;  // a block of four, and one
  const auto n = static_cast<size_t>(a.n_cols);
  Vector b(kRhs * n, 0.0);
  for (size_t v = 0; v < size_t{kRhs}; ++v) b[v * n + n / 2 + 100 + 20 * v] = 1;
  Residuals residuals;
  const Context context{.progress = &residuals, .device = kGpu};
  const auto a_there = engine_->Place(a, context);
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  const SolveResult solved =
      MustSolveThere(*engine_, a, **a_there, *built.preconditioner, b,
                     {.method = Method::kBicgstab, .rtol = 1e-10, .max_iterations = 5000}, context);
  ASSERT_EQ(solved.rhs.size(), size_t{kRhs});
  for (int32_t v = 0; v < kRhs; ++v) {
    const RhsResult& rhs = solved.rhs[static_cast<size_t>(v)];
    EXPECT_EQ(rhs.outcome, Outcome::kConverged) << v << ": " << rhs.detail;
    std::vector<int32_t> all(static_cast<size_t>(rhs.iterations) + 1);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(residuals.of[v], all) << v;
  }
}

TEST_F(GpuEngine, AMemoryLimitIsHeld) {
  auto small = CudaDevice::Open(device_->info(), 1 << 20);
  ASSERT_TRUE(small.ok()) << small.status().message();
  const auto engine = MakeEngine(false, {*small});
  EXPECT_EQ(engine->State(0).limit_bytes, 1 << 20);
  const CscMatrix a = bench::ConvectionDiffusion(30, 10);
  const auto plan = engine->MakePlan(Spai(), a, nullptr, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(engine->State(0).lost);
  EXPECT_EQ(engine->State(0).used_bytes, 0);
  EXPECT_TRUE(engine->Probe(0).ok());
}

}  // namespace
}  // namespace spaid::kernels::engine_test
