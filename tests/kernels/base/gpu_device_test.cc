// Runs where libspaid_cuda.so finds a device; elsewhere it is skipped, with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/base/device.h"

namespace spaid::kernels {
namespace {

TEST(GpuDeviceTest, RealDevicesAreDescribed) {
  const CudaDevices& cuda = ListCudaDevices();
  if (!cuda.available) GTEST_SKIP() << cuda.status;
  EXPECT_THAT(cuda.status,
              testing::MatchesRegex("[0-9]+ devices?, driver [0-9.]+, runtime [0-9.]+"));
  std::set<std::string> uuids;
  for (const DeviceInfo& device : cuda.devices) {
    EXPECT_EQ(device.backend, Backend::kCuda);
    EXPECT_FALSE(device.name.empty());
    EXPECT_THAT(device.uuid,
                testing::ContainsRegex(
                    "^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"));
    EXPECT_GT(device.memory_bytes, int64_t{1} << 30);
    EXPECT_GE(device.compute_capability_major, 5);
    EXPECT_TRUE(uuids.insert(device.uuid).second) << device.uuid;
  }
}

}  // namespace
}  // namespace spaid::kernels
