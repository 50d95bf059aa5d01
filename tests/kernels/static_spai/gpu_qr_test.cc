// Static SPAI by QR on a CUDA device: thread groups, their strategies, and the rescue of what the
// Gram path gives up.
#include <initializer_list>
#include <numbers>
#include <utility>

#include "kernels/bench/problems.h"
#include "tests/kernels/static_spai/gpu_helpers.h"

namespace spaid::kernels {
namespace {

constexpr ThreadStrategy kStrategies[] = {ThreadStrategy::kConstant, ThreadStrategy::kVariable,
                                          ThreadStrategy::kPaper, ThreadStrategy::kAuto};

StaticSpaiOptions Qr(ThreadStrategy strategy, int power = 1) {
  StaticSpaiOptions options = With(LocalSolver::kQr, power);
  options.thread_strategy = strategy;
  return options;
}

std::string Name(ThreadStrategy strategy) {
  return ", strategy " + std::to_string(static_cast<int>(strategy));
}

using GpuStaticSpaiQr = GpuStaticSpai;

TEST_F(GpuStaticSpaiQr, HandCheckable) {
  // [2 1; 0 4]: full pattern, the inverse.
  const CscMatrix a = FromRows({{2, 1}, {0, 4}});
  const Pattern full = FullPattern(2);
  const PatternView view = full;
  for (const ThreadStrategy strategy : kStrategies) {
    const StaticSpaiResult m = BuildOnDevice(a, &view, Qr(strategy));
    ASSERT_EQ(m.m.values.size(), 4u);
    EXPECT_NEAR(m.m.values[0], 0.5, 1e-15);
    EXPECT_NEAR(m.m.values[1], 0, 1e-15);
    EXPECT_NEAR(m.m.values[2], -0.125, 1e-15);
    EXPECT_NEAR(m.m.values[3], 0.25, 1e-15);
    EXPECT_EQ(timings_.host_columns, 0);
    EXPECT_EQ(m.quality.qr_columns, 2);
  }
}

TEST_F(GpuStaticSpaiQr, EqualsTheCpuOnTheZoo) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(1)) {
    for (const int power : {1, 2}) {
      for (const ThreadStrategy strategy : {ThreadStrategy::kConstant, ThreadStrategy::kVariable}) {
        ExpectEqual(entry.a, nullptr, Qr(strategy, power),
                    entry.name + ", power " + std::to_string(power) + Name(strategy));
      }
    }
  }
}

TEST_F(GpuStaticSpaiQr, EqualsTheCpuOnTheGallery) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"P7_12", bench::ConvectionDiffusion(12, 0), 1},
      {"convdiff_9", bench::ConvectionDiffusion(9, 400), 2},
      {"P27_9", bench::Laplacian27(9), 1},
      {"P27_6", bench::Laplacian27(6), 2},
      {"aniso_40", bench::Anisotropic(40, 1e-3, std::numbers::pi / 8), 2},
      {"elasticity_6", bench::Elasticity(6), 1},
      {"elasticity_4", bench::Elasticity(4), 2},
      {"circuit_4k", bench::Circuit(4000, 12, 300), 1},
  };
  for (const Case& c : cases) {
    for (const ThreadStrategy strategy : kStrategies) {
      ExpectEqual(c.a, nullptr, Qr(strategy, c.power), c.name + Name(strategy));
      EXPECT_EQ(timings_.host_columns, 0) << c.name;
    }
  }
}

TEST_F(GpuStaticSpaiQr, ColumnsThatShareTheirPattern) {
  // |J| around the sizes of thread groups; with right-hand sides that find no thread of their own;
  // the last ones in global memory, where the chunk has 32, 16 and 8 rows.
  for (const int64_t n :
       {1, 2, 3, 4, 5, 7, 8, 9, 16, 24, 31, 32, 33, 64, 65, 127, 128, 129, 300, 801, 1500}) {
    const CscMatrix a = oracle::RandomIrregular(n, 5, static_cast<uint64_t>(n));
    Pattern pattern = FullPattern(std::min<int64_t>(n, 300));
    pattern.n_rows = pattern.n_cols = n;
    if (n > 300) {  // one full column, the others with their diagonal alone
      pattern = DiagonalPattern(n);
      pattern.row_idx.clear();
      for (int64_t j = 0; j < n; ++j) {
        const int64_t first = j == 7 ? 0 : j, last = j == 7 ? n - 1 : j;
        for (int64_t i = first; i <= last; ++i) {
          pattern.row_idx.push_back(static_cast<int32_t>(i));
        }
        pattern.col_ptr[static_cast<size_t>(j) + 1] = static_cast<int64_t>(pattern.row_idx.size());
      }
    }
    const PatternView view = pattern;
    for (const ThreadStrategy strategy : {ThreadStrategy::kConstant, ThreadStrategy::kVariable}) {
      ExpectEqual(a, &view, Qr(strategy), "n = " + std::to_string(n) + Name(strategy));
      EXPECT_EQ(timings_.host_columns, 0) << n;
    }
  }
}

