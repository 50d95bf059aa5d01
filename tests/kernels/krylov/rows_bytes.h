#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/base/cuda_device.h"

namespace spaid::kernels::krylov_test {

// Contexts that are opened through it lay out so much by rows (SpaidCudaVariants).
template <int64_t kRowsBytes>
const SpaidCudaInterface& WithRowsBytes() {
  static const SpaidCudaInterface api = [] {
    SpaidCudaInterface forced = *ListCudaDevices().interface;
    forced.open_context = [](int32_t ordinal, int64_t limit, SpaidCudaOnThreads on_threads,
                             const SpaidCudaVariants*, SpaidCudaContext** context, char* message,
                             size_t size) {
      SpaidCudaVariants variants = cuda::tuning::kVariants;
      variants.rows_bytes = kRowsBytes;
      return ListCudaDevices().interface->open_context(ordinal, limit, on_threads, &variants,
                                                       context, message, size);
    };
    return forced;
  }();
  return api;
}

}  // namespace spaid::kernels::krylov_test
