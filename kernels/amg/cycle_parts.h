// Internal to the room: what a cycle reads, on the host; cycle.h makes it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/amg/cycle_rows.h"
#include "kernels/amg/smoothers.h"
#include "kernels/amg/tentative.h"

namespace spaid::kernels {

template <class Value>
struct CycleLevel {
  int64_t n = 0;
  Rows<Value> a, p, r;
  SmootherKind kind = SmootherKind::kL1Jacobi;
  Rows<Value> s, st;      // G and Gᵀ, or M and Mᵀ
  Array<Value> diagonal;  // of kChebyshev
  std::vector<double> coefficients;
  double rho = 1, omega = 1;
  Array<Value> left, right;  // a is left A right; empty: ones
  NearNull near_null;
};

// z = out ∘ cycle(in ∘ r), as AmgHierarchy::parts() says.
template <class Value>
struct CycleParts {
  std::vector<CycleLevel<Value>> levels;
  Array<Value> inverse;  // by rows; empty: the last level is smoothed
  Array<double> in, out;
  int pre = 1, post = 1, visits = 1;
  bool symmetric = false;  // M is
};

}  // namespace spaid::kernels
