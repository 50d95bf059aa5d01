#include "kernels/static_spai/residual_quantiles.h"

#include <algorithm>
#include <cmath>

namespace spaid::kernels {

std::vector<double> ResidualQuantiles(Array<double> norms) {
  constexpr double kShares[] = {0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.99, 1};
  std::vector<double> quantiles;
  if (norms.empty()) return quantiles;
  const auto last = static_cast<double>(norms.size() - 1);
  auto from = norms.begin();
  for (const double share : kShares) {
    const auto at = norms.begin() + static_cast<int64_t>(std::floor(share * last + 0.5));
    if (at >= from) std::nth_element(from, at, norms.end());
    quantiles.push_back(*at);
    from = std::max(from, at);
  }
  return quantiles;
}

}  // namespace spaid::kernels
