// Shared by tests of the rooms that call the code of libspaid_cuda.so, which they link.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "kernels/base/cuda/device.h"
#include "kernels/base/device.h"
#include "kernels/sparse/built_on_device.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// The first device, under a limit of memory.
inline Result<std::shared_ptr<CudaDevice>> OpenGpu(
    int64_t memory_limit = 0, const cuda::Variants& variants = cuda::tuning::kVariants) {
  return cuda::OpenDevice(ListCudaDevices().devices[0], memory_limit, variants);
}

// The device's context, current for this thread.
inline cuda::Context& ContextOf(CudaDevice& device) {
  cuda::Context& context = static_cast<cuda::Device&>(device).context();
  context.Enter();
  return context;
}

// Bytes in use, whoever has the lock.
inline int64_t UsedNow(CudaDevice& device) { return ContextOf(device).arena->used(); }

inline CscMatrix Download(const BuiltOnDevice& built) {
  CscMatrix out;
  out.n_rows = out.n_cols = built.n;
  out.col_ptr.resize(static_cast<size_t>(built.n) + 1);
  out.row_idx.resize(static_cast<size_t>(built.nnz));
  out.values.resize(static_cast<size_t>(built.nnz));
  const auto lock = built.device->Lock();
  const auto bytes = [](const auto& array) { return array.size() * sizeof(array[0]); };
  ContextOf(*built.device)
      .Download({{out.col_ptr.data(), built.col_ptr, bytes(out.col_ptr)},
                 {out.row_idx.data(), built.row_idx, bytes(out.row_idx)},
                 {out.values.data(), built.values, bytes(out.values)}});
  return out;
}

}  // namespace spaid::kernels
