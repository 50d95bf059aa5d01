// CG, BiCGSTAB and GMRES(m) on a CUDA device: the same outcomes as krylov.h, by the same judge;
// vectors and scalars stay on the device while they iterate. All of this is libspaid_cuda.so's;
// programs call it by kernels/engine/cuda_library.h.
//
//   auto a_there = CudaOperator::OfMatrix(device, a, /*fp32=*/false, context);
//   auto m_there = CudaOperator::OfDiagonal(device, d, a_there->get());
//   auto result = SolveCuda(**a_there, m_there->get(), a, b, {}, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/built_on_device.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// An operator y = A x, laid out on a device. Immutable; thread-safe.
//
// A large A whose unknowns are scattered (kernels/sparse/reorder.h), so that products would wait
// for the elements of x, lies there in another order of the unknowns (order()), and solves carry
// their vectors there and back. Its preconditioner must lie in the same order: `beside` is A,
// as it lies there, and null for A itself, whose order is then free.
class CudaOperator {
 public:
  // `a`: square, canonical, with values. Uploads it and lays it out for products; `fp32`: values
  // are stored so (arithmetic is fp64 all the same). Errors: stop statuses; those of
  // CudaDevice::Failed.
  static Result<std::shared_ptr<const CudaOperator>> OfMatrix(
      const std::shared_ptr<CudaDevice>& device, const CscView& a, bool fp32,
      const Context& context, const CudaOperator* beside = nullptr);
  // M, or GᵀG as two products, on the device where it was built; takes its lock. Errors: those of
  // CudaDevice::Failed.
  static Result<std::shared_ptr<const CudaOperator>> OfBuilt(const BuiltOnDevice& built, bool fp32,
                                                             const CudaOperator* beside = nullptr);
  // y_i = d_i x_i. Errors: those of CudaDevice::Failed.
  static Result<std::shared_ptr<const CudaOperator>> OfDiagonal(
      const std::shared_ptr<CudaDevice>& device, std::span<const double> diagonal,
      const CudaOperator* beside = nullptr);

  // M = GᵀG, as two products; for a preconditioner. Both by columns, as OfMatrix takes them;
  // errors: those of OfMatrix.
  static Result<std::shared_ptr<const CudaOperator>> OfFactors(
      const std::shared_ptr<CudaDevice>& device, const CscView& g, const CscView& g_transposed,
      bool fp32, const Context& context, const CudaOperator* beside = nullptr);

  // Gives `old`, which OfMatrix made and nobody else holds, the values of `a`, which has its
  // matrix's pattern, in its order; `old` may only be destroyed afterwards. Errors besides those of
  // OfMatrix:
  // INVALID_ARGUMENT/PLAN_MISMATCH where `old` was laid out for A = Aᵀ, and `a` is not symmetric,
  // or where their sizes differ; `old` is unchanged then.
  static Result<std::shared_ptr<const CudaOperator>> WithValues(
      const std::shared_ptr<const CudaOperator>& old, const CscView& a, const Context& context);

  const std::shared_ptr<CudaDevice>& device() const { return device_; }
  int64_t n() const { return n_; }
  int64_t device_bytes() const { return device_bytes_; }  // held
  // Names the order of its unknowns as long as an operator has it; null: their own.
  virtual const void* order() const = 0;

 protected:
  CudaOperator(const std::shared_ptr<CudaDevice>& device, int64_t n) : device_(device), n_(n) {}
  virtual ~CudaOperator() = default;

  std::shared_ptr<CudaDevice> device_;
  int64_t n_;
  int64_t device_bytes_ = 0;
};

// Milliseconds by the host's clock unless said otherwise.
struct SolveCudaTimings {
  double host_to_device_ms = 0;
  double iterate_ms = 0;  // by the device's clock
  double check_ms = 0;    // true residuals
  double device_to_host_ms = 0;
  double bytes = 0;  // SolveFigures::bytes
};

// Right-hand sides that one solve takes, at most: 1 where it runs within shared memory, and with
// GMRES. `m` may be null.
int32_t MostColumns(const CudaOperator& a, const CudaOperator* m, Method method);

// Solves as Solve of krylov.h, with these differences. CG and BiCGSTAB solve right-hand sides in
// blocks of up to four, for which A and M are read once; smaller ones where memory is short. Sums
// are added in another order, and GMRES makes its basis by classical Gram-Schmidt, so that results
// differ from the host's by rounding; they are the same bits in every run, whatever right-hand
// sides are solved together. A stop ends a whole block, and is noticed every ten iterations (twenty
// of a small system) or after some milliseconds. Residuals whose squares leave the range of fp64
// count as 0 or infinite. BASIS_TOO_LARGE refers to the device's memory. `a_on_host`: for the rare
// product there. Holds the device's lock until it ends. Further errors:
// INVALID_ARGUMENT/HOST_ALONE for what HostAlone() names; INVALID_ARGUMENT/PLAN_MISMATCH where `m`
// is not in the order of `a`; those of CudaDevice::Failed.
Result<SolveResult> SolveCuda(const CudaOperator& a, const CudaOperator* m,
                              const CscView& a_on_host, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, SolveCudaTimings* timings = nullptr);

}  // namespace spaid::kernels
