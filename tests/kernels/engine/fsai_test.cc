// FSAI and aFSAI through the face: plans, rebuilds, figures, refusals, solves with two factors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/engine/engine_parts.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

PreconditionerSpec Fsai(int power = 1) {
  PreconditionerSpec spec = Spec(EngineKind::kFsai);
  spec.fsai.power = power;
  return spec;
}

PreconditionerSpec Afsai(int k_max = 8) {
  PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  spec.fsai.k_max = k_max;
  return spec;
}

// The same pattern, other values; SPD as `a` is, which is diagonally dominant: off the diagonal
// symmetric factors of at most 1.
CscMatrix OtherValues(const CscMatrix& a) {
  CscMatrix other = a;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const auto i = static_cast<int64_t>(a.row_idx[p]);
      if (i != j) other.values[p] *= 0.3 + 0.7 * static_cast<double>((i * j + i + j) % 5) / 4;
    }
  }
  return other;
}

// diag(G A Gᵀ).
Vector ScaledDiagonal(const CscMatrix& a, const CscMatrix& g) {
  const oracle::Dense dense = oracle::ToDense(a), factor = oracle::ToDense(g);
  Vector diagonal(static_cast<size_t>(a.n_cols), 0.0);
  for (int64_t i = 0; i < a.n_cols; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      for (int64_t k = 0; k <= i; ++k) {
        diagonal[static_cast<size_t>(i)] += factor(i, j) * dense(j, k) * factor(i, k);
      }
    }
  }
  return diagonal;
}

int64_t CgIterations(const Engine& engine, const CscMatrix& a, const Preconditioner* m,
                     Storage storage = Storage::kFp64) {
  const Vector b = RowSums(a);
  const auto solved =
      engine.Solve(a, m, b, {}, {.method = Method::kCg, .rtol = 1e-10, .m_storage = storage}, {});
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_LE(TrueRelative(a, solved->x, b), 1.0001e-10);
  return solved->rhs[0].iterations;
}

TEST(Fsai, GIsLowerTriangularAndScalesTheDiagonalToOne) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomSpd(60, 5, 3);
  for (const PreconditionerSpec& spec : {Fsai(), Fsai(2), Afsai()}) {
    const BuildResult built = MustBuild(*engine, spec, a);
    const Preconditioner& m = *built.preconditioner;
    EXPECT_EQ(m.kind(), spec.engine);
    EXPECT_TRUE(m.is_factor());
    const CscMatrix& g = m.matrix();
    for (int64_t j = 0; j < 60; ++j) {
      const auto rows = g.pattern().column(j);
      ASSERT_FALSE(rows.empty());
      EXPECT_EQ(rows.front(), j) << "the diagonal first, nothing above it";
      EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    }
    for (const double d : ScaledDiagonal(a, g)) EXPECT_NEAR(d, 1, 1e-12);
    ASSERT_TRUE(built.quality.fsai.has_value());
    EXPECT_LT(built.quality.fsai->kaporin, 1);
    EXPECT_DOUBLE_EQ(built.quality.density, static_cast<double>(g.nnz()) / a.nnz());
    EXPECT_THAT(built.quality.residual_quantiles, IsEmpty());
    EXPECT_THAT(built.quality.warnings, IsEmpty());
    EXPECT_FALSE(built.quality.pattern_reused);
  }
}

TEST(Fsai, WithoutGrowthIsJacobiIterationByIteration) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomSpd(300, 6, 5);
  const BuildResult jacobi = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  const BuildResult none = MustBuild(*engine, Afsai(0), a);
  EXPECT_EQ(none.preconditioner->matrix().nnz(), 300);
  EXPECT_EQ(CgIterations(*engine, a, none.preconditioner.get()),
            CgIterations(*engine, a, jacobi.preconditioner.get()));
  const BuildResult grown = MustBuild(*engine, Afsai(8), a);
  EXPECT_LT(CgIterations(*engine, a, grown.preconditioner.get()),
            CgIterations(*engine, a, jacobi.preconditioner.get()));
}

