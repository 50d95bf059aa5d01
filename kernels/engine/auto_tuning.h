// Numbers of the rule by which AUTO chooses an engine, fitted on the gallery and the first half of
// the real matrices (docs/decisions/auto.md).
#pragma once

#include <cstdint>

namespace spaid::kernels::auto_tuning {

// Work is counted in entries: what a product spends on an entry of a matrix. A pass over vectors of
// n, so many in an iteration, counts n. One thread takes so long for one; of the threads that a
// solve may use more than kSolveThreads wait for memory.
inline constexpr double kEntryNs = 0.88;
inline constexpr double kPasses = 8.2;
inline constexpr double kSolveThreads = 4;
// GMRES goes through half of its basis twice in an iteration.
inline constexpr double kGmresPasses = 50;

// Set-up, entries a row. Jacobi's; static FSAI's by its entries below the diagonal; that of the
// light adaptive one by the entries of A; static SPAI's by those of the columns of a local problem.
inline constexpr double kJacobiRow = 100;
inline constexpr double kFsaiRow = 220, kFsaiEntry = 100;
inline constexpr double kAfsaiRow = 530, kAfsaiEntry = 20;
inline constexpr double kSpaiColumn = 690, kSpaiEntry = 9.4;
// A longest column of over kLongColumn entries adds its cube over so much.
inline constexpr double kLongColumn = 64, kLongColumnCube = 25;
// Of adaptive FSAI AUTO chooses this one: from three more entries a step it takes a quarter of the
// set-up of ten by one, which no CPU gets back in a solve.
inline constexpr int kAfsaiSteps = 3, kAfsaiPerStep = 3;

// Iterations to 1e-7. Jacobi: kJacobi n^kSize gain (LocalSample::gain, at least kLeastGain), at
// most n, and where the columns are dominant by d (the median) kDominant / √d and a few.
inline constexpr double kJacobi = 135, kSize = 0.32, kLeastGain = 0.005;
// From kLarge unknowns on they grow with n^kLargeSize: of matrices that size, which a CPU was not
// measured on, aniso, elasticity, badscale and both Poissons take n^0.12 to n^0.25.
inline constexpr double kLarge = 1e5, kLargeSize = 0.12;
inline constexpr double kDominant = 8.4, kFew = 3, kLeastDominance = -0.1;
// Over this gain the local problems are as good as singular, and what holds for others does not.
inline constexpr double kMostGain = 1.0;
// Of these FSAI needs kFsai, and less, by exp(-kFsaiFall (gain - kFsaiGain)); the light adaptive
// one exp(-kAfsaiFall (r - 1)) of that, r the ratio of their gains, at most kMostRatio of Jacobi's;
// static SPAI kSpai exp(-kSpaiFall gain).
inline constexpr double kFsai = 0.61, kFsaiFall = 1.0, kFsaiGain = 0.2;
inline constexpr double kAfsaiFall = 1.9, kMostGainRatio = 2, kMostRatio = 0.8;
inline constexpr double kSpai = 0.56, kSpaiFall = 1.5;
// From this growth on (LocalSample::growth) Jacobi breaks down.
inline constexpr double kMostGrowth = 0.5;
// What is built must be predicted to take no more than this of Jacobi's time.
inline constexpr double kWorth = 0.75;

inline constexpr int kSampledRows = 24;  // of SampleFsai

// On a GPU: an H100 beside 16 cores of a Xeon, from A and b on the host to M and x there.
namespace gpu {

// An iteration: so many microseconds for its launches and sums, and its bytes at kBytesPerUs: A's
// values, those of M that a product reads (kValueBytes of each: as they come by diagonals, in fp32
// with an index), and so many passes over vectors of n. Of a block of right-hand sides matrices
// count once, vectors for each; the launches take kBlockShare longer for each further one.
struct Iteration {
  double launches_us, passes;
};
inline constexpr double kBytesPerUs = 3e6, kValueBytes = 8, kBlockShare = 1.0 / 3;
inline constexpr Iteration kCgDiagonal{9.5, 11.3}, kCgFactored{20, 18.6};
inline constexpr Iteration kBicgstabDiagonal{20, 34}, kBicgstabExplicit{25, 30};
inline constexpr Iteration kGmres{40, 58};
// Where A takes so little by rows, and M is a diagonal, all of it lives on the chip, for one
// right-hand side at a time: microseconds, and of an entry and an unknown.
inline constexpr double kOnChipBytes = 24e6;
inline constexpr double kCgChipUs = 9.9, kCgChipEntryUs = 2.6e-6;
inline constexpr double kBicgstabChipUs = 15.2, kBicgstabChipEntryUs = 1.23e-5,
                        kBicgstabChipRowUs = 2.9e-6;

// Milliseconds that are spent once. Host work on few entries does not spread over cores: up to a
// limit each counts for more.
struct Once {
  double fixed_ms, row_ms, entry_ms, few_entry_ms, few_most_ms;
};
// Whatever M is: A's way there, by its entries; of b and x each row of each right-hand side counts.
inline constexpr Once kPlace{0.47, 0, 4e-7, 7e-6, 0.83};
inline constexpr double kVectorRowMs = 3.8e-6;
// Jacobi, by A's entries, which the host makes; static SPAI, by M's, with its plan, copies and
// layout; static and adaptive FSAI, by those of G.
inline constexpr Once kJacobiOnce{0, 8.9e-6, 1.75e-7, 3.8e-6, 0.54};
inline constexpr double kJacobiFewRowMs = 6e-5;  // up to the same limit
inline constexpr Once kSpaiOnce{1.18, 1.3e-5, 2.9e-6, 2.7e-5, 2.4};
inline constexpr Once kFsaiOnce{1.7, 1.74e-5, 4.7e-6, 1.76e-5, 0.96};
inline constexpr Once kAfsaiOnce{1.39, 0, 5.4e-6, 1.4e-5, 0.82};
inline constexpr double kAfsaiEntryOfA = 1.5e-7;
// A column of over kLongColumn entries, as above; arithmetic of patterns that are not A's own.
inline constexpr double kLongColumnCubeMs = 1.6e-8, kFlopMs = 1e-10;
// Beside the light adaptive FSAI, the one of thirty steps of one is worth it there.
inline constexpr int kAfsaiSteps = 30, kAfsaiPerStep = 1;
inline constexpr double kWorth = 0.85;  // in place of the one above
// To look at rows of FSAI, which the host does: of a row and an entry of A.
inline constexpr double kLookMs = 0.1, kLookRowMs = 2e-5, kLookEntryMs = 1.5e-6;

}  // namespace gpu
}  // namespace spaid::kernels::auto_tuning
