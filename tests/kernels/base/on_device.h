// Skips every test of a program, with the reason, where there is no CUDA device:
//
//   const ::testing::Environment* const kOnDevice =
//       ::testing::AddGlobalTestEnvironment(new OnDevice);
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/base/device.h"

namespace spaid::kernels {

class OnDevice : public ::testing::Environment {
 public:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (cuda.available) return;
    std::printf("[  SKIPPED ] %s\n", cuda.status.c_str());  // what ctest looks for
    GTEST_SKIP() << cuda.status;
  }
};

}  // namespace spaid::kernels
