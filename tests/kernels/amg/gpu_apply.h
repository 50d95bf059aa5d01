// Shared by tests of the cycle on a CUDA device and of the set-up there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/krylov/cuda/operator_on_device.h"
#include "tests/kernels/base/gpu_context.h"

namespace spaid::kernels {

// z = M r on M's device, of n values as r is.
inline std::vector<double> AppliedThere(const CudaOperator& m, const std::vector<double>& r) {
  std::vector<double> z(r.size(), -1);
  const auto lock = m.device()->Lock();
  const Status status = cuda::Guard(*m.device(), [&](cuda::Context& context) {
    const auto n = static_cast<int64_t>(r.size());
    const cuda::Buffer<double> from(context, n), to(context, n);
    from.CopyIn(r.data(), n);
    cuda::Apply(context, *cuda::There(m).op, from.get(), to.get());
    to.CopyOut(z.data(), n);
    context.Synchronize();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return z;
}

}  // namespace spaid::kernels
