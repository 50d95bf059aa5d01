// Dynamic SPAI through the real daemon: grow, download, solve, new values, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <algorithm>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/engine_of_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;

class DynamicSpai : public EngineOfDaemon {
 protected:
  static PreconditionerSpec Spec(DynamicSpaiSpec growth = {}) {
    return {.engine = Engine::kDynamicSpai, .dynamic_spai = growth};
  }
  static int64_t LongestColumn(const CscMatrix& m) {
    int64_t longest = 0;
    for (int64_t j = 0; j < m.n; ++j) {
      longest = std::max(longest, m.col_ptr[j + 1] - m.col_ptr[j]);
    }
    return longest;
  }
};

// The worked example of the literature: [10 10 0 14; 0 10 2 0; 13 0 0 1; 0 5 0 0].
TEST_F(DynamicSpai, TheExampleOfTheLiterature) {
  const CscMatrix a{.n = 4,
                    .col_ptr = {0, 2, 5, 6, 8},
                    .row_idx = {0, 2, 0, 1, 3, 1, 0, 2},
                    .values = {10, 13, 10, 10, 5, 2, 14, 1}};
  const auto built = client_.Build(a, Spec({.tol = 0.01, .max_steps = 1, .step_size = 1}), true);
  ASSERT_TRUE(built.ok()) << built.error().message;
  const CscMatrix& m = *built->m;
  ASSERT_EQ(m.col_ptr[1], 2) << "column 0 grows from 0 to 3";
  EXPECT_EQ(m.row_idx[0], 0);
  EXPECT_EQ(m.row_idx[1], 3);
  EXPECT_NEAR(m.values[0], -1.0 / 172, 1e-14);
  EXPECT_NEAR(m.values[1], 13.0 / 172, 1e-14);
  // Until nothing is left of the residual it is the inverse.
  const auto inverse = client_.Build(a, Spec({.tol = 0, .max_steps = 4, .step_size = 1}), true);
  ASSERT_TRUE(inverse.ok()) << inverse.error().message;
  EXPECT_LT(InverseResidual(a, *inverse->m), 1e-12);
}

TEST_F(DynamicSpai, GrowsIsDownloadedAndSolves) {
  const CscMatrix a = ConvectionDiffusion(25, 20, 0.5);
  const auto matrix = client_.Upload(a);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  const PreconditionerSpec spec = Spec({.tol = 0.2, .max_steps = 6, .step_size = 2});
  const std::optional<BuildResult> built = BuildAsEstimated(matrix->name, spec);
  ASSERT_TRUE(built);
  const PreconditionerInfo& info = built->preconditioner;
  EXPECT_FALSE(info.is_factor);
  EXPECT_NEAR(InverseResidual(a, *built->m), info.quality.residual_frobenius,
              1e-12 * info.quality.residual_frobenius);
  EXPECT_EQ(info.quality.residual_quantiles.size(), 8u);
  ASSERT_TRUE(info.quality.dynamic_spai.has_value());
  const DynamicSpaiQuality& growth = *info.quality.dynamic_spai;
  EXPECT_EQ(growth.nnz_column_max, LongestColumn(*built->m));
  EXPECT_LE(growth.nnz_column_max, 1 + 6 * 2);
  ASSERT_EQ(growth.residual_by_step.size(), 7u);
  for (size_t step = 1; step < 7; ++step) {
    EXPECT_LE(growth.residual_by_step[step], growth.residual_by_step[step - 1]);
  }
  EXPECT_EQ(growth.dependent_columns.count, 0);
  EXPECT_FALSE(growth.pattern_reused);
  ExpectBetterThanJacobi(matrix->name, a, info.name, Method::kBicgstab);
  const auto refused = client_.Solve(matrix->name, SmoothRhs(a),
                                     {.preconditioner = info.name, .method = Method::kCg});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "PRECONDITIONER_NOT_SPD");
}

