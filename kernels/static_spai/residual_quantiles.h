// The quantiles of residual norms that every engine reports.
#pragma once

#include <span>
#include <vector>

namespace spaid::kernels {

// Nearest rank: the value of rank ⌊q (n − 1) + 1/2⌋ of the ascending `norms` (no NaN) for
// q = 0, 10, 25, 50, 75, 90, 99, 100 %. Empty for no norms. O(n); the same on any number of
// threads.
std::vector<double> ResidualQuantiles(std::span<const double> norms, int threads);

}  // namespace spaid::kernels
