// Dynamic shared memory beyond 48 KB, which a kernel has to be allowed.
#pragma once

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// Before every launch of `kernel` with so many bytes of it, where they differ from launch to
// launch. The allowance is the kernel's on the device, for all contexts and threads: it is set to
// the most that there is, as another context might set a smaller one before this one's launch.
// Throws where a block of the context's device cannot have that many.
template <class Kernel>
void AllowSharedMemory(const Context& context, Kernel kernel, int bytes) {
  cudaFuncAttributes attributes{};
  Check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxDynamicSharedSizeBytes >= bytes) return;
  int most = 0;
  Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
        "cudaDeviceGetAttribute");
  most -= static_cast<int>(attributes.sharedSizeBytes);
  // More than there is: for the error that says so.
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most >= bytes ? most : bytes),
        "cudaFuncSetAttribute");
}

}  // namespace spaid::cuda
