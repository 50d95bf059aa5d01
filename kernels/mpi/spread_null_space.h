// The null space of a singular A over several ranks, projected out as kernels/krylov does it
// (null_space.h): what is left of b is solved for with A and M between projections.
//
//   const SpreadNullSpace space(a, whole);  // whole: on rank 0
//   Result<RhsResult> r = SolveSpread(a, m, b, x, options, context, &space);
#pragma once

#include <vector>

#include "kernels/krylov/null_space.h"
#include "kernels/mpi/petsc.h"
#include "kernels/mpi/spread_matrix.h"

namespace spaid::kernels::mpi {

// Orthonormal vectors z with A z = 0, and w with Aᵀ w = 0, of the rows that each rank owns. All
// functions are collective.
class [[gnu::visibility("default")]] SpreadNullSpace {
 public:
  // Spreads the vectors of rank 0's `whole`, which is null elsewhere.
  SpreadNullSpace(const SpreadMatrix& a, const NullSpace* whole);

  // Takes the components along the vectors out of v, in one pass of Gram-Schmidt. Returns the norm
  // of what went.
  double RemoveRight(Vec v) const { return Remove(right_, v); }
  double RemoveLeft(Vec v) const { return Remove(left_is_right_ ? right_ : left_, v); }

  // Splits b into what A reaches, which it becomes, and the rest; Reach::b stays empty.
  Reach Split(Vec b) const;
  // A without what rounding leaves along the left vectors; P M Q, where P and Q take out what is
  // along right and left ones. Borrow their matrix, and this.
  MatOwner Projected(Mat a) const { return Shell(a, false); }
  MatOwner ProjectedM(Mat m) const { return Shell(m, true); }

 private:
  static double Remove(const std::vector<VecOwner>& vectors, Vec v);
  MatOwner Shell(Mat of, bool m) const;

  std::vector<VecOwner> right_, left_;
  bool left_is_right_ = false;
};

}  // namespace spaid::kernels::mpi
