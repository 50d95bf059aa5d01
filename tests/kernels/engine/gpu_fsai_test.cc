// FSAI on a CUDA device through the engine's face: what the CPU builds, within the bytes that were
// promised, and there for solves and new values without another copy.
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/engine/gpu_helpers.h"

namespace spaid::kernels::engine_test {
namespace {

PreconditionerSpec Fsai(int power = 1) {
  PreconditionerSpec spec = Spec(EngineKind::kFsai);
  spec.fsai.power = power;
  return spec;
}

PreconditionerSpec Afsai(int k_max, int s = 1, Precision precision = Precision::kFp64) {
  PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  spec.fsai.k_max = k_max;
  spec.fsai.s = s;
  spec.fsai.precision = precision;
  return spec;
}

// Off the diagonal other factors of at most 1, symmetric; no two gradients of a row are equal then,
// so that nobody's rounding decides what joins it.
CscMatrix Varied(CscMatrix a, uint64_t seed = 1) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const auto i = static_cast<int64_t>(a.row_idx[p]);
      if (i == j) continue;
      uint64_t hash = (static_cast<uint64_t>(std::min(i, j)) * 0x9e3779b97f4a7c15u) ^
                      (static_cast<uint64_t>(std::max(i, j)) * seed * 0xbf58476d1ce4e5b9u);
      hash = (hash ^ (hash >> 30)) * 0x94d049bb133111ebu;
      a.values[p] *= 0.5 + 0.5 * static_cast<double>(hash >> 40) / 16777216.0;
    }
  }
  return a;
}

// Tridiagonal, and a full row and column in the middle: that row has half of all.
CscMatrix Arrow(int64_t n) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  const int64_t middle = n / 2;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      if (j != middle && i != middle && std::abs(i - j) > 1) continue;
      a.row_idx.push_back(static_cast<int32_t>(i));
      const double size = j == middle || i == middle ? 1.0 / static_cast<double>(n) : 1.0;
      a.values.push_back(i == j ? 8 : -size);
    }
    a.col_ptr.push_back(a.nnz());
  }
  return Varied(std::move(a));
}

TEST_F(GpuEngine, FsaiIsWhatTheCpuBuilds) {
  const struct {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
  } cases[] = {
      {"P7, grown", Varied(bench::ConvectionDiffusion(12, 0)), Afsai(20)},
      {"P7, grown by threes", Varied(bench::ConvectionDiffusion(12, 0)), Afsai(5, 3)},
      {"9 points, grown", Varied(bench::Anisotropic(40, 1e-3, std::numbers::pi / 8)), Afsai(12)},
      {"P27", Varied(bench::Laplacian27(9)), Fsai()},
      {"P7, power 3", Varied(bench::ConvectionDiffusion(9, 0)), Fsai(3)},
      {"elasticity", bench::Elasticity(6), Fsai()},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const BuildResult cpu = MustBuild(*engine_, c.spec, c.a, {.device = kCpu});
    const BuildResult gpu = MustBuild(*engine_, c.spec, c.a, {.device = kGpu});
    ASSERT_TRUE(cpu.preconditioner && gpu.preconditioner);
    ExpectSameM(gpu.preconditioner->matrix(), cpu.preconditioner->matrix(), 1e-10);
    EXPECT_NEAR(gpu.quality.fsai->kaporin, cpu.quality.fsai->kaporin, 1e-10);
    EXPECT_EQ(gpu.quality.fsai->kaporin_by_step.size(), cpu.quality.fsai->kaporin_by_step.size());
    EXPECT_EQ(gpu.quality.density, cpu.quality.density);
    EXPECT_TRUE(gpu.quality.warnings.empty());
    EXPECT_GT(gpu.timings.host_to_device_ms, 0);
    EXPECT_GT(gpu.timings.device_to_host_ms, 0);
    EXPECT_GT(gpu.timings.assemble_ms, 0);
    EXPECT_GT(gpu.timings.device_bytes, 0);
    EXPECT_EQ(cpu.timings.host_to_device_ms, 0);
    EXPECT_EQ(cpu.preconditioner->device_bytes(), 0);
  }
}

