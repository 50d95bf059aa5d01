// CG, BiCGSTAB and GMRES(m) on a CUDA device: the same outcomes as krylov.h, by the same judge;
// vectors and scalars stay on the device while they iterate.
//
//   auto a_there = CudaOperator::OfMatrix(device, a, context);
//   auto m_there = CudaOperator::OfDiagonal(device, d);
//   auto result = SolveCuda(**a_there, m_there->get(), a, b, {}, options, context);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/krylov/cuda_layout.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// What a vector is multiplied by, on a device. Immutable; thread-safe.
class CudaOperator {
 public:
  // `a`: square, canonical, with values. Uploads it and lays it out for products; `fp32`: values
  // are stored so (arithmetic is fp64 all the same). Errors: stop statuses; those of
  // cuda_backend.h.
  static Result<std::shared_ptr<const CudaOperator>> OfMatrix(
      const std::shared_ptr<CudaDevice>& device, const CscView& a, bool fp32,
      const Context& context);
  // Of n unknowns: what make() lays out on the device, and, where `then` is not null, after it what
  // then() does (M = GᵀG: G, then Gᵀ). Both are called with the device's lock. Errors: theirs.
  using MakeLayout = std::function<Result<std::unique_ptr<CudaLayout>>()>;
  static Result<std::shared_ptr<const CudaOperator>> Of(const std::shared_ptr<CudaDevice>& device,
                                                        int64_t n, const MakeLayout& make,
                                                        const MakeLayout& then = nullptr);
  // y_i = d_i x_i. Errors: those of cuda_backend.h.
  static Result<std::shared_ptr<const CudaOperator>> OfDiagonal(
      const std::shared_ptr<CudaDevice>& device, std::span<const double> diagonal);

  // M = GᵀG, as two products; for a preconditioner. Both by columns, as OfMatrix takes them;
  // errors: those of OfMatrix.
  static Result<std::shared_ptr<const CudaOperator>> OfFactors(
      const std::shared_ptr<CudaDevice>& device, const CscView& g, const CscView& g_transposed,
      bool fp32, const Context& context);

  // `old`, of OfMatrix and nobody else's, with the values of `a`, which has its matrix's pattern:
  // what is left of `old` is good for nothing but its end. Errors besides those of OfMatrix:
  // INVALID_ARGUMENT/PLAN_MISMATCH where `old` was laid out of a matrix with A = Aᵀ, and `a` is
  // none, or where their sizes differ; `old` is then as it was.
  static Result<std::shared_ptr<const CudaOperator>> WithValues(
      const std::shared_ptr<const CudaOperator>& old, const CscView& a, const Context& context);

  const std::shared_ptr<CudaDevice>& device() const { return device_; }
  int64_t n() const { return n_; }
  int64_t device_bytes() const { return device_bytes_; }  // held
  const CudaLayout& layout() const { return *op_->object; }
  // What is applied after layout(); null: nothing.
  const CudaLayout* then() const { return then_ ? then_->object.get() : nullptr; }

 private:
  using Object = CudaObject<CudaLayout>;
  CudaOperator(const std::shared_ptr<CudaDevice>& device, int64_t n)
      : device_(device), n_(n), op_(std::make_shared<Object>(device)) {}
  // The device's lock is held.
  static Result<std::shared_ptr<CudaOperator>> Make(const std::shared_ptr<CudaDevice>& device,
                                                    int64_t n, const MakeLayout& make,
                                                    const MakeLayout& then);

  const std::shared_ptr<CudaDevice> device_;
  const int64_t n_;
  int64_t device_bytes_ = 0;
  bool symmetric_ = false;      // laid out so
  std::shared_ptr<Object> op_;  // of one operator alone, but while WithValues runs
  std::shared_ptr<Object> then_;
};

// Device bytes of a solve of `n_rhs` right-hand sides, at most: A and, of `nnz_m` entries, M in the
// largest of their layouts, by rows, the scratch of laying one of them out, and the vectors, with
// the basis of GMRES. With as many as one right-hand side needs, all of them are solved, too, in
// smaller blocks.
int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                         const SolveOptions& options);

// Milliseconds by the host's clock unless said otherwise.
struct SolveCudaTimings {
  double host_to_device_ms = 0;
  double iterate_ms = 0;  // by the device's clock
  double check_ms = 0;    // true residuals
  double device_to_host_ms = 0;
  double bytes = 0;  // SolveFigures::bytes
};

// As Solve of krylov.h, but for these: CG and BiCGSTAB solve right-hand sides in blocks of up to
// four, for which A and M are read once, smaller ones where memory is short; sums are added in
// another order, and GMRES makes its basis by classical Gram-Schmidt, so that results differ by
// rounding from the host's, but are the same bits in every run, and whatever right-hand sides are
// solved beside; a stop, of all of a block, is seen every ten iterations, or twenty of a small
// system, or after some milliseconds; residuals whose squares leave the range of fp64 count as 0 or
// infinite; BASIS_TOO_LARGE is of the device's memory. `a_on_host`: for the rare product there.
// Holds the device until it ends. Errors besides: those of cuda_backend.h.
Result<SolveResult> SolveCuda(const CudaOperator& a, const CudaOperator* m,
                              const CscView& a_on_host, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, SolveCudaTimings* timings = nullptr);

}  // namespace spaid::kernels
