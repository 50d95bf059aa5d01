// Some columns of M, really grown, to predict the others from. Internal to this room, its tests and
// benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Of a column that was looked at, or sums over all columns.
struct GrowthCounts {
  double columns = 0;
  double entries = 0;     // what it begins with included
  double steps = 0;       // that added something
  double walked = 0;      // entries of the columns of AᵀA that joined
  double candidates = 0;  // rows of these: what it chose from in the end
  double searched = 0;    // steps times candidates
  double flops = 0;       // as RowGrower counts them
  double local = 0;       // entries of its local problem, with the columns of A that it takes
  double solve_ns = 0;    // of static SPAI's plan and build for it, on one CPU thread

  void Add(const GrowthCounts& other, double times);
};

struct GrowthSample {
  struct Column {
    int64_t k = 0;
    double times = 0;     // of how many it is one
    bool copied = false;  // another column repeats it, and repeats are looked for with success
    GrowthCounts counts;  // columns: 1
  };
  std::vector<Column> columns;
  double steps = 0;  // that the sample took: an index looked at, or four flops

  // Of all columns; of those that are no copies.
  GrowthCounts all() const;
  GrowthCounts grown() const;
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
