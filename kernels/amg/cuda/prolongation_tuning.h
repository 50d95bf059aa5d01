// The numbers of a prolongation: those of the host's prolongation.cc.
#pragma once

namespace spaid::cuda::tuning {

inline constexpr int kMostAggregates = 12;     // of a row of P
inline constexpr double kTightRowSums = 2.2;   // row sums up to it are a good bound on ρ
inline constexpr int kProlongationSteps = 12;  // power steps
inline constexpr double kBoundGrain = 64;      // of bounds

}  // namespace spaid::cuda::tuning
