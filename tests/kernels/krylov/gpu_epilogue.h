// A product with an epilogue on the first CUDA device, which counts what it is called for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spaid::kernels::krylov_test {

struct EpilogueResult {
  std::vector<double> y;
  std::vector<int32_t> rows;      // calls of Row for each row
  std::vector<int32_t> finishes;  // calls of Finish in each block of the grid, by all threads
  double sums[2] = {};            // Σ x_i y_i, Σ y_i²
};

// Canonical CSC, n x n. `launches` in a row on the same rows; the result is the last one's, counts
// are of all. `skip`: what Skip says. Returns the library's words where something failed, else
// nothing.
std::string RunEpilogue(int64_t n, const int64_t* col_ptr, const int32_t* row_idx,
                        const double* values, const double* x, int launches, bool skip,
                        EpilogueResult* result);

}  // namespace spaid::kernels::krylov_test
