// Numbers of the rule by which AUTO chooses an engine: fitted on the gallery and the first half of
// the real matrices (kernels/bench/README.md, "Engine AUTO"; kernels/bench/auto_engine.py).
#pragma once

namespace spaid::kernels::auto_tuning {

// Work is counted in entries: what a product spends on an entry of a matrix. A pass over vectors of
// n, six in an iteration, counts n. One thread takes so long for one (0.7 ns on an AMD EPYC, 1.4 on
// a Xeon); of the threads that a solve may use more than kSolveThreads wait for memory.
inline constexpr double kEntryNs = 1.0;
inline constexpr double kPasses = 6;
inline constexpr double kSolveThreads = 4;
// GMRES goes through half of its basis twice in an iteration.
inline constexpr double kGmresPasses = 50;

// Set-up, entries a row. Jacobi's; static FSAI's by its entries below the diagonal; that of the
// light adaptive one by the entries of A; static SPAI's by those of the columns of a local problem.
inline constexpr double kJacobiRow = 5;
inline constexpr double kFsaiRow = 370, kFsaiEntry = 100;
inline constexpr double kAfsaiRow = 1000, kAfsaiEntry = 70;
inline constexpr double kSpaiColumn = 1000, kSpaiEntry = 17;
// A longest column of over kLongColumn entries adds its cube over so much.
inline constexpr double kLongColumn = 64, kLongColumnCube = 25;
// Of adaptive FSAI AUTO chooses this one: from three more entries a step it takes a quarter of the
// set-up of ten by one, which no CPU gets back in a solve.
inline constexpr int kAfsaiSteps = 3, kAfsaiPerStep = 3;

// Iterations to 1e-7. Jacobi: kJacobi n^kSize gain (LocalSample::gain, at least kLeastGain), at
// most n, and where the columns are dominant by d (the median) kDominant / √d and a few.
inline constexpr double kJacobi = 135, kSize = 0.32, kLeastGain = 0.005;
inline constexpr double kDominant = 8.4, kFew = 3, kLeastDominance = -0.1;
// Over this gain the local problems are as good as singular, and what holds for others does not.
inline constexpr double kMostGain = 1.0;
// Of these FSAI needs kFsai, and less, by exp(-kFsaiFall (gain - kFsaiGain)); the light adaptive
// one exp(-kAfsaiFall (r - 1)) of that, r the ratio of their gains, at most kMostRatio of Jacobi's;
// static SPAI kSpai exp(-kSpaiFall gain).
inline constexpr double kFsai = 0.53, kFsaiFall = 1.0, kFsaiGain = 0.2;
inline constexpr double kAfsaiFall = 1.9, kMostGainRatio = 2, kMostRatio = 0.8;
inline constexpr double kSpai = 0.45, kSpaiFall = 1.5;
// From this growth on (LocalSample::growth) Jacobi breaks down.
inline constexpr double kMostGrowth = 0.5;
// What is built must be predicted to take no more than this of Jacobi's time.
inline constexpr double kWorth = 0.75;

inline constexpr int kSampledRows = 24;  // of SampleFsai

}  // namespace spaid::kernels::auto_tuning
