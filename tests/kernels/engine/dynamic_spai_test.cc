// Dynamic SPAI through the face: plans that grow, plans on what has grown, figures, refusals,
// solves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/engine/engine_parts.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PreconditionerSpec Dynamic(int max_steps = 6, int per_step = 2, double tol = 0.2) {
  PreconditionerSpec spec = Spec(EngineKind::kDynamicSpai);
  spec.dynamic_spai.max_steps = max_steps;
  spec.dynamic_spai.per_step = per_step;
  spec.dynamic_spai.tol = tol;
  return spec;
}

CscMatrix OtherValues(CscMatrix a) {
  for (size_t p = 0; p < a.values.size(); ++p) {
    a.values[p] *= 1 + 0.1 * static_cast<double>(p % 7) / 7;
  }
  return a;
}

int64_t Iterations(const Engine& engine, const CscMatrix& a, const Preconditioner* m,
                   Method method = Method::kBicgstab) {
  const Vector b = SmoothRhs(a);
  const auto solved = engine.Solve(a, m, b, {}, {.method = method, .rtol = 1e-9}, {});
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_LE(TrueRelative(a, solved->x, b), 1.0001e-9);
  return solved->rhs[0].iterations;
}

// M, and its figures, are those of static SPAI on the pattern that has grown.
TEST(DynamicSpai, IsStaticSpaiOnTheGrownPattern) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(30, 30, 2);
  const PreconditionerSpec spec = Dynamic();
  const BuildResult built = MustBuild(*engine, spec, a);
  const auto grown = GrowDynamicSpai(a, nullptr, spec.dynamic_spai, {});
  ASSERT_TRUE(grown.ok());
  const PatternView of_m = grown->m;
  const auto plan = engine->MakePlan(Spai(), a, &of_m, {});
  ASSERT_TRUE(plan.ok());
  const auto fixed = (*plan)->Build(Spai(), a, {});
  ASSERT_TRUE(fixed.ok());
  const Preconditioner& m = *built.preconditioner;
  EXPECT_EQ(m.kind(), EngineKind::kDynamicSpai);
  EXPECT_FALSE(m.is_factor());
  EXPECT_EQ(m.matrix().row_idx, fixed->preconditioner->matrix().row_idx);
  EXPECT_EQ(m.matrix().values, fixed->preconditioner->matrix().values);
  EXPECT_EQ(built.quality.residual_frobenius, fixed->quality.residual_frobenius);
  ASSERT_TRUE(built.quality.dynamic_spai.has_value());
  EXPECT_EQ(built.quality.dynamic_spai->residual_by_step, grown->quality.residual_by_step);
  EXPECT_EQ(built.quality.dynamic_spai->converged_columns, grown->quality.converged_columns);
  EXPECT_FALSE(built.quality.pattern_reused);
  EXPECT_GE(built.preconditioner->host_bytes(), m.matrix().bytes());
}

// New values on a grown pattern: what static SPAI makes of them on it, and no growth.
TEST(DynamicSpai, NewValuesReuseAGrownPattern) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(30, 30, 2), other = OtherValues(a);
  const PreconditionerSpec spec = Dynamic();
  const auto plan = engine->MakePlan(spec, a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE((*plan)->serves_new_values());
  const auto built = (*plan)->Build(spec, a, {});
  ASSERT_TRUE(built.ok());
  ASSERT_NE(built->grown, nullptr);
  EXPECT_TRUE(built->grown->serves_new_values());
  EXPECT_GT(built->grown->host_bytes(), (*plan)->host_bytes());

  const auto same = built->grown->Build(spec, a, {});
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->preconditioner->matrix().values, built->preconditioner->matrix().values);
  EXPECT_EQ(same->grown, nullptr);
  EXPECT_TRUE(same->quality.pattern_reused);
  ASSERT_TRUE(same->quality.dynamic_spai.has_value());
  EXPECT_THAT(same->quality.dynamic_spai->residual_by_step, IsEmpty());

  // The options of growth are not read then; those of the numbers are.
  PreconditionerSpec others = Dynamic(1, 1, 0.9);
  others.dynamic_spai.post_filter = 0.5;
  const auto rebuilt = built->grown->Build(others, other, {});
  ASSERT_TRUE(rebuilt.ok());
  const PatternView of_m = built->preconditioner->matrix().pattern();
  PreconditionerSpec fixed = Spai();
  fixed.static_spai.post_filter = 0.5;
  const auto fixed_plan = engine->MakePlan(fixed, other, &of_m, {});
  ASSERT_TRUE(fixed_plan.ok());
  const auto expected = (*fixed_plan)->Build(fixed, other, {});
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(rebuilt->preconditioner->matrix().row_idx, expected->preconditioner->matrix().row_idx);
  EXPECT_EQ(rebuilt->preconditioner->matrix().values, expected->preconditioner->matrix().values);
  EXPECT_LT(rebuilt->preconditioner->matrix().nnz(), of_m.nnz());
}

