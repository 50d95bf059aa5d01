// Rows that repeat others, on a CUDA device: copied or made, the same bits. Skipped, with the
// reason, where there is no device.
#include <memory>
#include <string>
#include <utility>

#include "tests/kernels/fsai/build_on_device.h"
#include "tests/kernels/fsai/repeat_cases.h"

namespace spaid::kernels {
namespace {

class GpuFsaiRepeats : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    static const auto device = OpenGpu();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
  }

  FsaiResult Made(const CscView& a, const FsaiOptions& options,
                  const PatternView* initial = nullptr) {
    auto result = BuildFsaiCuda(device_, a, initial, options, {});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(result).value() : FsaiResult{};
  }

  // With copies, that are the same as without.
  FsaiResult MadeAlike(const CscView& a, FsaiOptions options, const std::string& what,
                       const PatternView* initial = nullptr) {
    FsaiResult copied = Made(a, options, initial);
    options.repeat_hash_bits = 0;
    const FsaiResult all = Made(a, options, initial);
    EXPECT_EQ(all.quality.copied_rows, 0) << what;
    ExpectSameFigures(copied, all, what);
    // Room that a refused pivot's row took is not compared.
    EXPECT_NEAR(copied.quality.flops, all.quality.flops, 1e-3 * all.quality.flops) << what;
    return copied;
  }

  std::shared_ptr<CudaDevice> device_;
};

TEST_F(GpuFsaiRepeats, AreTheRowsThemselves) {
  for (const RepeatCase& c : RepeatCases()) {
    for (FsaiOptions options : {Grow(30), Grow(9), Grow(45), Grow(4, 5), Grow(30, 1, 0.7)}) {
      for (const auto precision : {Precision::kFp64, Precision::kFp32}) {
        const std::string what = std::string(c.name) + ", k_max " + std::to_string(options.k_max);
        options.precision = precision;
        const FsaiResult copied = MadeAlike(c.a, options, what);
        if (HasFailure()) return;
        const auto rows = static_cast<double>(copied.quality.copied_rows);
        const double share = options.k_max > 30 ? 0.2 : 1;
        EXPECT_GE(rows, share * c.copied * static_cast<double>(c.a.n_cols)) << what;
        if (c.copied == 0 && options.k_max > 9 && options.epsilon == 0) {
          EXPECT_LE(rows, 0.1 * static_cast<double>(c.a.n_cols)) << what;
        }
      }
    }
  }
}

TEST_F(GpuFsaiRepeats, AreAsManyEachTime) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  const FsaiResult first = Made(a, Grow(30));
  for (int t = 0; t < 3; ++t) {
    const FsaiResult again = Made(a, Grow(30));
    ExpectSameFigures(again, first, "again");
    EXPECT_EQ(again.quality.copied_rows, first.quality.copied_rows);
  }
}

TEST_F(GpuFsaiRepeats, AreNotBelievedOfAHash) {
  for (const CscMatrix& a : {bench::ConvectionDiffusion(14, 0), Coins(3000), Cycle(300),
                             bench::WithVaryingCoefficients(bench::ConvectionDiffusion(9, 0))}) {
    FsaiOptions options = Grow(12);
    for (const int bits : {1, 2, 4}) {
      options.repeat_hash_bits = bits;
      MadeAlike(a, options, std::to_string(bits) + " bits");
    }
  }
}

// Rows of A alike, but not those that growth goes on to.
TEST_F(GpuFsaiRepeats, DependOnAllThatIsRead) {
  const CscMatrix a = Coins(4000);
  EXPECT_GT(MadeAlike(a, Grow(1), "1 step").quality.copied_rows, 3900);
  EXPECT_LT(MadeAlike(a, Grow(16), "16 steps").quality.copied_rows, 2000);
}

TEST_F(GpuFsaiRepeats, OfAnInitialPattern) {
  const CscMatrix a = bench::ConvectionDiffusion(14, 0);
  const Pattern initial = UnevenStart(a);
  const PatternView view = initial;
  for (const int k_max : {0, 8}) {
    const FsaiResult copied = MadeAlike(a, Grow(k_max), "initial pattern", &view);
    EXPECT_GT(copied.quality.copied_rows, a.n_cols / 2);
  }
}

// What a filter drops was read, too: nothing is copied.
TEST_F(GpuFsaiRepeats, AreNotLookedForBeforeAFilter) {
  FsaiOptions options = Grow(20);
  options.post_filter = 0.05;
  EXPECT_EQ(MadeAlike(bench::Laplacian27(12), options, "filtered").quality.copied_rows, 0);
}

// Rows are copied within their wave.
TEST_F(GpuFsaiRepeats, InWaves) {
  const CscMatrix a = bench::ConvectionDiffusion(40, 0);
  FsaiCudaTimings timings;
  const auto whole = BuildFsaiCuda(device_, a, nullptr, Grow(30), {}, &timings);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  int in_waves = 0;
  for (const int percent : {96, 92, 88}) {
    const auto small = OpenGpu(timings.device_bytes * percent / 100);
    ASSERT_TRUE(small.ok()) << small.status().message();
    const auto g = BuildFsaiCuda(*small, a, nullptr, Grow(30), {});
    if (!g.ok()) {
      EXPECT_EQ(g.status().reason(), "DEVICE_OUT_OF_MEMORY");
      continue;
    }
    ExpectSameFigures(*g, *whole, std::to_string(percent));
    EXPECT_GT(g->quality.copied_rows, a.n_cols / 2);
    // Each wave makes its own rows to copy from.
    if (g->quality.copied_rows < whole->quality.copied_rows) ++in_waves;
  }
  EXPECT_GT(in_waves, 0);
}

// Under a budget a result is that of fewer steps.
TEST_F(GpuFsaiRepeats, UnderATimeBudget) {
  const CscMatrix a = bench::ConvectionDiffusion(24, 0);
  FsaiOptions options = Grow(30);
  options.time_budget_ms = 1e7;
  const FsaiResult g = Made(a, options);
  EXPECT_EQ(g.quality.steps, 30);
  options.time_budget_ms = 0;
  ExpectSameFigures(g, Made(a, options), "budget");
  EXPECT_GT(g.quality.copied_rows, a.n_cols / 2);
}

}  // namespace
}  // namespace spaid::kernels
