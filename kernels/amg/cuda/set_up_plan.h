// All that a set-up on a device decides by the values that it has first, for others on A's pattern:
// kernels::AmgPlan (kernels/amg/amg_plan.h), there.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/cuda/aggregation.h"
#include "kernels/amg/cuda/factors.h"
#include "kernels/amg/cuda/prolongation.h"
#include "kernels/amg/cuda/tentative.h"
#include "kernels/sparse/cuda/kept_patterns.h"

namespace spaid::cuda {

// Matrices are patterns, without values; of no rows: there is none.
struct SetUpPlan {
  // Patterns of a level whose nodes have several unknowns, by nodes; of no rows where they have
  // one. They stand for `tentative`, `right`, `r` and `product`.
  struct KeptNodes {
    RowMatrix a, filtered, p, ap, coarse;
    RowMatrix r;  // with values, as Transpose of node_products.h makes them
  };
  struct Level {
    RowMatrix a;
    Aggregates aggregates;
    Members members;
    bool guarded = false;
    RowMatrix tentative;
    // P's, and that of P of Aᵀ, of which R is the transpose, where A is not symmetric. Neither
    // where P is the tentative one. `filtered` of no rows: that of A, or Aᵀ.
    KeptProlongation right, left;
    Transposition mirror;  // of A, where `left` is; but of the first level
    Transposition r;
    KeptGalerkin product;
    KeptNodes nodes;
    KeptFactor factor;  // of smoothers by one
  };
  kernels::AmgOptions options;
  int near_count = 1;  // near-null vectors
  bool symmetric = false;
  kernels::SmootherKind smoother = kernels::SmootherKind::kL1Jacobi;
  RowMatrix by_columns;       // A, where it is not symmetric
  Transposition by_rows;      // of that
  std::vector<Level> levels;  // but for the last
  RowMatrix last;

  // The pattern in which A comes.
  const RowMatrix& of_a() const {
    if (!symmetric) return by_columns;
    return levels.empty() ? last : levels.front().a;
  }
};

// Returns the bytes of the arena that it holds.
int64_t HeldBytes(const SetUpPlan& plan);

}  // namespace spaid::cuda
