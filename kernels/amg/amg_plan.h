// Internal to the room: what a rebuild takes over.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/amg.h"
#include "kernels/amg/strength.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct AmgPlan {
  struct Level {
    StrongGraph graph;  // without weights
    Aggregates aggregates;
    bool guarded = false;
    Pattern grown;  // of G, by rows, where the smoother grew it
  };
  AmgOptions options;
  int64_t n = 0, nnz = 0;
  bool symmetric = false;
  SmootherKind smoother = SmootherKind::kL1Jacobi;
  std::vector<Level> levels;  // but for the last
  Pattern grown;              // of the last, where it is smoothed by what grows
};

}  // namespace spaid::kernels
