// Which variant of a kernel takes what, where more than one could: measured on one NVIDIA H100 80GB
// HBM3 by `spaid_bench --benchmark_filter=StaticSpaiVariants`, which prints the table that these
// are read from (kernels/bench/README.md).
#pragma once

#include "kernels/base/cuda_backend.h"

namespace spaid::cuda::tuning {

// A part of the names of the devices that these, and all other measured numbers of the kernels, are
// of. Every device uses them, as the nearest there are.
inline constexpr char kMeasuredOn[] = "NVIDIA H100";

inline constexpr kernels::CudaVariants kVariants{
    8192,        // union_warp_elements
    16,          // union_bitmap_words
    64,          // table_register_entries
    1024,        // table_warp_entries
    10,          // lane_columns
    24'000'000,  // rows_bytes
};

}  // namespace spaid::cuda::tuning