// An arena of exactly that size: plan, build, G by columns where all is promised, and builds with
// new values.
TEST_F(GpuEngine, FsaiStaysWithinTheBytesOfItsEstimate) {
  PreconditionerSpec filtered = Afsai(15);
  filtered.fsai.post_filter = 0.05;
  const struct {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
    bool from_a = false;  // grows from A's own pattern
  } cases[] = {
      {"tiny", Rows({{4, 1}, {1, 4}}), Afsai(30)},
      {"Jacobi", Varied(bench::ConvectionDiffusion(20, 0)), Afsai(0)},
      {"P7_30", Varied(bench::ConvectionDiffusion(30, 0)), Afsai(30)},
      {"P7_30, fp32", Varied(bench::ConvectionDiffusion(30, 0)), Afsai(30, 1, Precision::kFp32)},
      {"P7_12, 120 steps", Varied(bench::ConvectionDiffusion(12, 0)), Afsai(120)},
      {"P27_20, by fives", Varied(bench::Laplacian27(20)), Afsai(3, 5)},
      {"P27_12, from A", Varied(bench::Laplacian27(12)), Afsai(5), true},
      {"elasticity_9, filtered", bench::Elasticity(9), filtered},
      {"P7_40, static", Varied(bench::ConvectionDiffusion(40, 0)), Fsai()},
      {"P27_16, power 2", Varied(bench::Laplacian27(16)), Fsai(2)},
      {"elasticity_9, static", bench::Elasticity(9), Fsai()},
      {"P7_44", Varied(bench::ConvectionDiffusion(44, 0)), Afsai(30)},
      {"P27_36, static", Varied(bench::Laplacian27(36)), Fsai()},
      {"arrow, grown", Arrow(2000), Afsai(8)},
      {"arrow, static", Arrow(2000), Fsai()},
      {"diagonal", Rows({{3}}), Fsai()},
  };
  int in_waves = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const PatternView own = c.a.pattern();
    const PatternView* const user = c.from_a ? &own : nullptr;
    const auto estimate = engine_->Estimate(c.spec, c.a, user, {});
    ASSERT_TRUE(estimate.ok()) << estimate.status().message();
    ASSERT_GT(estimate->device_bytes_min, 0);
    ASSERT_LE(estimate->device_bytes_min, estimate->device_bytes);
    EXPECT_GT(estimate->predicted_device_ms, 0);
    CscMatrix expected;
    const CscMatrix next = Varied(c.a, 7);
    for (const int64_t bytes : {estimate->device_bytes, estimate->device_bytes_min}) {
      SCOPED_TRACE(bytes);
      auto exact = CudaDevice::Open(device_->info(), bytes);
      ASSERT_TRUE(exact.ok()) << exact.status().message();
      const auto engine = MakeEngine(true, {*exact});
      ASSERT_EQ(engine->State(kGpu).used_bytes, 0);
      const auto plan = engine->MakePlan(c.spec, c.a, user, {.device = kGpu});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const int64_t planned = engine->State(kGpu).used_bytes;
      EXPECT_LE(std::abs(planned - (*plan)->device_bytes()), 64 * 256) << planned;
      auto built = (*plan)->Build(c.spec, c.a, {.device = kGpu});
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_LE(built->timings.device_bytes, bytes);
      EXPECT_GE(built->timings.device_bytes, bytes / 8 - (8 << 20)) << "a bound of some use";
      EXPECT_EQ(built->timings.host_columns, 0);
      if (expected.n_cols == 0) expected = built->preconditioner->matrix();
      EXPECT_EQ(built->preconditioner->matrix().values, expected.values);
      in_waves += built->timings.waves > 1 ? 1 : 0;
      built->preconditioner->DropDeviceCopy();
      // New values on the pattern, which is there.
      const auto kept = built->grown ? built->grown : *plan;
      EXPECT_TRUE(kept->serves_new_values());
      EXPECT_EQ(kept->device(), kGpu);
      EXPECT_GT(kept->device_bytes(), 0);
      const auto again = kept->Build(c.spec, next, {.device = kGpu});
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_LE(again->timings.device_bytes, bytes);
      EXPECT_LE(again->preconditioner->matrix().nnz(), estimate->nnz_m);
    }
  }
  EXPECT_GE(in_waves, 2);
}

TEST_F(GpuEngine, AFsaiPlanServesNewValuesOnItsOwnDeviceOnly) {
  const CscMatrix a = Varied(bench::ConvectionDiffusion(10, 0)), next = Varied(a, 3);
  for (const PreconditionerSpec& spec : {Fsai(2), Afsai(9)}) {
    const auto plan = engine_->MakePlan(spec, a, nullptr, {.device = kGpu});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const bool grows = spec.engine == EngineKind::kAfsai;
    EXPECT_EQ((*plan)->serves_new_values(), !grows);
    EXPECT_GT((*plan)->timings().host_to_device_ms, 0);
    EXPECT_EQ((*plan)->Build(spec, a, {.device = kCpu}).status().reason(), "PLAN_MISMATCH");
    const auto first = (*plan)->Build(spec, a, {.device = kGpu});
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_EQ(first->grown != nullptr, grows);
    const Plan& kept = grows ? *first->grown : **plan;
    EXPECT_EQ(kept.Build(spec, next, {.device = kCpu}).status().reason(), "PLAN_MISMATCH");
    const auto again = kept.Build(spec, next, {.device = kGpu});
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->quality.pattern_reused, grows);
    EXPECT_EQ(again->preconditioner->matrix().row_idx, first->preconditioner->matrix().row_idx);
    // As the CPU does on that pattern.
    const auto on_cpu = engine_->MakePlan(spec, a, nullptr, {.device = kCpu});
    ASSERT_TRUE(on_cpu.ok());
    const auto cpu = (*on_cpu)->Build(spec, a, {.device = kCpu});
    ASSERT_TRUE(cpu.ok());
    const auto expected = (grows ? *cpu->grown : **on_cpu).Build(spec, next, {});
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    ExpectSameM(again->preconditioner->matrix(), expected->preconditioner->matrix(), 1e-10);
  }
}

