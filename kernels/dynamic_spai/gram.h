// AᵀA for the growth of dynamic SPAI. Internal to this room, to kernels/mpi and to the tests.
//
// With columns of A scaled to unit length, Â = A D^(−1/2), B̂ = ÂᵀÂ: growth of column k of M is that
// of row n + k of [B̂, −Âᵀ], of n rows and 2 n columns (kernels/fsai/row_growth.h, least squares).
// Columns of B̂ are made one by one, each the sum of the rows of Â that column j of A has entries
// in, in ascending order: so B̂ is symmetric bit for bit, and the same for any number of threads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/fsai/row_growth.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct GramMatrix {
  CscMatrix columns;       // [B̂, −Âᵀ]; the diagonal of B̂ is 1
  Array<double> diagonal;  // 2 n times 1
  int64_t nnz = 0;         // of B̂
  double flops = 0;
};

// Entries of B̂ that memory holds, beside what growth takes.
int64_t GramLimit();

// Entries of each column j of B̂ at j + 1; `rows`: A by rows.
struct GramCounts {
  Array<int64_t> columns;
  int64_t nnz = 0;
};
// Over `limit` in all it ends early: then `nnz` is what was counted so far. Throws std::bad_alloc.
StopReason CountGram(const PatternView& a, const PatternView& rows, int64_t limit,
                     const Context& context, GramCounts& counts);

// The longest row of A, the first of them, and Σ over rows of their squared lengths, a bound on
// nnz(B̂); the square of the longest one alone is there for certain.
struct RowLengths {
  int64_t longest = 0, row = -1;
  double squares = 0;
};
RowLengths CountRows(const PatternView& a);

// `a` canonical, square, of at least one column. Reports progress in columns, polls the stop token
// per batch of columns. Errors: FAILED_PRECONDITION/ZERO_COLUMN, where all values of a column are
// zero (index: the first); RESOURCE_EXHAUSTED/GRAM_TOO_LARGE where B̂ would have more than `limit`
// entries (index: the longest row of A), before they are made; stop statuses. Throws
// std::bad_alloc.
Result<GramMatrix> MakeGram(const CscView& a, int64_t limit, const Context& context);

// Brings the values of a column of A to norm 1, in two steps, of which the first is a power of two:
// 1 / ‖A e_j‖₂ itself may be out of range.
struct UnitScale {
  double power = 0, rest = 0;
  double operator()(double v) const { return v * power * rest; }
};
// One for each column, zeros for one without entries. Takes columns none of which is all zeros.
Array<UnitScale> FindScales(const CscView& a, int threads);

// The same [B̂, −Âᵀ] from −Âᵀ, which goes there: all of it, or what a part of A makes, whose columns
// without entries have none in B̂. `a`: square; each of its columns is there whole, and
// so are the rows of −Âᵀ (columns of `minus_rows`) that it has entries in; `scales`: of its
// columns. `lengths`: of the whole A, for the message. Errors and progress: those of MakeGram but
// for ZERO_COLUMN.
Result<GramMatrix> MakeGramOf(const CscView& a, std::span<const UnitScale> scales,
                              CscMatrix minus_rows, const RowLengths& lengths, int64_t limit,
                              const Context& context);

// Columns of [B̂, −Âᵀ] as they are asked for, bit for bit those of MakeGram, which are kept. `a`
// canonical and square; `rows`: it by rows; both borrowed. Where `a` has no values it is taken for
// a diffusion problem on its pattern, with coefficients that vary from place to place: off the
// diagonal −0.5 to −1.5, the same for (i, j) and (j, i), and in the diagonal their number. Throws
// std::bad_alloc. Not thread-safe; O(n) to make.
class GramColumns final : public GrowthColumns {
 public:
  GramColumns(const CscView& a, const PatternView& rows, double limit);
  ~GramColumns() override;

  int64_t n_rows() const override { return a_.n_cols; }
  // Empty from the first column of B̂ on whose products would pass `limit`.
  GrowthColumn Column(int64_t j) override;

  // That all columns so far took, about: an index looked at is one.
  double steps() const { return steps_; }
  bool passed() const { return passed_; }

 private:
  struct Made {
    std::vector<int32_t> rows;
    std::vector<double> values;
  };
  struct State;
  double Scaled(int64_t q, int64_t j);
  GrowthColumn Row(int64_t l);

  const CscView a_;
  const PatternView rows_;
  const double limit_;
  double steps_ = 0;
  bool passed_ = false;
  std::deque<Made> made_;
  std::deque<std::vector<double>> made_rows_;
  std::unique_ptr<State> state_;
};

}  // namespace spaid::kernels
