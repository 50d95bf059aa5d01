// Static SPAI on a CUDA device against the CPU and against the definition.
#include <numbers>

#include "kernels/bench/problems.h"
#include "tests/kernels/static_spai/gpu_helpers.h"

namespace spaid::kernels {
namespace {

TEST_F(GpuStaticSpai, HandCheckable) {
  // [2 1; 0 4]: full pattern, the inverse.
  const CscMatrix a = FromRows({{2, 1}, {0, 4}});
  const Pattern full = FullPattern(2);
  const PatternView view = full;
  const StaticSpaiResult m = BuildOnDevice(a, &view, With(LocalSolver::kGram));
  ASSERT_EQ(m.m.values.size(), 4u);
  EXPECT_NEAR(m.m.values[0], 0.5, 1e-15);
  EXPECT_NEAR(m.m.values[1], 0, 1e-15);
  EXPECT_NEAR(m.m.values[2], -0.125, 1e-15);
  EXPECT_NEAR(m.m.values[3], 0.25, 1e-15);
  EXPECT_EQ(timings_.host_columns, 0);

  const CscMatrix one = FromRows({{-4}});
  const StaticSpaiResult inverse = BuildOnDevice(one, nullptr, {});
  EXPECT_EQ(inverse.m.values, Array<double>{-0.25});
  EXPECT_EQ(inverse.residual_norms, Array<double>{0});
}

TEST_F(GpuStaticSpai, DiagonalPatternIsScaledJacobi) {
  const CscMatrix a = oracle::RandomIrregular(300, 6, 1);
  const Pattern diagonal = DiagonalPattern(300);
  const PatternView view = diagonal;
  const StaticSpaiResult m = BuildOnDevice(a, &view, With(LocalSolver::kGram));
  for (int64_t k = 0; k < 300; ++k) {
    const auto values = CscView(a).column_values(k);
    const auto rows = CscView(a).column(k);
    double squared = 0, diag = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      squared += values[p] * values[p];
      if (rows[p] == k) diag = values[p];
    }
    EXPECT_NEAR(m.m.values[static_cast<size_t>(k)], diag / squared,
                1e-14 * std::abs(diag) / squared);
  }
}

TEST_F(GpuStaticSpai, EqualsTheCpuOnTheZoo) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const oracle::NamedMatrix& entry : oracle::Zoo(seed)) {
      for (const int power : {1, 2, 3}) {
        ExpectEqual(entry.a, nullptr, With(LocalSolver::kGram, power),
                    entry.name + ", power " + std::to_string(power));
      }
    }
  }
}

TEST_F(GpuStaticSpai, EqualsTheCpuOnTheGallery) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"P7_20", bench::ConvectionDiffusion(20, 0), 1},
      {"P7_12", bench::ConvectionDiffusion(12, 0), 3},
      {"convdiff_20", bench::ConvectionDiffusion(20, 400), 2},
      {"P27_16", bench::Laplacian27(16), 1},
      {"P27_8", bench::Laplacian27(8), 2},
      {"aniso_60", bench::Anisotropic(60, 1e-3, std::numbers::pi / 8), 2},
      {"elasticity_9", bench::Elasticity(9), 1},
      {"elasticity_4", bench::Elasticity(4), 2},
      {"circuit_8k", bench::Circuit(8000, 12, 300), 1},
      {"circuit_1k", bench::Circuit(1000, 4, 60), 2},
      {"elasticity_5", bench::Elasticity(5), 2},
  };
  for (const Case& c : cases) ExpectEqual(c.a, nullptr, With(LocalSolver::kAuto, c.power), c.name);
}

TEST_F(GpuStaticSpai, PatternsAndFilters) {
  const CscMatrix a = oracle::RandomIrregular(400, 7, 5);
  for (const double tau : {0.0, 0.3, 0.9, 1.0}) {
    StaticSpaiOptions options = With(LocalSolver::kGram);
    options.pattern.keep_tau = tau;
    ExpectEqual(a, nullptr, options, "tau " + std::to_string(tau));
    options.pattern.power = 2;
    ExpectEqual(a, nullptr, options, "power 2, tau " + std::to_string(tau));
  }
  const CscMatrix b = oracle::ZeroDiagonal(200, 3);
  StaticSpaiOptions options = With(LocalSolver::kGram);
  ExpectEqual(b, nullptr, options, "zero diagonal");
  options.pattern.ensure_row = true;
  ExpectEqual(b, nullptr, options, "ensure_row");
  options.pattern.ensure_row = false;
  options.pattern.row_match = true;
  ExpectEqual(b, nullptr, options, "row_match");
  options = With(LocalSolver::kGram);
  options.post_filter = 0.05;
  ExpectEqual(a, nullptr, options, "post-filter");
}

