// What products on a CUDA device are measured against: the bandwidth of copies, and cuSPARSE where
// it can be loaded.
#pragma once

#include <cstdint>
#include <string>

namespace spaid::kernels::bench {

// Bytes read and written a second by a copy within the first device, the median of a few; over
// arrays far larger than the caches. 0: something failed.
double DeviceCopyBytesPerSecond();

// y = A x by cusparseSpMV with its preprocessing, A a CSR of fewer than 2³¹ entries in fp64: the
// median of `products`, in milliseconds by the device's clock. Returns why not, or nothing.
std::string TimeCusparse(int64_t n, const int64_t* row_ptr, const int32_t* cols,
                         const double* values, int products, double* ms);

}  // namespace spaid::kernels::bench
