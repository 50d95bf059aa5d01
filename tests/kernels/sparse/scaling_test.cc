#include "kernels/sparse/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/gallery/gallery.h"
#include "kernels/sparse/diagnosis.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/gallery.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Scaling Choose(const CscView& a, ScalingMode mode = ScalingMode::kAuto, int threads = 1) {
  auto s = ChooseScaling(a, Diagnose(a), mode, Context{.threads = threads});
  EXPECT_TRUE(s.ok()) << s.status().message();
  return *std::move(s);
}

// Neither near 1 nor with a diagonal where one is wanted.
Scaling ByHand() {
  Scaling s;
  s.kind = ScalingMode::kMatching;
  s.row.assign({2, 4, 0.5});
  s.column.assign({8, 1, 0.25});
  s.column_of_row.assign({1, 2, 0});
  return s;
}

TEST(ScalingTest, AppliedByHand) {
  // [1 2 .; . 3 4; 5 . .] becomes columns 1, 2, 0.
  const CscMatrix a = Make(3, 3, {0, 2, 4, 5}, {0, 2, 0, 1, 1}, {1, 5, 2, 3, 4});
  const auto b = ScaledMatrix(a, ByHand(), {});
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(b->col_ptr, ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(b->row_idx, ElementsAre(0, 1, 1, 0, 2));
  EXPECT_THAT(b->values,
              ElementsAre(2 * 2 * 8, 3 * 4 * 8, 4 * 4 * 1, 1 * 2 * 0.25, 5 * 0.5 * 0.25));
  std::vector<double> x = {1, 2, 3}, out(3);
  ScaleRhs(ByHand(), x, out);
  EXPECT_THAT(out, ElementsAre(2, 8, 1.5));
  UnscaleSolution(ByHand(), x, out);  // x[q[k]] = c[k] x'[k]
  EXPECT_THAT(out, ElementsAre(0.75, 8, 2));
  std::vector<double> back(3);
  ScaleGuess(ByHand(), out, back);
  EXPECT_EQ(back, x);
}

TEST(ScalingTest, TheIdentityChangesNothing) {
  const CscMatrix a = oracle::RandomIrregular(40, 5, 3);
  const Scaling none = Choose(a, ScalingMode::kNone);
  EXPECT_TRUE(none.identity());
  const auto b = ScaledMatrix(a, none, {});
  EXPECT_EQ(b->values, a.values);
  EXPECT_EQ(b->row_idx, a.row_idx);
  const auto m = UnscaledInverse(a, none, {});
  EXPECT_EQ(m->values, a.values);
  const std::vector<double> x = {1, 2, 3};
  std::vector<double> out(3);
  UnscaleSolution(none, x, out);
  EXPECT_EQ(out, x);
}

// Solving with B solves A, for matrices, vectors and inverses.
TEST(ScalingTest, SolvesThroughBSolveA) {
  for (const auto& [name, a, regular] : oracle::Zoo(13)) {
    if (!regular || a.n_cols < 2) continue;
    for (const ScalingMode mode : {ScalingMode::kEquilibrate, ScalingMode::kMatching}) {
      SCOPED_TRACE(name);
      const Scaling s = Choose(a, mode);
      const auto b = ScaledMatrix(a, s, {});
      ASSERT_TRUE(b.ok());
      ExpectCanonical(b->pattern());
      const int64_t n = a.n_cols;
      const auto row = [&](int64_t i) { return s.row.empty() ? 1 : s.row[Z(i)]; };
      const oracle::Dense dense = oracle::ToDense(CscView(*b));
      oracle::Dense inverse(n, n);
      for (int64_t k = 0; k < n; ++k) {
        oracle::Vector e(Z(n), 0.0);
        e[Z(k)] = 1;
        const auto column = oracle::LuSolve(dense, e);
        ASSERT_TRUE(column.has_value());
        std::copy(column->begin(), column->end(), inverse.a.begin() + k * n);
      }
      const auto m = UnscaledInverse(oracle::FromDense(inverse), s, {});
      ASSERT_TRUE(m.ok());
      ExpectCanonical(m->pattern());
      // D_r (A M − E) D_r⁻¹ = B M' − E, and B is near 1.
      double largest = 1;
      for (const double v : inverse.a) largest = std::max(largest, std::abs(v));
      const oracle::Dense da = oracle::ToDense(CscView(a));
      const oracle::Dense product = oracle::Multiply(da, oracle::ToDense(CscView(*m)));
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          const double off = product(i, j) - (i == j ? 1 : 0);
          ASSERT_LE(std::abs(off) * row(i) / row(j), 1e-13 * static_cast<double>(n) * largest)
              << i << ' ' << j;
        }
      }
      oracle::Vector rhs(Z(n)), scaled(Z(n)), x(Z(n));
      for (int64_t i = 0; i < n; ++i) rhs[Z(i)] = std::cos(static_cast<double>(i));
      ScaleRhs(s, rhs, scaled);
      UnscaleSolution(s, *oracle::LuSolve(dense, scaled), x);
      const oracle::Vector r = oracle::Residual(da, x, rhs);
      double off = 0;
      largest = 0;
      for (int64_t i = 0; i < n; ++i) {
        double size = std::abs(rhs[Z(i)]);
        for (int64_t k = 0; k < n; ++k) size += std::abs(da(i, k) * x[Z(k)]);
        largest = std::max(largest, size * row(i));
        off = std::max(off, std::abs(r[Z(i)]) * row(i));
      }
      EXPECT_LE(off, 1e-12 * largest);
    }
  }
}

