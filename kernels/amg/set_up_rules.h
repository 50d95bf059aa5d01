// Internal to the room: what a set-up decides by, on the host and on devices.
#pragma once

#include <cstdint>

#include "kernels/amg/amg.h"
#include "kernels/base/precision.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

// Chebyshev's degree on a last level that is smoothed.
inline constexpr int kLastChebyshevDegree = 4;

inline SmootherKind SmootherOfLast(bool symmetric, SmootherKind kind) {
  return symmetric ? SmootherKind::kChebyshev : kind;
}

// Returns the share of a diagonal that weak entries leave at the least, to be added to it. Where A
// is not symmetric, rows of P that grow by the inverse of it are no use to BiCGSTAB (sherman5: 145
// iterations by a tenth, 28 by a half; 1138_bus, symmetric, 19 and 26).
inline double LeastLeft(bool symmetric) { return symmetric ? 0.1 : 0.5; }

// Returns kAuto's. Over that β a cycle in fp32 is too rough for BiCGSTAB (epb0: 79 iterations in
// fp64, none in fp32).
inline Precision ChoosePrecision(bool symmetric, double beta) {
  constexpr double kFp32UpTo = 3;
  return symmetric || beta <= kFp32UpTo ? Precision::kFp32 : Precision::kFp64;
}

// Returns false of so many aggregates that their level is the last.
inline bool IsCoarser(int64_t aggregates, int64_t nodes) {
  constexpr double kMostAggregates = 0.8;
  return aggregates > 0 &&
         static_cast<double>(aggregates) <= kMostAggregates * static_cast<double>(nodes);
}

// Returns the entries of A_c that max_growth allows beside those of A; more: P is not smoothed.
inline int64_t MostCoarse(const AmgOptions& options, int64_t nnz) {
  return static_cast<int64_t>(options.max_growth * static_cast<double>(nnz));
}
// Returns those that max_operator_complexity allows beside `all`, of all levels so far.
inline int64_t MostEntries(const AmgOptions& options, int64_t nnz_of_first, int64_t all) {
  return static_cast<int64_t>(options.max_operator_complexity * static_cast<double>(nnz_of_first)) -
         all;
}

// On a device, so that a bound on memory holds. Returns the entries of A P, of any level, that are
// made at once, at most, by those of the first A, and that a plan keeps of a level, by those of its
// A; more are made in waves. Levels come to 0.5 to 1.3, a P that is given up for its growth to 6.
inline int64_t MostProductEntries(int64_t nnz) { return nnz + nnz / 2; }
inline constexpr int64_t kEntryBytes = 12;  // an index and a value
// Returns the bytes of a plan there; a larger one is not kept. Grids come to half of it, and to
// nine tenths where A is not symmetric.
inline int64_t MostPlanBytes(int64_t n, int64_t nnz) { return 56 * nnz + 128 * n; }

// GivenNearNull's (scaling.h), but that the motions of a body are still to be made.
struct GivenVectors {
  int count = 1;
  Array<double> values;   // n x count, by columns; empty: ones, or the motions of
  Array<double> centred;  // coordinates by columns, centred, over the largest distance; empty: none
  bool ones() const { return values.empty() && centred.empty(); }
};
// Returns them. Errors: GivenNearNull's. Thread-safe.
Result<GivenVectors> VectorsToMake(int64_t n, const NearNullInput& input, int block);

// FAILED_PRECONDITION/NO_COARSE_LEVEL of a matrix of n rows that is too large to invert.
// `too_large`: there was one, of more than max_operator_complexity.
Status NoCoarseLevel(int64_t n, int64_t nnz, bool too_large);

// Fills in the complexities from the levels.
void SumUp(AmgQuality* quality);

}  // namespace spaid::kernels
