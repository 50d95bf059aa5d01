// The products that the methods form, a closed list: y = A x alone, with the product of y with
// another vector, or with that of y with itself besides; of 1, 2 or 4 interleaved columns (sums.h).
// For .cu files.
#pragma once

#include <variant>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/bicgstab.h"
#include "kernels/krylov/cuda/cg.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/solve_state.h"

namespace spaid::cuda {

// The scalar that a method takes from the sums of a product.
enum class Scalar : int32_t {
  kNone,
  kCgRho,          // wᵀy of y = M r, w = r
  kCgAlpha,        // wᵀy of y = A p, w = p
  kBicgstabAlpha,  // wᵀy and yᵀy of y = A M p, w: the shadow residual
  kBicgstabOmega,  // wᵀy and yᵀy of y = A M s, w = s
};

// Sets the scalar from wᵀy and yᵀy. Out of line: all threads of a product have the registers that
// its longest path needs.
static __device__ __noinline__ void Take(SolveState& state, Scalar scalar, double wy, double yy) {
  switch (scalar) {
    case Scalar::kNone:
      return;
    case Scalar::kCgRho:
      return cg::TakeRho(state, wy);
    case Scalar::kCgAlpha:
      return cg::TakeAlpha(state, wy);
    case Scalar::kBicgstabAlpha:
      return bicgstab::TakeAlpha(state, wy, yy);
    case Scalar::kBicgstabOmega:
      return bicgstab::TakeOmega(state, wy, yy);
  }
}

// Epilogue (product.h) with kDots sums: none, wᵀy, or wᵀy and yᵀy. Without states no column is
// skipped.
template <int kColumns, int kDots>
struct ProductEnd : Running<kColumns> {
  static constexpr int kSums = kDots > 0 ? kDots : 1;
  const double* w = nullptr;
  Scalar scalar = Scalar::kNone;
  uint32_t wanted = ~0u;  // columns, a bit each

  __device__ bool Skip() const {
    if constexpr (kDots > 0) {
      return Running<kColumns>::Skip();
    } else {
      if ((wanted >> Column<kColumns>() & 1) == 0) return true;
      return this->states != nullptr && Running<kColumns>::Skip();
    }
  }
  __device__ void Row(int64_t at, double y, double (&sums)[kSums]) const {
    if constexpr (kDots > 0) sums[0] = fma(w[at], y, sums[0]);
    if constexpr (kDots > 1) sums[1] = fma(y, y, sums[1]);
  }
  __device__ void Finish(double (&sums)[kColumns][kSums]) const {
    if constexpr (kDots > 0) {
      SumGrid(sums, this->space, [this](const double(&total)[kSums]) {
        if (!Skip()) Take(this->state(), scalar, total[0], total[kSums - 1]);
      });
    }
  }
};

using AnyProductEnd = std::variant<ProductEnd<1, 0>, ProductEnd<1, 1>, ProductEnd<1, 2>,
                                   ProductEnd<2, 0>, ProductEnd<2, 1>, ProductEnd<2, 2>,
                                   ProductEnd<4, 0>, ProductEnd<4, 1>, ProductEnd<4, 2>>;

// y = A x on the context's stream; x and y on the device, of the end's columns each. A is not a
// diagonal.
void Product(const Context& context, const Operator& op, const double* x, double* y,
             const AnyProductEnd& end);

// The same of what is no matrix, with vectors for as many columns.
void Product(const Context& context, const Applied& a, const double* x, double* y,
             const AnyProductEnd& end);

// LaunchProduct (product.h, node_product.h), compiled once for each layout.
void Product(const Branch& branch, const Csr<double>& a, const double* x, double* y,
             const AnyProductEnd& end);
void Product(const Branch& branch, const Csr<float>& a, const double* x, double* y,
             const AnyProductEnd& end);
void Product(const Branch& branch, const Dia<double>& a, const double* x, double* y,
             const AnyProductEnd& end);
void Product(const Branch& branch, const Dia<float>& a, const double* x, double* y,
             const AnyProductEnd& end);
void Product(const Branch& branch, const Bsr<double>& a, const double* x, double* y,
             const AnyProductEnd& end);
void Product(const Branch& branch, const Bsr<float>& a, const double* x, double* y,
             const AnyProductEnd& end);

}  // namespace spaid::cuda