TEST_F(GpuStaticSpai, ColumnsThatShareTheirPattern) {
  // Groups wider than the device's, in sizes around its tiles; the last ones in global memory.
  for (const int64_t n :
       {1, 2, 5, 8, 9, 16, 24, 31, 32, 33, 48, 49, 64, 88, 89, 127, 128, 129, 200, 301}) {
    const CscMatrix a = oracle::RandomIrregular(n, 5, static_cast<uint64_t>(n));
    const Pattern full = FullPattern(n);
    const PatternView view = full;
    ExpectEqual(a, &view, With(LocalSolver::kGram), "full pattern of " + std::to_string(n));
    EXPECT_EQ(timings_.host_columns, 0) << n;
  }
}

TEST_F(GpuStaticSpai, IllConditionedColumnsAreRescued) {
  for (double angle = 1; angle > 1e-9; angle *= 0.1) {
    const CscMatrix a = FromRows({{1, 1, 0}, {0, angle, 0}, {0, 0, 1}});
    const Pattern full = FullPattern(3);
    const PatternView view = full;
    ExpectEqual(a, &view, With(LocalSolver::kGram), "angle " + std::to_string(angle));
  }
  for (const double theta : {1.2, 0.9, 0.6}) {
    const CscMatrix a = OrthogonalKahan(40, theta, 1);
    const Pattern full = FullPattern(40);
    const PatternView view = full;
    ExpectEqual(a, &view, With(LocalSolver::kGram), "Kahan " + std::to_string(theta));
  }
}

// Too ill-conditioned for one corrected step, but not for several: blocks and clusters of blocks
// take them, QR those of warps. Columns 0 to n - 1 have twice as many rows, so that residuals are
// not zero: as in GroupSolver::Correct, no step is small beside nothing.
TEST_F(GpuStaticSpai, WeakProblemsGetSeveralSteps) {
  for (const int64_t n : {3, 32, 33, 40, 64, 88, 120, 128, 150, 300}) {
    for (const double angle : {1e-4, 3e-5}) {
      CscMatrix a;
      Pattern pattern;
      a.n_rows = a.n_cols = pattern.n_rows = pattern.n_cols = 2 * n;
      oracle::Random random(static_cast<uint64_t>(n));
      for (int64_t j = 0; j < 2 * n; ++j) {
        a.col_ptr.push_back(a.nnz());
        pattern.col_ptr.push_back(static_cast<int64_t>(pattern.row_idx.size()));
        for (int64_t i = 0; i < n; ++i) pattern.row_idx.push_back(static_cast<int32_t>(i));
        for (int64_t i = j < n ? 0 : j - 1; i < (j < n ? 2 * n : j + 1); ++i) {
          a.row_idx.push_back(static_cast<int32_t>(i));
          a.values.push_back(
              i == j ? 1 : random.Uniform(-0.3, 0.3) / (j < n ? static_cast<double>(n) : 1));
        }
      }
      a.col_ptr.push_back(a.nnz());
      pattern.col_ptr.push_back(static_cast<int64_t>(pattern.row_idx.size()));
      for (int64_t i = 0; i < 2 * n; ++i) {  // the second column nearly is the first
        double& second = a.values[static_cast<size_t>(2 * n + i)];
        second = a.values[static_cast<size_t>(i)] + angle * second;
      }
      const PatternView view = pattern;
      const std::string what = std::to_string(n) + ", angle " + std::to_string(angle);
      ExpectEqual(a, &view, With(LocalSolver::kGram), what);
      EXPECT_EQ(timings_.rescued_groups > 0, n <= 32) << what;
      EXPECT_EQ(timings_.host_columns, 0) << what;
    }
  }
}

