// Small matrices by hand, and checks that several tests here share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/sparse/matrix.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {

inline CscMatrix Make(int64_t n_rows, int64_t n_cols, std::initializer_list<int64_t> col_ptr,
                      std::initializer_list<int32_t> row_idx,
                      std::initializer_list<double> values) {
  CscMatrix m;
  m.n_rows = n_rows;
  m.n_cols = n_cols;
  m.col_ptr.assign(col_ptr);
  m.row_idx.assign(row_idx);
  m.values.assign(values);
  return m;
}

inline void ExpectCanonical(const PatternView& p) {
  ASSERT_EQ(static_cast<int64_t>(p.col_ptr.size()), p.n_cols + 1);
  ASSERT_EQ(p.col_ptr[0], 0);
  ASSERT_EQ(p.col_ptr[static_cast<size_t>(p.n_cols)], p.nnz());
  for (int64_t j = 0; j < p.n_cols; ++j) {
    ASSERT_LE(p.col_ptr[static_cast<size_t>(j)], p.col_ptr[static_cast<size_t>(j) + 1]);
    int64_t previous = -1;
    for (const int32_t i : p.column(j)) {
      ASSERT_GT(i, previous) << "column " << j;
      ASSERT_LT(i, p.n_rows) << "column " << j;
      previous = i;
    }
  }
}

// Each entry of `of` a dense block of `size` x `size` random values: columns of a node have the
// same rows.
inline CscMatrix OfNodes(const PatternView& of, int size, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a{.n_rows = of.n_rows * size,
              .n_cols = of.n_cols * size,
              .col_ptr = {0},
              .row_idx = {},
              .values = {}};
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (const int32_t node : of.column(j / size)) {
      for (int k = 0; k < size; ++k) {
        a.row_idx.push_back(node * size + k);
        a.values.push_back(random.Uniform(-1, 1));
      }
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

// About `mean` entries a column in random rows, each ±2^e, e uniform in [-range, range); columns
// may be empty. A diagonal where asked for, of the same kind.
inline CscMatrix RandomSparse(int64_t n, double mean, double range, bool diagonal, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  std::vector<int32_t> rows;
  for (int64_t j = 0; j < n; ++j) {
    rows.clear();
    if (diagonal) rows.push_back(static_cast<int32_t>(j));
    const int64_t count = random.Below(static_cast<int64_t>(2 * mean) + 1);
    for (int64_t k = 0; k < count; ++k) rows.push_back(static_cast<int32_t>(random.Below(n)));
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    for (const int32_t i : rows) {
      a.row_idx.push_back(i);
      const double size = std::exp2(random.Uniform(-range, range));
      a.values.push_back(random.Uniform() < 0.5 ? size : -size);
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

inline std::vector<int32_t> RandomPermutation(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t k = n - 1; k > 0; --k) {
    std::swap(order[static_cast<size_t>(k)], order[static_cast<size_t>(random.Below(k + 1))]);
  }
  return order;
}

// use(i, j, v) for each entry.
template <class Use>
void ForEntries(const CscView& a, const Use& use) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (size_t p = 0; p < a.column(j).size(); ++p) use(a.column(j)[p], j, a.column_values(j)[p]);
  }
}

template <class T>
std::vector<T> Copy(const Array<T>& a) {
  return std::vector<T>(a.begin(), a.end());
}

}  // namespace spaid::kernels
