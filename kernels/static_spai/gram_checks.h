// Shared by both solvers of the Gram path: a start of inverse iteration, and the filter of a
// column. Internal to this room.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace spaid::kernels {

// The start vector z of inverse iteration: pseudo-random signs, to which an eigenvector is hardly
// orthogonal. ‖B⁻¹z‖ is 1/λ times the eigenvector's share of z, which is about 1.
class StartSigns {
 public:
  double Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 32 & 1) != 0 ? 1.0 : -1.0;
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15u;
};

// Zeroes |m_q| < δ max|m| except at the diagonal, as PostFilter drops them.
inline void FilterColumn(std::span<const int32_t> columns, int32_t diagonal, double delta,
                         double* m) {
  double largest = 0;
  for (size_t q = 0; q < columns.size(); ++q) largest = std::max(largest, std::abs(m[q]));
  for (size_t q = 0; q < columns.size(); ++q) {
    if (std::abs(m[q]) < delta * largest && columns[q] != diagonal) m[q] = 0;
  }
}

}  // namespace spaid::kernels
