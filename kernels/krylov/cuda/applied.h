// An operator that is no matrix, but work of several launches: a cycle of multigrid.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// The power of two by which a column of x is scaled, so that its largest element is in [1, 2), and
// neither over- nor underflows in fp32.
struct AppliedScale {
  int32_t runs;                // 0: this application's launches do nothing for the column
  int32_t exponent;            // of the largest |x_i|
  unsigned long long largest;  // its bits; 0 between applications
};

// y_i = 2^exponent from_i out_i, on the device; y and `from` of interleaved columns.
struct AppliedResult {
  const float* narrow;  // `from`, in one of the two
  const double* wide;
  const double* out;
};

// Bytes that a product moves at the least: `matrices` for all columns together, `vectors` for each.
struct Traffic {
  int64_t matrices, vectors;
};

// Has vectors of its own, for 1, 2 or 4 interleaved columns (sums.h), so that one application at a
// time runs. Belongs to one context. Applied by Product (product_end.h).
class Applied {
 public:
  Applied(Context& context, int64_t n, int columns)
      : n_(n), columns_(columns), scales_(context, columns) {
    scales_.Fill(0);
  }
  virtual ~Applied() = default;
  Applied(const Applied&) = delete;
  Applied& operator=(const Applied&) = delete;

  int64_t n() const { return n_; }
  int columns() const { return columns_; }
  virtual Traffic traffic() const = 0;
  // The same operator, which the two then share, with vectors for so many columns.
  virtual std::unique_ptr<const Applied> ForColumns(int columns) const = 0;
  // Launches the product with x on the context's stream, as a graph may capture it. Before,
  // scales() are told whether they run, and the largest elements; this sets the exponents.
  virtual AppliedResult Launch(const Context& context, const double* x) const = 0;
  AppliedScale* scales() const { return scales_.get(); }  // on the device, one a column

 private:
  const int64_t n_;
  const int columns_;
  const Buffer<AppliedScale> scales_;
};

}  // namespace spaid::cuda
