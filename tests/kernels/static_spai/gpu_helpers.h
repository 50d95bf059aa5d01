// What the tests of static SPAI on a CUDA device share. Tests are skipped, with the reason, where
// there is no device.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/static_spai/static_spai_cuda.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {

// On one device.
inline Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, const PatternView* user_pattern,
    const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings* timings = nullptr) {
  return PlanStaticSpaiCuda({&device, 1}, a, user_pattern, options, context, timings);
}

inline std::shared_ptr<CudaDevice> OpenDevice(int64_t memory_limit = 0) {
  const CudaDevices& cuda = ListCudaDevices();
  if (!cuda.available) return nullptr;
  auto device = OpenGpu(memory_limit);
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.ok() ? *device : nullptr;
}

class GpuStaticSpai : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    static const std::shared_ptr<CudaDevice> device = OpenDevice();
    ASSERT_NE(device, nullptr);
    device_ = device;
  }

  StaticSpaiResult BuildOnDevice(const CscView& a, const PatternView* pattern,
                                 const StaticSpaiOptions& options) {
    timings_ = {};
    auto plan = PlanStaticSpaiCuda(device_, a, pattern, options, {}, &timings_);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return {};
    auto result = BuildStaticSpaiCuda(**plan, a, options, {}, &timings_);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (!result.ok()) return {};
    return std::move(result).value();
  }

  // Same pattern; residuals that keep up with QR; reported ones that are true; values to 1e-10
  // where the local problem is well-conditioned.
  void ExpectEqual(const CscView& a, const PatternView* pattern, const StaticSpaiOptions& options,
                   const std::string& what) {
    const StaticSpaiResult gpu = BuildOnDevice(a, pattern, options);
    const StaticSpaiResult cpu = Build(a, pattern, options);
    StaticSpaiOptions other = options;
    other.local_solver = LocalSolver::kQr;
    const StaticSpaiResult qr = Build(a, pattern, other);
    other.local_solver = LocalSolver::kGram;
    other.gram_pivot_limit = StaticSpaiOptions().gram_pivot_limit;
    const StaticSpaiResult gram = Build(a, pattern, other);
    ASSERT_EQ(gpu.m.col_ptr, cpu.m.col_ptr) << what;
    ASSERT_EQ(gpu.m.row_idx, cpu.m.row_idx) << what;
    if (options.post_filter == 0) ExpectGramAccuracy(a, gpu, qr, what);
    const std::vector<double> residuals = ExplicitResiduals(a, gpu.m);
    const std::vector<double> rounding = RoundingOfResiduals(a, gpu.m);
    for (int64_t k = 0; k < a.n_cols; ++k) {
      const auto i = static_cast<size_t>(k);
      ASSERT_NEAR(gpu.residual_norms[i], residuals[i], 1e-9 * (1 + residuals[i]) + rounding[i])
          << what << ", column " << k;
      // By QR, what is small beside e_k has the rounding errors of e_k.
      const bool small = options.local_solver == LocalSolver::kQr && residuals[i] > 1 - 1e-6;
      if (small || gram.min_scaled_pivots[i] < 1e-4 || qr.quality.rank_deficient_columns > 0)
        continue;
      const auto x =
          gpu.m.pattern().n_cols > 0 ? CscView(gpu.m).column_values(k) : std::span<const double>();
      const auto y = CscView(cpu.m).column_values(k);
      double size = 0, error = 0;
      for (size_t p = 0; p < x.size(); ++p) {
        size = std::max(size, std::abs(y[p]));
        error = std::max(error, std::abs(x[p] - y[p]));
      }
      ASSERT_LE(error, 1e-10 * size + 1e-14) << what << ", column " << k;
    }
    EXPECT_EQ(gpu.quality.zero_columns, cpu.quality.zero_columns) << what;
    EXPECT_EQ(gpu.quality.first_zero_column, cpu.quality.first_zero_column) << what;
    // The host also calls deficient what its QR without pivots solved worse than the device's did.
    EXPECT_LE(gpu.quality.rank_deficient_columns, cpu.quality.rank_deficient_columns) << what;
    EXPECT_EQ(gpu.quality.non_finite_columns, cpu.quality.non_finite_columns) << what;
  }

  std::shared_ptr<CudaDevice> device_;
  StaticSpaiCudaTimings timings_;
};

}  // namespace spaid::kernels
