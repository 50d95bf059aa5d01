// What products on a CUDA device are measured against: the bandwidth of copies, and cuSPARSE where
// it can be loaded.
#pragma once

#include <cstdint>
#include <string>

namespace spaid::kernels::bench {

// Bytes read and written a second by a copy within the first device, the median of a few; over
// arrays far larger than the caches. 0: something failed.
double DeviceCopyBytesPerSecond();

// Medians, in milliseconds by the device's clock.
struct CusparseTimes {
  double alone_ms = 0;     // y = A x, one after the other
  double in_cg_ms = 0;     // between the updates of CG's vectors
  double with_dot_ms = 0;  // the same, xᵀ y after it by a kernel of ours
};

// y = A x by cusparseSpMV with its preprocessing, by CUSPARSE_SPMV_CSR_ALG1 or ALG2, A a CSR of
// fewer than 2³¹ entries in fp64. Returns why not, or nothing.
std::string TimeCusparse(int64_t n, const int64_t* row_ptr, const int32_t* cols,
                         const double* values, int algorithm, int products, CusparseTimes* times);

}  // namespace spaid::kernels::bench