TEST(Fsai, APlanOfAPrescribedPatternServesNewValues) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(15, 15), a2 = OtherValues(a);
  const auto plan = engine->MakePlan(Fsai(2), a, nullptr, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE((*plan)->serves_new_values());
  const auto again = (*plan)->Build(Fsai(2), a2, {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->grown, nullptr);
  const BuildResult anew = MustBuild(*engine, Fsai(2), a2);
  EXPECT_EQ(again->preconditioner->matrix().values, anew.preconditioner->matrix().values);
  EXPECT_EQ((*plan)->Build(Fsai(1), a, {}).status().reason(), "PLAN_MISMATCH");

  PreconditionerSpec dropped = Fsai();
  dropped.fsai.drop_tol = 0.2;
  const auto of_values = engine->MakePlan(dropped, a2, nullptr, {});
  ASSERT_TRUE(of_values.ok());
  EXPECT_FALSE((*of_values)->serves_new_values());
  EXPECT_LT(MustBuild(*engine, dropped, a2).preconditioner->matrix().nnz(),
            MustBuild(*engine, Fsai(), a2).preconditioner->matrix().nnz());
}

TEST(Afsai, WhatGrewServesNewValues) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomSpd(200, 6, 9), a2 = OtherValues(a);
  const auto plan = engine->MakePlan(Afsai(), a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE((*plan)->serves_new_values()) << "there is nothing in it yet";
  const auto first = (*plan)->Build(Afsai(), a, {});
  ASSERT_TRUE(first.ok());
  ASSERT_NE(first->grown, nullptr);
  EXPECT_TRUE(first->grown->serves_new_values());
  const CscMatrix& g = first->preconditioner->matrix();
  EXPECT_GE(first->grown->host_bytes(), 4 * g.nnz());
  EXPECT_GT(first->quality.fsai->kaporin_by_step.size(), 1u);

  // The same values give the same G; others, other values on that pattern.
  const auto same = first->grown->Build(Afsai(), a, {});
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_TRUE(same->quality.pattern_reused);
  EXPECT_EQ(same->grown, nullptr);
  ASSERT_EQ(same->preconditioner->matrix().row_idx, g.row_idx);
  for (size_t p = 0; p < g.values.size(); ++p) {
    EXPECT_NEAR(same->preconditioner->matrix().values[p], g.values[p], 1e-10);
  }
  const auto again = first->grown->Build(Afsai(), a2, {});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->preconditioner->matrix().row_idx, g.row_idx);
  for (const double d : ScaledDiagonal(a2, again->preconditioner->matrix())) {
    EXPECT_NEAR(d, 1, 1e-12);
  }
  // Grown anew for them, the pattern is another one, and no worse.
  const BuildResult anew = MustBuild(*engine, Afsai(), a2);
  EXPECT_NE(anew.preconditioner->matrix().row_idx, g.row_idx);
  EXPECT_LE(anew.quality.fsai->kaporin, again->quality.fsai->kaporin * 1.01);
  EXPECT_EQ(first->grown->Build(Fsai(), a, {}).status().reason(), "PLAN_MISMATCH");
}

