#include "kernels/amg/parts.h"

namespace spaid::kernels {

std::vector<AmgPart> ListParts(const std::vector<LevelOutline>& levels) {
  const int64_t n = levels.front().n;
  std::vector<AmgPart> all = {
      {.level = 0, .kind = AmgPartKind::kScale, .rows = n, .cols = 2, .nnz = 2 * n}};
  for (size_t l = 0; l < levels.size(); ++l) {
    const LevelOutline& level = levels[l];
    const auto add = [&](AmgPartKind kind, int64_t rows, int64_t cols, int64_t nnz) {
      all.push_back(
          {.level = static_cast<int>(l), .kind = kind, .rows = rows, .cols = cols, .nnz = nnz});
    };
    if (!level.inverted) add(AmgPartKind::kA, level.n, level.n, level.nnz_a);
    if (!level.last) {
      add(AmgPartKind::kP, level.n, level.below, level.nnz_p);
      add(AmgPartKind::kR, level.below, level.n, level.nnz_r);
    }
    if (level.inverted) {
      add(AmgPartKind::kCoarseInverse, level.n, level.n, level.n * level.n);
    } else {
      add(AmgPartKind::kSmoother, level.n, level.n,
          level.nnz_smoother > 0 ? level.nnz_smoother : level.n);
      all.back().smoother = level.kind;
      all.back().rho = level.rho;
      all.back().omega = level.omega;
      all.back().coefficients = level.coefficients;
    }
    add(AmgPartKind::kNearNull, level.n, level.near_null, level.n * level.near_null);
  }
  return all;
}

}  // namespace spaid::kernels
