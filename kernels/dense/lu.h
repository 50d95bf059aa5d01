// LU factors of one large dense matrix, by many threads. (Inverses of small ones by the thousand:
// inverse.h.)
//
//   auto lu = DenseLu::Factor(n, [&](int64_t j, double* column) { ... }, context);
//   if (lu.ok()) lu->Solve(b, x, threads);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

// P (R A C) = L U with partial pivoting; R and C, of powers of two, bring the largest elements of
// rows, then of columns, to [1, 2), which costs no digit. Immutable; thread-safe.
class DenseLu {
 public:
  // `fill` sets numbers of A's column j, finite ones, among n zeros; many threads call it, each for
  // other columns. n >= 1. Blocked, right-looking (Golub, Van Loan, Matrix Computations, 3.2.11 and
  // 3.4.1): 2/3 n³ operations, by context.threads; the result is the same for any number, and
  // depends on the instruction set. Takes bytes(), 8 n² or so. Progress in columns. Errors:
  // FAILED_PRECONDITION/SINGULAR_MATRIX at "pivot" with the first column of A that depends on those
  // before it; RESOURCE_EXHAUSTED/OUT_OF_MEMORY; stop statuses.
  static Result<DenseLu> Factor(int64_t n,
                                const std::function<void(int64_t j, double* column)>& fill,
                                const Context& context);
  DenseLu(DenseLu&&) noexcept;
  DenseLu& operator=(DenseLu&&) noexcept;
  ~DenseLu();

  // x = A⁻¹ b, n numbers each, which may be the same ones. 2 n² operations; the result is the same
  // for any number of threads. Throws std::bad_alloc (8 n bytes).
  void Solve(std::span<const double> b, std::span<double> x, int threads) const;

  int64_t n() const { return n_; }
  int64_t bytes() const;
  // Largest element of U over the largest of R A C: partial pivoting keeps it small but for
  // contrived matrices; digits are lost as it grows.
  double growth() const { return growth_; }

 private:
  struct Parts;
  DenseLu(int64_t n, std::unique_ptr<Parts> parts);
  int64_t n_;
  std::unique_ptr<Parts> parts_;
  double growth_ = 0;
};

}  // namespace spaid::kernels
