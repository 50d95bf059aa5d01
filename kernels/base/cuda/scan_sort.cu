#include "kernels/base/cuda/scan_sort.h"

// Here alone: every file that includes them compiles for half as long again, and holds their
// kernels once more.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

namespace spaid::cuda {

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

template <class Key, class Count>
void Sort(Context& context, const Key* keys, Key* sorted_keys, const int32_t* values,
          int32_t* sorted_values, Count count, int bits) {
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    Check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values,
                                          count, 0, bits, context.stream),
          "cub::DeviceRadixSort");
  };
  sort(nullptr);
  const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
  sort(scratch.get());
}

template void Scan(Context&, const Buffer<int32_t>&, int64_t);
template void Scan(Context&, const Buffer<int64_t>&, int64_t);
template void Sort(Context&, const uint8_t*, uint8_t*, const int32_t*, int32_t*, int32_t, int);
template void Sort(Context&, const uint32_t*, uint32_t*, const int32_t*, int32_t*, int32_t, int);
template void Sort(Context&, const int32_t*, int32_t*, const int32_t*, int32_t*, int64_t, int);

}  // namespace spaid::cuda
