// The levels of a hierarchy as they lie on a device, and the cycle over them. For .cu files.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/amg/cuda/few_rows.h"
#include "kernels/amg/smoothers.h"
#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/applied.h"
#include "kernels/krylov/cuda/bsr.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/dia.h"

namespace spaid::cuda {

// As kernels::CycleLevel has it on the host.
template <class Value>
struct LevelOnDevice {
  using Layout = std::variant<std::monostate, Csr<Value>, Dia<Value>, Bsr<Value>, FewRows<Value>>;

  int64_t n = 0;
  Layout a, p, r, s, st;
  kernels::SmootherKind kind = kernels::SmootherKind::kL1Jacobi;
  Buffer<Value> diagonal;
  std::vector<double> coefficients;
  double rho = 1, omega = 1;
};

// As kernels::CycleParts.
template <class Value>
struct CycleOnDevice {
  int64_t bytes = 0;  // that one application to one column moves at the least
  int pre = 1, post = 1, visits = 1;
  Buffer<Value> inverse;  // by rows; empty: the last level is smoothed
  Buffer<double> in, out;
  std::vector<LevelOnDevice<Value>> levels;
};

// The cycle with vectors for so many columns. Throws CudaFault::kOutOfMemory. Value: float, double.
template <class Value>
std::unique_ptr<const Applied> MakeAppliedCycle(Context& context,
                                                std::shared_ptr<const CycleOnDevice<Value>> of,
                                                int columns);

}  // namespace spaid::cuda
