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
          EXPECT_GT(counts.predicted_ns, 0);
          EXPECT_GT(counts.flops, 0);
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

TEST(DynamicEstimate, TakesMoreTimeForMore) {
  const CscMatrix a = bench::Laplacian27(10);
  const double few = Estimate(a, Steps(2, 2)).predicted_ns;
  EXPECT_GT(Estimate(a, Steps(10, 2)).predicted_ns, 2 * few);
  EXPECT_GT(Estimate(a, Steps(10, 5, 0.1)).predicted_ns,
            Estimate(a, Steps(10, 5, 0.4)).predicted_ns);
  DynamicSpaiOptions limited = Steps(10, 5);
  limited.max_column_nnz = 4;
  EXPECT_LT(Estimate(a, limited).predicted_ns, Estimate(a, Steps(10, 5)).predicted_ns);
}

}  // namespace
}  // namespace spaid::kernels