TEST_F(DynamicSpai, OptionsDoWhatTheySay) {
  const CscMatrix a = ConvectionDiffusion(20, 17, 0.8);
  const auto build = [&](const PreconditionerSpec& spec) {
    auto built = client_.Build(a, spec, true);
    EXPECT_TRUE(built.ok()) << built.error().message;
    return built.ok() ? *std::move(built) : BuildResult{};
  };
  const BuildResult coarse = build(Spec({.tol = 0.5})), fine = build(Spec({.tol = 0.1}));
  EXPECT_LT(coarse.preconditioner.nnz, fine.preconditioner.nnz);
  EXPECT_GT(coarse.preconditioner.quality.residual_frobenius,
            fine.preconditioner.quality.residual_frobenius);
  EXPECT_EQ(fine.preconditioner.spec.dynamic_spai.tol, 0.1);
  ASSERT_TRUE(fine.m);
  EXPECT_GT(LongestColumn(*fine.m), 4);
  const BuildResult narrow = build(Spec({.tol = 0.1, .max_column_nnz = 4}));
  ASSERT_TRUE(narrow.m);
  EXPECT_LE(LongestColumn(*narrow.m), 4);
  PreconditionerSpec spec = Spec({.tol = 0.1});
  spec.post_filter = 0.2;
  const BuildResult filtered = build(spec);
  EXPECT_LT(filtered.preconditioner.nnz, fine.preconditioner.nnz);
  // Growth in fp32: its values are fp64 all the same.
  const BuildResult single = build(Spec({.tol = 0.1, .growth_precision = Precision::kFp32}));
  EXPECT_EQ(single.preconditioner.spec.dynamic_spai.growth_precision, Precision::kFp32);
  EXPECT_NEAR(single.preconditioner.quality.residual_frobenius,
              fine.preconditioner.quality.residual_frobenius,
              0.01 * fine.preconditioner.quality.residual_frobenius);
  spec = Spec({.tol = 0.1});
  spec.local_solver = LocalSolver::kQr;
  const BuildResult by_qr = build(spec);
  EXPECT_EQ(by_qr.preconditioner.quality.qr_columns, a.n);
  EXPECT_EQ(by_qr.m->row_idx, fine.m->row_idx);
}

TEST_F(DynamicSpai, GrowsFromAPatternThatWasSent) {
  const CscMatrix a = ConvectionDiffusion(11, 9, 0.5);
  CscView pattern = a;
  pattern.values = {};
  const auto stored = client_.Upload(pattern, "a pattern");
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  PreconditionerSpec spec = Spec({.max_steps = 0});
  EXPECT_EQ(client_.Build(a, spec)->preconditioner.nnz, a.n) << "the diagonal";
  spec.pattern_matrix = stored->name;
  const auto kept = client_.Build(a, spec, true);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->preconditioner.spec.pattern_matrix, stored->name);
  const auto fixed = client_.Build(a, {.engine = Engine::kStaticSpai}, true);
  ASSERT_TRUE(fixed.ok()) << fixed.error().message;
  EXPECT_EQ(kept->m->row_idx, fixed->m->row_idx) << "A's";
  EXPECT_NEAR(kept->preconditioner.quality.residual_frobenius,
              fixed->preconditioner.quality.residual_frobenius, 1e-12);
  // The diagonal belongs to it in any case.
  const CscMatrix below{.n = 3, .col_ptr = {0, 1, 2, 2}, .row_idx = {1, 2}, .values = {1, 1}};
  const CscMatrix small{
      .n = 3, .col_ptr = {0, 2, 4, 5}, .row_idx = {0, 1, 1, 2, 2}, .values = {4, 1, 4, 1, 4}};
  const auto lower = client_.Upload(below);
  ASSERT_TRUE(lower.ok()) << lower.error().message;
  PreconditionerSpec from_lower = Spec({.max_steps = 0});
  from_lower.pattern_matrix = lower->name;
  const auto with_diagonal = client_.Build(small, from_lower, true);
  ASSERT_TRUE(with_diagonal.ok()) << with_diagonal.error().message;
  EXPECT_EQ(with_diagonal->m->row_idx, small.row_idx);
  spec.dynamic_spai = {.tol = 0.05, .max_steps = 2, .step_size = 3};
  const auto grown = client_.Build(a, spec);
  ASSERT_TRUE(grown.ok()) << grown.error().message;
  EXPECT_GT(grown->preconditioner.nnz, stored->nnz);
  EXPECT_LT(grown->preconditioner.quality.residual_frobenius,
            fixed->preconditioner.quality.residual_frobenius);
}

