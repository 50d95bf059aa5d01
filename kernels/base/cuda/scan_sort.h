// Sums and sorts of device arrays by CUB, their scratch from the arena; copies of them.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// Exclusive sums of the first `count` values, in place; T: int32_t, int64_t. Like Sort, it is
// queued on the context's stream, throws Failure, and is as thread-safe as the context.
template <class T>
void Scan(Context& context, const Buffer<T>& values, int64_t count);

// Sorts `count` keys with their values, all device arrays, into others: stable, ascending, by the
// low `bits` of the keys. Key and Count: uint8_t or uint32_t and int32_t, int32_t and int64_t.
template <class Key, class Count>
void Sort(Context& context, const Key* keys, Key* sorted_keys, const int32_t* values,
          int32_t* sorted_values, Count count, int bits);

// One element, waited for.
template <class T>
T Read(Context& context, const Buffer<T>& buffer, int64_t index) {
  T value{};
  context.Download(std::vector<HostCopy>(1, buffer.To(&value, 1, index)));
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
