// Sums and sorts of device arrays by CUB, their scratch from the arena; copies of them.
#pragma once

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// Exclusive sums of the first `count` values, in place.
template <class T>
void Scan(Context& context, const Buffer<T>& values, int64_t count) {
  size_t bytes = 0;
  const auto scan = [&](void* scratch) {
    Check(cub::DeviceScan::ExclusiveSum(scratch, bytes, values.get(), values.get(), count,
                                        context.stream),
          "cub::DeviceScan");
  };
  scan(nullptr);
  const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
  scan(scratch.get());
}

// Stable, ascending, by the low `bits` of the keys.
template <class Key>
void Sort(Context& context, const Buffer<Key>& keys, const Buffer<Key>& sorted_keys,
          const Buffer<int32_t>& values, const Buffer<int32_t>& sorted_values, int32_t count,
          int bits) {
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    Check(
        cub::DeviceRadixSort::SortPairs(scratch, bytes, keys.get(), sorted_keys.get(), values.get(),
                                        sorted_values.get(), count, 0, bits, context.stream),
        "cub::DeviceRadixSort");
  };
  sort(nullptr);
  const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
  sort(scratch.get());
}

// One element, waited for.
template <class T>
T Read(Context& context, const Buffer<T>& buffer, int64_t index) {
  T value{};
  buffer.CopyOut(&value, 1, index);
  context.Synchronize();
  return value;
}

// The first `count` elements.
template <class T>
void Copy(Context& context, const Buffer<T>& from, const Buffer<T>& to, int64_t count) {
  Check(cudaMemcpyAsync(to.get(), from.get(), static_cast<size_t>(count) * sizeof(T),
                        cudaMemcpyDeviceToDevice, context.stream),
        "cudaMemcpyAsync");
}

}  // namespace spaid::cuda
