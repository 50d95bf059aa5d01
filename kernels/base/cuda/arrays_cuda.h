// Small work on whole arrays of the device, in the context's stream.
#pragma once

#include <cstdint>
#include <cub/device/device_scan.cuh>

#include "kernels/base/cuda/context_cuda.h"

namespace spaid::cuda {

// Exclusive sums in place, of the first `count` values.
template <class T>
void Scan(Context& context, const Buffer<T>& values, int64_t count) {
  size_t bytes = 0;
  Check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, values.get(), values.get(), count,
                                      context.stream),
        "cub::DeviceScan");
  const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
  Check(cub::DeviceScan::ExclusiveSum(scratch.get(), bytes, values.get(), values.get(), count,
                                      context.stream),
        "cub::DeviceScan");
}

// One value; waits for the device.
template <class T>
T Read(Context& context, const Buffer<T>& buffer, int64_t index) {
  T value{};
  buffer.CopyOut(&value, 1, index);
  context.Synchronize();
  return value;
}

template <class T>
void Copy(Context& context, const Buffer<T>& from, const Buffer<T>& to, int64_t count) {
  Check(cudaMemcpyAsync(to.get(), from.get(), static_cast<size_t>(count) * sizeof(T),
                        cudaMemcpyDeviceToDevice, context.stream),
        "cudaMemcpyAsync");
}

}  // namespace spaid::cuda
