// Sizes up to which each variant of a kernel is used, where more than one could be: measured on one
// NVIDIA H100 80GB HBM3 (docs/decisions/static-spai.md).
#pragma once

#include "kernels/base/cuda/cuda_abi.h"

namespace spaid::cuda::tuning {

// A part of the names of the devices that these, and all other measured numbers of the kernels, are
// of. Every device uses them, as the nearest there are.
inline constexpr char kMeasuredOn[] = "NVIDIA H100";

inline constexpr SpaidCudaVariants kVariants{
    8192,        // union_warp_elements
    16,          // union_bitmap_words
    64,          // table_register_entries
    1024,        // table_warp_entries
    10,          // lane_columns
    24'000'000,  // rows_bytes
};

}  // namespace spaid::cuda::tuning
