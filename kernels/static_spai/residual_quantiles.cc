#include "kernels/static_spai/residual_quantiles.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/parallel.h"

namespace spaid::kernels {

std::vector<double> ResidualQuantiles(Array<double> norms, int threads) {
  constexpr std::array<double, 8> kShares = {0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.99, 1};
  constexpr size_t kMiddle = 3;
  if (norms.empty()) return {};
  const auto at = [&](size_t quantile) {
    const double rank = kShares[quantile] * static_cast<double>(norms.size() - 1);
    return norms.begin() + static_cast<int64_t>(std::floor(rank + 0.5));
  };
  // The middle one first: what is under it and what is over it can be looked at by two threads.
  std::nth_element(norms.begin(), at(kMiddle), norms.end());
  ParallelFor(2, 1, threads, [&](int64_t begin, int64_t end, int) {
    if (begin == 0) {
      for (size_t q = kMiddle; q-- > 0;) std::nth_element(norms.begin(), at(q), at(q + 1));
    }
    if (end == 2) {
      for (size_t q = kMiddle + 1; q < kShares.size(); ++q) {
        if (at(q) > at(q - 1)) std::nth_element(at(q - 1) + 1, at(q), norms.end());
      }
    }
  });
  std::vector<double> quantiles;
  for (size_t q = 0; q < kShares.size(); ++q) quantiles.push_back(*at(q));
  return quantiles;
}

}  // namespace spaid::kernels
