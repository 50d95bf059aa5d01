// What a caller sees of a build besides numbers: progress, stops, counted figures, the choice of
// the local solver.
#include <algorithm>
#include <chrono>
#include <memory>

#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/residual_quantiles.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

struct Report {
  Stage stage;
  int64_t done, total;
};

// Keeps all reports; requests a stop once `stop_at` of a build's total is done.
class Recorder : public ProgressSink {
 public:
  explicit Recorder(StopSource* source = nullptr) : source_(source) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    reports.push_back({stage, done, total});
    if (source_ != nullptr && stage == Stage::kBuild && done == total) {
      source_->Request(StopReason::kCancelled);
    }
  }
  void OnResidual(const ResidualPoint&) override {}

  std::vector<Report> reports;

 private:
  StopSource* source_;
};

TEST(Progress, OfAPlanNeverFallsAndEndsAtAll) {
  const CscMatrix a = oracle::Laplacian2d(160, 160);
  for (const int power : {1, 2}) {
    for (const bool match : {false, true}) {
      StaticSpaiOptions options = With(LocalSolver::kAuto, power);
      options.pattern.row_match = match;
      options.pattern.ensure_row = match;
      Recorder recorder;
      const Context context{.stop = {}, .progress = &recorder, .threads = 2};
      ASSERT_TRUE(PlanStaticSpai(a, nullptr, options, context).ok());
      ASSERT_GT(recorder.reports.size(), 10u);
      int64_t last = 0;
      for (const Report& report : recorder.reports) {
        EXPECT_EQ(report.stage, Stage::kPlan);
        EXPECT_EQ(report.total, a.n_cols);
        EXPECT_GE(report.done, last);
        last = report.done;
      }
      EXPECT_EQ(last, a.n_cols);
      // No step takes nearly all of it.
      EXPECT_LT(recorder.reports.front().done, a.n_cols / 2);
    }
  }
}

TEST(Stop, AfterTheLastColumnKeepsTheBuild) {
  const CscMatrix a = oracle::Laplacian2d(60, 60);
  for (const double filter : {0.0, 0.1}) {
    StaticSpaiOptions options;
    options.post_filter = filter;
    auto plan = PlanStaticSpai(a, nullptr, options, {});
    ASSERT_TRUE(plan.ok());
    StopSource source;
    Recorder recorder(&source);
    const Context context{.stop = source.token(), .progress = &recorder, .threads = 1};
    auto result = BuildStaticSpai(**plan, a, options, context);
    ASSERT_TRUE(source.token().stop_requested());
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->m.values, Build(a, nullptr, options).m.values);
  }
}

// Second differences on a line: column 0 of the inverse takes CG all of its n steps.
CscMatrix SecondDifference(int64_t n) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = std::max<int64_t>(0, j - 1); i < std::min(n, j + 2); ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 2 : -1);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

// One group of the size that only CGLS takes, and the solver for it.
struct IterativeGroup {
  CscMatrix a = SecondDifference(3000);
  Pattern pattern = FullColumnsThenDiagonal(3000, 1);
  std::shared_ptr<const StaticSpaiPlan> plan;
  std::vector<double> values = std::vector<double>(3000);
  ColumnOutcome outcome;

  bool Solve(const StopToken& stop) {
    const PatternView view = pattern;
    plan = PlanStaticSpai(a, &view, {}, {}).value();
    const ColumnScales scales = ScaleColumns(a, plan->long_pairs, 1);
    GroupSolver solver(3000, plan->largest, 3000);
    double* m = values.data();
    const int32_t target = 0;
    return solver.Solve(a, scales, plan->equal_columns, view.column(0), {&target, 1}, {}, stop,
                        {&m, 1}, {&outcome, 1});
  }
};

TEST(Cgls, SaysThatItDidNotConverge) {
  IterativeGroup group;
  EXPECT_TRUE(group.Solve({}));
  EXPECT_EQ(group.outcome.flags, kColumnIterative | kColumnNotConverged);

  const StaticSpaiResult result = Build(group.a, group.pattern, {});
  EXPECT_EQ(result.quality.not_converged_columns, 1);
  EXPECT_EQ(result.quality.first_not_converged, 0);
  EXPECT_EQ(result.quality.iterative_columns, 1);
  // What it reports of the column is true all the same.
  EXPECT_NEAR(result.residual_norms[0], ExplicitResiduals(group.a, result.m)[0], 1e-12);
  EXPECT_LT(result.residual_norms[0], 1);
}

TEST(Cgls, StopsInTheMiddleOfAColumn) {
  IterativeGroup group;
  StopSource source;
  source.Request(StopReason::kCancelled);
  EXPECT_FALSE(group.Solve(source.token()));
}

