// The part that A reaches of the right-hand sides of a solve with AUTO's ladder.
//
//   ReachedRhs reached(*options.null_space, b, options, threads);
//   ... solves reached.b(), by as many rungs as it takes ...
//   reached.TellOf(ColumnOperator(a), b, &solved);
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/null_space.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/vectors.h"
#include "kernels/sparse/matrix.h"

namespace spaid::server {

// Right-hand sides that no x reaches to the tolerance become the part that is reached, which some
// rung solves: else AUTO would climb all of them for what none can reach. Not thread-safe.
class ReachedRhs {
 public:
  ReachedRhs(const kernels::NullSpace& space, std::span<const double> b,
             const kernels::SolveOptions& options, int threads)
      : space_(space), options_(options), team_(space.n(), threads) {
    const auto n = static_cast<size_t>(space.n());
    b_.assign(b.begin(), b.end());
    for (size_t v = 0; v * n < b.size(); ++v) {
      reaches_.push_back(kernels::SplitRhs(space, b.subspan(v * n, n), &team_));
      if (reaches_[v].Beyond(options)) {
        std::copy(reaches_[v].b.begin(), reaches_[v].b.end(), b_.begin() + v * n);
      }
      reaches_[v].b = {};
    }
  }

  std::span<const double> b() const { return b_; }

  // `op`: A. `solved`: of b(); of `whole`, afterwards.
  void TellOf(const kernels::LinearOperator& op, std::span<const double> whole,
              kernels::SolveResult* solved) {
    const auto n = static_cast<size_t>(space_.n());
    for (size_t v = 0; v < reaches_.size(); ++v) {
      const std::span<double> x(solved->x.data() + v * n, n);
      kernels::RhsResult& rhs = solved->rhs[v];
      if (reaches_[v].Beyond(options_)) {
        kernels::TellOfWhole(op, space_, whole.subspan(v * n, n), reaches_[v], options_, &team_, x,
                             &rhs);
      } else {
        space_.RemoveRight(x, &team_);  // what rungs of a scaled A have left
        rhs.unreachable = reaches_[v].norm > 0 ? reaches_[v].unreachable / reaches_[v].norm : 0;
      }
    }
  }

 private:
  const kernels::NullSpace& space_;
  const kernels::SolveOptions& options_;
  kernels::krylov::Team team_;
  kernels::Array<double> b_;
  std::vector<kernels::Reach> reaches_;
};

}  // namespace spaid::server