TEST_F(GpuEngine, FsaiRefusesAsTheCpuDoes) {
  const CscMatrix nonsymmetric = bench::ConvectionDiffusion(8, 400);
  CscMatrix negative = bench::ConvectionDiffusion(8, 0), lacking = negative;
  for (int64_t p = negative.col_ptr[70]; p < negative.col_ptr[71]; ++p) {
    if (negative.row_idx[p] == 70) negative.values[p] = -1;
    if (lacking.row_idx[p] == 70) lacking.values[p] = 0;
  }
  for (const CscMatrix& a : {nonsymmetric, negative, lacking}) {
    for (const PreconditionerSpec& spec : {Fsai(), Afsai(5)}) {
      Status refused[2];
      for (const int device : {kCpu, kGpu}) {
        const auto plan = engine_->MakePlan(spec, a, nullptr, {.device = device});
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        refused[device] = (*plan)->Build(spec, a, {.device = device}).status();
      }
      ASSERT_FALSE(refused[kCpu].ok());
      EXPECT_EQ(refused[kGpu].code(), refused[kCpu].code());
      EXPECT_EQ(refused[kGpu].reason(), refused[kCpu].reason());
      EXPECT_EQ(refused[kGpu].message(), refused[kCpu].message());
      EXPECT_EQ(refused[kGpu].index(), refused[kCpu].index());
    }
  }
  // What takes factors to see is counted.
  CscMatrix indefinite = bench::ConvectionDiffusion(6, 0);
  for (double& value : indefinite.values) value = value < 0 ? 3 * value : value;
  const BuildResult cpu = MustBuild(*engine_, Fsai(2), indefinite, {.device = kCpu});
  const BuildResult gpu = MustBuild(*engine_, Fsai(2), indefinite, {.device = kGpu});
  EXPECT_GT(cpu.quality.fsai->not_spd_rows, 0);
  EXPECT_EQ(gpu.quality.fsai->not_spd_rows, cpu.quality.fsai->not_spd_rows);
  EXPECT_EQ(gpu.quality.fsai->first_not_spd, cpu.quality.fsai->first_not_spd);
  EXPECT_EQ(gpu.quality.warnings, cpu.quality.warnings);
}

TEST_F(GpuEngine, RowsOfGThatAreLeftToTheHostAreSaid) {
  const CscMatrix a = Arrow(6400);
  const BuildResult cpu = MustBuild(*engine_, Fsai(), a, {.device = kCpu});
  const BuildResult gpu = MustBuild(*engine_, Fsai(), a, {.device = kGpu});
  EXPECT_EQ(gpu.timings.host_columns, 1);
  ASSERT_FALSE(gpu.quality.warnings.empty());
  EXPECT_NE(gpu.quality.warnings[0].find("1 of 6400 rows of G were left to the host"),
            std::string::npos)
      << gpu.quality.warnings[0];
  EXPECT_EQ(gpu.preconditioner->device_bytes(), 0) << "the device's G lacks a row";
  ExpectSameM(gpu.preconditioner->matrix(), cpu.preconditioner->matrix(), 1e-8);
}

