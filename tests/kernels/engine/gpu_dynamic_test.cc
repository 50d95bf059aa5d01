// Dynamic SPAI on a CUDA device through the engine's face: what the CPU builds, within the bytes
// that were promised, and there for solves and new values.
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/engine/gpu_helpers.h"

namespace spaid::kernels::engine_test {
namespace {

PreconditionerSpec Dynamic(int max_steps, int per_step, double tol) {
  PreconditionerSpec spec = Spec(EngineKind::kDynamicSpai);
  spec.dynamic_spai.max_steps = max_steps;
  spec.dynamic_spai.per_step = per_step;
  spec.dynamic_spai.tol = tol;
  return spec;
}

// Every value by a number of its own: no two candidates are alike.
CscMatrix Varied(CscMatrix a, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> by(0.8, 1.2);
  for (double& value : a.values) value *= by(random);
  return a;
}

TEST_F(GpuEngine, DynamicSpaiIsWhatTheCpuBuilds) {
  PreconditionerSpec filtered = Dynamic(8, 1, 0);
  filtered.dynamic_spai.post_filter = 0.05;
  const struct {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
  } cases[] = {
      {"P7, singly", Varied(bench::ConvectionDiffusion(12, 40)), Dynamic(15, 1, 0.2)},
      {"P7, by twos", Varied(bench::ConvectionDiffusion(12, 40)), Dynamic(10, 2, 0.3)},
      {"9 points", Varied(bench::Anisotropic(40, 1e-3, std::numbers::pi / 8)), Dynamic(12, 1, 0)},
      {"P27, by threes", Varied(bench::Laplacian27(9)), Dynamic(5, 3, 0)},
      {"elasticity, filtered", Varied(bench::Elasticity(6)), filtered},
      {"circuit", bench::Circuit(3000, 2, 150), Dynamic(6, 2, 0.2)},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const BuildResult cpu = MustBuild(*engine_, c.spec, c.a, {.device = kCpu});
    const BuildResult gpu = MustBuild(*engine_, c.spec, c.a, {.device = kGpu});
    ASSERT_TRUE(cpu.preconditioner && gpu.preconditioner);
    const Preconditioner& m = *gpu.preconditioner;
    ExpectSameM(m.matrix(), cpu.preconditioner->matrix(), 1e-9);
    ASSERT_TRUE(gpu.quality.dynamic_spai && cpu.quality.dynamic_spai);
    EXPECT_EQ(gpu.quality.dynamic_spai->converged_columns,
              cpu.quality.dynamic_spai->converged_columns);
    EXPECT_NEAR(gpu.quality.residual_frobenius, cpu.quality.residual_frobenius,
                1e-9 * cpu.quality.residual_frobenius);
    EXPECT_GT(gpu.timings.host_to_device_ms, 0);
    EXPECT_GT(gpu.timings.device_bytes, 0);
    EXPECT_GE(gpu.timings.waves, 1);
    EXPECT_GT(m.device_bytes(), 0);
    const auto a_there = engine_->Place(c.a, {.device = kGpu});
    ASSERT_TRUE(a_there.ok()) << a_there.status().message();
    const Vector b = SmoothRhs(c.a);
    for (const Storage storage : {Storage::kFp64, Storage::kFp32}) {
      const int sent = uploads;
      const SolveResult solved =
          MustSolveThere(*engine_, c.a, **a_there, m, b,
                         {.method = Method::kBicgstab, .rtol = 1e-8, .m_storage = storage});
      EXPECT_EQ(uploads - sent, 0) << "M is there";
      ASSERT_EQ(solved.rhs.size(), 1u);
      EXPECT_EQ(solved.rhs[0].outcome, Outcome::kConverged) << solved.rhs[0].detail;
      EXPECT_LE(TrueRelative(c.a, solved.x, b), 1.0001e-8);
      EXPECT_GT(solved.figures.host_to_device_ms, 0) << "of b";
      EXPECT_GT(solved.figures.device_to_host_ms, 0) << "of x";
    }
  }
}

// An arena of exactly that size.
TEST_F(GpuEngine, DynamicSpaiStaysWithinTheBytesOfItsEstimate) {
  PreconditionerSpec fp32 = Dynamic(20, 1, 0.1), filtered = Dynamic(6, 2, 0), all = fp32;
  fp32.dynamic_spai.growth_precision = Precision::kFp32;
  filtered.dynamic_spai.post_filter = 0.05;
  all.dynamic_spai.repeat_hash_bits = 0;
  const struct {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
    bool from_a = false;  // grows from A's own pattern
  } cases[] = {
      {"tiny", Rows({{4, 1}, {1, 4}}), Dynamic(3, 1, 0)},
      {"no steps", Varied(bench::ConvectionDiffusion(20, 0)), Dynamic(0, 1, 0)},
      {"P7_30", bench::ConvectionDiffusion(30, 20), Dynamic(29, 1, 0)},
      {"P7_30, alike", bench::ConvectionDiffusion(30, 0), Dynamic(29, 1, 0)},
      {"P7_30, fp32", bench::ConvectionDiffusion(30, 20), fp32},
      {"P7_30, each grown", bench::ConvectionDiffusion(30, 0), all},
      {"P7_10, 70 steps", Varied(bench::ConvectionDiffusion(10, 0)), Dynamic(70, 1, 0)},
      {"P27_16, by threes", Varied(bench::Laplacian27(16)), Dynamic(4, 3, 0)},
      {"P27_12, from A", Varied(bench::Laplacian27(12)), Dynamic(3, 2, 0), true},
      {"elasticity_9, filtered", bench::Elasticity(9), filtered},
      {"dense row and column", Varied(oracle::DenseRowAndColumn(1000, 3)), Dynamic(6, 1, 0)},
      {"circuit", bench::Circuit(20'000, 3, 300), Dynamic(8, 2, 0.2)},
  };
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
    for (const int64_t bytes : {estimate->device_bytes, estimate->device_bytes_min}) {
      SCOPED_TRACE(bytes);
      auto exact = CudaDevice::Open(device_->info(), std::min(bytes, device_->info().memory_bytes));
      ASSERT_TRUE(exact.ok()) << exact.status().message();
      const auto engine = MakeEngine(true, {*exact});
      const auto plan = engine->MakePlan(c.spec, c.a, user, {.device = kGpu});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto built = (*plan)->Build(c.spec, c.a, {.device = kGpu});
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_LE(built->timings.device_bytes, bytes);
      EXPECT_EQ(built->timings.host_columns, 0);
      const CscMatrix& m = built->preconditioner->matrix();
      EXPECT_LE(m.nnz(), estimate->nnz_m);
      if (expected.n_cols == 0) expected = m;
      EXPECT_EQ(m.row_idx, expected.row_idx);
    }
  }
}

TEST_F(GpuEngine, DynamicSpaiServesNewValuesOnThePatternThatItGrew) {
  const CscMatrix a = Varied(bench::ConvectionDiffusion(10, 0)), next = Varied(a, 3);
  const PreconditionerSpec spec = Dynamic(9, 1, 0);
  const auto plan = engine_->MakePlan(spec, a, nullptr, {.device = kGpu});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_FALSE((*plan)->serves_new_values());
  const auto first = (*plan)->Build(spec, a, {.device = kGpu});
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_NE(first->grown, nullptr);
  EXPECT_TRUE(first->grown->serves_new_values());
  EXPECT_GT(first->grown->device_bytes(), 0);
  EXPECT_EQ(first->grown->Build(spec, next, {.device = kCpu}).status().reason(), "PLAN_MISMATCH");
  const auto again = first->grown->Build(spec, next, {.device = kGpu});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(again->quality.pattern_reused);
  EXPECT_EQ(again->preconditioner->matrix().row_idx, first->preconditioner->matrix().row_idx);
  EXPECT_NE(again->preconditioner->matrix().values, first->preconditioner->matrix().values);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
