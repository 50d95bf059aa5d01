#include <string>

#include "kernels/base/cuda/device.h"

namespace spaid::cuda {

using kernels::CudaDevice;
using kernels::Result;
using kernels::Status;

Device::Device(const kernels::DeviceInfo& info, int64_t memory_limit, const Variants& variants)
    : CudaDevice(info, memory_limit),
      context_(std::make_unique<Context>(info.index, this->memory_limit(), variants)) {}

Device::~Device() {
  FreeWaiting();
  // A lost device may not even answer that: what is left of its context goes with the process.
  if (!lost()) return;
  (void)ahead_lane_.release();
  (void)context_.release();
}

AheadLane* Device::ahead_lane() {
  if (ahead_lane_ != nullptr || no_ahead_lane_) return ahead_lane_.get();
  try {
    ahead_lane_ = std::make_unique<AheadLane>();
  } catch (const Failure& failure) {
    if (failure.fault() != CudaFault::kOutOfMemory) throw;
    no_ahead_lane_ = true;
  }
  return ahead_lane_.get();
}

Status Device::Probe() {
  const auto lock = Lock();
  try {
    context_->Enter();
    const Buffer<int32_t> word(*context_, 1);
    word.Fill(1);
    int32_t back = 0;
    word.CopyOut(&back, 1);
    context_->Synchronize();
    return back == 0x01010101 ? Status()
                              : Failed(CudaFault::kDeviceLost, "the device returns wrong data");
  } catch (const Failure& failure) {
    if (failure.fault() == CudaFault::kOutOfMemory) return {};
    return Failed(CudaFault::kDeviceLost, failure.what());
  }
}

double Device::TimeCopy(int64_t bytes) {
  double ms = 0;
  const Status status =
      Guard(*this, [&](Context& context) { ms = cuda::TimeCopy(context, bytes); });
  return status.ok() ? ms : 0;
}

Result<std::shared_ptr<CudaDevice>> OpenDevice(const kernels::DeviceInfo& info,
                                               int64_t memory_limit, const Variants& variants) {
  const auto failed = [&](const char* why) {
    return Status(kernels::StatusCode::kUnavailable, "DEVICE_UNAVAILABLE",
                  kernels::CudaName(info) + " cannot be used: " + why);
  };
  try {
    return std::shared_ptr<CudaDevice>(std::make_shared<Device>(info, memory_limit, variants));
  } catch (const Failure& failure) {
    return failed(failure.what());
  } catch (const std::bad_alloc&) {
    return failed("out of host memory");
  }
}

}  // namespace spaid::cuda
