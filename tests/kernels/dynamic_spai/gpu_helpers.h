// What the tests of dynamic SPAI on a CUDA device share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dynamic_spai/dynamic_spai_cuda.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/dynamic_spai/greedy_check.h"

namespace spaid::kernels {

// Skipped, with the reason, where there is no device.
class DynamicSpaiGpu : public testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& devices = ListCudaDevices();
    if (!devices.available) GTEST_SKIP() << devices.status;
    auto opened = OpenGpu();
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device_ = *std::move(opened);
  }

  Result<DynamicSpaiPattern> TryGrow(const CscView& a, const DynamicSpaiOptions& options,
                                     const PatternView* initial = nullptr,
                                     const Context& context = {},
                                     std::shared_ptr<SpaiOnDevice>* there = nullptr) {
    return GrowDynamicSpaiCuda(std::span(&device_, 1), a, initial, options, context, &timings_,
                               there);
  }
  // A failure is a test failure.
  DynamicSpaiPattern Grow(const CscView& a, const DynamicSpaiOptions& options,
                          const PatternView* initial = nullptr) {
    auto grown = TryGrow(a, options, initial);
    EXPECT_TRUE(grown.ok()) << grown.status().reason() << ": " << grown.status().message();
    if (!grown.ok()) return {};
    return *std::move(grown);
  }

  // Under a limit, from now on.
  void Limit(int64_t bytes) {
    auto opened = OpenGpu(bytes);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device_ = *std::move(opened);
  }

  std::shared_ptr<CudaDevice> device_;
  DynamicSpaiCudaTimings timings_;
};

// max_steps, s, tol.
inline DynamicSpaiOptions GpuSteps(int max_steps, int per_step = 1, double tol = 0,
                                   bool fp32 = false) {
  DynamicSpaiOptions options;
  options.max_steps = max_steps;
  options.per_step = per_step;
  options.tol = tol;
  options.growth_precision = fp32 ? Precision::kFp32 : Precision::kFp64;
  return options;
}

}  // namespace spaid::kernels
