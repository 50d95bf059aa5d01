// CG and BiCGSTAB driven by the host, an iteration and a wait at a time, for preconditioners that
// are no operators of kernels/krylov/cuda. The products with A and the sums are ours, the same as
// in our own solves.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/csr.h"

namespace spaid::kernels::bench {

// z = M r on the context's stream, both on the device.
using Precondition = std::function<void(const double* r, double* z)>;

struct LoopResult {
  int64_t iterations = 0;
  // ‖b − A x‖ / ‖b‖, formed anew.
  double relative_residual = 1;
  double ms = 0;  // by the device's clock, the waits included
};

// `b` on the device; x0 = 0. Ends where the recomputed residual is at most rtol ‖b‖, at
// `max_iterations`, or where the recursion's residual is not finite.
LoopResult CgLoop(cuda::Context& context, const cuda::Csr<double>& a, const Precondition& m,
                  const double* b, double rtol, int64_t max_iterations);
LoopResult BicgstabLoop(cuda::Context& context, const cuda::Csr<double>& a, const Precondition& m,
                        const double* b, double rtol, int64_t max_iterations);

}  // namespace spaid::kernels::bench
