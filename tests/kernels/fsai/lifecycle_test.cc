// What a caller sees beside numbers: time budgets, stops, progress, estimates.
#include <chrono>
#include <functional>
#include <thread>

#include "kernels/bench/problems.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

class Recorder : public ProgressSink {
 public:
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    EXPECT_EQ(stage, Stage::kBuild);
    EXPECT_GE(done, last);
    last = done;
    all = total;
    ++reports;
    if (each) each();
  }
  void OnResidual(const ResidualPoint&) override {}
  int64_t last = 0, all = 0, reports = 0;
  std::function<void()> each;
};

TEST(FsaiBudget, GivesEveryRowAsManySteps) {
  const CscMatrix a = bench::Laplacian27(14);
  for (const double budget : {1e-6, 5.0, 40.0, 1e7}) {
    FsaiOptions options = Grow(30);
    options.time_budget_ms = budget;
    const FsaiResult g = Build(a, options);
    EXPECT_LE(g.quality.steps, 30);
    EXPECT_EQ(g.quality.out_of_time, g.quality.steps < 30);
    if (budget < 1e-3) {
      EXPECT_EQ(g.quality.steps, 0);
    }
    if (budget > 1e6) {
      EXPECT_EQ(g.quality.steps, 30);
    }
    ExpectSame(g, Build(a, Grow(g.quality.steps)), "budget " + std::to_string(budget));
  }
}

TEST(FsaiBudget, NoneSaysWhatWasAsked) {
  const FsaiResult g = Build(oracle::Laplacian2d(9, 9), Grow(4));
  EXPECT_EQ(g.quality.steps, 4);
  EXPECT_FALSE(g.quality.out_of_time);
}

TEST(FsaiProgress, NeverFallsAndEndsAtAll) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  for (FsaiOptions options : {Grow(8), Static(2)}) {
    for (const double budget : {0.0, 30.0}) {
      options.time_budget_ms = budget;
      Recorder recorder;
      Context context = Threads(2);
      context.progress = &recorder;
      ASSERT_TRUE(BuildFsai(a, nullptr, options, context).ok());
      EXPECT_EQ(recorder.last, a.n_cols);
      EXPECT_EQ(recorder.all, a.n_cols);
      EXPECT_GT(recorder.reports, 10);
    }
  }
}

// Passes that begin anew are no silence: who watches would take it for a hang.
TEST(FsaiProgress, GoesOnInEveryPass) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  const auto reports = [&](int k_max, double budget) {
    FsaiOptions options = Grow(k_max);
    options.time_budget_ms = budget;
    Recorder recorder;
    Context context = Threads(1);
    context.progress = &recorder;
    EXPECT_TRUE(BuildFsai(a, nullptr, options, context).ok());
    return recorder.reports;
  };
  EXPECT_GE(reports(8, 1e7), 2 * reports(8, 0) - 2);
}

TEST(FsaiStop, AtOnceAndInTheMiddle) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  for (FsaiOptions options : {Grow(8), Static(2)}) {
    for (const double filter : {0.0, 0.1}) {
      options.post_filter = filter;
      for (const bool at_once : {true, false}) {
        StopSource source;
        Recorder recorder;
        recorder.each = [&source] { source.Request(StopReason::kCancelled); };
        Context context = Threads(2);
        context.stop = source.token();
        context.progress = &recorder;
        if (at_once) source.Request(StopReason::kTimeLimit);
        const auto result = BuildFsai(a, nullptr, options, context);
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.status().reason(), at_once ? "TIME_LIMIT" : "CANCELLED");
        EXPECT_LT(recorder.last, a.n_cols);
      }
    }
  }
}

TEST(FsaiStop, OfALongRow) {
  const int64_t n = 40000;
  // A path and a hub: conjugate gradients take their time.
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  const auto add = [&a](int64_t i, double v) {
    a.row_idx.push_back(static_cast<int32_t>(i));
    a.values.push_back(v);
  };
  for (int64_t j = 0; j < n; ++j) {
    if (j == n - 1) {
      for (int64_t i = 0; i + 2 < n; ++i) add(i, 1e-6);
    } else if (j > 0) {
      add(j - 1, -1);
    }
    if (j == n - 1) {
      add(n - 2, 1e-6);
      add(j, 1e3);
    } else {
      add(j, 2);
      if (j + 2 < n) add(j + 1, -1);
      add(n - 1, 1e-6);
    }
    a.col_ptr.push_back(a.nnz());
  }
  const FsaiResult g = Build(a, Static());
  EXPECT_EQ(g.quality.slow_rows, 1);
  EXPECT_EQ(g.quality.not_converged_rows, 1);  // 1000 iterations do not cross the path
  EXPECT_EQ(g.quality.first_not_converged, n - 1);
  EXPECT_EQ(g.quality.not_spd_rows, 0);
  ExpectUnitDiagonal(a, g, 1e-12, "long row");
  StopSource source;
  Context context = Threads(1);
  context.stop = source.token();
  source.SetTimeLimit(std::chrono::steady_clock::now() + std::chrono::milliseconds(30));
  const auto result = BuildFsai(a, nullptr, Static(), context);
  if (!result.ok()) {
    EXPECT_EQ(result.status().reason(), "TIME_LIMIT");
  }
}

TEST(FsaiEstimate, BoundsEntries) {
  for (const oracle::NamedMatrix& named : SpdZoo(31)) {
    for (const FsaiOptions& options : {Grow(0), Grow(7), Grow(9, 3), Static(), Static(3)}) {
      const auto counts = EstimateFsai(named.a.pattern(), nullptr, options, Threads(2));
      ASSERT_TRUE(counts.ok()) << counts.status().message();
      const FsaiResult g = Build(named.a, options);
      EXPECT_GE(counts->nnz_g, g.g_rows.nnz()) << named.name;
      if (!options.adaptive) {
        EXPECT_EQ(counts->nnz_g, g.g_rows.nnz()) << named.name;
      }
      EXPECT_GE(counts->host_bytes, g.g_rows.bytes());
      EXPECT_GT(counts->work.flops, 0);
    }
  }
}

TEST(FsaiEstimate, FlopsAreOfTheRightSize) {
  for (const CscMatrix& a : {bench::ConvectionDiffusion(16, 0), bench::Elasticity(7)}) {
    for (const FsaiOptions& options : {Grow(30), Static()}) {
      const auto counts = EstimateFsai(a.pattern(), nullptr, options, Threads(2));
      ASSERT_TRUE(counts.ok());
      const FsaiResult g = Build(a, options);
      EXPECT_GT(counts->work.flops, g.quality.flops / 4);
      EXPECT_LT(counts->work.flops, g.quality.flops * 8);
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
