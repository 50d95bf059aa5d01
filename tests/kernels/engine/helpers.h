// What the engine's tests share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/spec.h"
#include "kernels/sparse/diagnosis.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels::engine_test {

using oracle::Vector;

inline PreconditionerSpec Spec(EngineKind kind) {
  return {.engine = kind, .static_spai = {}, .block_size = 1, .fsai = {}};
}

inline PreconditionerSpec Spai(int power = 1) {
  PreconditionerSpec spec = Spec(EngineKind::kStaticSpai);
  spec.static_spai.pattern.power = power;
  return spec;
}

inline CscMatrix Rows(std::initializer_list<std::initializer_list<double>> rows) {
  return oracle::FromRows(rows);
}

// Chains of nx unknowns, coupled by 1 (1 + skew to the left, 1 - skew to the right), ny of them,
// coupled by 1e-3: the entry before a diagonal entry explains half of it.
inline CscMatrix Chains(int64_t nx, int64_t ny, double skew) {
  CscMatrix a;
  a.n_rows = a.n_cols = nx * ny;
  a.col_ptr.push_back(0);
  const auto add = [&a](int64_t row, double value) {
    a.row_idx.push_back(static_cast<int32_t>(row));
    a.values.push_back(value);
  };
  for (int64_t j = 0; j < nx * ny; ++j) {
    if (j >= nx) add(j - nx, -1e-3);
    if (j % nx > 0) add(j - 1, -1 + skew);
    add(j, 2.002);
    if (j % nx < nx - 1) add(j + 1, -1 - skew);
    if (j + nx < nx * ny) add(j + nx, -1e-3);
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

// A x for a smooth x: A·1 is zero for some of the singular ones.
inline Vector SmoothRhs(const CscView& a) {
  Vector b(static_cast<size_t>(a.n_rows), 0.0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      b[a.row_idx[p]] += a.values[p] * (1 + 0.5 * std::sin(static_cast<double>(j)));
    }
  }
  return b;
}

// Plan and build; expects both to work.
inline BuildResult MustBuild(const Engine& engine, const PreconditionerSpec& spec, const CscView& a,
                             const Context& context = {}) {
  auto plan = engine.MakePlan(spec, a, nullptr, context);
  EXPECT_TRUE(plan.ok()) << plan.status().reason() << ": " << plan.status().message();
  if (!plan.ok()) return {};
  auto built = (*plan)->Build(spec, a, context);
  EXPECT_TRUE(built.ok()) << built.status().reason() << ": " << built.status().message();
  if (!built.ok()) return {};
  return *std::move(built);
}

inline Vector Ones(int64_t n) { return Vector(static_cast<size_t>(n), 1.0); }

inline Vector RowSums(const CscView& a) {
  Vector b(static_cast<size_t>(a.n_rows), 0.0);
  for (size_t p = 0; p < a.values.size(); ++p) b[a.row_idx[p]] += a.values[p];
  return b;
}

inline double TrueRelative(const CscView& a, std::span<const double> x, std::span<const double> b) {
  std::vector<long double> r(b.begin(), b.end());
  long double b2 = 0, r2 = 0;
  for (const long double v : b) b2 += v * v;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      r[a.row_idx[p]] -= static_cast<long double>(a.values[p]) * x[j];
    }
  }
  for (const long double v : r) r2 += v * v;
  return static_cast<double>(std::sqrt(r2 / b2));
}

}  // namespace spaid::kernels::engine_test
