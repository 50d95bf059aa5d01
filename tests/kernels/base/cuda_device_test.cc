// CudaDevice without a device behind it: what it does with threads and objects.
#include "kernels/base/cuda_device.h"

#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace spaid::kernels {
namespace {

int g_open = 0;

class Fake final : public CudaDevice {
 public:
  Fake(const DeviceInfo& info, int64_t memory_limit) : CudaDevice(info, memory_limit) { ++g_open; }
  ~Fake() override {
    FreeWaiting();
    --g_open;
  }
  Status Probe() override { return {}; }

  // Milliseconds of copies to come; 0: it fails.
  std::vector<double> copies;
  int64_t bytes_copied = 0;

 private:
  int64_t UsedBytes() const override { return 7; }
  double TimeCopy(int64_t bytes) override {
    bytes_copied = bytes;
    const double ms = copies.empty() ? -1 : copies.front();
    copies.erase(copies.begin());
    return ms;
  }
};

DeviceInfo Gpu(int index) {
  DeviceInfo info;
  info.backend = Backend::kCuda;
  info.index = index;
  info.name = "Some GPU";
  info.uuid = "GPU-1";
  info.memory_bytes = 1000;
  return info;
}

TEST(CudaDeviceTest, IsUnderTheSmallerLimit) {
  for (const auto& [asked, limit] : {std::pair{0, 1000}, {300, 300}, {5000, 1000}}) {
    EXPECT_EQ(Fake(Gpu(0), asked).memory_limit(), limit);
  }
  EXPECT_EQ(g_open, 0);
}

TEST(CudaDeviceTest, SaysWhichDeviceFailed) {
  Fake device(Gpu(1), 0);
  const Status full = device.Failed(CudaFault::kOutOfMemory, "full");
  EXPECT_EQ(full.reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(full.message().rfind("Some GPU (gpu:1): full; ", 0), 0u) << full.message();
  EXPECT_EQ(device.Failed(CudaFault::kPlanMismatch, "other").field(), "plan");
  EXPECT_EQ(device.Failed(CudaFault::kError, "words").reason(), "CUDA_ERROR");
  EXPECT_FALSE(device.lost());
  EXPECT_EQ(device.Failed(CudaFault::kDeviceLost, "gone").reason(), "DEVICE_LOST");
  EXPECT_TRUE(device.lost()) << "and it stays so";
}

TEST(CudaDeviceTest, WhatIsFreedWhileSomethingComputesWaitsForNobodyAndGoesBeforeTheNext) {
  std::shared_ptr<CudaDevice> device = std::make_shared<Fake>(Gpu(0), 0);
  std::vector<int> freed;
  device->Free([&] { freed.push_back(0); });
  EXPECT_EQ(freed, std::vector{0}) << "nothing computes";
  {
    const auto lock = device->Lock();
    std::async(std::launch::async, [&] {
      device->Free([&] { freed.push_back(1); });
      device->Free([&] { freed.push_back(2); });
      EXPECT_EQ(device->used_bytes(), 0) << "what it was before";
    }).get();
    EXPECT_EQ(freed, std::vector{0}) << "the device is in use";
  }
  {
    const auto lock = device->Lock();
    EXPECT_EQ(freed, (std::vector{0, 1, 2}));
    std::async(std::launch::async, [&] { device->Free([&] { freed.push_back(3); }); }).get();
    EXPECT_EQ(freed.size(), 3u);
  }
  EXPECT_EQ(device->used_bytes(), 7);
  EXPECT_EQ(freed.size(), 4u) << "asking what is used frees what waits";
  {
    const auto lock = device->Lock();
    std::async(std::launch::async, [&] { device->Free([&] { freed.push_back(4); }); }).get();
  }
  device.reset();
  EXPECT_EQ(freed.size(), 5u) << "the end frees what waits, before its context";
}

TEST(CudaDeviceTest, ACopyIsTimedOnceAndWhereThereIsRoom) {
  Fake small(Gpu(0), 0);
  EXPECT_EQ(small.CopyBytesPerSecond(), 0) << "1000 bytes";
  EXPECT_EQ(small.bytes_copied, 0);
  DeviceInfo large = Gpu(0);
  large.memory_bytes = int64_t{1} << 30;
  Fake device(large, 0);
  device.copies = {0, 0.125};
  EXPECT_EQ(device.CopyBytesPerSecond(), 0) << "others had it all";
  EXPECT_FALSE(device.lost());
  EXPECT_EQ(device.bytes_copied, int64_t{128} << 20);
  for (int i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(device.CopyBytesPerSecond(), 2 * 0x1p27 / 0.125e-3) << "read and written";
  }
  EXPECT_TRUE(device.copies.empty());
}

TEST(CudaDeviceTest, FreesOfManyThreadsAllHappenOnce) {
  const std::shared_ptr<CudaDevice> device = std::make_shared<Fake>(Gpu(0), 0);
  constexpr int kThreads = 8, kEach = 200;
  int freed = 0;  // under the device's lock, each
  {
    std::vector<std::future<void>> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.push_back(std::async(std::launch::async, [&] {
        for (int i = 0; i < kEach; ++i) {
          device->Free([&] { ++freed; });
          const auto lock = device->Lock();
        }
      }));
    }
  }
  const auto lock = device->Lock();
  EXPECT_EQ(freed, kThreads * kEach);
}

TEST(CudaDeviceTest, KnowsWhichDevicesTheTablesAreOf) {
  DeviceInfo gpu = Gpu(0);
  EXPECT_FALSE(IsMeasured(gpu));
  gpu.name = "NVIDIA H100 80GB HBM3";
  EXPECT_TRUE(IsMeasured(gpu));
  EXPECT_STREQ(MeasuredDevice(), "NVIDIA H100");
}

}  // namespace
}  // namespace spaid::kernels
