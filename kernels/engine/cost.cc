#include "kernels/engine/cost.h"

#include <algorithm>
#include <cmath>

namespace spaid::kernels {
namespace {

// The CPU: bytes a nanosecond that one thread streams, and all together.
constexpr double kStream = 8, kStreamOfAll = 14;

// A local problem of so many unknowns takes a good part of a build by itself.
constexpr double kLong = 64;
constexpr double kLongFlopNs = 0.1, kLongFlopNsOnDevice = 0.048;
double LongNs(double longest, double flop_ns) {
  return longest > kLong ? flop_ns * std::pow(longest, 3) / 3 : 0;
}

double WorkNs(const WorkRates& rates, const BuildWork& work) {
  return rates.row * work.rows + rates.entry * work.entries + rates.gathered * work.gathered +
         rates.flop * work.flops + rates.nnz_a * work.nnz_a +
         std::min(rates.first_entry * work.entries, rates.first_most);
}

// An iteration on the CPU: nanoseconds for an entry of a matrix in a product, and passes over
// vectors. Threads of a solve beyond kSolveThreads wait for memory. GMRES goes
// through half of its basis twice.
constexpr double kProductNs = 0.88, kPasses = 8.2, kGmresPasses = 50, kSolveThreads = 4;

// On a GPU: microseconds for launches and sums, and bytes at kBytesPerUs: A's values, those of M
// (kValueBytes of each: as they come by diagonals, in fp32 with an index), and so many passes over
// vectors. For a block of right-hand sides matrices count once, vectors for each; the launches take
// kBlockShare longer for each further one.
struct DeviceIteration {
  double launches_us, passes;
};
constexpr double kBytesPerUs = 3e6, kValueBytes = 8, kBlockShare = 1.0 / 3;
constexpr DeviceIteration kCgDiagonal{9.5, 11.3}, kCgFactored{20, 18.6};
constexpr DeviceIteration kBicgstabDiagonal{20, 34}, kBicgstabExplicit{25, 30};
constexpr DeviceIteration kGmres{40, 58};
// A cycle of multigrid: the launches of its levels, and each entry in fp32, most of them twice
// (docs/decisions/multigrid.md: 0.7 to 1.1 of what was measured, half on a circuit's hubs), of
// which kCycleVectors are vectors.
constexpr double kCycleUs = 100, kCycleBytes = 14, kCycleVectors = 0.4;
// Where A takes so little by rows, and M is a diagonal, all of it lives on the chip, for one
// right-hand side at a time: microseconds, and of an entry and an unknown.
constexpr double kOnChipBytes = 24e6;
constexpr double kCgChipUs = 9.9, kCgChipEntryUs = 2.6e-6;
constexpr double kBicgstabChipUs = 15.2, kBicgstabChipEntryUs = 1.23e-5,
                 kBicgstabChipRowUs = 2.9e-6;

DeviceIteration DeviceIterationOf(Method method, bool diagonal) {
  switch (method) {
    case Method::kCg:
      return diagonal ? kCgDiagonal : kCgFactored;
    case Method::kGmres:
      return kGmres;
    default:
      return diagonal ? kBicgstabDiagonal : kBicgstabExplicit;
  }
}

// Whether what is guessed as one iteration is two products: of IDR it is two of its own.
bool IsBicgstab(Method method) { return !ForSymmetric(method) && method != Method::kGmres; }

double DeviceIterationMs(const SolveWork& work) {
  const bool diagonal = work.nnz_m == 0 || work.parts, bicgstab = IsBicgstab(work.method);
  const double n_rhs = static_cast<double>(work.n_rhs), n = work.n, nnz = work.nnz_a;
  if (diagonal && !work.parts && work.method != Method::kGmres &&
      12 * nnz + 8 * n <= kOnChipBytes) {
    const double us = bicgstab
                          ? kBicgstabChipUs + kBicgstabChipEntryUs * nnz + kBicgstabChipRowUs * n
                          : kCgChipUs + kCgChipEntryUs * nnz;
    return 1e-3 * n_rhs * us;
  }
  const DeviceIteration each = DeviceIterationOf(work.method, diagonal);
  const int products = bicgstab ? 2 : 1;
  const double launches_us = each.launches_us + (work.parts ? products * kCycleUs : 0);
  const double values = products * kValueBytes * (nnz + (work.parts ? 0 : work.nnz_m));
  const double cycles = work.parts ? products * kCycleBytes * work.nnz_m : 0;
  const auto block_us = [&](double rhs) {
    return launches_us * (1 + kBlockShare * (rhs - 1)) +
           (values + cycles * (1 + kCycleVectors * (rhs - 1)) + 8 * each.passes * n * rhs) /
               kBytesPerUs;
  };
  // One right-hand side after the other.
  if (work.method == Method::kGmres) return 1e-3 * n_rhs * block_us(1);
  // Blocks of four, two and one.
  return 1e-3 * (static_cast<double>(work.n_rhs / 4) * block_us(4) +
                 static_cast<double>(work.n_rhs % 4 / 2) * block_us(2) +
                 static_cast<double>(work.n_rhs % 2) * block_us(1));
}

}  // namespace

double StreamMs(double bytes, int threads) {
  return 1e-6 * bytes / std::min(kStream * threads, kStreamOfAll);
}

double BuildMs(const BuildRates& rates, const BuildWork& work, int threads) {
  const double share = rates.cpu.serial + (1 - rates.cpu.serial) / threads;
  return 1e-6 * (rates.cpu.fixed + WorkNs(rates.cpu, work) * share +
                 LongNs(work.longest, kLongFlopNs)) +
         StreamMs(4 * 12 * work.entries, threads);
}

double DeviceBuildMs(const BuildRates& rates, const BuildWork& work) {
  return MoveMs(work.nnz_a) + 1e-6 * (rates.gpu.fixed + WorkNs(rates.gpu, work) +
                                      LongNs(work.longest, kLongFlopNsOnDevice));
}

double IterationMs(const SolveWork& work, Backend backend, int threads) {
  if (backend == Backend::kCuda) return DeviceIterationMs(work);
  const double passes = kPasses + (work.method == Method::kGmres ? kGmresPasses : 0);
  const double entries = work.nnz_a + passes * work.n + work.nnz_m;
  return static_cast<double>(work.n_rhs) * 1e-6 * kProductNs /
         std::min(static_cast<double>(threads), kSolveThreads) * (IsBicgstab(work.method) ? 2 : 1) *
         entries;
}

// Between grids in three dimensions, which take fewer, and shells and jumps, which take more.
double GuessedIterations(double n) { return 12 * std::pow(std::max(n, 1.0), 0.25); }

double MoveMs(double nnz) { return 0.47 + 4e-7 * nnz + std::min(7e-6 * nnz, 0.83); }

double MoveVectorsMs(double n, int64_t n_rhs) { return 3.8e-6 * n * static_cast<double>(n_rhs); }

}  // namespace spaid::kernels
