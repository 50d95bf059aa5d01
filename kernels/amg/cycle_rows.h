// Internal to the room: matrices by rows as the cycle has them, and its passes over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/amg/shared_matrix.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Entries and rows of one block, and from which on a second thread is worth its waking.
inline constexpr int64_t kBlockWork = 16384;
inline constexpr int64_t kSerialWork = 3 * kBlockWork;

template <class Value>
struct Rows {
  int64_t n = 0;
  SharedPattern pattern;
  Array<Value> value;
  Array<uint8_t> runs;         // of rows with the same columns; empty: there are few
  std::vector<int64_t> block;  // first rows of blocks of equal work, and the end

  bool empty() const { return pattern == nullptr; }
  int64_t nnz() const { return static_cast<int64_t>(value.size()); }
  int64_t bytes() const {
    return empty() ? 0
                   : 8 * (n + 1) + static_cast<int64_t>(runs.size()) +
                         nnz() * static_cast<int64_t>(4 + sizeof(Value));
  }
};

// left_i a_ij right_j; an empty factor is ones.
template <class Value>
Rows<Value> LayOut(SharedMatrix from, const Array<double>& left, const Array<double>& right,
                   int threads);

template <class Value>
bool AllFinite(const Rows<Value>& rows, int threads);

template <class Value>
Array<Value> Rounded(const Array<double>& of) {
  return Array<Value>(of.begin(), of.end());
}

// 1 / of, 0 where that is 0.
template <class Value>
Array<Value> Inverse(const Array<Value>& of) {
  Array<Value> inverse(of.size());
  for (size_t i = 0; i < of.size(); ++i) inverse[i] = of[i] != 0 ? 1 / of[i] : 0;
  return inverse;
}

// Over the rows [begin, end): y = A x; y = r - A x, where y may be r.
void Product(const Rows<float>& a, int64_t begin, int64_t end, const float* x, float* y);
void Product(const Rows<double>& a, int64_t begin, int64_t end, const double* x, double* y);
void Residual(const Rows<float>& a, int64_t begin, int64_t end, const float* r, const float* x,
              float* y);
void Residual(const Rows<double>& a, int64_t begin, int64_t end, const double* r, const double* x,
              double* y);

// body(begin, end) over all rows of `a`.
template <class Value, class Body>
void Over(const Rows<Value>& a, int threads, const Body& body) {
  if (threads <= 1 || a.nnz() + a.n < kSerialWork) return body(0, a.n);
  ParallelFor(static_cast<int64_t>(a.block.size()) - 1, 1, threads,
              [&](int64_t begin, int64_t end, int) {
                body(a.block[static_cast<size_t>(begin)], a.block[static_cast<size_t>(end)]);
              });
}

// By columns, of so many, without the factors that LayOut was given.
template <class Value>
CscMatrix Columns(const Rows<Value>& rows, int64_t columns, const Array<Value>& left,
                  const Array<Value>& right);

// All elements, by columns.
template <class Element>
CscMatrix DenseColumns(int64_t rows, int64_t columns, const Element& element) {
  CscMatrix made{.n_rows = rows, .n_cols = columns, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      made.row_idx.push_back(static_cast<int32_t>(i));
      made.values.push_back(element(i, j));
    }
    made.col_ptr.push_back(made.nnz());
  }
  return made;
}

template <class Element>
CscMatrix DiagonalMatrix(int64_t n, const Element& element) {
  CscMatrix made{.n_rows = n, .n_cols = n, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t i = 0; i < n; ++i) {
    made.row_idx.push_back(static_cast<int32_t>(i));
    made.values.push_back(element(i));
    made.col_ptr.push_back(i + 1);
  }
  return made;
}

}  // namespace spaid::kernels
