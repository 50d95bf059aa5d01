// Shared by tests of the cycle on a CUDA device and of the set-up there.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/krylov/cuda/operator_on_device.h"
#include "tests/kernels/base/gpu_context.h"

namespace spaid::kernels {

// z = M r on M's device; r and z have n values each, or those of `columns` vectors, one after the
// other, which go through M together.
inline std::vector<double> AppliedThere(const CudaOperator& m, const std::vector<double>& r,
                                        int columns = 1) {
  std::vector<double> interleaved(r.size()), z(r.size(), -1);
  const size_t n = r.size() / static_cast<size_t>(columns);
  const auto at = [&](size_t k) { return k % n * static_cast<size_t>(columns) + k / n; };
  for (size_t k = 0; k < r.size(); ++k) interleaved[at(k)] = r[k];
  const auto lock = m.device()->Lock();
  const Status status = cuda::Guard(*m.device(), [&](cuda::Context& context) {
    const auto size = static_cast<int64_t>(r.size());
    const cuda::Buffer<double> from(context, size), to(context, size);
    from.CopyIn(interleaved.data(), size);
    const cuda::Operator& op = *cuda::There(m).op;
    if (columns == 1) {
      cuda::Apply(context, op, from.get(), to.get());
    } else {
      const cuda::Operator wide =
          std::get<std::unique_ptr<const cuda::Applied>>(op)->ForColumns(columns);
      cuda::Apply(context, wide, from.get(), to.get());
      context.Synchronize();
    }
    to.CopyOut(interleaved.data(), size);
    context.Synchronize();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  for (size_t k = 0; k < z.size(); ++k) z[k] = interleaved[at(k)];
  return z;
}

}  // namespace spaid::kernels
