// Internal to the room: which parts a hierarchy has, wherever it lies.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/amg/amg.h"

namespace spaid::kernels {

// Sizes of a level, and its smoother as AmgPart has it.
struct LevelOutline {
  int64_t n = 0, below = 0;  // rows, and those of the level below
  int64_t nnz_a = 0, nnz_p = 0, nnz_r = 0;
  int64_t nnz_smoother = 0;  // 0: a diagonal
  bool inverted = false;     // the last level, of which the inverse alone is there
  bool last = false;
  int near_null = 1;
  SmootherKind kind = SmootherKind::kL1Jacobi;
  double rho = 0, omega = 1;
  std::vector<double> coefficients = {};
};

// Lists them in the order of AmgHierarchy::parts().
std::vector<AmgPart> ListParts(const std::vector<LevelOutline>& levels);

}  // namespace spaid::kernels