// The only batch is under way when its time is over.
TEST(Cgls, CutShortIsNoBuild) {
  IterativeGroup group;
  const PatternView view = group.pattern;
  auto plan = PlanStaticSpai(group.a, &view, {}, {});
  ASSERT_TRUE(plan.ok());
  StopSource source;
  source.SetTimeLimit(std::chrono::steady_clock::now() + std::chrono::milliseconds(4));
  const Context context{.stop = source.token(), .progress = nullptr, .threads = 1};
  auto result = BuildStaticSpai(**plan, group.a, {}, context);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kDeadlineExceeded);
}

TEST(AutoSolver, TakesGramForElementsAndQrForAFullSquare) {
  // Of an element pattern n1 is a multiple of n2 and the Gram matrix costs little; of a full one n1
  // is n2, and forming it costs more than QR.
  const CscMatrix grid = oracle::Laplacian2d(20, 20);
  const StaticSpaiResult fem = Build(grid, nullptr, With(LocalSolver::kAuto, 3));
  EXPECT_EQ(fem.quality.gram_columns, 400);
  EXPECT_EQ(fem.quality.qr_columns, 0);
  const CscMatrix dense = OrthogonalKahan(160, 1.5, 5);
  const StaticSpaiResult full = Build(dense, FullPattern(160), {});
  EXPECT_EQ(full.quality.qr_columns, 160);
  EXPECT_EQ(full.quality.rescued_columns, 0);  // QR from the start
}

TEST(Quantiles, NearestRankByHand) {
  const Array<double> norms = {7, 3, 9, 1, 5, 0, 8, 2, 6, 4};
  // Ranks 9 q + 1/2: 0.5, 1.4, 2.75, 5, 7.25, 8.6, 9.41, 9.5.
  EXPECT_EQ(ResidualQuantiles(norms, 2), (std::vector<double>{0, 1, 2, 5, 7, 8, 9, 9}));
  EXPECT_EQ(ResidualQuantiles(Array<double>{4}, 2), std::vector<double>(8, 4));
  EXPECT_EQ(ResidualQuantiles(Array<double>{4, 2}, 1),
            (std::vector<double>{2, 2, 2, 4, 4, 4, 4, 4}));
  EXPECT_TRUE(ResidualQuantiles({}, 2).empty());
}

TEST(Quantiles, ThoseOfTheSortedNorms) {
  const auto of_sorted = [](std::vector<double> norms) {
    std::ranges::sort(norms);
    std::vector<double> quantiles;
    for (const double share : {0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0}) {
      const double rank = std::floor(share * static_cast<double>(norms.size() - 1) + 0.5);
      quantiles.push_back(norms[static_cast<size_t>(rank)]);
    }
    return quantiles;
  };
  oracle::Random random(3);
  for (const size_t n : {1000, 8192, 8193, 20000, 300001}) {
    std::vector<double> uniform(n), equal(n, 0.25), two(n), rising(n), wide(n), outliers(n, 1);
    for (size_t k = 0; k < n; ++k) {
      uniform[k] = random.Uniform(0, 1);
      two[k] = k % 3 == 0 ? 0.5 : random.Uniform(0, 1) < 0.4 ? 0.5 : 0.75;
      rising[k] = static_cast<double>(k / 7);
      wide[k] = std::pow(10, random.Uniform(-300, 300));
    }
    outliers[n / 2] = 0;
    outliers[n / 3] = 2;  // ranks that no sample shows
    for (const auto& norms : {uniform, equal, two, rising, wide, outliers}) {
      for (const int threads : {1, 2}) {
        EXPECT_EQ(ResidualQuantiles(norms, threads), of_sorted(norms)) << n;
      }
    }
  }
}

TEST(Quality, NamesTheWorstColumn) {
  // Diagonal pattern: ‖r_k‖² = 1 − a_kk² / ‖a_k‖²: 0, 1/5, 25/26, 1/2.
  const CscMatrix a = FromRows({{1, 1, 0, 0}, {0, 2, 5, 0}, {0, 0, 1, 1}, {0, 0, 0, 1}});
  const StaticSpaiResult result = Build(a, DiagonalPattern(4), {});
  EXPECT_EQ(result.quality.worst_column, 2);
  EXPECT_NEAR(result.quality.residual_quantiles[7], std::sqrt(25.0 / 26), 1e-15);
  EXPECT_NEAR(result.quality.residual_quantiles[3], std::sqrt(0.5), 1e-15);  // rank 2 of 0..3
  EXPECT_NEAR(result.quality.residual_quantiles[2], std::sqrt(0.2), 1e-15);
}

}  // namespace
}  // namespace spaid::kernels
