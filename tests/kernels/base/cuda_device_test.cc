// CudaDevice by an interface without a device behind it: what it does with threads and objects.
#include "kernels/base/cuda_device.h"

#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace spaid::kernels {
namespace {

int g_open = 0;

SpaidCudaInterface Api() {
  SpaidCudaInterface api{};
  api.open_context = [](int32_t ordinal, int64_t, SpaidCudaOnThreads, const SpaidCudaVariants*,
                        SpaidCudaContext** context, char* message, size_t size) -> int32_t {
    if (ordinal != 0) {
      std::snprintf(message, size, "no such device");
      return kSpaidCudaError;
    }
    ++g_open;
    *context = reinterpret_cast<SpaidCudaContext*>(&g_open);
    return kSpaidCudaOk;
  };
  api.close_context = [](SpaidCudaContext*) { --g_open; };
  api.used_bytes = [](const SpaidCudaContext*) -> int64_t { return 7; };
  return api;
}

DeviceInfo Gpu(int index) {
  DeviceInfo info;
  info.backend = Backend::kCuda;
  info.index = index;
  info.name = "Some GPU";
  info.uuid = "GPU-1";
  info.memory_bytes = 1000;
  return info;
}

TEST(CudaDeviceTest, OpensUnderTheSmallerLimitAndCloses) {
  const SpaidCudaInterface api = Api();
  for (const auto& [asked, limit] : {std::pair{0, 1000}, {300, 300}, {5000, 1000}}) {
    auto device = CudaDevice::Open(Gpu(0), asked, api);
    ASSERT_TRUE(device.ok());
    EXPECT_EQ((*device)->memory_limit(), limit);
    EXPECT_EQ(g_open, 1);
  }
  EXPECT_EQ(g_open, 0);
  const auto missing = CudaDevice::Open(Gpu(1), 0, api);
  EXPECT_EQ(missing.status().reason(), "DEVICE_UNAVAILABLE");
  EXPECT_EQ(missing.status().message(), "Some GPU (gpu:1) cannot be used: no such device");
}

TEST(CudaDeviceTest, WhatIsFreedWhileSomethingComputesWaitsForNobodyAndGoesBeforeTheNext) {
  const SpaidCudaInterface api = Api();
  auto device = *CudaDevice::Open(Gpu(0), 0, api);
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
  static int calls = 0;
  SpaidCudaInterface api = Api();
  api.time_copy = [](SpaidCudaContext*, int64_t bytes, double* ms, char*, size_t) -> int32_t {
    EXPECT_EQ(bytes, int64_t{128} << 20);
    *ms = 0.125;
    return calls++ == 0 ? kSpaidCudaOutOfMemory : kSpaidCudaOk;
  };
  EXPECT_EQ((*CudaDevice::Open(Gpu(0), 0, api))->CopyBytesPerSecond(), 0) << "1000 bytes";
  EXPECT_EQ(calls, 0);
  DeviceInfo large = Gpu(0);
  large.memory_bytes = int64_t{1} << 30;
  const auto device = *CudaDevice::Open(large, 0, api);
  EXPECT_EQ(device->CopyBytesPerSecond(), 0) << "others had it all";
  EXPECT_FALSE(device->lost());
  for (int i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(device->CopyBytesPerSecond(), 2 * 0x1p27 / 0.125e-3) << "read and written";
  }
  EXPECT_EQ(calls, 2);
}

TEST(CudaDeviceTest, FreesOfManyThreadsAllHappenOnce) {
  const SpaidCudaInterface api = Api();
  const auto device = *CudaDevice::Open(Gpu(0), 0, api);
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
