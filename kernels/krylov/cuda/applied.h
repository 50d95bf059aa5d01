// An operator that is no matrix, but work of several launches: a cycle of multigrid.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// Has vectors of its own, so that one application at a time runs. Belongs to one context.
class Applied {
 public:
  Applied(Context& context, int64_t n) : n_(n), runs_(context, 1) {}
  virtual ~Applied() = default;
  Applied(const Applied&) = delete;
  Applied& operator=(const Applied&) = delete;

  int64_t n() const { return n_; }
  // That must move at the least.
  virtual int64_t bytes_per_product() const = 0;
  // Launches y = M x on the context's stream, as a graph may capture it; where *runs() is 0 when
  // the launches run, they do nothing. x and y are on the device, and no memory of this.
  virtual void Launch(const Context& context, const double* x, double* y) const = 0;
  int32_t* runs() const { return runs_.get(); }  // on the device; set before each application

 private:
  const int64_t n_;
  Buffer<int32_t> runs_;
};

}  // namespace spaid::cuda
