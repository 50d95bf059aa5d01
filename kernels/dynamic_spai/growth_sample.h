// Some columns of M, really grown, to predict the others from. Internal to this room and its tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// A column that was looked at.
struct GrownColumn {
  int64_t k = 0;
  double times = 0;       // of how many it is one
  double grown = 0;       // of those that are not copied from another
  double entries = 0;     // what it begins with included
  double steps = 0;       // that added something
  double walked = 0;      // entries of the columns of AᵀA that joined
  double candidates = 0;  // rows of these: what it chose from in the end
  double flops = 0;       // as RowGrower counts them
  double local = 0;       // entries of its local problem
  double solve_ns = 0;    // static SPAI's prediction of plan and build for it
};

struct GrowthSample {
  std::vector<GrownColumn> columns;
  double steps = 0;  // that the sample took: an index looked at, or four flops
};

// Columns are chosen by the products of AᵀA in their own column of it, evenly where these are all
// alike: the heavier one is, the likelier, and the fewer does it stand for. As many as kSampleSteps
// allow, kSampleColumns at the most; none where not even the first was within them. `a` canonical
// and square; without values as GramColumns has it; `rows`: it by rows; `products`: of each column
// of AᵀA. Progress is not reported; where the stop token stops it, it returns what it has. The same
// for any number of threads. Thread-safe. Throws std::bad_alloc.
GrowthSample SampleGrowth(const CscView& a, const PatternView& rows,
                          std::span<const double> products, const PatternView* initial,
                          const DynamicSpaiOptions& options, const Context& context);

}  // namespace spaid::kernels
