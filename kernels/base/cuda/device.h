// A device that is in use, with its context, and the one place where errors of its work become
// statuses.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "kernels/base/cuda/ahead_lane.h"
#include "kernels/base/cuda/context.h"
#include "kernels/base/cuda_device.h"

namespace spaid::cuda {

// The only kind of CudaDevice that functions of the library are given.
class Device final : public kernels::CudaDevice {
 public:
  // Throws Failure.
  Device(const kernels::DeviceInfo& info, int64_t memory_limit, const Variants& variants);
  ~Device() override;
  kernels::Status Probe() override;
  Context& context() const { return *context_; }
  // Makes it with the first call; null: the host has no memory to pin. The lock is held, and the
  // device current. Throws Failure.
  AheadLane* ahead_lane();

 private:
  int64_t UsedBytes() const override { return context_->arena->used(); }
  double TimeCopy(int64_t bytes) override;

  std::unique_ptr<Context> context_;
  std::unique_ptr<AheadLane> ahead_lane_;  // guarded by the lock, as below; goes before the context
  bool no_ahead_lane_ = false;             // there was no memory to pin
};

// As kernels::CudaDevice::Open. `variants`: others than measured are for tests.
kernels::Result<std::shared_ptr<kernels::CudaDevice>> OpenDevice(
    const kernels::DeviceInfo& info, int64_t memory_limit,
    const Variants& variants = tuning::kVariants);

// Calls work(context), the device being current: what it throws becomes the status. The device's
// lock is held.
template <class Work>
kernels::Status Guard(kernels::CudaDevice& device, const Work& work) {
  try {
    Context& context = static_cast<Device&>(device).context();
    context.Enter();
    work(context);
    return {};
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const Failure& failure) {
    return device.Failed(failure.fault(), failure.what());
  } catch (const std::bad_alloc&) {
    return device.Failed(CudaFault::kOutOfMemory, "out of host memory");
  }
}

// An object with memory of the device, for anybody to end: it is freed between computations.
template <class T>
std::shared_ptr<T> Keep(const std::shared_ptr<kernels::CudaDevice>& device, T made) {
  return {new T(std::move(made)),
          [device](T* object) { device->Free([object] { delete object; }); }};
}

}  // namespace spaid::cuda
