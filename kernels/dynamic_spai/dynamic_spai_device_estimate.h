// Bytes that dynamic SPAI takes on a CUDA device. Internal to this room and its tests.
#pragma once

#include <cstdint>

#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// As many entries as AᵀA and M can have.
struct DynamicSpaiBounds {
  int64_t gram_nnz = 0, gram_longest = 0;
  double products = 0;  // of which the entries of AᵀA are sums
  int64_t nnz_m = 0, longest = 1;
  int64_t initial = 0;  // entries that columns begin with
};

// Fills device_bytes and device_bytes_min.
void EstimateOnDevice(const PatternView& a, bool has_initial, const DynamicSpaiBounds& bounds,
                      const DynamicSpaiOptions& options, DynamicSpaiCounts& counts);

}  // namespace spaid::kernels
