// What a caller sees besides patterns: progress, stops, threads.
#include <algorithm>

#include "kernels/bench/problems.h"
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

// Keeps all reports; requests a stop at the first one from `stop_at` on, where it has a source.
class Recorder final : public ProgressSink {
 public:
  explicit Recorder(StopSource* source = nullptr, int64_t stop_at = 0)
      : source_(source), stop_at_(stop_at) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    EXPECT_EQ(stage, Stage::kBuild);
    last_total = total;
    reports.push_back(done);
    if (source_ != nullptr && done >= stop_at_) source_->Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}

  std::vector<int64_t> reports;
  int64_t last_total = 0;

 private:
  StopSource* const source_;
  const int64_t stop_at_;
};

TEST(DynamicProgress, RisesToAllColumns) {
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(20, 0));
  Recorder recorder;
  const Context context{.stop = {}, .progress = &recorder, .threads = 2};
  ASSERT_TRUE(GrowDynamicSpai(a, nullptr, Steps(5, 2), context).ok());
  ASSERT_GT(recorder.reports.size(), 20u);
  EXPECT_TRUE(std::is_sorted(recorder.reports.begin(), recorder.reports.end()));
  EXPECT_EQ(recorder.reports.back(), a.n_cols);
  EXPECT_EQ(recorder.last_total, a.n_cols);
  EXPECT_LT(recorder.reports.front(), a.n_cols / 4);
}

TEST(DynamicStop, EndsGrowthWhereverItIs) {
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(20, 0));
  for (const double part : {0.01, 0.1, 0.2, 0.5, 0.9}) {
    StopSource source;
    Recorder recorder(&source, static_cast<int64_t>(part * static_cast<double>(a.n_cols)));
    const Context context{.stop = source.token(), .progress = &recorder, .threads = 2};
    const auto stopped = GrowDynamicSpai(a, nullptr, Steps(5, 2), context);
    ASSERT_FALSE(stopped.ok()) << part;
    EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
    EXPECT_LT(recorder.reports.back(), a.n_cols) << part;
  }
  StopSource late;
  late.SetTimeLimit(std::chrono::steady_clock::now());
  const Context context{.stop = late.token(), .progress = nullptr, .threads = 2};
  EXPECT_EQ(GrowDynamicSpai(a, nullptr, {}, context).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(EstimateDynamicSpai(a, nullptr, {}, context).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST(DynamicThreads, GiveTheSameBits) {
  for (const CscMatrix& a : {bench::Circuit(3000, 3, 60), bench::ConvectionDiffusion(14, 20),
                             oracle::RandomIrregular(2000, 7, 3)}) {
    for (DynamicSpaiOptions options : {Steps(6, 1, 0.1), Steps(5, 4, 0.2)}) {
      const DynamicSpaiPattern one = Grow(a, options, 1);
      for (const int threads : {2, 3}) ExpectSame(Grow(a, options, threads), one, "threads");
      options.growth_precision = Precision::kFp32;
      ExpectSame(Grow(a, options, 2), Grow(a, options, 1), "threads, fp32");
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
