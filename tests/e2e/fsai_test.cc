// FSAI through the real daemon: grow, download, solve, new values, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "tests/e2e/engine_of_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;

class Fsai : public EngineOfDaemon {
 protected:
  static PreconditionerSpec Spec(Engine engine = Engine::kAfsai) {
    return {.engine = engine, .fsai = {.k_max = 8}};
  }
};

// The largest |(G A Gᵀ)_ii − 1|.
double DiagonalError(const CscMatrix& a, const CscMatrix& g) {
  const auto n = static_cast<size_t>(a.n);
  std::vector<std::vector<std::pair<int64_t, double>>> rows(n);
  for (int64_t j = 0; j < g.n; ++j) {
    for (int64_t p = g.col_ptr[j]; p < g.col_ptr[j + 1]; ++p) {
      rows[static_cast<size_t>(g.row_idx[p])].push_back({j, g.values[p]});
    }
  }
  double worst = 0;
  std::vector<double> row(n);
  for (size_t i = 0; i < n; ++i) {
    row.assign(n, 0);
    for (const auto& [j, value] : rows[i]) row[static_cast<size_t>(j)] = value;
    const std::vector<double> image = Multiply(a, row);
    double entry = 0;
    for (size_t j = 0; j < n; ++j) entry += row[j] * image[j];
    worst = std::max(worst, std::abs(entry - 1));
  }
  return worst;
}

TEST_F(Fsai, GrowsIsDownloadedAndSolvesByCg) {
  const CscMatrix a = Poisson(25, 20);
  const auto matrix = client_.Upload(a);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  for (const Engine engine : {Engine::kFsai, Engine::kAfsai}) {
    const std::optional<BuildResult> built = BuildAsEstimated(matrix->name, Spec(engine));
    ASSERT_TRUE(built);
    const PreconditionerInfo& info = built->preconditioner;
    EXPECT_TRUE(info.is_factor);
    EXPECT_LT(DiagonalError(a, *built->m), 1e-12);
    ASSERT_TRUE(info.quality.fsai.has_value());
    EXPECT_LT(info.quality.fsai->kaporin, 1);
    EXPECT_EQ(info.quality.fsai->kaporin_by_step.size() > 1, engine == Engine::kAfsai);
    EXPECT_TRUE(info.quality.residual_quantiles.empty());
    ExpectBetterThanJacobi(matrix->name, a, info.name, Method::kCg);
    const std::vector<double> b = SmoothRhs(a);
    const auto fp32 = client_.Solve(matrix->name, b,
                                    {.preconditioner = info.name, .m_precision = Precision::kFp32});
    ASSERT_TRUE(fp32.ok()) << fp32.error().message;
    EXPECT_EQ(fp32->m_precision, Precision::kFp32);
    EXPECT_LE(RelativeResidual(a, fp32->x, b), 1.001e-8);
  }
}

TEST_F(Fsai, NewValuesAreARebuildUnlessItShallRegrow) {
  const CscMatrix a = Poisson(31, 20), next = OtherValues(a);
  PreconditionerSpec regrow = Spec();
  regrow.regrow = true;
  BuildResult rebuilt;
  ASSERT_NO_FATAL_FAILURE(ExpectRebuiltUnlessRegrown(
      a, next, Spec(), regrow, [](const Quality& quality) { return quality.fsai->pattern_reused; },
      &rebuilt));
  EXPECT_LT(DiagonalError(next, *rebuilt.m), 1e-12);
  // Of a prescribed pattern, too.
  EXPECT_FALSE(client_.Build(a, Spec(Engine::kFsai))->timings.rebuild);
  EXPECT_TRUE(client_.Build(next, Spec(Engine::kFsai))->timings.rebuild);
}

TEST_F(Fsai, GrowsFromAPatternThatWasSent) {
  const CscMatrix a = Poisson(8, 7);
  CscView pattern = a;
  pattern.values = {};
  const auto stored = client_.Upload(pattern, "a pattern");
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  PreconditionerSpec spec = Spec();
  spec.fsai.k_max = 0;
  EXPECT_EQ(client_.Build(a, spec)->preconditioner.nnz, a.n) << "Jacobi";
  spec.pattern_matrix = stored->name;
  const auto built = client_.Build(a, spec);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->preconditioner.nnz, (stored->nnz + a.n) / 2) << "its lower triangle";
  EXPECT_EQ(built->preconditioner.spec.pattern_matrix, stored->name);
}

TEST_F(Fsai, RefusesWhatIsNotSymmetricOrNotPositiveDefinite) {
  CscMatrix negative = Poisson(6, 5);
  for (int64_t p = negative.col_ptr[7]; p < negative.col_ptr[8]; ++p) {
    if (negative.row_idx[p] == 7) negative.values[p] = -1;
  }
  for (const Engine engine : {Engine::kFsai, Engine::kAfsai}) {
    const auto nonsymmetric = client_.Build(ConvectionDiffusion(6, 5, 0.5), Spec(engine));
    ASSERT_FALSE(nonsymmetric.ok());
    EXPECT_EQ(nonsymmetric.error().code, Code::kFailedPrecondition);
    EXPECT_EQ(nonsymmetric.error().reason, "NOT_SYMMETRIC");
    EXPECT_THAT(nonsymmetric.error().message, HasSubstr("static SPAI")) << "the cure";
    ExpectRefusedAt(client_.Build(negative, Spec(engine)), "NOT_POSITIVE_DEFINITE", "7");
  }
  // With a positive diagonal it takes factors to see it: that is counted, and said.
  CscMatrix indefinite = Poisson(6, 5);
  for (double& value : indefinite.values) value = value < 0 ? 3 * value : value;
  const auto built = client_.Build(indefinite, Spec(Engine::kFsai));
  ASSERT_TRUE(built.ok()) << built.error().message;
  const Quality& quality = built->preconditioner.quality;
  EXPECT_GT(quality.fsai->not_spd_rows.count, 0);
  EXPECT_GE(quality.fsai->not_spd_rows.first, 0);
  ASSERT_FALSE(quality.warnings.empty());
  EXPECT_THAT(quality.warnings[0], HasSubstr("not positive"));
}

TEST_F(Fsai, ATimeBudgetEndsGrowthAndIsSaid) {
  const CscMatrix a = Poisson(200, 150);
  PreconditionerSpec spec{.engine = Engine::kAfsai, .fsai = {.k_max = 400, .epsilon = 0}};
  spec.fsai.time_budget = std::chrono::milliseconds(1);
  const auto built = client_.Build(a, spec);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_TRUE(built->preconditioner.quality.fsai->out_of_time);
  EXPECT_LT(built->preconditioner.quality.fsai->steps, 400);
  const auto again = client_.Build(a, spec);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->timings.reused);
  EXPECT_NE(again->preconditioner.name, built->preconditioner.name);
}

TEST_F(Fsai, ACancelledBuildEnds) {
  ExpectACancelledBuildEnds(Poisson(400, 300),
                            {.engine = Engine::kAfsai, .fsai = {.k_max = 512, .epsilon = 0}});
}

}  // namespace
}  // namespace spaid::e2e
