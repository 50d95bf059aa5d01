#include "server/sched/predictions.h"

#include <gtest/gtest.h>

#include <string>

namespace spaid::server {
namespace {

Work Of(const std::string& tenant, double predicted_ms) {
  Work work;
  work.tenant = tenant;
  work.what = "build";
  work.predicted_ms = predicted_ms;
  return work;
}

// 100 iterations are guessed.
Work Solve(const std::string& tenant, double predicted_ms, double max_iterations = 1e6) {
  Work work = Of(tenant, predicted_ms);
  work.what = "solve";
  work.iterations = 100;
  work.iteration_ms = predicted_ms / 100;
  work.max_iterations = max_iterations;
  return work;
}

TEST(PredictionsTest, NothingIsKnownAtFirst) {
  Predictions predictions;
  EXPECT_EQ(predictions.ExpectedMs(Of("t", 50), 0), 50);
  EXPECT_EQ(predictions.ExpectedMs(Of("t", 0), 0), kMinPredictedMs);
  EXPECT_TRUE(predictions.Ratios().empty());
}

TEST(PredictionsTest, ATenantsJobsBendNobodyElses) {
  Predictions predictions;
  for (int i = 0; i < 10; ++i) predictions.Learn(Of("good", 10), 0, 20, 0);
  for (int i = 0; i < 100; ++i) predictions.Learn(Of("evil", 10), 0, 10'000, 0);
  EXPECT_NEAR(predictions.ExpectedMs(Of("good", 10), 0), 20, 1e-9);
  EXPECT_NEAR(predictions.ExpectedMs(Of("evil", 10), 0), 10'000, 1e-6);
  EXPECT_NEAR(predictions.ExpectedMs(Of("good", 10), 1), 10, 1e-9) << "another device";
}

// Each tenant has one voice; of few, and of an even number, those who know nothing have one, too.
TEST(PredictionsTest, ANewcomerIsExpectedToBeAsMost) {
  Predictions predictions;
  predictions.Learn(Of("a", 10), 0, 20, 0);
  EXPECT_NEAR(predictions.ExpectedMs(Of("new", 10), 0), 10, 1e-9) << "one is not most";
  EXPECT_NEAR(predictions.Ratios()[0].value, 2, 1e-9);
  for (int i = 0; i < 100; ++i) predictions.Learn(Of("evil", 10), 0, 10'000, 0);
  EXPECT_NEAR(predictions.ExpectedMs(Of("new", 10), 0), 20, 1e-9) << "of 1, 2 and 1000";
  predictions.Learn(Of("c", 10), 0, 30, 0);
  EXPECT_NEAR(predictions.ExpectedMs(Of("new", 10), 0), 30, 1e-9) << "of 2, 3 and 1000";
  const auto ratios = predictions.Ratios();
  ASSERT_EQ(ratios.size(), 1);
  EXPECT_EQ(ratios[0].what, "build");
  EXPECT_NEAR(ratios[0].value, 3, 1e-9);
  EXPECT_EQ(ratios[0].jobs, 102);
  predictions.Learn(Of("new", 10), 0, 50, 0);
  EXPECT_NEAR(predictions.ExpectedMs(Of("new", 10), 0), 50, 1e-9) << "it is none any more";
}

TEST(PredictionsTest, OfAboutTheSameSizeWhereThereWereSuch) {
  Predictions predictions;
  for (int i = 0; i < 4; ++i) predictions.Learn(Of("t", 50), 0, 10, 0);
  for (int i = 0; i < 20; ++i) predictions.Learn(Of("t", 2000), 0, 2000, 0);
  EXPECT_NEAR(predictions.ExpectedMs(Of("t", 45), 0), 9, 1e-9);
  EXPECT_NEAR(predictions.ExpectedMs(Of("t", 2000), 0), 2000, 1e-6);
  EXPECT_NEAR(predictions.ExpectedMs(Of("t", 300), 0), 300, 10) << "as most others";
}

// A solve is long by its iterations: they are learned, and the machine is no slower for it.
TEST(PredictionsTest, SolvesAreLearnedByTheIteration) {
  Predictions predictions;
  for (int i = 0; i < 10; ++i) predictions.Learn(Solve("t", 10), 0, 10'000, 50'000);
  EXPECT_NEAR(predictions.Ratios()[0].value, 2, 1e-9);
  EXPECT_NEAR(predictions.ExpectedMs(Solve("t", 10), 0), 10'000, 1e-6);
  EXPECT_NEAR(predictions.ExpectedMs(Solve("t", 10, 150), 0), 2 * 15, 1e-9) << "they are bounded";
}

// A solve whose guess is the solution takes no time for its iterations, for there are none.
TEST(PredictionsTest, ASolveWithoutIterationsTeachesNothing) {
  Predictions predictions;
  for (int i = 0; i < 100; ++i) predictions.Learn(Solve("t", 10), 0, 0.01, 0);
  EXPECT_EQ(predictions.ExpectedMs(Solve("t", 10), 0), 10);
  EXPECT_TRUE(predictions.Ratios().empty());
}

TEST(PredictionsTest, WhoLearnedLongestAgoIsForgotten) {
  Predictions predictions(/*max_tenants=*/3);
  for (const char* tenant : {"a", "b", "c", "a", "d"}) predictions.Learn(Of(tenant, 10), 0, 40, 0);
  EXPECT_EQ(predictions.tenants(), 3);
  predictions.Learn(Of("a", 10), 0, 10'000, 0);
  EXPECT_GT(predictions.ExpectedMs(Of("a", 10), 0), 200);
  EXPECT_NEAR(predictions.ExpectedMs(Of("b", 10), 0), 40, 1e-9) << "as most";
  EXPECT_EQ(predictions.Ratios()[0].jobs, 3 + 1 + 1) << "those of a, c and d";
}

TEST(PredictionsTest, WhoHasAWeightIsNotForgotten) {
  Predictions predictions(/*max_tenants=*/3, {{"heavy", 2.0}});
  predictions.Learn(Of("heavy", 10), 0, 40, 0);
  for (int i = 0; i < 10; ++i) predictions.Learn(Of("t" + std::to_string(i), 10), 0, 9000, 0);
  EXPECT_EQ(predictions.tenants(), 3);
  EXPECT_NEAR(predictions.ExpectedMs(Of("heavy", 10), 0), 40, 1e-9);
}

}  // namespace
}  // namespace spaid::server
