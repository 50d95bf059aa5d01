// What the tests of the engine on a CUDA device share. Tests are skipped, with the reason, where
// there is no device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>

#include "kernels/base/cuda_device.h"
#include "kernels/engine/engine_parts.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {

inline constexpr int kCpu = 0, kGpu = 1;

class GpuEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    auto device = CudaDevice::Open(cuda.devices[0], 0);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
    engine_ = MakeEngine(true, {device_});
  }

  // Of BiCGSTAB to 1e-8 from b = A x, x smooth; -1: it does not converge.
  int64_t Iterations(const CscMatrix& a, const Preconditioner& m) const {
    const Vector b = SmoothRhs(a);
    const auto solved =
        engine_->Solve(a, &m, b, {}, {.method = Method::kBicgstab, .rtol = 1e-8}, {.device = kGpu});
    EXPECT_TRUE(solved.ok()) << solved.status().message();
    if (!solved.ok() || solved->rhs[0].outcome != Outcome::kConverged) return -1;
    return solved->rhs[0].iterations;
  }

  // Of 20 runs with `m` perturbed by as much, relative: BiCGSTAB scatters so by itself.
  std::pair<int64_t, int64_t> Scatter(const CscMatrix& a, const CscMatrix& m,
                                      double relative = 1e-14) const {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> noise(-relative, relative);
    int64_t fewest = INT64_MAX, most = 0;
    for (int run = 0; run < 20; ++run) {
      CscMatrix perturbed = m;
      for (double& value : perturbed.values) value *= 1 + noise(random);
      const auto made = HostPreconditioner::Make(EngineKind::kStaticSpai, std::move(perturbed), {});
      EXPECT_TRUE(made.ok());
      const int64_t iterations = Iterations(a, **made);
      if (iterations < 0) continue;
      fewest = std::min(fewest, iterations);
      most = std::max(most, iterations);
    }
    return {fewest, most};
  }

  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace spaid::kernels::engine_test
