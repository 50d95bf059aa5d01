// Estimates are upper bounds on what the build then does.
#include <gtest/gtest.h>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

void ExpectBound(const Engine& engine, const PreconditionerSpec& estimated,
                 const PreconditionerSpec& built_spec, const oracle::NamedMatrix& named) {
  SCOPED_TRACE(named.name + ", n = " + std::to_string(named.a.n_cols));
  const auto estimate = engine.Estimate(estimated, named.a, nullptr, {});
  ASSERT_TRUE(estimate.ok()) << estimate.status().message();
  const auto plan = engine.MakePlan(built_spec, named.a, nullptr, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto built = (*plan)->Build(built_spec, named.a, {});
  if (!built.ok()) {
    EXPECT_EQ(built.status().reason(),
              estimated.block_size > 1 ? "SINGULAR_BLOCK" : "ZERO_DIAGONAL");
    return;
  }
  const Preconditioner& p = *built->preconditioner;
  EXPECT_GE(estimate->nnz_m, p.matrix().nnz());
  EXPECT_GE(estimate->download_bytes, p.matrix().bytes());
  EXPECT_GE(estimate->host_bytes, (*plan)->host_bytes() + p.host_bytes());
  EXPECT_EQ(estimate->device_bytes, 0);
  EXPECT_EQ(estimate->device_bytes_min, 0);
  EXPECT_GT(estimate->predicted_ms, 0);
  EXPECT_GT(estimate->flops, 0);
}

TEST(Estimate, OfAutoBoundsWhateverAutoChooses) {
  const auto engine = MakeCpuEngine();
  for (const oracle::NamedMatrix& named : oracle::Zoo(23)) {
    const auto chosen =
        engine->Resolve(Spec(EngineKind::kAuto), named.a, Diagnose(named.a), nullptr, {});
    ASSERT_TRUE(chosen.ok());
    if (chosen->spec.engine == EngineKind::kNone) continue;
    ExpectBound(*engine, Spec(EngineKind::kAuto), chosen->spec, named);
  }
}

TEST(Estimate, IsExactOnASimplePattern) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const auto estimate = engine->Estimate(Spai(), a, nullptr, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->nnz_m, a.nnz());
  EXPECT_EQ(estimate->n2_max, 5);
  EXPECT_EQ(estimate->n1_max, 13);  // the 5-point star of a 5-point star
  EXPECT_EQ(estimate->download_bytes, a.bytes());
}

TEST(Estimate, MinGainEndsGrowthSooner) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(100, 100);
  PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  const auto predicted = [&](double min_gain) {
    spec.fsai.min_gain = min_gain;
    return *engine->Estimate(spec, a, nullptr, {.threads = 1});
  };
  // 4 entries a row, 12.6, and all 30, which are the bound of either.
  EXPECT_LT(predicted(1e-2).predicted_ms, 0.4 * predicted(1e-3).predicted_ms);
  EXPECT_LT(predicted(1e-3).predicted_ms, 0.5 * predicted(0).predicted_ms);
  EXPECT_EQ(predicted(1e-6).predicted_ms, predicted(0).predicted_ms);
  EXPECT_EQ(predicted(1e-2).nnz_m, predicted(0).nnz_m);
}

TEST(Estimate, OfNothingIsNothing) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(5, 5);
  const auto estimate = engine->Estimate(Spec(EngineKind::kNone), a, nullptr, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->host_bytes, 0);
  EXPECT_EQ(estimate->nnz_m, 0);
}

TEST(Estimate, OfJacobiIsExact) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(5, 5);
  const auto estimate = engine->Estimate(Spec(EngineKind::kJacobi), a, nullptr, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->nnz_m, 25);
  EXPECT_EQ(estimate->download_bytes, 26 * 8 + 25 * 12);
  EXPECT_EQ(estimate->n2_max, 1);
  EXPECT_EQ(estimate->n1_max, 5);
}

TEST(Estimate, OfBlockJacobiIsExact) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(5, 5);
  PreconditionerSpec spec = Spec(EngineKind::kJacobi);
  for (const auto& [size, nnz] : {std::pair{3, 8 * 9 + 1}, {5, 125}, {32, 625}}) {
    spec.block_size = size;
    const auto estimate = engine->Estimate(spec, a, nullptr, {});
    ASSERT_TRUE(estimate.ok());
    EXPECT_EQ(estimate->nnz_m, nnz);
    EXPECT_EQ(MustBuild(*engine, spec, a).preconditioner->matrix().nnz(), nnz);
    EXPECT_EQ(estimate->download_bytes, 26 * 8 + nnz * 12);
    EXPECT_EQ(estimate->n2_max, std::min(size, 25));
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
