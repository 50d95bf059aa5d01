// Measured rates of the CPU backend, from which times are predicted; regenerate with
// `kernels/bench`.
#pragma once

namespace spaid::kernels {

// One thread of the reference machine (AMD EPYC with AVX-512, g++ 12 -O3), fitted to plan + build
// of the real matrices of the test set, patterns (E+|A|) and (E+|A|)^2, by least squares of the
// logarithms; three quarters of the predictions are within a factor of 2 of the measured time.
struct CpuRates {
  double local_row_ns = 60;          // per row of a local problem: find I, build, residual
  double gram_flop_ns = 0.10;        // per counted flop of the Gram path
  double qr_flop_ns = 0.067;         // per counted flop of Householder QR
  double bytes_per_s = 8e9;          // streaming, one thread
  double shared_bytes_per_s = 14e9;  // streaming, all threads together at the most
};
inline constexpr CpuRates kCpuRates;

}  // namespace spaid::kernels
