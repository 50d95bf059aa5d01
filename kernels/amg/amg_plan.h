// Internal to the room: what a rebuild takes over.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/amg.h"
#include "kernels/amg/prolongation.h"
#include "kernels/amg/scaling.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/smoothers.h"

namespace spaid::kernels {

struct AmgPlan {
  // P, or P of Aᵀ, of which R is the transpose.
  struct Smoothing {
    SharedPattern filtered;  // kClassical: the dependences
    KeptProlongation p;      // kClassical: `cut` alone
  };
  struct Level {
    SharedPattern a;        // by rows
    Aggregates aggregates;  // or what SplitPmis chose
    bool guarded = false;
    SharedPattern tentative;
    Smoothing right, left;  // left: where A is not symmetric; neither where P is the tentative one
    KeptTranspose mirror;   // of A, where `left` is; of the first level `rows` has it
    KeptTranspose r;
    KeptProduct ap, coarse;
    KeptFilling filled;  // the coarse matrix, where near-null vectors depend in an aggregate
    KeptSmoother smoother;
  };
  AmgOptions options;
  bool symmetric = false;
  SmootherKind smoother = SmootherKind::kL1Jacobi;
  KeptRows rows;
  std::vector<Level> levels;  // but for the last
  SharedPattern last_a;       // the last, where it is smoothed
  KeptSmoother last;
};

}  // namespace spaid::kernels
