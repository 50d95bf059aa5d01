// The set-up of multigrid on a device: the levels of the host's BuildAmg (kernels/amg/amg.h), for
// one unknown a node, aggregates, and smoothers by a diagonal. Aggregates, patterns and values have
// the host's bits.
//
//   std::optional<Hierarchy> made = SetUp(context, std::move(a), ...);             // nothing: the
//   host's auto again = SetUpAgain(context, *made->plan, std::move(other_values), ...);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/cuda/coarse_inverse.h"
#include "kernels/amg/cuda/set_up_plan.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// A level in fp64, all by rows, as kernels::AmgLevel.
struct SetUpLevel {
  int64_t n = 0;
  RowMatrix a;     // without rows on a last level that is inverted
  RowMatrix p, r;  // without rows on the last level
  kernels::SmootherKind kind = kernels::SmootherKind::kL1Jacobi;
  Buffer<double> diagonal;
  double rho = 0;
  std::vector<double> coefficients;
  Buffer<double> near_null;    // empty: ones
  Buffer<double> left, right;  // the cycle's A is left A right; empty: ones
};

// The hierarchy.
struct Hierarchy {
  std::vector<SetUpLevel> levels;
  CoarseInverse inverse;  // of no rows: the last level is smoothed
  Buffer<double> scale;   // UnitScaled
  double sign = 1, beta = 0;
  bool symmetric = false;
  kernels::AmgOptions options;  // with what they were resolved to
  kernels::AmgQuality quality;
  std::optional<SetUpPlan> plan;  // that it has made; nothing: it went by one
};

// Sets up a hierarchy of A, by columns on the device with values. `near_null`: at most one vector,
// checked; no coordinates. Nothing where that is the host's: where A has no diagonal for it, which
// the host says, or wants another smoother. Throws Failure, and Refusal of the host's errors and
// where `host` stops it. Waits for the device some times a level.
std::optional<Hierarchy> SetUp(Context& context, Matrix a, bool symmetric,
                               const kernels::NearNullInput& near_null,
                               const kernels::AmgOptions& options, const kernels::Context& host);

// The same of other values on the pattern of A (SetUpPlan::of_a), as symmetric as those of before,
// on the aggregates of `plan`: with the bits of the host's RebuildAmg. Nothing, too, where the
// near-null vector has zeros elsewhere, so that P0 has another pattern.
std::optional<Hierarchy> SetUpAgain(Context& context, const SetUpPlan& plan, RowMatrix a,
                                    const kernels::NearNullInput& near_null,
                                    const kernels::Context& host);

// Writes left A right, rounded to Value, to `to` (null: nowhere); whether all of that is finite, to
// *bad, which becomes 1 where it is not. A factor without elements is ones; `over`: it divides.
struct Factor {
  const Buffer<double>* of = nullptr;  // null: ones
  bool over = false;
};
template <class Value>
void LayOut(const Context& context, const RowMatrix& rows, const Factor& left, const Factor& right,
            double* to, int32_t* bad);

}  // namespace spaid::cuda
