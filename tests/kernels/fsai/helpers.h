// Shared by the tests of FSAI.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/fsai/fsai.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {

using oracle::FromRows;

inline Context Threads(int threads) {
  return {.stop = {}, .progress = nullptr, .threads = threads};
}

// k_max, s, epsilon.
inline FsaiOptions Grow(int k_max, int s = 1, double epsilon = 0) {
  FsaiOptions options;
  options.k_max = k_max;
  options.s = s;
  options.epsilon = epsilon;
  return options;
}

inline FsaiOptions Static(int power = 1) {
  FsaiOptions options;
  options.adaptive = false;
  options.power = power;
  return options;
}

// A failure is a test failure.
inline FsaiResult Build(const CscView& a, const FsaiOptions& options, int threads = 2,
                        const PatternView* initial = nullptr) {
  auto result = BuildFsai(a, initial, options, Threads(threads));
  EXPECT_TRUE(result.ok()) << result.status().reason() << ": " << result.status().message();
  if (!result.ok()) return {};
  return std::move(result).value();
}

// Row i of G, dense.
inline oracle::Vector Row(const FsaiResult& g, int64_t i) {
  oracle::Vector row(static_cast<size_t>(g.g_rows.n_cols), 0.0);
  for (int64_t p = g.g_rows.col_ptr[static_cast<size_t>(i)];
       p < g.g_rows.col_ptr[static_cast<size_t>(i) + 1]; ++p) {
    row[static_cast<size_t>(g.g_rows.row_idx[static_cast<size_t>(p)])] =
        g.g_rows.values[static_cast<size_t>(p)];
  }
  return row;
}

// x_i a_ij x_j for a diagonal x.
inline CscMatrix Scaled(const CscMatrix& a, const oracle::Vector& x) {
  CscMatrix scaled = a;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      const auto at = static_cast<size_t>(p);
      scaled.values[at] *= x[static_cast<size_t>(j)] * x[static_cast<size_t>(a.row_idx[at])];
    }
  }
  return scaled;
}

// A(p, p): row and column i of the result are p[i] of A.
inline CscMatrix Permuted(const CscMatrix& a, const std::vector<int64_t>& p) {
  const oracle::Dense d = oracle::ToDense(static_cast<CscView>(a));
  oracle::Dense out(d.rows, d.cols);
  for (int64_t i = 0; i < d.rows; ++i) {
    for (int64_t j = 0; j < d.cols; ++j) {
      out(i, j) = d(p[static_cast<size_t>(i)], p[static_cast<size_t>(j)]);
    }
  }
  return oracle::FromDense(out);
}

// Diagonal, and a dense row and column at `hub`, with uneven values; SPD by dominance.
inline CscMatrix Hub(int64_t n, int64_t hub, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  std::vector<double> spoke(static_cast<size_t>(n));
  double sum = 1;
  for (double& v : spoke) {
    v = random.Uniform(-1, 1);
    sum += std::abs(v);
  }
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j == hub ? 0 : std::min(j, hub); i < n; ++i) {
      if (j != hub && i > std::min(j, hub) && i < std::max(j, hub)) i = std::max(j, hub);
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? (i == hub ? sum : 2.0)
                                : spoke[static_cast<size_t>(i == hub ? j : i)]);
      if (j != hub && i == std::max(j, hub)) break;
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

// Every SPD family, n = 1 to about 80.
inline std::vector<oracle::NamedMatrix> SpdZoo(uint64_t seed) {
  std::vector<oracle::NamedMatrix> zoo;
  const auto add = [&](std::string name, CscMatrix a) {
    zoo.push_back({std::move(name), std::move(a), true});
  };
  add("one", FromRows({{3}}));
  add("tridiagonal", oracle::Laplacian2d(40, 1));
  add("laplacian", oracle::Laplacian2d(8, 9));
  for (const int64_t n : {2, 7, 33, 80}) {
    add("spd" + std::to_string(n), oracle::RandomSpd(n, 5, seed + static_cast<uint64_t>(n)));
  }
  add("dense", oracle::RandomSpd(24, 24, seed));
  add("hub first", Hub(50, 0, seed));
  add("hub inside", Hub(50, 20, seed));
  add("hub last", Hub(50, 49, seed));
  // Reducible: the two do not meet.
  const CscMatrix left = oracle::RandomSpd(20, 4, seed + 1), right = oracle::RandomSpd(15, 4, seed);
  oracle::Dense both(35, 35);
  const oracle::Dense l = oracle::ToDense(static_cast<CscView>(left));
  const oracle::Dense r = oracle::ToDense(static_cast<CscView>(right));
  for (int64_t i = 0; i < 35; ++i) {
    for (int64_t j = 0; j < 35; ++j) {
      if (i < 20 && j < 20) both(i, j) = l(i, j);
      if (i >= 20 && j >= 20) both(i, j) = r(i - 20, j - 20);
    }
  }
  add("reducible", oracle::FromDense(both));
  oracle::Random random(seed);
  oracle::Vector scale(33);
  for (double& x : scale) x = std::pow(10.0, random.Uniform(-8, 8));
  add("badly scaled", Scaled(oracle::RandomSpd(33, 5, seed + 33), scale));
  return zoo;
}

// |(G A Gᵀ)_ii − 1| <= 1e-12 + 8 ε n2 (|G| |A| |Gᵀ|)_ii, sums in long double; n2: entries of row i.
inline void ExpectUnitDiagonal(const CscView& a, const FsaiResult& g, double slack,
                               const std::string& what) {
  std::vector<long double> x(static_cast<size_t>(a.n_cols), 0);
  for (int64_t i = 0; i < a.n_cols; ++i) {
    const auto indices = g.g_rows.pattern().column(i);
    const auto values = static_cast<CscView>(g.g_rows).column_values(i);
    for (size_t t = 0; t < indices.size(); ++t) x[static_cast<size_t>(indices[t])] = values[t];
    long double sum = 0, size = 0;
    for (size_t t = 0; t < indices.size(); ++t) {
      const auto rows = a.column(indices[t]);
      const auto entries = a.column_values(indices[t]);
      for (size_t p = 0; p < rows.size(); ++p) {
        const long double term = values[t] * entries[p] * x[static_cast<size_t>(rows[p])];
        sum += term;
        size += std::abs(term);
      }
    }
    for (const int32_t j : indices) x[static_cast<size_t>(j)] = 0;
    const double bound = slack + 8 * std::numeric_limits<double>::epsilon() *
                                     static_cast<double>(indices.size()) *
                                     static_cast<double>(size);
    ASSERT_NEAR(static_cast<double>(sum), 1.0, bound) << what << ", row " << i;
  }
}

inline void ExpectSame(const FsaiResult& x, const FsaiResult& y, const std::string& what) {
  EXPECT_EQ(x.g_rows.col_ptr, y.g_rows.col_ptr) << what;
  EXPECT_EQ(x.g_rows.row_idx, y.g_rows.row_idx) << what;
  EXPECT_EQ(x.g_rows.values, y.g_rows.values) << what;
  EXPECT_EQ(x.psi_ratio, y.psi_ratio) << what;
  EXPECT_EQ(x.quality.kaporin, y.quality.kaporin) << what;
  EXPECT_EQ(x.quality.kaporin_by_step, y.quality.kaporin_by_step) << what;
}

}  // namespace spaid::kernels
