// Powers of two that bring columns near norm 1, as ScaleOf (kernels/static_spai/local_problem.cc).
#pragma once

namespace spaid::cuda {

// 2^e for -1022 <= e <= 1023.
__device__ inline double PowerOfTwo(int e) {
  return __longlong_as_double(static_cast<long long>(e + 1023) << 52);
}

// The exponent of |x|; for subnormal numbers that of the least normal one.
__device__ inline int Exponent(double x) {
  return max(1, static_cast<int>(__double_as_longlong(x) >> 52 & 0x7ff)) - 1023;
}

// Minus the exponent of the largest |value| of a column: scaled by it first, no square overflows.
__device__ inline int CoarseExponent(double largest) {
  return -min(max(Exponent(largest), -1000), 1000);
}

// The column's scale, from the sum of its squares after that; 1 for a column of zeros.
__device__ inline double ScaleOf(double largest, int coarse, double sum) {
  const int fine = (Exponent(sum) + 1) / 2;
  return largest > 0 ? PowerOfTwo(min(max(coarse - fine, -1000), 1000)) : 1;
}

}  // namespace spaid::cuda
