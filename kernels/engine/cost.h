// The one model of time: what is counted (BuildWork, SolveWork) by rates of the CPU and of a GPU.
// Estimates, placement, splitting, admission and AUTO read it. No device is needed to ask, and no
// clock is read: the same counts always give the same time.
//
// Rates of builds are in the traits of each engine's object (EngineTraits::rates); those of
// iterations and transfers are in cost.cc.
//
// A first prediction is within a factor of 5, mostly of 2 (docs/decisions/cost.md); the scheduler
// corrects it by what jobs of the kind took (server/sched/predictions.h).
#pragma once

#include <cstdint>

#include "kernels/base/build_work.h"
#include "kernels/base/device.h"
#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

// Milliseconds of a build by so many threads of the CPU, the layout of M for products included.
double BuildMs(const BuildRates& rates, const BuildWork& work, int threads);
// The same on a GPU, from host to host, A's way there included.
double DeviceBuildMs(const BuildRates& rates, const BuildWork& work);

struct SolveWork {
  // kAuto counts as that, kMinres as CG, and two iterations of kIdr as one of BiCGSTAB's.
  Method method = Method::kBicgstab;
  double n = 0, nnz_a = 0;
  double nnz_m = 0;    // entries that a product with M reads, of both factors; 0: a diagonal
  bool parts = false;  // M is a cycle, of so many entries on all levels
  int64_t n_rhs = 1;
};
// An iteration of all right-hand sides. `threads`: of the CPU.
double IterationMs(const SolveWork& work, Backend backend, int threads);
// Iterations of a right-hand side, of whose matrix nothing is known but its size.
double GuessedIterations(double n);

// To bring `nnz` entries of a matrix to a GPU and lay them out there.
double MoveMs(double nnz);
// To bring b and x there and back.
double MoveVectorsMs(double n, int64_t n_rhs);
// To move so many bytes through the host's memory.
double StreamMs(double bytes, int threads);

// --- What is worth it ---

// A build that the CPU is predicted to finish in less is not worth a GPU. From host to host the
// smallest measured takes 0.6 ms on an H100 and 1.8 on the 16 cores beside it
// (docs/decisions/static-spai.md); smaller ones would wait there for large ones.
inline constexpr double kGpuWorthMs = 1.5;
// The same of FSAI, where a GPU is also predicted to be faster, which of static FSAI it seldom is
// by much (docs/decisions/fsai.md: P7 16³ by 3 x 5 0.77 ms there for 1.52 on 16 cores).
inline constexpr double kGpuFsaiWorthMs = 0.5;
// The same of a solve, A's way there included (docs/decisions/krylov.md: the GPU is behind on P7
// 12³, predicted at 1 ms, and ahead on P7 16³, at 2.6).
inline constexpr double kGpuSolveWorthMs = 1.5;
// So many times as long, about, takes a build there whose tables are made in waves
// (docs/decisions/static-spai.md: 7.1 ms for 3.0).
inline constexpr double kWavesCost = 2;
// Static SPAI that the CPU is predicted to spend so much on (BuildEstimate::predicted_ms, 16
// threads) is done sooner by two GPUs than by one, from host to host: 1.07 to 1.74 times in all
// cases measured (docs/decisions/splitting.md); at 10 to 85 ms 0.95 to 1.08 times,
// under 5 ms they are later. Shorter ones spend their time on transfers. Dynamic SPAI goes by the
// same figure: 0.9 to 1.38 times. Adaptive FSAI,
// too: 1.03 to 1.58 times where no row repeats another, 0.52 to 0.97 under it on grids; where
// nearly all repeat 0.9 to 1.07. Static FSAI is no work for two.
inline constexpr double kSplitWorthMs = 100;

}  // namespace spaid::kernels
