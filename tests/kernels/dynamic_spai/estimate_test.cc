// Estimates from the pattern alone.
#include "kernels/bench/problems.h"
#include "kernels/dynamic_spai/dynamic_spai_tuning.h"
#include "kernels/dynamic_spai/gram.h"
#include "kernels/dynamic_spai/growth_sample.h"
#include "kernels/sparse/transpose.h"
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

GrowthSample Sample(const CscMatrix& a, const DynamicSpaiOptions& options,
                    const PatternView* initial = nullptr) {
  const Pattern rows = Transpose(a.pattern());
  const PatternView by_rows = rows;
  std::vector<double> products;
  for (int64_t k = 0; k < a.n_cols; ++k) {
    double sum = 0;
    for (const int32_t l : a.pattern().column(k)) {
      sum += static_cast<double>(by_rows.column(l).size());
    }
    products.push_back(sum);
  }
  return SampleGrowth(a, by_rows, products, initial, options, On(2));
}

TEST(GrowthSample, OfAllColumnsIsTheirGrowth) {
  for (const oracle::NamedMatrix& c : Cases(4)) {
    if (c.a.n_cols > 16) continue;
    const PatternView of_a = c.a.pattern();
    for (const PatternView* initial : {static_cast<const PatternView*>(nullptr), &of_a}) {
      for (const DynamicSpaiOptions& options : {Steps(4, 3), Steps(0), Steps(5, 1, 0.4)}) {
        const GrowthSample sample = Sample(c.a, options, initial);
        ASSERT_EQ(static_cast<int64_t>(sample.columns.size()), c.a.n_cols) << c.name;
        const DynamicSpaiPattern grown = Grow(c.a, options, 2, initial);
        double entries = 0, flops = 0;
        for (const GrownColumn& column : sample.columns) {
          EXPECT_EQ(column.times, 1);
          entries += column.entries;
          flops += column.flops;
        }
        EXPECT_EQ(entries, static_cast<double>(grown.m.nnz())) << c.name;
        // Those of AᵀA, two for each product, are no part of it.
        EXPECT_EQ(flops, grown.quality.flops - 2 * CountRows(c.a.pattern()).squares) << c.name;
      }
    }
  }
}

TEST(GrowthSample, SeesWhatIsCopied) {
  const CscMatrix alike = bench::Laplacian27(20);
  const CscMatrix varying = bench::WithVaryingCoefficients(alike);
  const auto grown_share = [](const GrowthSample& sample) {
    double grown = 0, all = 0;
    for (const GrownColumn& column : sample.columns) {
      grown += column.grown;
      all += column.times;
    }
    EXPECT_NEAR(all, 8000, 400);
    return grown / all;
  };
  const DynamicSpaiPattern built = Grow(alike, Steps(3, 3));
  EXPECT_NEAR(grown_share(Sample(alike, Steps(3, 3))),
              1 - static_cast<double>(built.quality.copied_columns) / 8000, 0.1);
  EXPECT_EQ(grown_share(Sample(varying, Steps(3, 3))), 1);
  DynamicSpaiOptions each = Steps(3, 3);
  each.repeat_hash_bits = 0;
  EXPECT_EQ(grown_share(Sample(alike, each)), 1);
  EXPECT_GT(Estimate(varying, Steps(3, 3)).predicted_ns,
            1.5 * Estimate(alike, Steps(3, 3)).predicted_ns);
  EXPECT_GT(Estimate(alike, each).predicted_ns, 1.5 * Estimate(alike, Steps(3, 3)).predicted_ns);
  EXPECT_GT(Estimate(varying, Steps(3, 3)).predicted_device_ns,
            Estimate(alike, Steps(3, 3)).predicted_device_ns);
}

TEST(GrowthSample, SeesWhereColumnsConverge) {
  // Columns of P27 have a residual of 0.19 from the beginning.
  const CscMatrix a = bench::WithVaryingCoefficients(bench::Laplacian27(14));
  const DynamicSpaiCounts early = Estimate(a, Steps(10, 5, 0.3)), late = Estimate(a, Steps(10, 5));
  EXPECT_GT(late.predicted_ns, 4 * early.predicted_ns);
  EXPECT_GT(late.predicted_device_ns, 1.5 * early.predicted_device_ns);
  EXPECT_EQ(late.nnz_m, early.nnz_m);
  const auto nnz = static_cast<double>(Grow(a, Steps(10, 5, 0.3)).m.nnz());
  EXPECT_NEAR(early.expected_nnz, nnz, 0.1 * nnz);
}

TEST(GrowthSample, StaysWithinItsSteps) {
  // Each column of AᵀA is full, and a few of them are all that is allowed; or not even one.
  for (const int64_t n : {20'000, 400'000}) {
    const CscMatrix a = oracle::Arrow(n);
    const GrowthSample sample = Sample(a, {});
    EXPECT_LE(sample.steps, 2 * dynamic_spai_tuning::kSampleSteps + 8.0 * a.nnz()) << n;
    EXPECT_EQ(sample.columns.empty(), n == 400'000);
    const DynamicSpaiCounts counts = Estimate(a, {});
    EXPECT_GT(counts.predicted_ns, 0) << n;
    EXPECT_GT(counts.predicted_device_ns, 0) << n;
    EXPECT_GT(counts.expected_nnz, 0) << n;
  }
}

TEST(DynamicEstimate, IsTheSameForAnyThreads) {
  const CscMatrix a = bench::Circuit(3000, 4, 90);
  const auto one = EstimateDynamicSpai(a, nullptr, {}, On(1));
  const auto three = EstimateDynamicSpai(a, nullptr, {}, On(3));
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(one->predicted_ns, three->predicted_ns);
  EXPECT_EQ(one->predicted_device_ns, three->predicted_device_ns);
  EXPECT_EQ(one->expected_nnz, three->expected_nnz);
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
  EXPECT_GT(without->predicted_ns, with.predicted_ns / 8);
  EXPECT_LT(without->predicted_ns, with.predicted_ns * 8);
}

}  // namespace
}  // namespace spaid::kernels
