// Matrices whose patterns a plan keeps, and what makes them of one another: the first time whole,
// then, where the patterns of the factors are those of before, their values alone.
//
//   KeptProduct kept;                                             // nothing yet
//   Result<SharedMatrix> c = Multiply(a, b, kept, context);       // fills it in
//   Result<SharedMatrix> again = Multiply(a2, b2, kept, context); // MultiplyOn; the same bits
//
// All by rows: column i of a view is row i. Patterns are told apart by their addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/products.h"

namespace spaid::kernels {

using SharedPattern = std::shared_ptr<const Pattern>;

struct SharedMatrix {
  SharedPattern pattern;  // null: there is no matrix
  Array<double> values;

  int64_t n() const { return pattern == nullptr ? 0 : pattern->n_cols; }  // rows
  int64_t nnz() const { return static_cast<int64_t>(values.size()); }
  operator CscView() const {  // NOLINT
    return pattern == nullptr ? CscView() : CscView{PatternView(*pattern), values};
  }
};

SharedMatrix Share(CscMatrix matrix);

struct KeptProduct {
  SharedPattern left, right, product;
};

// C = A B, as kernels/sparse/products.h. `kept` is brought up to date. Errors: those of Multiply.
Result<SharedMatrix> Multiply(const SharedMatrix& a, const SharedMatrix& b, KeptProduct& kept,
                              const Context& context, RowOrder order = RowOrder::kAscending);
// The same; no matrix, and `kept` as it was, where C is not kept and has more entries than that.
Result<SharedMatrix> MultiplyUpTo(int64_t most_entries, const SharedMatrix& a,
                                  const SharedMatrix& b, KeptProduct& kept, const Context& context,
                                  RowOrder order = RowOrder::kAscending);

struct KeptFilling {
  SharedPattern of, filled;
};

// Gives a square matrix ones on the diagonal in its rows without entries, if it has any: those of
// unknowns that stand for nothing. `kept` is brought up to date.
SharedMatrix FillEmptyRows(SharedMatrix a, KeptFilling& kept);

struct Transposition {
  SharedPattern of, transpose;
  Array<int32_t> from;  // the entry of the matrix that each entry of its transpose is
};
using KeptTranspose = std::shared_ptr<const Transposition>;

// Aᵀ, as kernels/sparse/transpose.h. `kept` (may be null) is brought up to date, below 2^31
// entries; beyond, nothing is kept. Errors: stop statuses; RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<SharedMatrix> Transpose(const SharedMatrix& a, KeptTranspose& kept, const Context& context);

}  // namespace spaid::kernels
