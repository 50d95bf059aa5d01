// Exact symmetry of a dense matrix, n x n column-major. Internal to the kernels.
#pragma once

#include <cstdint>

namespace spaid::kernels {

inline bool IsSymmetric(int64_t n, const double* a) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < j; ++i) {
      if (a[i + j * n] != a[j + i * n]) return false;
    }
  }
  return true;
}

// Columns [begin, end) and their mirrors: the mean of both. Ranges may be done side by side.
inline void Symmetrize(int64_t n, int64_t begin, int64_t end, double* a) {
  for (int64_t j = begin; j < end; ++j) {
    for (int64_t i = 0; i < j; ++i) {
      a[i + j * n] = a[j + i * n] = 0.5 * a[i + j * n] + 0.5 * a[j + i * n];
    }
  }
}

}  // namespace spaid::kernels
