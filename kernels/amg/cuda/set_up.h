// The set-up of multigrid on a device: the levels of the host's BuildAmg (kernels/amg/amg.h), by
// aggregates. Aggregates, patterns and values have the host's bits, but for the smoothers FSAI,
// aFSAI and static SPAI. Where AUTO would take static SPAI and the device cannot make it, l1-Jacobi
// smooths.
//
//   std::optional<Hierarchy> made = SetUp(context, std::move(a), symmetric, given, options, host);
//   auto again = SetUpAgain(context, *made->plan, std::move(other_values), given, host);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/cuda/coarse_inverse.h"
#include "kernels/amg/cuda/set_up_plan.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/node_products.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// A level in fp64, all by rows, as kernels::AmgLevel.
struct SetUpLevel {
  int64_t n = 0;
  RowMatrix a;     // without rows on a last level that is inverted
  RowMatrix p, r;  // without rows on the last level
  kernels::SmootherKind kind = kernels::SmootherKind::kL1Jacobi;
  Buffer<double> diagonal;
  RowMatrix g, gt;  // SmootherFactor's
  double rho = 0, omega = 1;
  std::vector<double> coefficients;
  int near_count = 1;
  Buffer<double> near_null;    // n x near_count, by columns; empty: ones
  Buffer<double> left, right;  // the cycle's A is left A right; empty: ones
};

// The hierarchy.
struct Hierarchy {
  std::vector<SetUpLevel> levels;
  CoarseInverse inverse;  // of no rows: the last level is smoothed
  Buffer<double> scale;   // UnitScaled
  double sign = 1, beta = 0;
  bool symmetric = false;
  // A is, as it comes, and so is it scaled; false: nobody knows.
  bool exactly_symmetric = false;
  kernels::AmgOptions options;  // with what they were resolved to
  kernels::AmgQuality quality;
  std::optional<SetUpPlan> plan;  // that it has made; nothing: it went by one, or keeps none
};

// Sets up a hierarchy of A, by columns on the device with values; `nodes`: the same by nodes of
// options.block_size unknowns, where these are whole. `given`: VectorsToMake's; options.block_size
// divides n, and is not 0. Nothing where that is the host's: where A has no
// diagonal for it, which the host says, or wants another smoother, or the device cannot make G.
// Throws Failure, and Refusal of the host's errors and where `host` stops it. Waits for the device
// some times a level.
std::optional<Hierarchy> SetUp(Context& context, RowMatrix a, std::optional<NodeMatrix> nodes,
                               bool symmetric, const kernels::GivenVectors& given,
                               const kernels::AmgOptions& options, const kernels::Context& host);

// The same of other values on the pattern of A (SetUpPlan::of_a), as symmetric as those of before,
// on the aggregates of `plan`: with the bits of the host's RebuildAmg, but for G. `nodes`:
// KnownNodes of it. Nothing, too, where there are other near-null vectors in number, or their zeros
// are elsewhere, so that P0 has another pattern.
std::optional<Hierarchy> SetUpAgain(Context& context, const SetUpPlan& plan, RowMatrix a,
                                    std::optional<NodeMatrix> nodes,
                                    const kernels::GivenVectors& given,
                                    const kernels::Context& host);
// Returns the plan's A by nodes, where it goes by them.
std::optional<NodeMatrix> KnownNodes(Context& context, const SetUpPlan& plan, const RowMatrix& a);

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