TEST_F(GpuStaticSpai, DenseRowsAndColumns) {
  ExpectEqual(oracle::Arrow(3000), nullptr, With(LocalSolver::kAuto), "arrow");
  ExpectEqual(oracle::DenseRowAndColumn(2500, 1), nullptr, With(LocalSolver::kAuto),
              "dense row and column");
}

TEST_F(GpuStaticSpai, ARebuildTakesNewValues) {
  CscMatrix a = bench::Elasticity(6);
  auto plan = PlanStaticSpaiCuda(device_, a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  auto first = BuildStaticSpaiCuda(**plan, a, {}, {});
  ASSERT_TRUE(first.ok());
  for (double& v : a.values) v *= 2;
  auto second = BuildStaticSpaiCuda(**plan, a, {}, {});
  ASSERT_TRUE(second.ok());
  for (size_t p = 0; p < a.values.size(); ++p) {
    ASSERT_EQ(second->m.values[p], first->m.values[p] / 2);  // powers of two change no rounding
  }
  auto again = BuildStaticSpaiCuda(**plan, a, {}, {});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->m.values, second->m.values);  // bit for bit
  EXPECT_EQ(again->residual_norms, second->residual_norms);

  const CscMatrix other = bench::Elasticity(5);
  auto mismatch = BuildStaticSpaiCuda(**plan, other, {}, {});
  ASSERT_FALSE(mismatch.ok());
  EXPECT_EQ(mismatch.status().reason(), "PLAN_MISMATCH");
}

TEST_F(GpuStaticSpai, ErrorsOfTheInput) {
  CscMatrix a = FromRows({{1, 0, 2}, {0, 0, 3}, {4, 0, 5}});
  auto plan = PlanStaticSpaiCuda(device_, a, nullptr, {}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().reason(), "ZERO_COLUMN");
  StaticSpaiOptions options;
  options.post_filter = 2;
  plan = PlanStaticSpaiCuda(device_, oracle::Arrow(5), nullptr, options, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().reason(), "BAD_POST_FILTER");
}

TEST_F(GpuStaticSpai, TheMemoryLimitIsHeld) {
  const CscMatrix a = bench::Laplacian27(20);
  const auto small = OpenDevice(1 << 20);
  ASSERT_NE(small, nullptr);
  auto plan = PlanStaticSpaiCuda(small, a, nullptr, {}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_FALSE(small->lost());
  EXPECT_EQ(small->used_bytes(), 0);
  EXPECT_TRUE(small->Probe().ok());
}

TEST_F(GpuStaticSpai, AnArenaOfTheEstimatedSizeSuffices) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"one", FromRows({{-4}}), 1},
      {"P7_30", bench::ConvectionDiffusion(30, 0), 1},
      {"P27_20", bench::Laplacian27(20), 1},
      {"elasticity_9", bench::Elasticity(9), 1},
      {"elasticity_5", bench::Elasticity(5), 2},
      {"circuit_8k", bench::Circuit(8000, 12, 300), 1},
      {"irregular", oracle::RandomIrregular(20000, 8, 1), 1},
      {"irregular, power 2", oracle::RandomIrregular(2000, 8, 1), 2},
      {"arrow", oracle::Arrow(1500), 1},
      {"tridiagonal", oracle::Laplacian2d(5000, 1), 1},
      {"5 points", oracle::Laplacian2d(70, 80), 1},
      {"9 points", bench::Anisotropic(100, 1e-3, 0.4), 1},
      {"25 points", bench::Anisotropic(60, 1e-3, 0.4), 2},
      {"elasticity_2", bench::Elasticity(2), 1},
      {"irregular, many tables", oracle::RandomIrregular(60000, 10, 1), 1},
  };
  int in_waves = 0;
  for (const Case& c : cases) {
    const StaticSpaiOptions options = With(LocalSolver::kGram, c.power);
    const auto counts = EstimateStaticSpai(c.a, nullptr, options, {});
    ASSERT_TRUE(counts.ok()) << c.name;
    // The least leaves columns to the host only where the Gram path gives them up: those it would
    // rescue in more memory. There are none here.
    for (const int64_t bytes : {counts->device_bytes, counts->device_bytes_min}) {
      const std::string what = std::string(c.name) + ", " + std::to_string(bytes) + " bytes";
      const auto exact = OpenDevice(bytes);
      ASSERT_NE(exact, nullptr);
      StaticSpaiCudaTimings timings;
      auto plan = PlanStaticSpaiCuda(exact, c.a, nullptr, options, {}, &timings);
      ASSERT_TRUE(plan.ok()) << what << ": " << plan.status().message();
      auto built = BuildStaticSpaiCuda(**plan, c.a, options, {}, &timings);
      ASSERT_TRUE(built.ok()) << what << ": " << built.status().message();
      EXPECT_LE(timings.device_bytes, bytes) << what;
      EXPECT_EQ(timings.host_columns, 0) << what;
      EXPECT_TRUE(!timings.tables_in_waves || bytes < counts->device_bytes) << what;
      in_waves += timings.tables_in_waves ? 1 : 0;
    }
  }
  EXPECT_GE(in_waves, 1);
}

