// The numeric phase of static SPAI on a device by Householder QR, a group of q threads a local
// problem (thread_groups.h).
//
// Only R is kept: chunks of 32 rows of Â, with the right-hand sides appended, are eliminated into
// it one after the other, and Q is never formed. So the memory of a problem does not depend on its
// rows. Variants:
//   registers  a thread a column, whose part of the chunk it holds in registers; R in shared memory
//   shared     threads take several columns each; chunk and R in shared memory
//   global     R, and Â in chunks, in global memory; the current chunk in shared memory
// The first two take problems that have a table (plan.h): the first if n2 and the right-hand sides
// fit q, else the second; the third takes those of kLargeClass. Problems that are nearly
// rank-deficient (kDependent), or whose residual is off the minimum (Minimal), keep flags of 0: the
// host solves them by pivoted QR.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/static_spai/cuda/gram.h"
#include "kernels/static_spai/static_spai_tuning.h"
#include "kernels/static_spai/thread_groups.h"

namespace spaid::cuda {

// A column of R counts as dependent if its last entry is below this times max(n1, n2) times its
// norm: 1024 times the host's tolerance (RankTolerance, group_solver.cc), so that the host judges
// all that are near it.
inline constexpr double kDependent = 1024 * 4 * 2.220446049250313e-16;

// Whether a residual keeps the accuracy rule ‖r‖ <= (1 + 1e-6) ‖r_QR‖ + 1e-10; both arguments are
// squared. A problem that does not is too ill-conditioned for a QR without pivots, and left to the
// host.
__device__ inline bool Minimal(double residual, double tail) {
  namespace tuning = kernels::static_spai_tuning;
  return sqrt(residual) <= (1 + tuning::kStepShare) * sqrt(tail) + tuning::kStepNorm;
}

// A Householder vector (v, the chunk's column below) and its factor.
struct Reflector {
  double v, tau;  // tau = 0: nothing to reflect
};

// The reflector that takes a chunk's column with `x` over it, of squared norm `squared`, to the
// multiple of e_1 that replaces x (Golub, Van Loan, algorithm 5.1.1): H = I - tau v vᵀ. The columns
// of Â have norms of about 1: a remainder below 1e-18 is less than rounding, and chunks with fewer
// rows than columns would go on reflecting it until its square underflows.
__device__ inline Reflector Reflect(double& x, double squared) {
  constexpr double kNothing = 1e-36;
  if (squared < kNothing) return {0, 0};
  const double norm = sqrt(x * x + squared), to = x > 0 ? -norm : norm;
  const double v = x - to;
  x = to;
  return {v, 2 / (v * v + squared)};
}

// The problems with tables of a plan, by size of their thread groups, and their order by descending
// size.
struct QrPlan {
  kernels::QrSize sizes[kernels::kGroupSizes];
  int32_t n2_max[kernels::kGroupSizes] = {};  // largest n2 of each size
  int32_t width_max = 1;                      // right-hand sides of a problem, at most
  int64_t n2_largest = 0;                     // over all columns of M, tables or not
  double n2_mean = 0;                         // over all columns of M
  // Groups of columns: those of 256 threads first; in each size those that fit, then the others; in
  // each of these by chunks and n2, descending.
  Buffer<int32_t> order;
  Buffer<int32_t> natural;                           // all groups of columns in their own order
  int32_t begin[2 * kernels::kGroupSizes + 1] = {};  // into order; 2 (8 - s), + 1 for the others
  kernels::StrategyTrials trials;                    // the builds so far
};
// Makes the plan. `flags` not null: only for groups with columns that have no flag yet.
QrPlan MakeQrPlan(Context& context, const StaticSpaiPlan& plan, const uint8_t* flags);

// Groups with columns that have no flag yet.
struct LeftGroups {
  int32_t with_table = 0, large = 0;
  Buffer<int32_t> large_groups;  // the `large` groups of kLargeClass
};
LeftGroups FindLeft(Context& context, const StaticSpaiPlan& plan, const uint8_t* flags);

// Chooses the strategy; never kAuto or kPaper.
kernels::ThreadStrategy ChooseStrategy(const QrPlan& plan, kernels::ThreadStrategy asked);
// Predicted time of the QR kernels without problems of kLargeClass.
double PredictMs(const QrPlan& plan, kernels::ThreadStrategy chosen);

// One launch: the problems [begin, begin + count) of an order, by groups of 2^s threads.
struct QrLaunch {
  int s;
  bool registers;         // else shared; problems for the other variant are skipped
  int n2_max, width_max;  // maxima over the problems
  const int32_t* order;   // QrPlan's
  int32_t begin, count;
};
// The launches of a strategy, independent of each other.
std::vector<QrLaunch> QrLaunches(const StaticSpaiPlan& plan, const QrPlan& qr,
                                 kernels::ThreadStrategy chosen);
// Solves args.count of the launch's problems, args.groups. `flags`: set for the solved columns
// beside kColumnQr.
void LaunchQr(const Context& context, const Branch& branch, const QrLaunch& launch, uint8_t flags,
              const GramArgs& args);

// Bytes of workspace that a block of LaunchLargeQr needs, at most.
int64_t LargeQrBytes(const LargestLocal& largest, int64_t n);
// Solves args.count problems of kLargeClass, a block each. Takes its workspace from the arena.
void LaunchLargeQr(Context& context, const LargestLocal& largest, const int32_t* a_rows, int64_t n,
                   uint8_t flags, const GramArgs& args);

}  // namespace spaid::cuda
