#include "kernels/amg/set_up_rules.h"

#include <string>

namespace spaid::kernels {

Status NoCoarseLevel(int64_t n, int64_t nnz, bool too_large) {
  if (too_large) {
    return Status(StatusCode::kFailedPrecondition, "NO_COARSE_LEVEL",
                  "with a first coarse level there would be over max_operator_complexity times "
                  "the " +
                      std::to_string(nnz) +
                      " entries of the matrix; raise that, or coarsen by aggregation")
        .At("max_operator_complexity");
  }
  return Status(StatusCode::kFailedPrecondition, "NO_COARSE_LEVEL",
                "no couplings of the matrix are strong enough to aggregate " + std::to_string(n) +
                    " rows; Jacobi does it")
      .At("strength_threshold");
}

void SumUp(AmgQuality* quality) {
  int64_t rows = 0, entries = 0;
  for (const AmgLevelQuality& level : quality->levels) rows += level.rows, entries += level.nnz;
  const AmgLevelQuality& first = quality->levels.front();
  const auto over = [](int64_t all, int64_t of) {
    return of > 0 ? static_cast<double>(all) / static_cast<double>(of) : 1;
  };
  quality->operator_complexity = over(entries, first.nnz);
  quality->grid_complexity = over(rows, first.rows);
}

}  // namespace spaid::kernels