TEST_F(GpuStaticSpaiQr, PatternsFiltersAndZeroColumns) {
  const CscMatrix a = oracle::RandomIrregular(400, 7, 5);
  for (const ThreadStrategy strategy : kStrategies) {
    StaticSpaiOptions options = Qr(strategy);
    options.post_filter = 0.05;
    ExpectEqual(a, nullptr, options, "post-filter" + Name(strategy));
    options.post_filter = 0;
    options.pattern.keep_tau = 0.3;
    ExpectEqual(a, nullptr, options, "threshold" + Name(strategy));
    ExpectEqual(oracle::ZeroDiagonal(200, 3), nullptr, Qr(strategy), "zeros" + Name(strategy));
    ExpectEqual(oracle::Arrow(700), nullptr, Qr(strategy), "arrow" + Name(strategy));
    EXPECT_EQ(timings_.host_columns, 0) << "what rounding leaves of eliminated rows underflows";
  }
}

TEST_F(GpuStaticSpaiQr, RankDeficientProblemsAreTheHosts) {
  // Columns 0 and 1 are equal.
  const CscMatrix a = FromRows({{1, 1, 0, 0}, {2, 2, 0, 0}, {0, 0, 3, 1}, {0, 0, 1, 2}});
  const Pattern full = FullPattern(4);
  const PatternView view = full;
  for (const ThreadStrategy strategy : kStrategies) {
    ExpectEqual(a, &view, Qr(strategy), "singular" + Name(strategy));
    EXPECT_EQ(timings_.host_columns, 4);
  }
}

