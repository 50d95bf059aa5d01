// CudaDevice by an interface without a device behind it: what it does with threads and objects.
#include "kernels/base/cuda_device.h"

#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/krylov/cuda_layout.h"
#include "kernels/sparse/cuda_matrix.h"

namespace spaid::kernels {
namespace {

int g_open = 0;

class FakeContext final : public CudaContext {
 public:
  explicit FakeContext(const DeviceInfo& gpu) : gpu_(gpu) { ++g_open; }
  ~FakeContext() override { --g_open; }

  int64_t used_bytes() const override { return 7; }
  bool lost() const override { return lost_; }
  Status Probe() override {
    lost_ = true;
    return CudaFailure(CudaFault::kDeviceLost, gpu_, "fake words");
  }
  Result<double> TimeCopy(int64_t bytes) override {
    EXPECT_EQ(bytes, int64_t{128} << 20);
    if (copies++ == 0) return CudaFailure(CudaFault::kOutOfMemory, gpu_, "fake words");
    return 0.125;
  }
  Result<std::unique_ptr<CudaMatrix>> UploadMatrix(const PatternView&,
                                                   std::span<const double>) override {
    return Nothing();
  }
  Result<std::unique_ptr<CudaPattern>> UploadPattern(const PatternView&) override {
    return Nothing();
  }
  Result<std::unique_ptr<CudaLayout>> LayOutDiagonal(std::span<const double>) override {
    return Nothing();
  }

  static inline int copies = 0;

 private:
  Status Nothing() const { return CudaFailure(CudaFault::kError, gpu_, "fake words"); }

  const DeviceInfo gpu_;
  bool lost_ = false;
};

class FakeBackend final : public CudaBackend {
 public:
  CudaListing ListDevices() override { return {}; }
  Result<std::unique_ptr<CudaContext>> OpenContext(const DeviceInfo& gpu, int64_t, CudaOnThreads,
                                                   const CudaVariants*) override {
    if (gpu.index != 0) return Status(StatusCode::kUnavailable, "ANY", "no such device");
    return std::unique_ptr<CudaContext>(std::make_unique<FakeContext>(gpu));
  }
};
FakeBackend backend;

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
  for (const auto& [asked, limit] : {std::pair{0, 1000}, {300, 300}, {5000, 1000}}) {
    auto device = CudaDevice::Open(Gpu(0), asked, backend);
    ASSERT_TRUE(device.ok());
    EXPECT_EQ((*device)->memory_limit(), limit);
    EXPECT_EQ(g_open, 1);
  }
  EXPECT_EQ(g_open, 0);
  const auto missing = CudaDevice::Open(Gpu(1), 0, backend);
  EXPECT_EQ(missing.status().reason(), "DEVICE_UNAVAILABLE");
  EXPECT_EQ(missing.status().message(), "Some GPU (gpu:1) cannot be used: no such device");
}

TEST(CudaDeviceTest, WhatIsFreedWhileSomethingComputesWaitsForNobodyAndGoesBeforeTheNext) {
  auto device = *CudaDevice::Open(Gpu(0), 0, backend);
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
  EXPECT_EQ((*CudaDevice::Open(Gpu(0), 0, backend))->CopyBytesPerSecond(), 0) << "1000 bytes";
  EXPECT_EQ(FakeContext::copies, 0);
  DeviceInfo large = Gpu(0);
  large.memory_bytes = int64_t{1} << 30;
  const auto device = *CudaDevice::Open(large, 0, backend);
  EXPECT_EQ(device->CopyBytesPerSecond(), 0) << "others had it all";
  EXPECT_FALSE(device->lost());
  for (int i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(device->CopyBytesPerSecond(), 2 * 0x1p27 / 0.125e-3) << "read and written";
  }
  EXPECT_EQ(FakeContext::copies, 2);
}

TEST(CudaDeviceTest, ALostDeviceSaysSoAndIsNotClosed) {
  const int before = g_open;
  auto device = *CudaDevice::Open(Gpu(0), 0, backend);
  EXPECT_FALSE(device->lost());
  const Status status = device->Probe();
  EXPECT_EQ(status.reason(), "DEVICE_LOST");
  EXPECT_EQ(status.message(),
            "Some GPU (gpu:0): fake words; the device takes no more work in this process: send "
            "the request again to another one, and restart this one");
  EXPECT_TRUE(device->lost());
  device.reset();
  EXPECT_EQ(g_open, before + 1) << "what is left goes with the process";
  g_open = before;
}

TEST(CudaDeviceTest, EachFaultHasItsStatus) {
  const DeviceInfo gpu = Gpu(2);
  const Status full = CudaFailure(CudaFault::kOutOfMemory, gpu, "no room");
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(full.reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(full.message(),
            "Some GPU (gpu:2): no room; choose a smaller pattern, or raise --device-memory if it "
            "is lower than what the device has");
  const Status other = CudaFailure(CudaFault::kPlanMismatch, gpu, "another pattern");
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.reason(), "PLAN_MISMATCH");
  EXPECT_EQ(other.message(), "another pattern; make a plan for this matrix");
  EXPECT_EQ(other.field(), "plan");
  const Status error = CudaFailure(CudaFault::kError, gpu, "words");
  EXPECT_EQ(error.code(), StatusCode::kInternal);
  EXPECT_EQ(error.reason(), "CUDA_ERROR");
  EXPECT_EQ(error.message(), "Some GPU (gpu:2): words");
}

struct Freed {
  explicit Freed(int* where) : count(where) {}
  ~Freed() { ++*count; }
  int* count;
};

TEST(CudaDeviceTest, AnObjectEndsAtOnceByItsLockOrWhenNothingComputes) {
  const auto device = *CudaDevice::Open(Gpu(0), 0, backend);
  int freed = 0;
  {
    CudaObject<Freed> object(device);
    EXPECT_EQ(object.Take(CudaFailure(CudaFault::kError, Gpu(0), "")).reason(), "CUDA_ERROR");
    EXPECT_EQ(object.object, nullptr);
    EXPECT_TRUE(object.Take(std::make_unique<Freed>(&freed)).ok());
  }
  EXPECT_EQ(freed, 1) << "nothing computes";
  {
    const auto lock = device->Lock();
    CudaObject<Freed> locked(device);
    locked.locked = true;
    locked.object = std::make_unique<Freed>(&freed);
  }
  EXPECT_EQ(freed, 2);
  const auto lock = device->Lock();
  std::async(std::launch::async, [&] {
    CudaObject<Freed> object(device);
    object.object = std::make_unique<Freed>(&freed);
  }).get();
  EXPECT_EQ(freed, 2) << "the device is in use";
}

TEST(CudaDeviceTest, FreesOfManyThreadsAllHappenOnce) {
  const auto device = *CudaDevice::Open(Gpu(0), 0, backend);
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
