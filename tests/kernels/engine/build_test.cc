// Building: Jacobi by hand, static SPAI through the face, warnings, rebuilds, stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/engine/engine_parts.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Jacobi, ThreeByThreeByHand) {
  // Columns of A M − E: (0, 1/2, 0), (−1/4, 0, 1/4), (0, 3/5, 0).
  const CscMatrix a = Rows({{2, -1, 0}, {1, 4, 3}, {0, 1, 5}});
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  const CscMatrix& m = built.preconditioner->matrix();
  EXPECT_EQ(built.preconditioner->kind(), EngineKind::kJacobi);
  EXPECT_THAT(m.col_ptr, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(m.row_idx, ElementsAre(0, 1, 2));
  EXPECT_THAT(m.values, ElementsAre(0.5, 0.25, 0.2));
  const Quality& q = built.quality;
  EXPECT_NEAR(q.residual_frobenius, std::sqrt(0.25 + 0.125 + 0.36), 1e-15);
  EXPECT_EQ(q.worst_column, 2);
  ASSERT_EQ(q.residual_quantiles.size(), 8u);
  EXPECT_NEAR(q.residual_quantiles.front(), std::sqrt(0.125), 1e-15);
  EXPECT_NEAR(q.residual_quantiles[3], 0.5, 1e-15);
  EXPECT_NEAR(q.residual_quantiles.back(), 0.6, 1e-15);
  EXPECT_NEAR(q.density, 3.0 / 7, 1e-15);
  EXPECT_TRUE(q.warnings.empty());
}

TEST(Jacobi, QualityEqualsTheOracles) {
  const auto engine = MakeCpuEngine();
  for (const oracle::NamedMatrix& named : oracle::Zoo(8)) {
    if (Diagnose(named.a).zero_diagonal.count > 0) continue;
    const BuildResult built = MustBuild(*engine, Spec(EngineKind::kJacobi), named.a);
    const double expected = oracle::SpaiFrobenius(
        oracle::ToDense(named.a), oracle::ToDense(CscView(built.preconditioner->matrix())));
    EXPECT_NEAR(built.quality.residual_frobenius, expected, 1e-12 * (1 + expected)) << named.name;
  }
}

TEST(Jacobi, ZeroMissingAndTinyDiagonalsAreCounted) {
  CscMatrix a = Rows({{1, 2, 0, 0}, {0, 0, 1, 0}, {0, 1, 1, 0}, {0, 0, 0, 1}});  // a_11 not stored
  a.values.back() = std::numeric_limits<double>::denorm_min();                   // 1 / a_33 = inf
  const auto engine = MakeCpuEngine();
  const auto spec = Spec(EngineKind::kJacobi);
  const auto plan = engine->MakePlan(spec, a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  const auto status = (*plan)->Build(spec, a, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "ZERO_DIAGONAL");
  EXPECT_EQ(status.index(), 1);
  EXPECT_THAT(status.message(), HasSubstr("2 of 4 diagonal entries"));
  EXPECT_THAT(status.message(), HasSubstr("use static SPAI with row_match or ensure_row"));
  a.values[0] = 0;  // now the first is stored and zero
  EXPECT_EQ((*plan)->Build(spec, a, {}).status().index(), 0);
}

TEST(Jacobi, IsScaledFromADiagonalPatternOfSpai) {
  // SPAI with a diagonal pattern: m_kk = a_kk / ‖A e_k‖², that is Jacobi's times a_kk² / ‖A e_k‖².
  const CscMatrix a = oracle::RandomIrregular(40, 4, 3);
  Pattern diagonal;
  diagonal.n_rows = diagonal.n_cols = 40;
  for (int64_t k = 0; k <= 40; ++k) diagonal.col_ptr.push_back(k);
  for (int32_t k = 0; k < 40; ++k) diagonal.row_idx.push_back(k);
  const PatternView user = diagonal;
  const auto engine = MakeCpuEngine();
  const BuildResult jacobi = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  const auto plan = engine->MakePlan(Spai(), a, &user, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto spai = (*plan)->Build(Spai(), a, {});
  ASSERT_TRUE(spai.ok()) << spai.status().message();
  const CscMatrix& m = spai->preconditioner->matrix();
  ASSERT_EQ(m.nnz(), 40);
  for (int64_t k = 0; k < 40; ++k) {
    double norm2 = 0;
    for (const double v : CscView(a).column_values(k)) norm2 += v * v;
    const double inverse = jacobi.preconditioner->matrix().values[k];
    EXPECT_NEAR(m.values[k] * norm2 * inverse * inverse, inverse, 1e-12 * std::abs(inverse)) << k;
  }
  EXPECT_LE(spai->quality.residual_frobenius, jacobi.quality.residual_frobenius * (1 + 1e-12));
}

TEST(Build, ProductsWithMAreThoseOfItsColumns) {
  // One step of a method that multiplies by M: BiCGSTAB on A = E returns M b's multiples; cheaper
  // to see is M itself through a solve of E x = b with M = A⁻¹ exact: one iteration.
  const CscMatrix a = oracle::RandomIrregular(12, 3, 5);
  PreconditionerSpec full = Spai(12);  // the power reaches everything that the inverse can hold
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, full, a);
  ASSERT_LT(built.quality.residual_frobenius, 1e-10);
  const Vector b = RowSums(a);
  const auto r = engine->Solve(a, built.preconditioner.get(), b, {},
                               {.method = Method::kBicgstab, .rtol = 1e-10}, {});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r->rhs[0].iterations, 1) << "M is the exact inverse";
  for (const double v : r->x) EXPECT_NEAR(v, 1, 1e-8);
}

