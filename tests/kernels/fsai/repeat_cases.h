// Matrices whose rows repeat, and some whose do not: for the tests of rows of G that are copied.
#pragma once

#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {

struct RepeatCase {
  const char* name;
  CscMatrix a;
  double copied;  // share of the rows that is, at the least; 0: none
};

// a(i, j) and a(j, i) += by.
inline void Change(CscMatrix& a, int64_t i, int64_t j, double by) {
  for (const auto& [row, column] : {std::pair{i, j}, {j, i}}) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(column)];
         p < a.col_ptr[static_cast<size_t>(column) + 1]; ++p) {
      if (a.row_idx[static_cast<size_t>(p)] == row) a.values[static_cast<size_t>(p)] += by;
    }
    if (i == j) return;
  }
}

// Ones on the diagonal, off(i) at (i, i + 1) and (i + 1, i).
template <class Off>
CscMatrix Tridiagonal(int64_t n, const Off& off) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    if (j > 0) {
      a.row_idx.push_back(static_cast<int32_t>(j - 1));
      a.values.push_back(off(j - 1));
    }
    a.row_idx.push_back(static_cast<int32_t>(j));
    a.values.push_back(1);
    if (j + 1 < n) {
      a.row_idx.push_back(static_cast<int32_t>(j + 1));
      a.values.push_back(off(j));
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

// One of two values, by a coin for each pair: rows of four kinds, in any order.
inline CscMatrix Coins(int64_t n) {
  return Tridiagonal(n, [](int64_t i) {
    const uint64_t x = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    return ((x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u) >> 63 == 0 ? -0.25 : -0.375;
  });
}

// A cycle: no row is at a boundary but by its number.
inline CscMatrix Cycle(int64_t n) {
  oracle::Dense d(n, n);
  for (int64_t i = 0; i < n; ++i) {
    d(i, i) = 2.5;
    d(i, (i + 1) % n) = d((i + 1) % n, i) = -1;
    d(i, (i + 7) % n) = d((i + 7) % n, i) = -0.125;
  }
  return oracle::FromDense(d);
}

// The coefficients of rows from n / 2 on are four times those before.
inline CscMatrix TwoBlocks(CscMatrix a) {
  oracle::Vector x(static_cast<size_t>(a.n_cols), 1.0);
  for (size_t i = x.size() / 2; i < x.size(); ++i) x[i] = 2;
  return Scaled(a, x);
}

inline std::vector<RepeatCase> RepeatCases() {
  std::vector<RepeatCase> all;
  all.push_back({"7 points", bench::ConvectionDiffusion(22, 0), 0.7});
  all.push_back({"27 points", bench::Laplacian27(18), 0.7});
  all.push_back({"elasticity", bench::Elasticity(12), 0.4});
  all.push_back({"9 points", bench::Anisotropic(90, 1e-3, std::numbers::pi / 8), 0.6});
  all.push_back({"along x", bench::Anisotropic(100, 1e-4, 0), 0.3});
  CscMatrix changed = bench::ConvectionDiffusion(22, 0);
  Change(changed, 5000, 5000, 0.5);
  Change(changed, 7000, 7001, -0.25);
  all.push_back({"two entries changed", std::move(changed), 0.6});
  all.push_back({"two blocks", TwoBlocks(bench::ConvectionDiffusion(22, 0)), 0.5});
  all.push_back({"cycle", Cycle(700), 0.8});
  all.push_back({"one kind, not definite", Tridiagonal(500, [](int64_t) { return -0.9; }), 0});
  all.push_back(
      {"permuted", bench::PermuteNodes(bench::ConvectionDiffusion(14, 0), 1, 14 * 14 * 14), 0});
  all.push_back({"varying", bench::WithVaryingCoefficients(bench::ConvectionDiffusion(12, 0)), 0});
  all.push_back({"random", oracle::RandomSpd(300, 6, 5), 0});
  return all;
}

// Tril(A), and of each fifth row the diagonal alone.
inline Pattern UnevenStart(const CscMatrix& a) {
  Pattern initial;
  initial.n_rows = initial.n_cols = a.n_cols;
  initial.col_ptr.push_back(0);
  for (int64_t i = 0; i < a.n_cols; ++i) {
    for (const int32_t j : a.pattern().column(i)) {
      if (j <= i && (j == i || i % 5 != 0)) initial.row_idx.push_back(j);
    }
    initial.col_ptr.push_back(initial.nnz());
  }
  return initial;
}

inline void ExpectSameFigures(const FsaiResult& x, const FsaiResult& y, const std::string& what) {
  ExpectSame(x, y, what);
  EXPECT_EQ(x.quality.not_spd_rows, y.quality.not_spd_rows) << what;
  EXPECT_EQ(x.quality.first_not_spd, y.quality.first_not_spd) << what;
  EXPECT_EQ(x.quality.converged_rows, y.quality.converged_rows) << what;
  EXPECT_EQ(x.quality.nnz_row_max, y.quality.nnz_row_max) << what;
}

}  // namespace spaid::kernels
