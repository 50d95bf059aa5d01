// Measured rates of the CPU backend, from which times are predicted; regenerate with
// `kernels/bench`.
#pragma once

namespace spaid::kernels {

// One thread of the reference machine (AMD EPYC, 2 cores, g++ 12 -O3, no -march).
struct CpuRates {
  double gram_flops_per_s = 1.0e9;   // Gram path of static SPAI, counted flops of a plan
  double qr_flops_per_s = 1.5e9;     // Householder path
  double bytes_per_s = 8e9;          // streaming, one thread
  double shared_bytes_per_s = 14e9;  // streaming, all threads of a socket together at the most
};
inline constexpr CpuRates kCpuRates;

}  // namespace spaid::kernels
