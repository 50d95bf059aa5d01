// Devices by the code of libspaid_cuda.so, which this program links. Skipped, with the reason,
// where there is none.
#include <gtest/gtest.h>

#include <memory>

#include "kernels/base/context.h"
#include "tests/kernels/base/gpu_context.h"

namespace spaid::kernels {
namespace {

class GpuLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
  }
};

TEST_F(GpuLibrary, ADeviceThatIsNotThereIsUnavailable) {
  DeviceInfo missing = ListCudaDevices().devices[0];
  missing.index = 1000;
  const auto device = cuda::OpenDevice(missing, 0);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().reason(), "DEVICE_UNAVAILABLE");
  EXPECT_NE(device.status().message().find("(gpu:1000) cannot be used: "), std::string::npos);
}

TEST_F(GpuLibrary, WhatIsThrownBecomesTheStatus) {
  const auto device = OpenGpu(1 << 20).value();
  const auto guarded = [&](const auto& work) {
    const auto lock = device->Lock();
    return cuda::Guard(*device, work);
  };
  EXPECT_TRUE(guarded([](cuda::Context&) {}).ok());
  EXPECT_EQ(guarded([](cuda::Context& context) {
              const cuda::Buffer<char> large(context, 2 << 20);
            }).reason(),
            "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(guarded([](cuda::Context&) { throw std::bad_alloc(); }).reason(),
            "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(guarded([](cuda::Context&) {
              throw cuda::Refusal{StopStatus(StopReason::kCancelled, "the test")};
            }).code(),
            StatusCode::kCancelled);
  EXPECT_FALSE(device->lost());
  EXPECT_TRUE(device->Probe().ok());
}

TEST_F(GpuLibrary, WhatIsKeptGoesBetweenComputations) {
  const auto device = OpenGpu().value();
  std::shared_ptr<cuda::Buffer<char>> kept;
  ASSERT_TRUE(cuda::Guard(*device, [&](cuda::Context& context) {
                kept = cuda::Keep(device, cuda::Buffer<char>(context, 1000));
              }).ok());
  EXPECT_EQ(device->used_bytes(), 1024);
  kept = nullptr;
  EXPECT_EQ(device->used_bytes(), 0);
}

}  // namespace
}  // namespace spaid::kernels
