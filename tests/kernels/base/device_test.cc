#include "kernels/base/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

TEST(DeviceTest, CpuIsDescribed) {
  const DeviceInfo cpu = CpuDevice();
  EXPECT_EQ(cpu.backend, Backend::kCpu);
  EXPECT_FALSE(cpu.name.empty());
  EXPECT_TRUE(cpu.uuid.empty());
  EXPECT_GE(cpu.threads, 1);
  EXPECT_EQ(cpu.threads, ResolveThreads(0));
  EXPECT_EQ(cpu.memory_bytes, UsableMemoryBytes());
  EXPECT_GT(cpu.memory_bytes, int64_t{16} << 20);
}

TEST(DeviceTest, CudaListingIsConsistentAndSaysWhy) {
  const CudaDevices& cuda = ListCudaDevices();
  EXPECT_FALSE(cuda.status.empty());
  EXPECT_EQ(cuda.available, !cuda.devices.empty());
  if (!cuda.available) {
    EXPECT_THAT(cuda.status,
                testing::AnyOf(testing::HasSubstr("not found (looked in "),
                               testing::HasSubstr("driver"), testing::HasSubstr("CUDA device")));
  }
}

TEST(DeviceTest, ListingIsDoneOnceForAllThreads) {
  std::vector<const CudaDevices*> seen(4);
  std::vector<std::thread> threads;
  for (auto& s : seen) threads.emplace_back([&s] { s = &ListCudaDevices(); });
  for (auto& t : threads) t.join();
  for (const auto* s : seen) EXPECT_EQ(s, &ListCudaDevices());
}

}  // namespace
}  // namespace spaid::kernels
