// An operator that is no matrix, but work of several launches: a cycle of multigrid.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// The power of two by which x is scaled, so that its largest element is in [1, 2), and neither
// over- nor underflows in fp32.
struct AppliedScale {
  int32_t runs;                // 0: this application's launches do nothing
  int32_t exponent;            // of the largest |x_i|
  unsigned long long largest;  // its bits; 0 between applications
};

// y_i = 2^exponent from_i out_i, on the device.
struct AppliedResult {
  const float* narrow;  // `from`, in one of the two
  const double* wide;
  const double* out;
};

// Has vectors of its own, so that one application at a time runs. Belongs to one context. Applied
// by Product (product_end.h).
class Applied {
 public:
  Applied(Context& context, int64_t n) : n_(n), scale_(context, 1) { scale_.Fill(0); }
  virtual ~Applied() = default;
  Applied(const Applied&) = delete;
  Applied& operator=(const Applied&) = delete;

  int64_t n() const { return n_; }
  // That must move at the least.
  virtual int64_t bytes_per_product() const = 0;
  // Launches the product with x on the context's stream, as a graph may capture it. Before, scale()
  // is told whether it runs, and the largest element; this sets the exponent.
  virtual AppliedResult Launch(const Context& context, const double* x) const = 0;
  AppliedScale* scale() const { return scale_.get(); }  // on the device

 private:
  const int64_t n_;
  const Buffer<AppliedScale> scale_;
};

}  // namespace spaid::cuda
