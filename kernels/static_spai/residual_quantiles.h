// The quantiles of residual norms that every engine reports.
#pragma once

#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Nearest rank: the value of rank ⌊q (n − 1) + 1/2⌋ of the ascending `norms` for
// q = 0, 10, 25, 50, 75, 90, 99, 100 %. Empty for no norms. O(n).
std::vector<double> ResidualQuantiles(Array<double> norms, int threads);

}  // namespace spaid::kernels
