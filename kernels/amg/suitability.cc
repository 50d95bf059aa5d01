#include "kernels/amg/suitability.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/amg/amg.h"

namespace spaid::kernels {

double NearNullRayleigh(const CscView& a) {
  const auto n = static_cast<size_t>(a.n_cols);
  const auto block = static_cast<size_t>(DetectBlockSize(a));
  std::vector<double> root(n, 0.0);  // of D
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const auto rows = a.column(j);
    const auto at = std::lower_bound(rows.begin(), rows.end(), j);
    if (at != rows.end() && *at == j) {
      root[static_cast<size_t>(j)] =
          std::sqrt(std::fabs(a.column_values(j)[static_cast<size_t>(at - rows.begin())]));
    }
    if (!(root[static_cast<size_t>(j)] > 0)) return std::numeric_limits<double>::infinity();
  }
  std::vector<double> energy(block, 0.0), squares(block, 0.0);
  double scaled = 0;
  for (size_t j = 0; j < n; ++j) {
    const auto rows = a.column(static_cast<int64_t>(j));
    const auto values = a.column_values(static_cast<int64_t>(j));
    double of_column = 0, over_root = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      const auto i = static_cast<size_t>(rows[p]);
      if (i % block == j % block) of_column += values[p];
      over_root += values[p] / root[i];
    }
    energy[j % block] += of_column;
    squares[j % block] += root[j] * root[j];
    scaled += over_root / root[j];
  }
  double worst = 0;
  for (size_t k = 0; k < block; ++k) worst = std::max(worst, std::fabs(energy[k]) / squares[k]);
  return block > 1 ? worst : std::min(worst, std::fabs(scaled) / static_cast<double>(n));
}

bool SuitsAmg(const CscView& a, int64_t longest) {
  const double mean =
      static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(1, a.n_cols));
  return a.n_cols >= kLeastRowsForAmg && static_cast<double>(longest) <= kMostUnevenForAmg * mean &&
         NearNullRayleigh(a) <= kMostRayleighForAmg;
}

}  // namespace spaid::kernels
