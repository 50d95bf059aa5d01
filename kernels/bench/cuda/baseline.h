// The yardstick: static SPAI with the pattern of A on a CUDA device as the kernels of the paper do
// it (Chu, Wang, Chen, Gao 2023), in the plainest correct way. One kernel a component (find I,
// build Â, QR, solve), each with a group of threads a column, all data in global memory, columns in
// waves that fit the memory.
#pragma once

#include <cstdint>
#include <string>

namespace spaid::kernels::bench {

// By the device's clock, transfers left out.
struct BaselineTimes {
  double find_ms = 0, build_ms = 0, qr_ms = 0, solve_ms = 0;
  double total_ms() const { return find_ms + build_ms + qr_ms + solve_ms; }
};

// Canonical CSC, n x n. Fills m (nnz values in A's pattern) and the times; `wave_bytes`: of the
// local problems at once. Returns CUDA's words where something failed, else nothing.
std::string RunBaseline(int64_t n, const int64_t* col_ptr, const int32_t* row_idx,
                        const double* values, int64_t wave_bytes, double* m, BaselineTimes* times);

}  // namespace spaid::kernels::bench
