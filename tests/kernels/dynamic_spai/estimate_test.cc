// Estimates from the pattern alone.
#include "kernels/bench/problems.h"
#include "tests/kernels/base/counted_memory.h"
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

DynamicSpaiCounts Estimate(const CscMatrix& a, const DynamicSpaiOptions& options,
                           const PatternView* initial = nullptr) {
  auto counts = EstimateDynamicSpai(a, initial, options, On(2));
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  return counts.ok() ? *counts : DynamicSpaiCounts{};
}

TEST(DynamicEstimate, BoundsEntries) {
  for (const oracle::NamedMatrix& c : Cases(6)) {
    const PatternView of_a = c.a.pattern();
    for (const PatternView* initial : {static_cast<const PatternView*>(nullptr), &of_a}) {
      for (DynamicSpaiOptions options : {Steps(4, 3), Steps(0), Steps(512, 32)}) {
        for (const int limit : {0, 3}) {
          options.max_column_nnz = limit;
          const DynamicSpaiCounts counts = Estimate(c.a, options, initial);
          const DynamicSpaiPattern grown = Grow(c.a, options, 2, initial);
          EXPECT_GE(counts.nnz_m, grown.m.nnz()) << c.name;
          EXPECT_LE(counts.nnz_m, c.a.n_cols * c.a.n_cols) << c.name;
          EXPECT_EQ(counts.gram_nnz, grown.quality.gram_nnz) << c.name;
          if (options.max_steps == 0 && grown.quality.dependent_columns == 0) {
            EXPECT_EQ(counts.nnz_m, grown.m.nnz()) << c.name;
          }
          EXPECT_GE(counts.work.gathered, 0);
          EXPECT_GT(counts.work.flops, 0);
        }
      }
    }
  }
}

// Growth, plan and numbers as the engine has them, against the bytes that there are at once.
TEST(DynamicEstimate, BoundsMemory) {
  std::vector<oracle::NamedMatrix> cases = Cases(12);
  cases.push_back({"7 points", bench::ConvectionDiffusion(22, 30), true});
  cases.push_back({"27 points", bench::WithVaryingCoefficients(bench::Laplacian27(11)), true});
  cases.push_back({"elasticity", bench::Elasticity(7), true});
  cases.push_back({"circuit", bench::Circuit(3000, 4, 90), true});
  cases.push_back({"arrow", oracle::Arrow(700), true});
  for (const oracle::NamedMatrix& c : cases) {
    const PatternView of_a = c.a.pattern();
    for (const PatternView* initial : {static_cast<const PatternView*>(nullptr), &of_a}) {
      for (DynamicSpaiOptions options : {DynamicSpaiOptions(), Steps(30), Steps(4, 32)}) {
        options.post_filter = options.max_steps == 30 ? 0.01 : 0;
        const DynamicSpaiCounts counts = Estimate(c.a, options, initial);
        const int64_t before = g_live;
        g_peak = before;
        {
          const DynamicSpaiPattern grown = Grow(c.a, options, 2, initial);
          const StaticSpaiResult m = Numbers(c.a, grown, options);
          EXPECT_GT(m.m.nnz(), 0);
        }
        EXPECT_LE(g_peak - before, counts.host_bytes) << c.name << ", s " << options.per_step;
      }
    }
  }
}

// Where no column ends early the work is what growth counts, by order of size.
TEST(DynamicEstimate, FlopsAreOfTheRightSize) {
  for (const CscMatrix& a : {bench::WithVaryingCoefficients(bench::Laplacian27(10)),
                             bench::ConvectionDiffusion(12, 30), bench::Elasticity(7)}) {
    for (DynamicSpaiOptions options : {Steps(2, 2), Steps(10, 5), Steps(20)}) {
      options.tol = 0;
      const DynamicSpaiCounts counts = Estimate(a, options);
      const double flops = Grow(a, options).quality.flops;
      EXPECT_GT(counts.work.flops, flops / 5);
      EXPECT_LT(counts.work.flops, flops * 5);
    }
  }
}

TEST(DynamicEstimate, IsMoreForMore) {
  const CscMatrix a = bench::Laplacian27(10);
  const auto gathered = [&](const DynamicSpaiOptions& options) {
    return Estimate(a, options).work.gathered;
  };
  EXPECT_GT(gathered(Steps(10, 2)), 2 * gathered(Steps(2, 2)));
  DynamicSpaiOptions limited = Steps(10, 5);
  limited.max_column_nnz = 4;
  EXPECT_LT(gathered(limited), gathered(Steps(10, 5)));
}

TEST(DynamicEstimate, IsTheSameForAnyThreads) {
  const CscMatrix a = bench::Circuit(3000, 4, 90);
  const auto one = EstimateDynamicSpai(a, nullptr, {}, On(1));
  const auto three = EstimateDynamicSpai(a, nullptr, {}, On(3));
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(one->work.gathered, three->work.gathered);
  EXPECT_EQ(one->work.flops, three->work.flops);
  EXPECT_EQ(one->gram_nnz, three->gram_nnz);
}

TEST(DynamicEstimate, WantsNoValues) {
  const CscMatrix a = bench::Circuit(3000, 4, 90);
  const CscView pattern{a.pattern(), {}};
  const auto without = EstimateDynamicSpai(pattern, nullptr, {}, On(2));
  ASSERT_TRUE(without.ok());
  const DynamicSpaiCounts with = Estimate(a, {});
  EXPECT_EQ(without->nnz_m, with.nnz_m);
  EXPECT_EQ(without->gram_nnz, with.gram_nnz);
  EXPECT_EQ(without->host_bytes, with.host_bytes);
  EXPECT_EQ(without->device_bytes, with.device_bytes);
  EXPECT_EQ(without->work.gathered, with.work.gathered);
}

}  // namespace
}  // namespace spaid::kernels