TEST(ScalingTest, MatchingMakesDiagonalsNearOneAndTheRestNoLarger) {
  for (const auto& [name, a, regular] : oracle::Zoo(19)) {
    if (!regular) continue;
    SCOPED_TRACE(name);
    const auto b = ScaledMatrix(a, Choose(a, ScalingMode::kMatching), {});
    std::vector<char> has(Z(a.n_cols), 0);
    ForEntries(*b, [&](int64_t i, int64_t j, double v) {
      EXPECT_LE(std::abs(v), 2 * (1 + 1e-12));
      if (i != j) return;
      has[Z(j)] = 1;
      EXPECT_GE(std::abs(v), 0.5 * (1 - 1e-12));
    });
    EXPECT_EQ(std::count(has.begin(), has.end(), 1), a.n_cols);
  }
}

TEST(ScalingTest, DigitsStay) {
  const CscMatrix a = RandomSparse(100, 6, 60, true, 4);
  for (const ScalingMode mode : {ScalingMode::kEquilibrate, ScalingMode::kMatching}) {
    const Scaling s = Choose(a, mode);
    ASSERT_FALSE(s.identity());
    const auto b = ScaledMatrix(a, s, {});
    int exponent;
    for (int64_t k = 0; k < 100; ++k) {
      const int64_t j = s.column_of_row.empty() ? k : s.column_of_row[Z(k)];
      const auto before = CscView(a).column_values(j), after = CscView(*b).column_values(k);
      for (size_t p = 0; p < before.size(); ++p) {
        EXPECT_EQ(std::frexp(before[p], &exponent), std::frexp(after[p], &exponent));
      }
    }
  }
}

TEST(ScalingTest, FactorsWhoseProductIsOutOfRange) {
  Scaling s;
  s.row.assign({0x1p1000});
  s.column.assign({0x1p900});
  EXPECT_EQ(ScaledMatrix(Make(1, 1, {0, 1}, {0}, {0x1.8p-1000}), s, {})->values[0], 0x1.8p900);
  s.row.assign({0x1p-1000});
  s.column.assign({0x1p-900});
  EXPECT_EQ(ScaledMatrix(Make(1, 1, {0, 1}, {0}, {0x1.8p1000}), s, {})->values[0], 0x1.8p-900);
}

