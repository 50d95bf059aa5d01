// Shared by the tests of static SPAI.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/static_spai/static_spai.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {

using oracle::FromRows;

inline StaticSpaiOptions With(LocalSolver solver, int power = 1) {
  StaticSpaiOptions options;
  options.local_solver = solver;
  options.pattern.power = power;
  return options;
}

// Plan and build; a failure is a test failure.
inline StaticSpaiResult Build(const CscView& a, const PatternView* pattern,
                              const StaticSpaiOptions& options, int threads = 2) {
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  auto plan = PlanStaticSpai(a, pattern, options, context);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return {};
  auto result = BuildStaticSpai(**plan, a, options, context);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return {};
  return std::move(result).value();
}

inline StaticSpaiResult Build(const CscView& a, const Pattern& pattern,
                              const StaticSpaiOptions& options, int threads = 2) {
  const PatternView view = pattern;
  return Build(a, &view, options, threads);
}

inline Pattern FullPattern(int64_t n) {
  Pattern p;
  p.n_rows = p.n_cols = n;
  p.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) p.row_idx.push_back(static_cast<int32_t>(i));
    p.col_ptr.push_back((j + 1) * n);
  }
  return p;
}

inline Pattern DiagonalPattern(int64_t n) {
  Pattern p;
  p.n_rows = p.n_cols = n;
  for (int64_t j = 0; j <= n; ++j) p.col_ptr.push_back(j);
  for (int64_t j = 0; j < n; ++j) p.row_idx.push_back(static_cast<int32_t>(j));
  return p;
}

// Column k of A M − E where `kSigned`, else of |A| |M|: norms, in plain loops over the rows
// touched.
template <bool kSigned>
std::vector<double> ColumnNorms(const CscView& a, const CscView& m) {
  std::vector<double> norms, sums(static_cast<size_t>(a.n_rows), 0);
  std::vector<uint8_t> seen(static_cast<size_t>(a.n_rows), 0);
  std::vector<int32_t> touched;
  const auto add = [&](int32_t row, double value) {
    const auto i = static_cast<size_t>(row);
    if (!seen[i]) touched.push_back(row);
    seen[i] = 1;
    sums[i] += kSigned ? value : std::abs(value);
  };
  for (int64_t k = 0; k < m.n_cols; ++k) {
    if (kSigned) add(static_cast<int32_t>(k), -1);
    const auto columns = m.column(k);
    const auto values = m.column_values(k);
    for (size_t p = 0; p < columns.size(); ++p) {
      const auto rows = a.column(columns[p]);
      const auto entries = a.column_values(columns[p]);
      for (size_t s = 0; s < rows.size(); ++s) add(rows[s], entries[s] * values[p]);
    }
    oracle::Vector column;
    for (const int32_t row : touched) {
      column.push_back(sums[static_cast<size_t>(row)]);
      sums[static_cast<size_t>(row)] = 0;
      seen[static_cast<size_t>(row)] = 0;
    }
    touched.clear();
    norms.push_back(oracle::Norm(column));
  }
  return norms;
}

// ‖A m_k − e_k‖₂ from the values of M.
inline std::vector<double> ExplicitResiduals(const CscView& a, const CscView& m) {
  return ColumnNorms<true>(a, m);
}

// 4 ε ‖ |A| |m_k| ‖₂: what the terms of A m_k lose in rounding.
inline std::vector<double> RoundingOfResiduals(const CscView& a, const CscView& m) {
  std::vector<double> noise = ColumnNorms<false>(a, m);
  for (double& x : noise) x *= 4 * std::numeric_limits<double>::epsilon();
  return noise;
}

// The bound that the Gram path owes to QR, for every column, by residuals formed here.
inline void ExpectGramAccuracy(const CscView& a, const StaticSpaiResult& gram,
                               const StaticSpaiResult& qr, const std::string& what) {
  ASSERT_EQ(gram.residual_norms.size(), qr.residual_norms.size());
  const std::vector<double> of_gram = ExplicitResiduals(a, gram.m);
  const std::vector<double> of_qr = ExplicitResiduals(a, qr.m);
  // What forming A m − e rounds is no error of either solver.
  const std::vector<double> noise_of_gram = RoundingOfResiduals(a, gram.m);
  const std::vector<double> noise_of_qr = RoundingOfResiduals(a, qr.m);
  for (size_t k = 0; k < of_qr.size(); ++k) {
    ASSERT_LE(of_gram[k], (1 + 1e-6) * of_qr[k] + 1e-10 + noise_of_gram[k] + noise_of_qr[k])
        << what << ", column " << k << ", scaled pivot " << gram.min_scaled_pivots[k];
  }
}

// Kahan's matrix diag(1, s, s², ...) (E − c strictly_upper), s = sin θ, c = cos θ, times a random
// orthogonal matrix from the left: unit columns, moderate pivots, a condition number that grows
// like (1 + c)^n / s^n (Kahan 1966).
inline CscMatrix OrthogonalKahan(int64_t n, double theta, uint64_t seed) {
  oracle::Dense a(n, n);
  double power = 1;
  for (int64_t i = 0; i < n; ++i, power *= std::sin(theta)) {
    for (int64_t j = i; j < n; ++j) a(i, j) = i == j ? power : -std::cos(theta) * power;
  }
  oracle::Random random(seed);
  for (int64_t reflector = 0; reflector < n; ++reflector) {
    oracle::Vector v(static_cast<size_t>(n));
    for (double& x : v) x = random.Uniform(-1, 1);
    const double norm = oracle::Norm(v);
    for (int64_t j = 0; j < n; ++j) {
      double dot = 0;
      for (int64_t i = 0; i < n; ++i) dot += v[static_cast<size_t>(i)] * a(i, j);
      for (int64_t i = 0; i < n; ++i) {
        a(i, j) -= 2 * dot / (norm * norm) * v[static_cast<size_t>(i)];
      }
    }
  }
  return oracle::FromDense(a);
}

// The first `full` columns full, the others with their diagonal only.
inline Pattern FullColumnsThenDiagonal(int64_t n, int64_t full) {
  Pattern p;
  p.n_rows = p.n_cols = n;
  p.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      if (j < full || i == j) p.row_idx.push_back(static_cast<int32_t>(i));
    }
    p.col_ptr.push_back(static_cast<int64_t>(p.row_idx.size()));
  }
  return p;
}

}  // namespace spaid::kernels
