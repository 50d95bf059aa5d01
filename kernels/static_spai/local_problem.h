// One local least-squares problem of static SPAI in sparse form: Â = A(I, J) D for one column set
// J, with D a diagonal of powers of two that brings each column's norm near 1 (so that nothing
// overflows, and no bit of A changes). Columns of M with the same J share one problem.
//
// Where some columns of J are much longer than all others together (dense columns of A), they are
// compressed: long_columns.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/long_columns.h"

namespace spaid::kernels {

// D, and the dot products of the scaled long columns.
struct ColumnScales {
  Array<double> scale;  // n_cols, powers of two
  Array<LongDot> dots;  // ascending by pair
};
ColumnScales ScaleColumns(const CscView& a, std::span<const LongPair> pairs, int threads);

// [j] is 1 where column j of A has the rows of column j − 1 (the unknowns of one node, say), else
// 0.
Array<uint8_t> FindEqualColumns(const PatternView& a, int threads);

// Sizes of a local problem, from the pattern alone.
struct LocalCounts {
  int64_t n1 = 0;          // |I|
  int64_t rows = 0;        // rows after compression; n1 where nothing was compressed
  int64_t entries = 0;     // entries of Â, after compression
  int64_t gram_pairs = 0;  // Σ over rows c (c + 1) / 2: products of the Gram accumulation

  // The larger of each.
  void TakeLargest(const LocalCounts& other);
};

// At most that of any problem of so many columns of A.
LocalCounts LargestProblem(const PatternView& a, int64_t columns);

// Counts local problems; one per thread.
class LocalCounter {
 public:
  explicit LocalCounter(int64_t n_rows)
      : visits_(static_cast<size_t>(n_rows), 0), rows_(static_cast<size_t>(n_rows) + 1) {}
  LocalCounts Count(const PatternView& a, std::span<const uint8_t> equal_columns,
                    std::span<const int32_t> columns);
  // The compressed columns of the last problem.
  const LongColumns& longs() const { return longs_; }

 private:
  LongColumns longs_;
  UnionSizes unions_;
  std::vector<int32_t> visits_;  // all zero between calls
  Array<int32_t> rows_;          // rows of the last problem; one more than there can be
};

// Â by rows and by columns. Row numbers are local: in order of first appearance over the columns,
// so that Â is a staircase. Valid until the next Assemble.
struct LocalProblem {
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  int64_t n_entries = 0;
  int64_t gram_pairs = 0;  // as in LocalCounts
  // By columns: entries [col_begin[q], col_end[q]) of col_row, col_value.
  const int64_t* col_begin = nullptr;
  const int64_t* col_end = nullptr;
  const int32_t* col_row = nullptr;
  const double* col_value = nullptr;
  // By rows, columns ascending (only after BuildRows).
  const int64_t* row_ptr = nullptr;
  const int32_t* row_col = nullptr;
  const double* row_value = nullptr;
};

// Assembles local problems; one per thread. Grows its buffers when a problem needs it.
class LocalAssembler {
 public:
  explicit LocalAssembler(int64_t n_rows) : marker_(static_cast<size_t>(n_rows), -1) {}

  // Allocates for problems of at most these sizes, so that Assemble does not have to.
  void Reserve(int64_t entries, int64_t columns, int64_t targets);

  // `columns` = J, ascending; `targets`: the rows k whose e_k are the right-hand sides, each an
  // explicit row of the problem. The result has its column form.
  const LocalProblem& Assemble(const CscView& a, const ColumnScales& scales,
                               std::span<const uint8_t> equal_columns,
                               std::span<const int32_t> columns, std::span<const int32_t> targets);
  // Adds the row form to the last problem.
  const LocalProblem& BuildRows();

  // Local row of targets[t]; an empty row where k is not in I.
  int32_t target_row(size_t t) const { return target_row_[t]; }
  // False: k is not in I, so that m_k = 0.
  bool target_reachable(size_t t) const { return count_[static_cast<size_t>(target_row_[t])] > 0; }

  // Upper bound on the bytes held for problems of these sizes.
  static int64_t Bytes(int64_t n, int64_t entries, int64_t columns, int64_t targets);

 private:
  // The long columns: their entries in the rows that there are, then the triangle of the others.
  void AppendLongColumns(const CscView& a, const ColumnScales& scales, const LongColumns& longs,
                         std::span<const int32_t> columns);

  LocalProblem problem_;
  Array<int32_t> marker_;  // local row of a row of A, -1: none; all -1 between calls
  Array<int32_t> rows_;    // row of A of a local row
  Array<int32_t> count_;   // entries of a local row
  Array<int32_t> run_;     // at the first column of a run of columns with equal rows: its length
  Array<int64_t> col_begin_, col_end_;
  Array<int32_t> col_row_, row_col_;
  Array<double> col_value_, row_value_;
  Array<int64_t> row_ptr_;
  Array<int32_t> target_row_;
};

}  // namespace spaid::kernels
