#pragma once

#include <cstdint>

#include "kernels/base/cuda/variants_tuning.h"

namespace spaid::kernels::krylov_test {

// By which so much is laid out by rows.
inline cuda::Variants WithRowsBytes(int64_t rows_bytes) {
  cuda::Variants variants = cuda::tuning::kVariants;
  variants.rows_bytes = rows_bytes;
  return variants;
}

}  // namespace spaid::kernels::krylov_test