TEST(ScalingTest, AnInverseBeyondFp64IsRefused) {
  Scaling s;
  s.row.assign({1, 0x1p1000});
  s.column.assign({1, 0x1p1000});
  const auto m = UnscaledInverse(Make(2, 2, {0, 1, 2}, {0, 1}, {1, 1}), s, {});
  EXPECT_EQ(m.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(m.status().reason(), "INVERSE_OUT_OF_RANGE");
  EXPECT_EQ(m.status().index(), 1);
}

TEST(ScalingTest, NewValuesOnTheSamePattern) {
  const CscMatrix a = oracle::RowPermuted(200, 3);
  const Scaling s = Choose(a, ScalingMode::kMatching);
  ASSERT_FALSE(s.column_of_row.empty());
  CscMatrix other = a;
  for (double& v : other.values) v *= 1.5;
  const auto whole = ScaledMatrix(other, s, {});
  Array<double> values(other.values.size());
  ASSERT_TRUE(ScaledValues(other, s, values, {}).ok());
  EXPECT_EQ(values, whole->values);
  EXPECT_EQ(whole->row_idx, ScaledMatrix(a, s, {})->row_idx);
}

TEST(ScalingTest, AutoLeavesWellScaledMatricesAlone) {
  for (const CscMatrix& a :
       {oracle::Laplacian2d(9, 8), oracle::ConvectionDiffusion(9, 8, 2.0), oracle::Arrow(6)}) {
    EXPECT_TRUE(Choose(a).identity()) << a.n_cols;
    EXPECT_EQ(Choose(a).kind, ScalingMode::kNone);
  }
}

TEST(ScalingTest, AutoEquilibratesUnitsAndKeepsSymmetry) {
  const CscMatrix a = oracle::From(gallery::BadlyScaled2d(20, 12));
  const Scaling s = Choose(a);
  EXPECT_EQ(s.kind, ScalingMode::kEquilibrate);
  EXPECT_EQ(s.row, s.column);
  EXPECT_TRUE(s.column_of_row.empty());
  EXPECT_LE(s.norms.row_spread(), 3);
  EXPECT_TRUE(Diagnose(*ScaledMatrix(a, s, {})).numerically_symmetric);
  // A saddle point stays symmetric, too.
  CscMatrix saddle = oracle::FromRows({{1e9, 0, 1}, {0, 1e9, -1}, {1, -1, 0}});
  EXPECT_EQ(Choose(saddle).kind, ScalingMode::kEquilibrate);
  // Rows of other units, and a good diagonal within each.
  CscMatrix rows = oracle::ConvectionDiffusion(12, 11, 2.0);
  for (size_t p = 0; p < rows.values.size(); ++p) {
    rows.values[p] = std::ldexp(rows.values[p], 7 * rows.row_idx[p] % 40);
  }
  EXPECT_EQ(Choose(rows).kind, ScalingMode::kEquilibrate);
}

TEST(ScalingTest, AutoMatchesWhereTheDiagonalIsMissingOrWeak) {
  for (const CscMatrix& a : {oracle::RowPermuted(100, 5), oracle::ZeroDiagonal(100, 5)}) {
    const Scaling s = Choose(a);
    EXPECT_EQ(s.kind, ScalingMode::kMatching);
    EXPECT_FALSE(s.column_of_row.empty());
    EXPECT_EQ(s.norms.weak_diagonals, 0);
    EXPECT_EQ(s.unmatched_rows.count, 0);
  }
  // A full diagonal, far too small in every column; one such column in two hundred is let be.
  CscMatrix weak = oracle::ZeroDiagonal(200, 5);
  oracle::Dense dense = oracle::ToDense(CscView(weak));
  for (int64_t k = 0; k < 200; ++k) dense(k, k) = 1e-6;
  EXPECT_EQ(Choose(oracle::FromDense(dense)).kind, ScalingMode::kMatching);
  oracle::Dense one = oracle::ToDense(CscView(oracle::ConvectionDiffusion(20, 10, 2.0)));
  one(77, 77) = 1e-6;
  EXPECT_NE(Choose(oracle::FromDense(one)).kind, ScalingMode::kMatching);
}

TEST(ScalingTest, StructurallySingularMatricesSaySo) {
  const CscMatrix a = Make(4, 4, {0, 1, 1, 2, 4}, {1, 1, 2, 3}, {1, 2, 1, 2});
  const Scaling s = Choose(a);
  EXPECT_EQ(s.kind, ScalingMode::kMatching);
  EXPECT_EQ(s.unmatched_rows.count, 2);
  EXPECT_EQ(s.unmatched_rows.first, 0);
  EXPECT_EQ(s.unmatched_columns.count, 2);
  EXPECT_EQ(s.unmatched_columns.first, 1);
  const CscMatrix zeros = Make(2, 2, {0, 0, 0}, {}, {});
  EXPECT_TRUE(Choose(zeros).identity());
}

TEST(ScalingTest, KeptFactorsAreJudgedByTheNewNorms) {
  const CscMatrix a = oracle::RowPermuted(300, 3);
  const Scaling s = Choose(a);
  ASSERT_EQ(s.kind, ScalingMode::kMatching);
  EXPECT_TRUE(*StillScales(a, s, {}));
  CscMatrix near = a;
  for (size_t p = 0; p < near.values.size(); ++p) near.values[p] *= p % 2 == 0 ? 8 : 0.5;
  EXPECT_TRUE(*StillScales(near, s, {}));
  CscMatrix row = a;
  for (size_t p = 0; p < row.values.size(); ++p) {
    if (row.row_idx[p] == 5) row.values[p] *= 0x1p14;
  }
  EXPECT_FALSE(*StillScales(row, s, {}));
  // The entries that were on the diagonal of B vanish: a matter of the order, not of the size.
  CscMatrix weak = a;
  for (int64_t k = 0; k < 300; ++k) {
    const int64_t j = s.column_of_row[Z(k)];
    for (int64_t p = weak.col_ptr[Z(j)]; p < weak.col_ptr[Z(j) + 1]; ++p) {
      weak.values[Z(p)] = weak.row_idx[Z(p)] == k ? 1e-9 : 1;
    }
  }
  EXPECT_FALSE(*StillScales(weak, s, {}));
}

TEST(ScalingTest, ThreadsDoNotChangeABit) {
  const CscMatrix a = RandomSparse(20'000, 10, 30, true, 3);
  const Scaling one = Choose(a, ScalingMode::kMatching);
  const auto b = ScaledMatrix(a, one, Context{.threads = 1});
  const auto m = UnscaledInverse(a, one, Context{.threads = 1});
  for (const int threads : {2, 5}) {
    const Scaling many = Choose(a, ScalingMode::kMatching, threads);
    EXPECT_EQ(many.row, one.row);
    EXPECT_EQ(many.column, one.column);
    EXPECT_EQ(many.column_of_row, one.column_of_row);
    EXPECT_EQ(ScaledMatrix(a, one, Context{.threads = threads})->values, b->values);
    const auto other = UnscaledInverse(a, one, Context{.threads = threads});
    EXPECT_EQ(other->values, m->values);
    EXPECT_EQ(other->row_idx, m->row_idx);
  }
}

TEST(ScalingTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const Context context{.stop = cancel.token()};
  const CscMatrix a = oracle::ZeroDiagonal(60, 5);
  const Diagnosis d = Diagnose(a);
  for (const ScalingMode mode : {ScalingMode::kNone, ScalingMode::kEquilibrate,
                                 ScalingMode::kMatching, ScalingMode::kAuto}) {
    EXPECT_EQ(ChooseScaling(a, d, mode, context).status().code(), StatusCode::kCancelled);
  }
  EXPECT_EQ(ScaledMatrix(a, {}, context).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(UnscaledInverse(a, {}, context).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(StillScales(a, {}, context).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
