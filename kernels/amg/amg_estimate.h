// Bounds on multigrid before there is any.
#pragma once

#include <cstdint>

#include "kernels/amg/amg.h"
#include "kernels/base/build_work.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct AmgCounts {
  int64_t host_bytes = 0;  // at the peak of a build, hierarchy and plan included
  int64_t nnz = 0;         // AmgHierarchy::nnz()
  BuildWork work;
};

// Upper bounds from the pattern of `a`, square, by its size alone but for the largest column and
// DetectBlockSize: entries of all levels come to max_operator_complexity times those of A, and a
// row of P to 12 aggregates. `near_null`: given vectors, or rigid body modes; 0: a unit vector for
// each unknown of a node. `work` is what is usual, no bound. O(nnz). Thread-safe.
AmgCounts EstimateAmg(const PatternView& a, int near_null, const AmgOptions& options);

}  // namespace spaid::kernels