TEST_F(DynamicSpai, NewValuesAreARebuildUnlessItShallRegrow) {
  const CscMatrix a = ConvectionDiffusion(31, 20, 0.5), next = OtherValues(a);
  const PreconditionerSpec spec = Spec({.max_steps = 3});
  PreconditionerSpec regrow = spec;
  regrow.regrow = true;
  BuildResult rebuilt;
  ASSERT_NO_FATAL_FAILURE(ExpectRebuiltUnlessRegrown(
      a, next, spec, regrow,
      [](const Quality& quality) { return quality.dynamic_spai->pattern_reused; }, &rebuilt));
  EXPECT_EQ(rebuilt.timings.plan_ms, 0);
  EXPECT_NEAR(InverseResidual(next, *rebuilt.m), rebuilt.preconditioner.quality.residual_frobenius,
              1e-10);
}

TEST_F(DynamicSpai, TheSameBuildFromManyIsOneBuild) {
  const CscMatrix a = Irregular(4000, 6);
  std::vector<std::future<Expected<BuildResult>>> builds;
  for (int i = 0; i < 4; ++i) {
    builds.push_back(std::async(std::launch::async, [&] {
      Client client({.address = daemon_->address()});
      return client.Build(a, Spec(), true);
    }));
  }
  std::set<std::string> names;
  std::vector<double> values;
  int made = 0;
  for (auto& build : builds) {
    const auto result = build.get();
    ASSERT_TRUE(result.ok()) << result.error().message;
    names.insert(result->preconditioner.name);
    made += !result->timings.reused;
    if (values.empty()) values = result->m->values;
    EXPECT_EQ(result->m->values, values);
  }
  EXPECT_EQ(names.size(), 1u);
  EXPECT_EQ(made, 1);
}

TEST_F(DynamicSpai, RefusesWhatIsOutOfRangeAndWhatHasNoInverse) {
  const CscMatrix a = ConvectionDiffusion(6, 5, 0.5);
  const auto field_of = [&](const DynamicSpaiSpec& growth) {
    const auto built = client_.Build(a, Spec(growth));
    EXPECT_FALSE(built.ok());
    if (built.ok()) return std::string();
    EXPECT_EQ(built.error().code, Code::kInvalidArgument);
    EXPECT_EQ(built.error().reason, "BAD_DYNAMIC_OPTION");
    EXPECT_THAT(built.error().message, HasSubstr("give ")) << "the cure";
    return built.error().field;
  };
  EXPECT_EQ(field_of({.tol = 1}), "header.spec.dynamic_spai.tol");
  EXPECT_EQ(field_of({.max_steps = 513}), "header.spec.dynamic_spai.max_steps");
  EXPECT_EQ(field_of({.step_size = 33}), "header.spec.dynamic_spai.step_size");
  EXPECT_EQ(field_of({.max_column_nnz = -1}), "header.spec.dynamic_spai.max_column_nnz");
  const auto other = client_.Upload(ConvectionDiffusion(5, 5, 0.5));
  ASSERT_TRUE(other.ok()) << other.error().message;
  PreconditionerSpec spec = Spec();
  spec.pattern_matrix = other->name;
  EXPECT_EQ(client_.Build(a, spec).error().reason, "PATTERN_SIZE_MISMATCH");

  CscMatrix singular = a;
  for (int64_t p = singular.col_ptr[7]; p < singular.col_ptr[8]; ++p) singular.values[p] = 0;
  ExpectRefusedAt(client_.Build(singular, Spec()), "ZERO_COLUMN", "7");
}

TEST_F(DynamicSpai, ACancelledBuildEnds) {
  ExpectACancelledBuildEnds(Irregular(100'000, 7),
                            Spec({.tol = 0, .max_steps = 60, .step_size = 1}));
}

}  // namespace
}  // namespace spaid::e2e
