#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/base/cuda_device.h"
#include "tests/kernels/base/forced_variants.h"

namespace spaid::kernels::krylov_test {

// Contexts that are opened through it lay out so much by rows (CudaVariants).
template <int64_t kRowsBytes>
CudaBackend& WithRowsBytes() {
  static ForcedVariants forced = [] {
    CudaVariants variants = cuda::tuning::kVariants;
    variants.rows_bytes = kRowsBytes;
    return ForcedVariants(variants);
  }();
  return forced;
}

}  // namespace spaid::kernels::krylov_test
