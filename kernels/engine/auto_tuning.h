// Numbers of the rule by which AUTO chooses an engine, fitted on the gallery and the first half of
// the real matrices (docs/decisions/auto.md).
#pragma once

#include <cstdint>

namespace spaid::kernels::auto_tuning {

// The adaptive FSAI that AUTO chooses: from three more entries a step it takes a quarter of the
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
// FSAI needs kFsai of these, and less, by exp(-kFsaiFall (gain - kFsaiGain)); the light adaptive
// one exp(-kAfsaiFall (r - 1)) of that, r the ratio of their gains, at most kMostRatio of Jacobi's;
// static SPAI kSpai exp(-kSpaiFall gain).
inline constexpr double kFsai = 0.61, kFsaiFall = 1.0, kFsaiGain = 0.2;
inline constexpr double kAfsaiFall = 1.9, kMostGainRatio = 2, kMostRatio = 0.8;
inline constexpr double kSpai = 0.56, kSpaiFall = 1.5;
// From this growth on (LocalSample::growth) Jacobi breaks down.
inline constexpr double kMostGrowth = 0.5;
// Share of Jacobi's predicted time that another engine may take to be chosen.
inline constexpr double kWorth = 0.75;

inline constexpr int kSampledRows = 24;  // of SampleFsai

// On a GPU.
namespace gpu {

// Beside the light adaptive FSAI, the one of thirty steps of one is worth it there.
inline constexpr int kAfsaiSteps = 30, kAfsaiPerStep = 1;
inline constexpr double kWorth = 0.85;  // in place of the one above
// To look at rows of FSAI, which the host does: of a row and an entry of A.
inline constexpr double kLookMs = 0.1, kLookRowMs = 2e-5, kLookEntryMs = 1.5e-6;

}  // namespace gpu
}  // namespace spaid::kernels::auto_tuning