TEST(Build, HostBytesCoverBothLayouts) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(20, 20, 1.0);
  const BuildResult spai = MustBuild(*engine, Spai(), a);
  const int64_t csc = spai.preconditioner->matrix().bytes();
  EXPECT_GE(spai.preconditioner->host_bytes(), 2 * csc);
  EXPECT_LE(spai.preconditioner->host_bytes(), 2 * csc + 4096);
  const BuildResult jacobi = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  EXPECT_GE(jacobi.preconditioner->host_bytes(), jacobi.preconditioner->matrix().bytes());
}

TEST(Build, ZeroColumnsBecomeAWarningWithACure) {
  // e_0 is out of the reach of column 0's pattern: nothing of row 0 is in columns {0, 1}.
  const CscMatrix a = Rows({{0, 0, 1}, {1, 2, 0}, {0, 1, 3}});
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Spai(), a);
  ASSERT_GT(built.quality.zero_columns, 0);
  ASSERT_FALSE(built.quality.warnings.empty());
  EXPECT_THAT(built.quality.warnings[0], HasSubstr("of 3 columns (first 0) of M are zero"));
  EXPECT_THAT(built.quality.warnings[0], HasSubstr("set ensure_row or row_match"));
  PreconditionerSpec cured = Spai();
  cured.static_spai.pattern.ensure_row = true;
  EXPECT_EQ(MustBuild(*engine, cured, a).quality.zero_columns, 0);
}

TEST(Build, RankDeficientColumnsBecomeAWarning) {
  const CscMatrix a = oracle::Singular(12, 4);  // two equal columns
  PreconditionerSpec spec = Spai(12);
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, spec, a);
  ASSERT_GT(built.quality.rank_deficient_columns, 0);
  EXPECT_THAT(built.quality.warnings,
              ::testing::Contains(HasSubstr("rank-deficient local problem")));
}

TEST(Build, RescuedColumnsBecomeAWarning) {
  PreconditionerSpec spec = Spai(2);
  spec.static_spai.local_solver = LocalSolver::kGram;
  spec.static_spai.gram_pivot_limit = 0.9;  // nearly every column is under it
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, spec, oracle::Laplacian2d(8, 8));
  ASSERT_GT(built.quality.rescued_columns, 0);
  EXPECT_THAT(built.quality.warnings, ::testing::Contains(HasSubstr("solved again by QR")));
}

TEST(Build, APlanThatReadValuesServesNoNewOnes) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(9, 8, 0.5);
  PreconditionerSpec threshold = Spai();
  threshold.static_spai.pattern.keep_tau = 0.5;
  for (const auto& spec : {Spai(), Spec(EngineKind::kJacobi), threshold}) {
    const auto plan = engine->MakePlan(spec, a, nullptr, {});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ((*plan)->serves_new_values(), !spec.static_spai.pattern.keep_tau.has_value());
  }
}

TEST(Build, AnOldPreconditionerServesANewMatrix) {
  const auto engine = MakeCpuEngine();
  const CscMatrix old = oracle::ConvectionDiffusion(15, 15, 0.5);
  CscMatrix now = old;
  for (size_t p = 0; p < now.values.size(); ++p) now.values[p] *= 1 + 0.01 * (p % 7);
  const BuildResult built = MustBuild(*engine, Spai(), old);
  const Vector b = RowSums(now);
  const auto r = engine->Solve(now, built.preconditioner.get(), b, {}, {.rtol = 1e-9}, {});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(TrueRelative(now, r->x, b), 1.001e-9);
}

TEST(Build, AStopReachesTheLayoutOfM) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const Context context{.stop = cancel.token(), .progress = nullptr, .threads = 1};
  const CscMatrix m = oracle::ConvectionDiffusion(9, 8, 0.5);
  const auto made = HostPreconditioner::Make(EngineKind::kStaticSpai, m, context, true);
  EXPECT_EQ(made.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(HostPreconditioner::Make(EngineKind::kStaticSpai, m, {}, true).ok());
}

