// What AUTO chooses, and that it says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ResolvedSpec MustResolve(const PreconditionerSpec& spec, const CscView& a) {
  const auto resolved = MakeCpuEngine()->Resolve(spec, a, Diagnose(a));
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? *resolved : ResolvedSpec{};
}

TEST(Auto, SymmetricWithAPositiveDiagonalIsJacobi) {
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), oracle::Laplacian2d(10, 10));
  EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason, AllOf(StartsWith("Jacobi: "), HasSubstr("n = 100"), HasSubstr("CG")));
}

TEST(Auto, NonsymmetricIsStaticSpaiWithFigures) {
  const CscMatrix a = oracle::ConvectionDiffusion(30, 30, 1.0);
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_EQ(r.spec.static_spai.pattern.power, 1);
  EXPECT_THAT(r.reason, AllOf(StartsWith("static SPAI: "), HasSubstr("not symmetric"),
                              HasSubstr(" ms and "), HasSubstr(" bytes")));
}

TEST(Auto, NegativeDiagonalsAreNotForCg) {
  CscMatrix a = oracle::Laplacian2d(10, 10);
  for (double& v : a.values) v = -v;
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_THAT(r.reason, HasSubstr("100 negative diagonal entries"));
}

TEST(Auto, AZeroDiagonalEnsuresRows) {
  const CscMatrix a = Rows({{0, 1, 0}, {0, 0, 2}, {3, 0, 0}});
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_TRUE(r.spec.static_spai.pattern.ensure_row);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("3 of 3 diagonal entries are zero (first: column 0)"),
                              HasSubstr("ensure_row"), Not(HasSubstr("structural rank"))));
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, r.spec, a);
  EXPECT_EQ(built.quality.zero_columns, 0);
  EXPECT_LT(built.quality.residual_frobenius, 1e-14) << "M is the inverse permutation, scaled";
}

TEST(Auto, SaysWhereAIsStructurallySingular) {
  const CscMatrix a = Rows({{0, 1, 1}, {1, 0, 0}, {1, 0, 0}});  // rows 1 and 2 compete for column 0
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_TRUE(r.spec.static_spai.pattern.ensure_row);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("structural rank 2 of 3"), HasSubstr("singular")));
}

TEST(Auto, ABuildThatCostsMoreThanItSavesIsLeftOut) {
  // Dense: 400 local problems of 400 x 400 against iterations of 160,000 entries.
  oracle::Random random(3);
  oracle::Dense dense(400, 400);
  for (int64_t j = 0; j < 400; ++j) {
    for (int64_t i = 0; i < 400; ++i) dense(i, j) = random.Uniform(-1, 1) + (i == j ? 400 : 0);
  }
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), oracle::FromDense(dense));
  EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("costs more than it is likely to save"),
                              HasSubstr("iterations with Jacobi at")));
}

TEST(Auto, KeepsTheOptionsOfWhatItChooses) {
  PreconditionerSpec spec = Spai(2);
  spec.engine = EngineKind::kAuto;
  spec.static_spai.local_solver = LocalSolver::kQr;
  const ResolvedSpec r = MustResolve(spec, oracle::ConvectionDiffusion(20, 20, 1.0));
  ASSERT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_EQ(r.spec.static_spai.pattern.power, 2);
  EXPECT_EQ(r.spec.static_spai.local_solver, LocalSolver::kQr);
}

TEST(Auto, WhateverItChoosesCanBeBuilt) {
  const auto engine = MakeCpuEngine();
  for (const uint64_t seed : {1, 2}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed)) {
      SCOPED_TRACE(named.name + ", n = " + std::to_string(named.a.n_cols));
      const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), named.a);
      EXPECT_NE(r.spec.engine, EngineKind::kAuto);
      EXPECT_FALSE(r.reason.empty());
      MustBuild(*engine, r.spec, named.a);
    }
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
