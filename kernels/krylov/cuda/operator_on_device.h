// An operator with what it is on its device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/sparse/cuda/reorder.h"

namespace spaid::cuda {

// The only kind of CudaOperator that there is.
struct OperatorOnDevice : kernels::CudaOperator {
  OperatorOnDevice(const std::shared_ptr<kernels::CudaDevice>& device, int64_t n)
      : CudaOperator(device, n) {}
  void SetBytes(int64_t bytes) { device_bytes_ = bytes; }
  const void* order() const override { return unknowns.get(); }

  bool symmetric = false;                        // laid out for A = Aᵀ
  std::shared_ptr<const UnknownOrder> unknowns;  // null: in their own order
  std::shared_ptr<Operator> op;                  // shared only while WithValues runs
  std::shared_ptr<const Operator> then;          // applied after `op`; null: none
};

inline const OperatorOnDevice& There(const kernels::CudaOperator& op) {
  return static_cast<const OperatorOnDevice&>(op);
}

// Makes what is no matrix, of n unknowns in an order (null: their own), on a device.
using MakeApplied =
    std::function<std::unique_ptr<const Applied>(Context& context, const UnknownOrder* order)>;

// Places it beside A; holds the device's lock meanwhile. Errors: those of CudaDevice::Failed, and
// what `make` refuses.
kernels::Result<std::shared_ptr<const kernels::CudaOperator>> PlaceApplied(
    const std::shared_ptr<kernels::CudaDevice>& device, int64_t n,
    const kernels::CudaOperator* beside, const MakeApplied& make);

}  // namespace spaid::cuda
