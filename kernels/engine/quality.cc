#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/engine/build_result.h"

namespace spaid::kernels {

std::vector<std::pair<const char*, int64_t>> Quality::Counts() const {
  std::vector<std::pair<const char*, int64_t>> counts = {
      {"iterative", iterative_columns}, {"not_converged", not_converged_columns},
      {"rescued", rescued_columns},     {"rank_deficient", rank_deficient_columns},
      {"zero", zero_columns},           {"non_finite", non_finite_columns}};
  if (dynamic_spai) counts.emplace_back("dependent", dynamic_spai->dependent_columns);
  if (fsai) {
    counts.emplace_back("not_converged", fsai->not_converged_rows);
    counts.emplace_back("not_spd", fsai->not_spd_rows);
  }
  return counts;
}

}  // namespace spaid::kernels