TEST(Afsai, GrowsFromAUsersPatternOfWhichTheLowerTriangleCounts) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomSpd(40, 5, 2);
  // Row 39 of the pattern has every index, column 39 too.
  const CscMatrix arrow = oracle::Arrow(40);
  const PatternView user = arrow.pattern();
  for (const PreconditionerSpec& spec : {Fsai(), Afsai(2)}) {
    const auto plan = engine->MakePlan(spec, a, &user, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto built = (*plan)->Build(spec, a, {});
    ASSERT_TRUE(built.ok()) << built.status().message();
    const CscMatrix& g = built->preconditioner->matrix();
    for (int64_t j = 0; j < 40; ++j) {
      EXPECT_EQ(g.pattern().column(j).back(), 39) << "row 39 is full";
      EXPECT_EQ(g.pattern().column(j).front(), j);
    }
    EXPECT_GE(g.nnz(), 79);
    EXPECT_EQ(g.nnz() > 79, spec.engine == EngineKind::kAfsai);
    const auto estimate = engine->Estimate(spec, a, &user, {});
    ASSERT_TRUE(estimate.ok()) << estimate.status().message();
    EXPECT_GE(estimate->nnz_m, g.nnz());
  }
  const CscMatrix small = oracle::Arrow(39);
  const PatternView wrong = small.pattern();
  EXPECT_EQ(engine->MakePlan(Afsai(), a, &wrong, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
}

TEST(Afsai, WhatATimeBudgetCutShortIsSaidAndNotKept) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(150, 150);
  PreconditionerSpec spec = Afsai(200);
  spec.fsai.epsilon = 0;
  spec.fsai.time_budget_ms = 1;
  const BuildResult built = MustBuild(*engine, spec, a);
  ASSERT_TRUE(built.quality.fsai->out_of_time);
  EXPECT_LT(built.quality.fsai->steps, 200);
  EXPECT_EQ(built.grown, nullptr);
  ASSERT_EQ(built.quality.warnings.size(), 1u);
  EXPECT_THAT(built.quality.warnings[0], HasSubstr("time budget of 1 ms ended growth after"));
}

TEST(Fsai, WhatIsNotSymmetricOrNotPositiveIsRefused) {
  const auto engine = MakeCpuEngine();
  const CscMatrix nonsymmetric = oracle::ConvectionDiffusion(6, 6, 1.0);
  const CscMatrix negative = Rows({{2, 1, 0}, {1, -2, 1}, {0, 1, 2}});
  for (const PreconditionerSpec& spec : {Fsai(), Afsai()}) {
    const auto plan = engine->MakePlan(spec, nonsymmetric, nullptr, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto status = (*plan)->Build(spec, nonsymmetric, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.reason(), "NOT_SYMMETRIC");
    const auto other = engine->MakePlan(spec, negative, nullptr, {});
    ASSERT_TRUE(other.ok());
    const auto refused = (*other)->Build(spec, negative, {}).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(refused.reason(), "NOT_POSITIVE_DEFINITE");
    EXPECT_EQ(refused.index(), 1);
  }
}

TEST(Fsai, AnIndefiniteMatrixIsCountedAndWarnedOf) {
  // Of the leading 2 x 2 block the determinant is 1 − 4.
  const CscMatrix a = Rows({{1, 2, 0}, {2, 1, 0}, {0, 0, 1}});
  const auto engine = MakeCpuEngine();
  for (const PreconditionerSpec& spec : {Fsai(), Afsai()}) {
    const BuildResult built = MustBuild(*engine, spec, a);
    EXPECT_EQ(built.quality.fsai->not_spd_rows, 1);
    EXPECT_EQ(built.quality.fsai->first_not_spd, 1);
    ASSERT_EQ(built.quality.warnings.size(), 1u);
    EXPECT_THAT(built.quality.warnings[0], HasSubstr("1 of 3 rows (first 1) of G met a pivot"));
  }
}

TEST(Fsai, OptionsOfTheOtherKindAreDropped) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(4, 4);
  PreconditionerSpec spec = Spec(EngineKind::kFsai);
  spec.fsai.k_max = 3;
  spec.fsai.epsilon = 0.5;
  spec.fsai.min_gain = 0.1;
  spec.fsai.power = 2;
  spec.static_spai.post_filter = 0.5;
  spec.block_size = 1;
  const auto fixed = engine->Resolve(spec, a, Diagnose(a), nullptr, {});
  ASSERT_TRUE(fixed.ok());
  EXPECT_EQ(fixed->spec.fsai.k_max, FsaiOptions().k_max);
  EXPECT_EQ(fixed->spec.fsai.epsilon, FsaiOptions().epsilon);
  EXPECT_EQ(fixed->spec.fsai.min_gain, 0);
  EXPECT_EQ(fixed->spec.fsai.power, 2);
  EXPECT_EQ(fixed->spec.static_spai.post_filter, 0);
  EXPECT_FALSE(fixed->spec.fsai.adaptive);
  spec.engine = EngineKind::kAfsai;
  const auto grown = engine->Resolve(spec, a, Diagnose(a), nullptr, {});
  ASSERT_TRUE(grown.ok());
  EXPECT_EQ(grown->spec.fsai.k_max, 3);
  EXPECT_EQ(grown->spec.fsai.power, 1);
  EXPECT_TRUE(grown->spec.fsai.adaptive);
}

TEST(Fsai, BothFactorsAreStoredAsTold) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(160, 160);
  const BuildResult built = MustBuild(*engine, Afsai(6), a);
  const Preconditioner* m = built.preconditioner.get();
  const int64_t fp64 = CgIterations(*engine, a, m);
  const int64_t fp32 = CgIterations(*engine, a, m, Storage::kFp32);
  EXPECT_NEAR(static_cast<double>(fp32), static_cast<double>(fp64), 2);
  const auto solve = [&](Storage storage) {
    return *engine->Solve(a, m, RowSums(a), {},
                          {.method = Method::kCg, .rtol = 1e-10, .m_storage = storage}, {});
  };
  const SolveResult wide = solve(Storage::kFp64), narrow = solve(Storage::kFp32);
  EXPECT_EQ(narrow.m_storage, Storage::kFp32);
  // Each iteration reads 4 bytes less of every value, twice.
  const double spared = wide.figures.bytes / static_cast<double>(wide.figures.iterations) -
                        narrow.figures.bytes / static_cast<double>(narrow.figures.iterations);
  EXPECT_NEAR(spared, 8.0 * static_cast<double>(m->matrix().nnz()), 0.03 * spared);
  const SolveResult chosen = solve(Storage::kAuto);
  EXPECT_NE(chosen.m_storage, Storage::kAuto);
  EXPECT_THAT(chosen.storage_reason, Not(IsEmpty()));
}

TEST(Fsai, FactorsBeyondFp32AreRefused) {
  const auto engine = MakeCpuEngine();
  CscMatrix a = oracle::Laplacian2d(6, 6);
  for (double& v : a.values) v *= 1e-90;  // G: 1e45
  const BuildResult built = MustBuild(*engine, Fsai(), a);
  const auto solved = engine->Solve(a, built.preconditioner.get(), RowSums(a), {},
                                    {.method = Method::kCg, .m_storage = Storage::kFp32}, {});
  EXPECT_EQ(solved.status().reason(), "FLOAT32_OVERFLOW");
}

TEST(Fsai, HoldsBothLayoutsOfG) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const BuildResult built = MustBuild(*engine, Fsai(), a);
  const int64_t csc = built.preconditioner->matrix().bytes();
  const int64_t before = built.preconditioner->host_bytes();
  EXPECT_GE(before, 2 * csc + 400 * 8);
  EXPECT_LE(before, 2 * csc + 400 * 8 + 4096);
  CgIterations(*engine, a, built.preconditioner.get());
  EXPECT_EQ(built.preconditioner->host_bytes(), before);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