// As after a build on a device: what the host then asks of M is what it asks of its own.
TEST(Solve, TheHostMakesRowsOfMWhenItWantsThem) {
  const auto engine = MakeCpuEngine();
  for (const bool symmetric : {false, true}) {
    const CscMatrix a = oracle::ConvectionDiffusion(19, 18, symmetric ? 0 : 0.5);
    const CscMatrix m = symmetric ? a : MustBuild(*engine, Spai(), a).preconditioner->matrix();
    const auto now = HostPreconditioner::Make(EngineKind::kStaticSpai, m, {}, true);
    const auto later = HostPreconditioner::Make(EngineKind::kStaticSpai, m, {}, false);
    ASSERT_TRUE(now.ok() && later.ok());
    const int64_t bytes = (*later)->host_bytes();
    EXPECT_GE(bytes, (*now)->host_bytes());
    EXPECT_LE(bytes, (*now)->host_bytes() + m.bytes() + 4096);
    EXPECT_EQ((*later)->bytes_per_apply(), (*now)->bytes_per_apply());

    const Vector b = RowSums(a);
    StopSource cancel;
    cancel.Request(StopReason::kCancelled);
    const Context stopped{.stop = cancel.token(), .progress = nullptr, .threads = 1};
    for (const Storage storage : {Storage::kFp64, Storage::kFp32}) {
      const SolveOptions options{.method = Method::kBicgstab, .m_storage = storage};
      const auto none = engine->Solve(a, later->get(), b, {}, options, stopped);
      ASSERT_TRUE(none.ok()) << none.status().message();
      EXPECT_EQ(none->rhs[0].outcome, Outcome::kCancelled);
      const auto expected = engine->Solve(a, now->get(), b, {}, options, {});
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      EXPECT_EQ(expected->rhs[0].outcome, Outcome::kConverged);
      std::vector<std::thread> clients;
      for (int i = 0; i < 3; ++i) {
        clients.emplace_back([&] {
          const auto solved = engine->Solve(a, later->get(), b, {}, options, {});
          ASSERT_TRUE(solved.ok()) << solved.status().message();
          EXPECT_EQ(solved->x, expected->x);
        });
      }
      for (std::thread& client : clients) client.join();
    }
    EXPECT_EQ((*later)->host_bytes(), bytes) << "what a store has counted stays so";
  }
}

TEST(Solve, RowsThatAreNotMadeAreLookedAtForFp32) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(9, 8, 0.5);
  CscMatrix m = MustBuild(*engine, Spai(), a).preconditioner->matrix();
  for (size_t p = 0; p < m.values.size(); ++p) m.values[p] *= m.row_idx[p] == 5 ? 1e-40 : 1;
  const auto made = HostPreconditioner::Make(EngineKind::kStaticSpai, m, {}, false);
  ASSERT_TRUE(made.ok());
  const SolveOptions options{.method = Method::kBicgstab, .m_storage = Storage::kFp32};
  const auto solved = engine->Solve(a, made->get(), RowSums(a), {}, options, {});
  EXPECT_EQ(solved.status().reason(), "FLOAT32_UNDERFLOW");
  EXPECT_EQ(solved.status().index(), 5);
  EXPECT_THAT(solved.status().message(), ::testing::HasSubstr("row 5"));
}

TEST(Solve, AStopBeforeTheFirstIterationIsAnOutcome) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(9, 8, 0.5);
  const Vector b = RowSums(a), x0(b.size(), 0.25);
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const Context context{.stop = cancel.token(), .progress = nullptr, .threads = 2};
  const auto r = engine->Solve(a, nullptr, b, x0, {}, context);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kCancelled);
  EXPECT_EQ(r->rhs[0].iterations, 0);
  EXPECT_THAT(r->x, ::testing::Each(0.25));
  EXPECT_NEAR(r->rhs[0].true_relative_residual, 0.75, 1e-14) << "A x0 = b / 4";
}

TEST(Solve, ThreadsDoNotChangeABit) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(220, 200, 0.5);  // transposed in several parts
  const Vector b = RowSums(a);
  Array<double> serial;
  for (const int threads : {1, 2, 5}) {
    const Context context{.stop = {}, .progress = nullptr, .threads = threads};
    const BuildResult built = MustBuild(*engine, Spai(), a, context);
    SolveOptions options;
    options.max_iterations = 15;
    const auto r = engine->Solve(a, built.preconditioner.get(), b, {}, options, context);
    ASSERT_TRUE(r.ok());
    if (threads == 1) serial = r->x;
    EXPECT_EQ(r->x, serial) << threads;
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
