// LU factors of a dense matrix as an operator of the Krylov methods.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dense/lu.h"
#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

// Applies y = A⁻¹ x by LU factors of A, which it borrows. Immutable; thread-safe.
class LuOperator final : public LinearOperator {
 public:
  explicit LuOperator(const DenseLu& lu) : lu_(lu) {}
  int64_t n() const override { return lu_.n(); }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override {
    lu_.Solve(x, y, threads);
  }
  int64_t bytes_per_apply() const override { return lu_.bytes(); }

 private:
  const DenseLu& lu_;
};

}  // namespace spaid::kernels
