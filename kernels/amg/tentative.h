// The tentative prolongation: near-null vectors, cut by aggregates.
//
//   Tentative t = MakeTentative(aggregates, near_null, block, context);
//
// Vaněk, Mandel, Brezina, Computing 56 (1996).
#pragma once

#include <cstdint>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// A column that does not depend on those before it has more than this share of its norm left.
inline constexpr double kDependentColumn = 1e-8;

// Columns that coarse levels have to represent, n x count, column-major. None: one column of ones.
struct NearNull {
  int64_t n = 0;
  int count = 1;
  Array<double> values;  // n * count; empty: ones
  bool ones() const { return values.empty(); }
};

struct Tentative {
  // P0 by rows: n x (aggregates * count), an orthonormal block for each aggregate, or ones.
  SharedMatrix p;
  NearNull coarse;  // P0 coarse = near_null in all rows of an aggregate
  int64_t dependent =
      0;  // columns of blocks that depend on those before them: coarse unknowns without a meaning
};

// `near_null.n` = nodes * block. In each aggregate its rows of the near-null vectors are Q R
// (modified Gram-Schmidt, twice); Q goes into P0, R into the coarse vectors. A column under 1e-8 of
// its norm is dropped: its column of P0 is empty. Where there are ones, P0 and the coarse vector
// have ones, too. `kept`: a pattern that P0 shares if it has this one; may be null. Errors: stop
// statuses, RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe.
Result<Tentative> MakeTentative(const Aggregates& aggregates, const NearNull& near_null, int block,
                                const Context& context, const SharedPattern& kept = nullptr);

}  // namespace spaid::kernels
