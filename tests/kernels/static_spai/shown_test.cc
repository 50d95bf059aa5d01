// M as a sink sees it while it is being built: what it is shown as finished never changes again.
#include <cstddef>
#include <vector>

#include "tests/kernels/base/recording_sink.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

struct Case {
  const char* name;
  CscMatrix a;
  StaticSpaiOptions options = {};
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({"structures", oracle::Laplacian2d(90, 90)});
  cases.push_back({"wide", oracle::Laplacian2d(60, 60), With(LocalSolver::kAuto, 2)});
  cases.push_back({"by QR", oracle::Laplacian2d(40, 40), With(LocalSolver::kQr)});
  // Columns with equal J far from each other, and one heavy batch, which comes first.
  oracle::Dense full(600, 600);
  for (int64_t i = 0; i < 600; ++i) {
    full(i, i) = 4 + static_cast<double>(i % 5);
    full(i, 300) = full(300, i) = 1;
    full(300, 300) = 900;
  }
  cases.push_back({"a hub", oracle::FromDense(full)});
  oracle::Dense equal(500, 500);
  for (int64_t i = 0; i < 500; ++i) {
    for (int64_t j = i % 7; j < 500; j += 70) equal(i, j) = 1;
    equal(i, i) = 10 + static_cast<double>(i);
  }
  cases.push_back({"scattered", oracle::FromDense(equal)});
  cases.push_back({"tiny", FromRows({{2, 1}, {0, 4}})});
  return cases;
}

TEST(Shown, ColumnsAreFinalWhenTheyAreShown) {
  for (const Case& c : Cases()) {
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(std::string(c.name) + ", threads " + std::to_string(threads));
      const StaticSpaiResult alone = Build(c.a, nullptr, c.options, threads);
      RecordingSink sink;
      Context context{.threads = threads};
      auto plan = PlanStaticSpai(c.a, nullptr, c.options, context);
      ASSERT_TRUE(plan.ok());
      context.result = &sink;
      auto result = BuildStaticSpai(**plan, c.a, c.options, context);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(sink.columns(), c.a.n_cols);
      EXPECT_TRUE(result->shown.showing());
      EXPECT_EQ(sink.data, result->m.values.data()) << "the arrays have moved";
      EXPECT_EQ(Array<int64_t>(sink.col_ptr.begin(), sink.col_ptr.end()), result->m.col_ptr);
      EXPECT_EQ(Array<int32_t>(sink.row_idx.begin(), sink.row_idx.end()), result->m.row_idx);
      EXPECT_EQ(Array<double>(sink.values.begin(), sink.values.end()), result->m.values);
      EXPECT_EQ(alone.m.values, result->m.values);
      result->shown.Keep();
      EXPECT_EQ(sink.withdrawals, 0);
    }
  }
}

TEST(Shown, TheFirstColumnsComeLongBeforeTheLast) {
  const CscMatrix a = oracle::Laplacian2d(300, 300);
  RecordingSink sink;
  const Context context{.threads = 1, .result = &sink};
  auto plan = PlanStaticSpai(a, nullptr, {}, context);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(sink.patterns, 0);
  auto result = BuildStaticSpai(**plan, a, {}, context);
  ASSERT_TRUE(result.ok());
  EXPECT_GT(sink.marks.size(), 10u);
  EXPECT_LT(sink.marks.front(), a.n_cols / 10);
}

TEST(Shown, AStopWithdrawsIt) {
  const CscMatrix a = oracle::Laplacian2d(200, 200);
  auto plan = PlanStaticSpai(a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok());
  for (const int threads : {1, 4}) {
    RecordingSink sink;
    StopSource source;
    // Of several threads the one with the first columns may be the last of all: their first mark
    // may come with nothing left to stop.
    const int64_t from = threads == 1 ? a.n_cols / 3 : -1;
    sink.on_news = [&] {
      if (sink.columns() > from) source.Request(StopReason::kCancelled);
    };
    const Context context{.stop = source.token(), .threads = threads, .result = &sink};
    auto result = BuildStaticSpai(**plan, a, {}, context);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().reason(), "CANCELLED");
    EXPECT_LT(sink.columns(), a.n_cols);
    EXPECT_EQ(sink.withdrawals, 1);
    EXPECT_FALSE(sink.there);
  }
}

// A filter decides how many entries M has.
TEST(Shown, AFilteredMComesInTheEnd) {
  const CscMatrix a = oracle::Laplacian2d(60, 60);
  StaticSpaiOptions options;
  options.post_filter = 0.3;
  RecordingSink sink;
  const Context context{.threads = 2, .result = &sink};
  auto plan = PlanStaticSpai(a, nullptr, options, context);
  ASSERT_TRUE(plan.ok());
  auto result = BuildStaticSpai(**plan, a, options, context);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(sink.marks, std::vector<int64_t>{a.n_cols});
  EXPECT_LT(result->m.nnz(), a.nnz());
  EXPECT_EQ(Array<double>(sink.values.begin(), sink.values.end()), result->m.values);
  result->shown.Keep();
}

}  // namespace
}  // namespace spaid::kernels
