// A solve of AUTO's with its unknowns in an order that suits the caches
// (kernels/engine/reordered.h).
#pragma once

#include <memory>

#include "kernels/engine/engine.h"
#include "kernels/engine/reordered.h"
#include "kernels/sparse/matrix.h"
#include "server/store/byte_budget.h"

namespace spaid::server {

struct InOrder {
  BudgetShare share;  // of what rungs may take, held with the rest
  std::unique_ptr<const kernels::Reordered> system;
  kernels::Array<double> b, x;                       // `x`: empty where there is no guess
  std::shared_ptr<const kernels::Preconditioner> m;  // null where there is none
  double ms = 0;                                     // that it took
};

}  // namespace spaid::server
