// libspaid_cuda.so with other variants of kernels than the measured ones.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/base/cuda_backend.h"

namespace spaid::kernels {

// Contexts that are opened through it have the variants that it has then. For machines with a
// device.
class ForcedVariants final : public CudaBackend {
 public:
  explicit ForcedVariants(const CudaVariants& of) : variants(of) {}
  CudaListing ListDevices() override { return ListCudaDevices().backend->ListDevices(); }
  Result<std::unique_ptr<CudaContext>> OpenContext(const DeviceInfo& gpu, int64_t memory_limit,
                                                   CudaOnThreads on_threads,
                                                   const CudaVariants*) override {
    return ListCudaDevices().backend->OpenContext(gpu, memory_limit, std::move(on_threads),
                                                  &variants);
  }

  CudaVariants variants;
};

}  // namespace spaid::kernels