TEST(DynamicSpai, GrowsFromAUserPattern) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(20, 20, 1);
  const PatternView of_a = a.pattern();
  const PreconditionerSpec spec = Dynamic(2, 3, 0);
  const auto plan = engine->MakePlan(spec, a, &of_a, {});
  ASSERT_TRUE(plan.ok());
  const auto built = (*plan)->Build(spec, a, {});
  ASSERT_TRUE(built.ok());
  const PatternView m = built->preconditioner->matrix().pattern();
  for (int64_t k = 0; k < a.n_cols; ++k) {
    const auto now = m.column(k), before = of_a.column(k);
    EXPECT_TRUE(std::includes(now.begin(), now.end(), before.begin(), before.end())) << k;
    EXPECT_EQ(now.size(), before.size() + 6) << k;
  }
  const Pattern small{.n_rows = 3, .n_cols = 3, .col_ptr = {0, 1, 2, 3}, .row_idx = {0, 1, 2}};
  const PatternView wrong = small;
  EXPECT_EQ(engine->MakePlan(spec, a, &wrong, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
}

TEST(DynamicSpai, ProgressRisesAndStopsAreHeard) {
  class Recorder final : public ProgressSink {
   public:
    explicit Recorder(StopSource* source, int64_t stop_at) : source_(source), stop_at_(stop_at) {}
    void OnProgress(Stage stage, int64_t done, int64_t) override {
      EXPECT_EQ(stage, Stage::kBuild);
      reports.push_back(done);
      if (done >= stop_at_) source_->Request(StopReason::kCancelled);
    }
    void OnResidual(const ResidualPoint&) override {}
    std::vector<int64_t> reports;

   private:
    StopSource* const source_;
    const int64_t stop_at_;
  };
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomIrregular(4000, 5, 3);
  const auto plan = engine->MakePlan(Dynamic(), a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  for (const int64_t stop_at :
       {int64_t{1}, a.n_cols / 2, 3 * a.n_cols / 4, 9 * a.n_cols / 10, 2 * a.n_cols}) {
    StopSource source;
    Recorder recorder(&source, stop_at);
    const Context context{.stop = source.token(), .progress = &recorder, .threads = 2};
    const auto built = (*plan)->Build(Dynamic(), a, context);
    EXPECT_TRUE(std::is_sorted(recorder.reports.begin(), recorder.reports.end()));
    if (stop_at <= a.n_cols) {
      ASSERT_FALSE(built.ok()) << stop_at;
      EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
    } else {
      ASSERT_TRUE(built.ok());
      EXPECT_EQ(recorder.reports.back(), a.n_cols);
    }
  }
}

TEST(DynamicSpai, BeatsStaticSpaiWhereTheDiagonalIsZero) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RowPermuted(70, 5);
  const BuildResult fixed = MustBuild(*engine, Spai(), a);
  EXPECT_GT(fixed.quality.zero_columns, 0);
  const BuildResult grown = MustBuild(*engine, Dynamic(20, 1, 0.3), a);
  EXPECT_EQ(grown.quality.zero_columns, 0);
  EXPECT_LT(grown.quality.residual_frobenius, 0.5 * fixed.quality.residual_frobenius);
  EXPECT_LT(Iterations(*engine, a, grown.preconditioner.get()), 70);
}

TEST(DynamicSpai, SolvesFasterThanJacobi) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(60, 60, 4);
  const BuildResult jacobi = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  const BuildResult grown = MustBuild(*engine, Spec(EngineKind::kDynamicSpai), a);
  for (const Method method : {Method::kBicgstab, Method::kGmres}) {
    EXPECT_LT(Iterations(*engine, a, grown.preconditioner.get(), method),
              Iterations(*engine, a, jacobi.preconditioner.get(), method));
  }
}

TEST(DynamicSpai, SaysWhatIsWeak) {
  const auto engine = MakeCpuEngine();
  const BuildResult all = MustBuild(*engine, Dynamic(20, 2, 0.5), oracle::Laplacian2d(9, 9));
  EXPECT_THAT(all.quality.warnings, IsEmpty());
  const BuildResult few = MustBuild(*engine, Dynamic(1, 1, 0.01), oracle::Laplacian2d(9, 9));
  EXPECT_THAT(few.quality.warnings, Contains(HasSubstr("81 of 81 columns of M did not come")));
  const CscMatrix singular = Rows({{1, 1, 0}, {1, 1, 1}, {0, 0, 1}});
  const BuildResult dependent = MustBuild(*engine, Dynamic(1, 2, 0), singular);
  EXPECT_THAT(dependent.quality.warnings,
              Contains(HasSubstr("asked for columns of A that depend")));
  const BuildResult empty = MustBuild(*engine, Dynamic(), Rows({{2, 1, 0}, {0, 0, 0}, {1, 0, 3}}));
  EXPECT_EQ(empty.quality.zero_columns, 1);
  EXPECT_EQ(empty.quality.first_zero_column, 1);
  EXPECT_THAT(empty.quality.warnings, Contains(HasSubstr("these rows of A hold no usable entry")));
}

TEST(DynamicSpai, RefusalsNameWhatIsWrong) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(6, 6);
  const auto plan = engine->MakePlan(Dynamic(), a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  const auto built = (*plan)->Build(Dynamic(), a, {});
  ASSERT_TRUE(built.ok());
  // As many entries, elsewhere.
  CscMatrix moved = a;
  moved.row_idx[2] = 30;  // of column 0
  EXPECT_EQ(built->grown->Build(Dynamic(), moved, {}).status().reason(), "PLAN_MISMATCH");
  CscMatrix zero = a;
  for (int64_t p = zero.col_ptr[7]; p < zero.col_ptr[8]; ++p) {
    zero.values[static_cast<size_t>(p)] = 0;
  }
  const auto refused = (*plan)->Build(Dynamic(), zero, {});
  EXPECT_EQ(refused.status().reason(), "ZERO_COLUMN");
  EXPECT_EQ(refused.status().index(), 7);
}

TEST(DynamicSpai, IsNotWhatAutoChooses) {
  const auto engine = MakeCpuEngine();
  for (const oracle::NamedMatrix& named : oracle::Zoo(4)) {
    const auto chosen =
        engine->Resolve(Spec(EngineKind::kAuto), named.a, Diagnose(named.a), nullptr, {});
    ASSERT_TRUE(chosen.ok());
    EXPECT_NE(chosen->spec.engine, EngineKind::kDynamicSpai) << named.name;
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
