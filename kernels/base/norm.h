// ‖v‖₂ of short vectors, and of long ones where one thread will do. Solves have
// krylov::Team::Norm, which sums by blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace spaid::kernels {

// Without overflow or underflow of the squares; infinite where an element is not finite.
inline double Norm(std::span<const double> v) {
  double largest = 0;
  for (const double x : v) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(x));
  }
  if (largest == 0) return 0;
  double sum = 0;
  for (const double x : v) sum += (x / largest) * (x / largest);
  return largest * std::sqrt(sum);
}

}  // namespace spaid::kernels
