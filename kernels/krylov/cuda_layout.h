// What a vector is multiplied by on a CUDA device, as libspaid_cuda.so lays it out: a copy of a
// matrix or a diagonal. See kernels/base/cuda_backend.h for errors and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/krylov/cuda_solve.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/cuda_matrix.h"

namespace spaid::kernels {

class CudaLayout;

// Right-hand sides, each a column: 1, 2 or 4, no more than MostColumns says. Each has its own
// scalars, and what it gives does not depend on the others, bit for bit.
struct CudaSolveRequest {
  Method method = Method::kCg;
  // The preconditioner: none, `m`, or then · m, of which neither is a diagonal.
  const CudaLayout* m = nullptr;
  const CudaLayout* then = nullptr;
  int32_t restart = 1;                     // of GMRES, at most n
  std::span<const double* const> b;        // where each is
  std::span<const double* const> x0 = {};  // initial guesses: none, or of a column null: zero
};

class CudaLayout {
 public:
  virtual ~CudaLayout() = default;

  // The values of `a`, which has the pattern that this was made of, in place of its own. Not for
  // diagonals. Errors besides: INVALID_ARGUMENT/PLAN_MISMATCH.
  virtual Status Update(const CudaMatrix& a) = 0;
  // y = A x, both on the host.
  virtual Status Apply(std::span<const double> x, std::span<double> y) const = 0;
  // The median of so many products (1 or more), each alone, in milliseconds by the device's clock.
  virtual Result<double> TimeProducts(int products) const = 0;
  virtual int64_t BytesPerProduct() const = 0;  // that one must move at the least

  // Right-hand sides that one solve with this as A takes, at most: 1 of systems whose solves live
  // on the chip, and by GMRES. Does not change as long as the layouts stay; `m` may be null.
  virtual int MostColumns(const CudaLayout* m, Method method) const = 0;
  // With this, which is no diagonal, as A. All layouts must stay as long as the solve.
  virtual Result<std::unique_ptr<CudaSolve>> OpenSolve(const CudaSolveRequest& request) const = 0;
};

}  // namespace spaid::kernels