TEST_F(GpuStaticSpaiQr, ARepeatedBuildIsTheSameBitForBit) {
  const CscMatrix a = bench::Circuit(3000, 8, 200);
  auto plan = PlanStaticSpaiCuda(device_, a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  // Nor does M depend on how many threads solve a column: AUTO may change that from build to build.
  const auto first = BuildStaticSpaiCuda(**plan, a, Qr(ThreadStrategy::kConstant), {});
  ASSERT_TRUE(first.ok());
  for (const ThreadStrategy strategy : kStrategies) {
    const auto second = BuildStaticSpaiCuda(**plan, a, Qr(strategy), {});
    const auto third = BuildStaticSpaiCuda(**plan, a, Qr(strategy), {});
    ASSERT_TRUE(second.ok() && third.ok());
    EXPECT_EQ(first->m.values, second->m.values) << Name(strategy);
    EXPECT_EQ(second->m.values, third->m.values) << Name(strategy);
    if (strategy != ThreadStrategy::kAuto) {
      EXPECT_EQ(second->residual_norms, third->residual_norms) << Name(strategy);
    }
  }
}

TEST_F(GpuStaticSpaiQr, TheDeviceRescuesWhatGramGivesUp) {
  // Of full rank, the last one in global memory; a pivot limit that whole problems fall under.
  StaticSpaiOptions options = With(LocalSolver::kGram);
  options.gram_pivot_limit = 0.99;
  for (const auto& [n, theta] : std::initializer_list<std::pair<int64_t, double>>{
           {3, 0.3}, {6, 0.6}, {20, 1.2}, {40, 1.4}, {100, 1.5}, {200, 1.53}}) {
    const CscMatrix a = OrthogonalKahan(n, theta, 1);
    const Pattern full = FullPattern(n);
    const PatternView view = full;
    ExpectEqual(a, &view, options, "Kahan, n = " + std::to_string(n));
    EXPECT_GT(timings_.rescued_groups, 0) << n;
    EXPECT_EQ(timings_.host_columns, 0) << n;
    const StaticSpaiResult gpu = BuildOnDevice(a, &view, options);
    const StaticSpaiResult cpu = Build(a, &view, options);
    EXPECT_EQ(gpu.quality.rescued_columns, cpu.quality.rescued_columns) << n;
    EXPECT_EQ(gpu.quality.first_rescued, cpu.quality.first_rescued) << n;
    EXPECT_LE(gpu.quality.min_scaled_pivot, options.gram_pivot_limit);
  }
  // Of condition numbers at which QR without pivots does not keep the accuracy rule: the host's.
  for (const int64_t n : {3, 6, 20, 40, 100, 200}) {
    const CscMatrix a = OrthogonalKahan(n, n < 10 ? 0.01 : n < 50 ? 0.6 : 1.2, 1);
    const Pattern full = FullPattern(n);
    const PatternView view = full;
    ExpectEqual(a, &view, options, "ill-conditioned Kahan, n = " + std::to_string(n));
    EXPECT_GT(timings_.rescued_groups, 0) << n;
  }
  // Many small ones among good ones.
  options.gram_pivot_limit = 0.9;
  const CscMatrix a = oracle::RandomIrregular(5000, 6, 9);
  ExpectEqual(a, nullptr, options, "irregular");
  EXPECT_GT(timings_.rescued_groups, 0);
}

TEST_F(GpuStaticSpaiQr, AnArenaOfTheEstimatedSizeSuffices) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"one", FromRows({{-4}}), 1},
      {"P7_30", bench::ConvectionDiffusion(30, 0), 1},
      {"elasticity_5", bench::Elasticity(5), 2},
      {"circuit_8k", bench::Circuit(8000, 12, 300), 1},
      {"irregular", oracle::RandomIrregular(20000, 8, 1), 1},
      {"arrow", oracle::Arrow(700), 1},
      {"irregular, many tables", oracle::RandomIrregular(60000, 10, 1), 1},
  };
  int in_waves = 0;
  for (const Case& c : cases) {
    StaticSpaiOptions options = Qr(ThreadStrategy::kVariable, c.power);
    auto counts = EstimateStaticSpai(c.a, nullptr, options, {});
    ASSERT_TRUE(counts.ok()) << c.name;
    for (const ThreadStrategy strategy : {ThreadStrategy::kVariable, ThreadStrategy::kConstant}) {
      for (const int64_t bytes : {counts->device_bytes, counts->device_bytes_min}) {
        SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(bytes) + " bytes");
        options = Qr(strategy, c.power);
        const auto exact = OpenDevice(bytes);
        ASSERT_NE(exact, nullptr);
        StaticSpaiCudaTimings timings;
        auto plan = PlanStaticSpaiCuda(exact, c.a, nullptr, options, {}, &timings);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        auto built = BuildStaticSpaiCuda(**plan, c.a, options, {}, &timings);
        ASSERT_TRUE(built.ok()) << built.status().message();
        EXPECT_LE(timings.device_bytes, bytes);
        EXPECT_EQ(timings.host_columns, 0);
        EXPECT_TRUE(!timings.tables_in_waves || bytes < counts->device_bytes);
        in_waves += timings.tables_in_waves ? 1 : 0;
      }
    }
    // A rescue that finds no room is the host's; nothing fails.
    options = With(LocalSolver::kGram, c.power);
    options.gram_pivot_limit = 0.9;
    counts = EstimateStaticSpai(c.a, nullptr, options, {});
    ASSERT_TRUE(counts.ok()) << c.name;
    for (const int64_t bytes : {counts->device_bytes, counts->device_bytes_min}) {
      SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(bytes) + " bytes, rescued");
      const auto exact = OpenDevice(bytes);
      ASSERT_NE(exact, nullptr);
      auto plan = PlanStaticSpaiCuda(exact, c.a, nullptr, options, {});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      auto built = BuildStaticSpaiCuda(**plan, c.a, options, {});
      EXPECT_TRUE(built.ok()) << built.status().message();
    }
  }
  EXPECT_GE(in_waves, 1);
}

}  // namespace
}  // namespace spaid::kernels