TEST_F(GpuEngine, ASolveWithWhatWasBuiltThereMovesNoM) {
  const Context context{.device = kGpu};
  const CscMatrix a = Varied(bench::ConvectionDiffusion(20, 0));
  const Vector b = RowSums(a);
  for (const PreconditionerSpec& spec : {Fsai(), Afsai(12)}) {
    const int64_t before = engine_->State(kGpu).used_bytes;
    BuildResult built = MustBuild(*engine_, spec, a, context);
    ASSERT_NE(built.preconditioner, nullptr);
    built.grown = nullptr;
    const Preconditioner& m = *built.preconditioner;
    const int64_t nnz = m.matrix().nnz();
    EXPECT_EQ(m.device_bytes(), 12 * nnz + 8 * (a.n_cols + 1));
    EXPECT_LE(std::abs(engine_->State(kGpu).used_bytes - before - m.device_bytes()), 64 * 256);
    const auto a_there = engine_->Place(a, context);
    ASSERT_TRUE(a_there.ok()) << a_there.status().message();
    std::vector<SolveResult> solved;
    for (const bool from_host : {false, true}) {
      if (from_host) {
        m.DropDeviceCopy();
        EXPECT_EQ(m.device_bytes(), 0);
      }
      for (const Storage storage : {Storage::kFp64, Storage::kFp32}) {
        const int sent = uploads;
        const auto there = engine_->Place(m, storage, context);
        ASSERT_TRUE(there.ok()) << there.status().message();
        EXPECT_EQ(uploads - sent, from_host ? 2 : 0);
        EXPECT_GE((*there)->device_bytes(), 2 * (storage == Storage::kFp64 ? 12 : 8) * nnz);
        solved.push_back(MustSolveThere(*engine_, a, **a_there, m, b,
                                        {.method = Method::kCg, .rtol = 1e-9, .m_storage = storage},
                                        context));
        ASSERT_EQ(solved.back().rhs.size(), 1u);
        EXPECT_EQ(solved.back().rhs[0].outcome, Outcome::kConverged) << solved.back().rhs[0].detail;
        EXPECT_LE(TrueRelative(a, solved.back().x, b), 1.0001e-9);
      }
    }
    // The same factors, laid out in the same way.
    for (const size_t i : {size_t{0}, size_t{1}}) {
      EXPECT_EQ(solved[i].rhs[0].iterations, solved[i + 2].rhs[0].iterations);
      EXPECT_EQ(solved[i].x, solved[i + 2].x);
    }
    const auto cpu = engine_->Solve(a, &m, b, {}, {.method = Method::kCg, .rtol = 1e-9}, {});
    ASSERT_TRUE(cpu.ok());
    EXPECT_LE(std::abs(cpu->rhs[0].iterations - solved[0].rhs[0].iterations), 2);
  }
}

// An arena of exactly what a solve with two factors is said to take.
TEST_F(GpuEngine, ASolveWithTwoFactorsStaysWithinItsBytes) {
  const CscMatrix matrices[] = {Varied(bench::ConvectionDiffusion(24, 0)),
                                Varied(bench::Laplacian27(14)), bench::Elasticity(8), Arrow(1500)};
  for (const CscMatrix& a : matrices) {
    for (const PreconditionerSpec& spec : {Fsai(), Fsai(2), Afsai(25)}) {
      const BuildResult built = MustBuild(*engine_, spec, a, {.device = kCpu});
      ASSERT_NE(built.preconditioner, nullptr);
      const int64_t nnz = 2 * built.preconditioner->matrix().nnz();
      const Vector b = RowSums(a);
      for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
        for (const Storage storage : {Storage::kFp64, Storage::kFp32}) {
          SCOPED_TRACE(static_cast<int>(method) * 10 + static_cast<int>(storage));
          const SolveOptions options{
              .method = method, .rtol = 1e-6, .restart = 20, .m_storage = storage};
          const int64_t bytes = engine_->SolveDeviceBytes(a.n_cols, a.nnz(), nnz, 1, options);
          auto exact = CudaDevice::Open(device_->info(), bytes);
          ASSERT_TRUE(exact.ok()) << exact.status().message();
          const auto engine = MakeEngine(true, {*exact});
          const Context context{.device = kGpu};
          const auto a_there = engine->Place(a, context);
          ASSERT_TRUE(a_there.ok()) << a_there.status().message();
          const SolveResult solved =
              MustSolveThere(*engine, a, **a_there, *built.preconditioner, b, options, context);
          ASSERT_EQ(solved.rhs.size(), 1u);
          if (method != Method::kCg) continue;
          EXPECT_EQ(solved.rhs[0].outcome, Outcome::kConverged) << solved.rhs[0].detail;
        }
      }
    }
  }
}

TEST_F(GpuEngine, FsaiKeepsToATimeBudgetAndStops) {
  const CscMatrix a = Varied(bench::Laplacian27(24));
  PreconditionerSpec spec = Afsai(400);
  spec.fsai.epsilon = 0;
  spec.fsai.time_budget_ms = 4;
  const BuildResult built = MustBuild(*engine_, spec, a, {.device = kGpu});
  ASSERT_NE(built.preconditioner, nullptr);
  EXPECT_TRUE(built.quality.fsai->out_of_time);
  EXPECT_EQ(built.grown, nullptr) << "it was cut short";
  ASSERT_FALSE(built.quality.warnings.empty());
  EXPECT_NE(built.quality.warnings[0].find("time budget"), std::string::npos);
  StopSource source;
  source.Request(StopReason::kCancelled);
  const auto plan = engine_->MakePlan(Afsai(5), a, nullptr, {.device = kGpu});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->Build(Afsai(5), a, {.stop = source.token(), .device = kGpu}).status().reason(),
            "CANCELLED");
}

}  // namespace
}  // namespace spaid::kernels::engine_test
