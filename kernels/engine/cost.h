// Rates of the CPU backend, from which times are predicted. No program prints them: they were
// fitted by hand, as said below; for a machine of another kind, or after a change of the local
// solvers or of the vector loops, fit them again in that way. `kernels/bench` measures builds and
// iterations, to hold predictions against.
#pragma once

namespace spaid::kernels {

// One thread of an AMD EPYC with AVX-512, two cores (g++ 12 -O3). Times per row and per flop: plan
// + build of the real matrices of the test set, patterns (E+|A|) and (E+|A|)^2, against the counts
// of EstimateStaticSpai, by least squares of the logarithms; three quarters of the predictions were
// within a factor of 2 of the measured time. The local solvers have become faster since: on
// convection-diffusion builds are now predicted 1.8 (5 points, power 1) to 2.1 (power 6) times too
// slow. Bandwidths: cautious guesses, not fits. One iteration of Jacobi-BiCGSTAB is predicted 2.8
// times too slow where vectors exceed the caches (490,000 unknowns: 21 ms, measured 7.4) and 7
// times where all of it stays in them (1,600 unknowns: 0.068 ms, measured 0.0096). The rule of AUTO
// compares the two, so that their errors largely cancel for large matrices, and for small ones
// favour the build, which is cheap there.
struct CpuRates {
  double local_row_ns = 60;          // per row of a local problem: find I, build, residual
  double gram_flop_ns = 0.10;        // per counted flop of the Gram path
  double qr_flop_ns = 0.067;         // per counted flop of Householder QR
  double bytes_per_s = 8e9;          // streaming, one thread
  double shared_bytes_per_s = 14e9;  // streaming, all threads together at the most
};
inline constexpr CpuRates kCpuRates;

}  // namespace spaid::kernels
