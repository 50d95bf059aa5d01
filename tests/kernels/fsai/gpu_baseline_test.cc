// The baseline of adaptive FSAI on a CUDA device: the G of the CPU, by either gradient, however
// little memory there is. Skipped, with the reason, where there is no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/cuda/fsai_baseline.h"
#include "kernels/bench/problems.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

using bench::FsaiBaselineOptions;
using bench::FsaiBaselineResult;
using bench::FsaiGradient;

// Uneven, so that no tie decides.
CscMatrix Uneven(const CscMatrix& a) {
  oracle::Random random(5);
  oracle::Vector scale(static_cast<size_t>(a.n_cols));
  for (double& x : scale) x = random.Uniform(0.5, 2);
  return Scaled(a, scale);
}

std::vector<std::pair<std::string, CscMatrix>> Matrices() {
  std::vector<std::pair<std::string, CscMatrix>> all;
  all.emplace_back("one", FromRows({{4}}));
  all.emplace_back("grid", Uneven(bench::Laplacian27(6)));
  all.emplace_back("irregular", oracle::RandomSpd(200, 6, 3));
  all.emplace_back("dense row", Hub(150, 70, 4));
  return all;
}

class GpuFsaiBaseline : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
  }

  // By both gradients, with all memory and with next to none.
  static std::vector<std::pair<std::string, FsaiBaselineOptions>> Ways() {
    std::vector<std::pair<std::string, FsaiBaselineOptions>> ways;
    for (const auto gradient : {FsaiGradient::kIndicator, FsaiGradient::kMerge}) {
      for (const int64_t bytes : {1, 1 << 26}) {
        FsaiBaselineOptions options;
        options.gradient = gradient;
        options.memory_bytes = bytes;
        ways.emplace_back(std::string(gradient == FsaiGradient::kMerge ? "merge" : "indicator") +
                              ", bytes " + std::to_string(bytes),
                          options);
      }
    }
    return ways;
  }

  static FsaiBaselineResult Run(const CscMatrix& a, const FsaiBaselineOptions& options) {
    FsaiBaselineResult g;
    EXPECT_EQ(bench::RunFsaiBaseline(a.n_cols, a.col_ptr.data(), a.row_idx.data(), a.values.data(),
                                     options, &g),
              "");
    return g;
  }

  static FsaiResult ByRows(const FsaiBaselineResult& g) {
    FsaiResult result;
    CscMatrix& rows = result.g_rows;
    rows.n_rows = rows.n_cols = static_cast<int64_t>(g.row_ptr.size()) - 1;
    rows.col_ptr.assign(g.row_ptr.begin(), g.row_ptr.end());
    rows.row_idx.assign(g.col_idx.begin(), g.col_idx.end());
    rows.values.assign(g.values.begin(), g.values.end());
    return result;
  }

  static void ExpectEqual(const FsaiBaselineResult& gpu, const FsaiResult& cpu, double tolerance,
                          const std::string& what) {
    const CscMatrix g = ByRows(gpu).g_rows;
    ASSERT_EQ(g.col_ptr, cpu.g_rows.col_ptr) << what;
    ASSERT_EQ(g.row_idx, cpu.g_rows.row_idx) << what;
    for (size_t i = 0; i + 1 < g.col_ptr.size(); ++i) {
      const auto begin = static_cast<size_t>(g.col_ptr[i]);
      const auto end = static_cast<size_t>(g.col_ptr[i + 1]);
      for (size_t p = begin; p < end; ++p) {
        // The diagonal entry is among the largest of its row.
        ASSERT_NEAR(g.values[p], cpu.g_rows.values[p], tolerance * cpu.g_rows.values[end - 1])
            << what << ", row " << i;
      }
    }
    EXPECT_EQ(gpu.not_spd_rows, cpu.quality.not_spd_rows) << what;
  }
};

TEST_F(GpuFsaiBaseline, MakesTheGOfTheCpu) {
  for (const auto& [name, a] : Matrices()) {
    for (auto [way, options] : Ways()) {
      for (const int k_max : {0, 1, 7, 30, bench::kFsaiBaselineSteps}) {
        const std::string what = name + ", " + way + ", k_max " + std::to_string(k_max);
        options.k_max = k_max;
        ExpectEqual(Run(a, options), Build(a, Grow(k_max, 1, options.epsilon)), 1e-11, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GpuFsaiBaseline, EndsRowsAsTheCpuDoes) {
  const CscMatrix a = Uneven(bench::ConvectionDiffusion(7, 0));
  CscMatrix indefinite = a;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      if (a.row_idx[static_cast<size_t>(p)] == j) indefinite.values[static_cast<size_t>(p)] *= 0.45;
    }
  }
  const FsaiResult converged = Build(a, Grow(20, 1, 0.92));
  EXPECT_GT(converged.quality.converged_rows, 50);
  const FsaiResult failed = Build(indefinite, Grow(20));
  EXPECT_GT(failed.quality.not_spd_rows, 50);
  for (auto [way, options] : Ways()) {
    options.k_max = 20;
    options.epsilon = 0.92;
    ExpectEqual(Run(a, options), converged, 1e-11, way);
    options.epsilon = 0;
    ExpectEqual(Run(indefinite, options), failed, 1e-8, way + ", indefinite");
  }
}

TEST_F(GpuFsaiBaseline, MakesItInFp32) {
  for (const auto& [name, a] : Matrices()) {
    const FsaiResult cpu = Build(a, Grow(20));
    for (auto [way, options] : Ways()) {
      options.k_max = 20;
      options.epsilon = 0;
      options.fp32 = true;
      const FsaiResult g = ByRows(Run(a, options));
      ASSERT_EQ(g.g_rows.n_cols, a.n_cols);
      ExpectUnitDiagonal(a, g, 2e-5, name + ", " + way);
      // ψ of a row is what its diagonal entry says.
      double sum = 0, wanted = 0;
      for (size_t i = 0; i + 1 < g.g_rows.col_ptr.size(); ++i) {
        sum -= 2 * std::log(g.g_rows.values[static_cast<size_t>(g.g_rows.col_ptr[i + 1]) - 1]);
        wanted -=
            2 * std::log(cpu.g_rows.values[static_cast<size_t>(cpu.g_rows.col_ptr[i + 1]) - 1]);
      }
      EXPECT_NEAR(sum, wanted, 1e-5 * static_cast<double>(a.n_cols)) << name << ", " << way;
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
