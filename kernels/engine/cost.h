// Bandwidths of the CPU backend, from which the times of copies are predicted; those of local
// problems are static SPAI's own (static_spai_tuning.h), those of iterations AUTO's
// (auto_tuning.h). No program prints these: they are cautious guesses, not fits.
#pragma once

namespace spaid::kernels {

struct CpuRates {
  double bytes_per_s = 8e9;          // streaming, one thread
  double shared_bytes_per_s = 14e9;  // streaming, all threads together at the most
  // Small dense inverses, and A times them, one thread: 0.24e9 to 1.9e9 on a core of an AMD EPYC.
  double block_flops_per_s = 1e9;
};
inline constexpr CpuRates kCpuRates;

// A build that the CPU is predicted to finish in less is not worth a GPU. From host to host the
// smallest measured takes 0.6 ms on an H100 and 1.8 on the 16 cores beside it, predicted at 1.1
// (docs/decisions/static-spai.md); smaller ones would wait there for large ones.
inline constexpr double kGpuWorthMs = 1.5;
// The same of FSAI, where a GPU is also predicted to be faster, which of static FSAI it seldom is
// by much (docs/decisions/fsai.md: P7 16³ by 3 x 5 0.77 ms there for 1.52 on 16 cores,
// predicted at 0.65).
inline constexpr double kGpuFsaiWorthMs = 0.5;
// The same of a solve, as the daemon predicts it (server/engine/job_factory.cc), A's way there
// included.
inline constexpr double kGpuSolveWorthMs = 10;
// So many times as long, about, takes a build there whose tables are made in waves
// (docs/decisions/static-spai.md: 7.1 ms for 3.0).
inline constexpr double kWavesCost = 2;

// Static SPAI that the CPU is predicted to spend so much on (BuildEstimate::predicted_ms, 16
// threads) is done sooner by two GPUs than by one, from host to host: 1.07 to 1.74 times in all
// cases measured (docs/decisions/splitting.md); at 10 to 85 ms 0.95 to 1.08 times,
// under 5 ms they are later. Shorter ones spend their time on transfers. FSAI is not worth it at
// any size: its G, which one device also gives by columns, is transposed by the host then (0.59 to
// 0.91 times). Dynamic SPAI goes by the same figure: 0.9 to 1.38 times.
inline constexpr double kSplitWorthMs = 100;

}  // namespace spaid::kernels
