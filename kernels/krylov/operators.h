// The operators of the Krylov methods: a sparse matrix by rows, and a diagonal.
//
//   auto op = CsrOperator::FromColumns(a, context);  // a by columns; borrowed where symmetric
//   op->Apply(x, y, threads);                        // y = A x
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "kernels/krylov/krylov.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// A x with A by rows; each row is summed in a fixed order, so that results do not depend on
// `threads`. Rows are cut into blocks of equal work (entries + rows). Immutable; thread-safe.
class CsrOperator final : public LinearOperator {
 public:
  // `a`: square, canonical, by columns. Where A = Aᵀ entry by entry, its columns are its rows: the
  // arrays are borrowed and must outlive this; otherwise they are transposed into an own copy
  // (scratch: kernels/sparse/transpose.h). Runs on context.threads, with the same result for any
  // number. Errors: stop statuses.
  static Result<CsrOperator> FromColumns(const CscView& a, const Context& context);
  // The same on the calling thread, without a stop.
  static CsrOperator FromColumns(const CscView& a);
  // `rows`: row j of the operator as column j. Borrowed: must outlive this; or taken over. The same
  // with any number of threads.
  static CsrOperator FromRows(const CscView& rows, int threads = 1);
  static CsrOperator FromRows(CscMatrix&& rows, int threads = 1);

  CsrOperator(CsrOperator&&) = default;
  CsrOperator& operator=(CsrOperator&&) = default;

  int64_t n() const override { return rows_.n_cols; }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override;
  int64_t bytes_per_apply() const override;
  // Bytes this object holds; borrowed arrays do not count.
  int64_t host_bytes() const;
  // Both figures for an operator of `a` that is still to be made; the second is an upper bound.
  static int64_t BytesPerApply(const CscView& a);
  static int64_t HostBytes(const CscView& a);
  bool borrows() const { return owned_.col_ptr.empty(); }
  const CscView& rows() const { return rows_; }  // column j of this view is row j of A

 private:
  friend class CsrFloatOperator;
  CsrOperator() = default;
  void CutIntoBlocks(int threads);
  CscMatrix owned_;  // by rows; empty where the arrays are borrowed
  CscView rows_;
  Array<uint8_t> runs_;  // of rows with the same columns; empty: there are few
  std::vector<int64_t> block_begin_;
};

// y = Gᵀ (G x): M = GᵀG of FSAI, as two products by rows. Deterministic for any number of threads
// as its factors are. Immutable but for spare vectors; thread-safe.
class FactoredOperator final : public LinearOperator {
 public:
  // `g_rows`: square, canonical, row i of G as column i; borrowed, must outlive this. Its transpose
  // is made on context.threads. Errors: stop statuses.
  static Result<FactoredOperator> FromRows(const CscView& g_rows, const Context& context);
  FactoredOperator(std::shared_ptr<const LinearOperator> g,
                   std::shared_ptr<const LinearOperator> transposed)
      : g_(std::move(g)), transposed_(std::move(transposed)), spare_(std::make_unique<Spare>()) {}

  FactoredOperator(FactoredOperator&&) = default;
  FactoredOperator& operator=(FactoredOperator&&) = default;

  int64_t n() const override { return g_->n(); }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override;
  int64_t bytes_per_apply() const override {
    return g_->bytes_per_apply() + transposed_->bytes_per_apply();
  }
  // Bytes this object holds, with those of factors that FromRows has made; borrowed arrays do not
  // count.
  int64_t host_bytes() const;

 private:
  // Vectors for G x: one for each application that is under way.
  struct Spare {
    std::mutex mutex;
    std::vector<Array<double>> vectors;
  };

  std::shared_ptr<const LinearOperator> g_, transposed_;
  int64_t own_bytes_ = 0;  // bytes of those that FromRows made
  std::unique_ptr<Spare> spare_;
};

// A CsrOperator with values stored in fp32; arithmetic is fp64. Borrows all but the values from
// `of`. Immutable; thread-safe.
class CsrFloatOperator final : public LinearOperator {
 public:
  // Values beyond the range of fp32 become infinities, or lose bits: CheckFitsFloat. Runs on so
  // many threads.
  CsrFloatOperator(const CsrOperator& of, int threads);
  int64_t n() const override { return of_.n(); }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override;
  int64_t bytes_per_apply() const override;

 private:
  const CsrOperator& of_;
  Array<float> values_;
};

// Whether the values of `m`, by columns or by rows, can be stored in fp32 without leaving its
// range: each is finite there, and no column (row) with entries has them all under its smallest
// normal number. Errors: FAILED_PRECONDITION/FLOAT32_OVERFLOW, /FLOAT32_UNDERFLOW, with the first
// column (row), which `what` names. O(nnz) on so many threads.
Status CheckFitsFloat(const CscView& m, const char* what, int threads);

// Whether each value is 0 or a normal number of fp32: then the check above finds nothing.
bool AllFitFloat(std::span<const double> values, int threads);

// y_i = d_i x_i. `diagonal` is borrowed. Immutable; thread-safe.
class DiagonalOperator final : public LinearOperator {
 public:
  explicit DiagonalOperator(std::span<const double> diagonal) : diagonal_(diagonal) {}
  int64_t n() const override { return static_cast<int64_t>(diagonal_.size()); }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override;
  int64_t bytes_per_apply() const override { return 24 * n(); }
  std::span<const double> diagonal() const { return diagonal_; }

 private:
  std::span<const double> diagonal_;
};

// y = A x with A by columns as they are, on one thread: for a product or two, where rows are not
// worth making. `a` is borrowed: square, canonical. Immutable; thread-safe.
class ColumnOperator final : public LinearOperator {
 public:
  explicit ColumnOperator(const CscView& a) : a_(a) {}
  int64_t n() const override { return a_.n_cols; }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override;
  int64_t bytes_per_apply() const override;

 private:
  CscView a_;
};

// True where a_ij == a_ji for every stored entry, pattern included. `a`: square, canonical. A
// binary search for each entry under the diagonal, on context.threads; leaves soon after a
// difference. Errors: stop statuses.
Result<bool> IsExactlySymmetric(const CscView& a, const Context& context);

}  // namespace spaid::kernels
