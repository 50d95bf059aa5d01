#include "client/load/workload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/load/arrivals.h"

namespace spaid::load {
namespace {

// Gaps of mean and deviation 1 / rate, independent of each other; the same for a seed.
TEST(PoissonArrivals, HaveExponentialGaps) {
  constexpr int kCount = 200'000;
  constexpr double kRate = 50;
  PoissonArrivals arrivals(kRate, 3), again(kRate, 3), other(kRate, 4);
  double last = 0, sum = 0, squares = 0, products = 0, gap_before = 1 / kRate;
  int longer_than_mean = 0;
  for (int k = 0; k < kCount; ++k) {
    const double now = arrivals.Next();
    EXPECT_EQ(now, again.Next());
    const double gap = now - last;
    ASSERT_GE(gap, 0);
    sum += gap, squares += gap * gap;
    products += (gap - 1 / kRate) * (gap_before - 1 / kRate);
    longer_than_mean += gap > 1 / kRate ? 1 : 0;
    last = now, gap_before = gap;
  }
  const double mean = sum / kCount, variance = squares / kCount - mean * mean;
  EXPECT_NEAR(mean * kRate, 1, 0.01);
  EXPECT_NEAR(variance * kRate * kRate, 1, 0.03);
  EXPECT_NEAR(products / kCount * kRate * kRate, 0, 0.01);
  EXPECT_NEAR(longer_than_mean / double{kCount}, std::exp(-1), 0.005);
  EXPECT_NE(other.Next(), PoissonArrivals(kRate, 3).Next());
}

LoadOptions Mixed() {
  LoadOptions options;
  options.mix = {{"poisson:4", 3}, {"convdiff:3", 1}};
  options.engines = {{Engine::kJacobi, 1}, {Engine::kStaticSpai, 1}};
  options.build_share = 0.25;
  options.variants = 5;
  options.rhs = 2;
  return options;
}

TEST(Workload, KeepsToTheShares) {
  const auto workload = Workload::Make(Mixed());
  ASSERT_TRUE(workload.ok()) << workload.error().message;
  constexpr int kJobs = 20'000;
  int second = 0, spai = 0, builds = 0;
  std::set<double> scales;
  for (int64_t job = 0; job < kJobs; ++job) {
    const Plan plan = workload->PlanOf(job);
    second += plan.problem == 1 ? 1 : 0;
    spai += plan.engine == 1 ? 1 : 0;
    builds += plan.build ? 1 : 0;
    scales.insert(plan.scale);
    ASSERT_GE(plan.scale, 1);
    ASSERT_LT(plan.scale, 2);
  }
  EXPECT_NEAR(second / double{kJobs}, 0.25, 0.02);
  EXPECT_NEAR(spai / double{kJobs}, 0.5, 0.02);
  EXPECT_NEAR(builds / double{kJobs}, 0.25, 0.02);
  EXPECT_EQ(scales.size(), 5u);
}

TEST(Workload, IsTheSameForASeedAndAnotherForAnother) {
  LoadOptions options = Mixed();
  const auto one = Workload::Make(options), same = Workload::Make(options);
  options.seed = 2;
  const auto other = Workload::Make(options);
  int differ = 0;
  for (int64_t job = 0; job < 100; ++job) {
    EXPECT_EQ(one->PlanOf(job).problem, same->PlanOf(job).problem);
    EXPECT_EQ(one->PlanOf(job).scale, same->PlanOf(job).scale);
    differ += one->PlanOf(job).problem != other->PlanOf(job).problem ? 1 : 0;
    EXPECT_NE(one->PlanOf(job).scale, other->PlanOf(job).scale);
  }
  EXPECT_GT(differ, 10);
}

TEST(Workload, WithoutVariantsHasNoValuesTwice) {
  LoadOptions options = Mixed();
  options.variants = 0;
  const auto workload = Workload::Make(options);
  std::set<double> scales;
  for (int64_t job = 0; job < 1000; ++job) scales.insert(workload->PlanOf(job).scale);
  EXPECT_EQ(scales.size(), 1000u);
}

TEST(Workload, MakesConsistentRightHandSides) {
  const auto workload = Workload::Make(Mixed());
  const Problem& problem = workload->problem(0);
  EXPECT_EQ(problem.b.size(), 2u * 64);
  EXPECT_NE(problem.b[0], problem.b[64]);
  EXPECT_EQ(workload->Describe({.problem = 0, .engine = 1}), "poisson:4 static-spai");
}

TEST(Workload, SaysWhichMatrixTheGalleryLacks) {
  LoadOptions options;
  options.mix = {{"nothing:3", 1}};
  EXPECT_EQ(Workload::Make(options).error().reason, "GALLERY_UNKNOWN");
}

}  // namespace
}  // namespace spaid::load
