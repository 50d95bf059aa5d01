// Products with a matrix that lies over the ranks alone, for what rank 0 does with it by itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/krylov/krylov.h"
#include "kernels/mpi/ranks_device.h"

namespace spaid::kernels {

// Borrows both. Thread-safe. Each product is an order to the ranks, which waits for what they do;
// one that fails is NaN throughout.
class OverRanksOperator final : public LinearOperator {
 public:
  OverRanksOperator(RanksDevice& ranks, const OverRanks& a, int64_t n)
      : ranks_(ranks), a_(a), n_(n) {}
  int64_t n() const override { return n_; }
  void Apply(std::span<const double> x, std::span<double> y, int /*threads*/) const override {
    if (ranks_.Multiply(a_, x, y).ok()) return;
    std::ranges::fill(y, std::numeric_limits<double>::quiet_NaN());
  }
  int64_t bytes_per_apply() const override {
    return a_.nnz() * static_cast<int64_t>(sizeof(int32_t) + sizeof(double));
  }

 private:
  RanksDevice& ranks_;
  const OverRanks& a_;
  const int64_t n_;
};

}  // namespace spaid::kernels