TEST_F(GpuStaticSpai, MStaysOnTheDevice) {
  struct Case {
    const char* name;
    CscMatrix a;
  };
  const Case cases[] = {{"P27", bench::Laplacian27(9)},
                        {"irregular", oracle::RandomIrregular(900, 7, 3)},
                        {"large", bench::ConvectionDiffusion(70, 10)}};  // copied in pieces
  for (const Case& c : cases) {
    for (const double filter : {0.0, 0.1}) {
      SCOPED_TRACE(c.name);
      StaticSpaiOptions options = With(LocalSolver::kGram);
      options.post_filter = filter;
      std::shared_ptr<const BuiltOnDevice> kept;
      StaticSpaiResult built;
      {
        auto plan = PlanStaticSpaiCuda(device_, c.a, nullptr, options, {});
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        auto result = BuildStaticSpaiCuda(**plan, c.a, options, {}, nullptr, &kept);
        ASSERT_TRUE(result.ok()) << result.status().message();
        built = *std::move(result);
      }  // the M keeps its plan
      ASSERT_NE(kept, nullptr);
      EXPECT_GE(kept->device_bytes, 8 * built.m.nnz());
      const CscMatrix again = Download(*kept);
      EXPECT_EQ(again.col_ptr, built.m.col_ptr);
      EXPECT_EQ(again.row_idx, built.m.row_idx);
      EXPECT_EQ(again.values, built.m.values);
    }
  }
}

TEST_F(GpuStaticSpai, AStopIsHonoured) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  const CscMatrix a = oracle::Arrow(50);
  auto plan = PlanStaticSpaiCuda(device_, a, nullptr, {}, {.stop = source.token()});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kCancelled);
}

// Asks for a stop as soon as a build reports progress.
class StopAtProgress : public ProgressSink {
 public:
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (stage != Stage::kBuild || done == 0) return;
    ++reports;
    EXPECT_LT(done, total);
    source.Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}

  StopSource source;
  int reports = 0;
};

TEST_F(GpuStaticSpai, AStopBetweenWavesIsHonoured) {
  // More groups of 33 and more columns than one wave takes.
  const int64_t n = 70000;
  const CscMatrix a = oracle::RandomIrregular(n, 4, 3);
  Pattern pattern;
  pattern.n_rows = pattern.n_cols = n;
  for (int64_t j = 0; j <= n; ++j) pattern.col_ptr.push_back(40 * j);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t first = std::min(j, n - 40 * 3);
    for (int64_t i = 0; i < 40; ++i) {
      pattern.row_idx.push_back(static_cast<int32_t>(first + (i * 3 + (first < j ? i % 2 : 0))));
    }
  }
  const PatternView view = pattern;
  for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kQr}) {
    auto plan = PlanStaticSpaiCuda(device_, a, &view, With(solver), {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    // A first build adds to the plan what QR needs.
    ASSERT_TRUE(BuildStaticSpaiCuda(**plan, a, With(solver), {}).ok());
    const int64_t held = device_->used_bytes();
    StopAtProgress observer;
    const Context context{.stop = observer.source.token(), .progress = &observer};
    auto built = BuildStaticSpaiCuda(**plan, a, With(solver), context);
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
    EXPECT_EQ(observer.reports, 1);
    EXPECT_EQ(device_->used_bytes(), held);
  }
}

}  // namespace
}  // namespace spaid::kernels
