// What is true of any matrix.
#include <cmath>
#include <numeric>

#include "kernels/bench/problems.h"
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

// Residuals of the numbers on a pattern, formed from M.
std::vector<double> Residuals(const CscView& a, const DynamicSpaiPattern& grown,
                              const DynamicSpaiOptions& options) {
  return ExplicitResiduals(a, Numbers(a, grown, options).m);
}

std::vector<oracle::NamedMatrix> Larger() {
  std::vector<oracle::NamedMatrix> cases = Cases(21);
  cases.push_back({"7 points", bench::ConvectionDiffusion(9, 30), true});
  cases.push_back({"elasticity", bench::Elasticity(5), true});
  cases.push_back({"circuit", bench::Circuit(600, 3, 40), true});
  cases.push_back({"varying", bench::WithVaryingCoefficients(bench::Laplacian27(7)), true});
  return cases;
}

TEST(DynamicInvariants, NoStepRaisesAResidual) {
  for (const oracle::NamedMatrix& c : Larger()) {
    std::vector<double> before(static_cast<size_t>(c.a.n_cols), 1.0);
    for (const int steps : {0, 1, 2, 4, 7}) {
      const DynamicSpaiPattern grown = Grow(c.a, Steps(steps, 2));
      const std::vector<double> now = Residuals(c.a, grown, Steps(steps, 2));
      for (size_t k = 0; k < now.size(); ++k) {
        ASSERT_LE(now[k], before[k] + 1e-7) << c.name << ", column " << k << ", steps " << steps;
      }
      before = now;
      const std::vector<double>& by_step = grown.quality.residual_by_step;
      ASSERT_EQ(by_step.size(), static_cast<size_t>(steps) + 1);
      for (size_t t = 1; t < by_step.size(); ++t) EXPECT_LE(by_step[t], by_step[t - 1]) << c.name;
    }
  }
}

// Columns that converged are under tol, and no others.
TEST(DynamicInvariants, ToleranceIsMet) {
  for (const oracle::NamedMatrix& c : Larger()) {
    if (c.name.starts_with("badly")) continue;  // the Gram path has few digits of it, QR more
    for (const double tol : {0.5, 0.1, 1e-3}) {
      const DynamicSpaiOptions options = Steps(6, 3, tol);
      const DynamicSpaiPattern grown = Grow(c.a, options);
      const std::vector<double> residuals = Residuals(c.a, grown, options);
      const auto met = std::count_if(residuals.begin(), residuals.end(),
                                     [&](double r) { return r <= tol + 1e-6; });
      const auto well_met = std::count_if(residuals.begin(), residuals.end(),
                                          [&](double r) { return r <= tol - 1e-6; });
      EXPECT_LE(grown.quality.converged_columns, met) << c.name << ", tol " << tol;
      EXPECT_GE(grown.quality.converged_columns, well_met) << c.name << ", tol " << tol;
    }
  }
}

TEST(DynamicInvariants, EnoughStepsGiveTheInverse) {
  int64_t exact = 0;
  for (const oracle::NamedMatrix& c : Cases(2)) {
    if (!c.regular || c.name.starts_with("badly")) continue;
    const auto n = static_cast<int>(c.a.n_cols);
    for (const int s : {1, 4}) {
      const DynamicSpaiOptions options = Steps(n, s, 1e-5);
      const DynamicSpaiPattern grown = Grow(c.a, options);
      for (const double r : Residuals(c.a, grown, options)) EXPECT_LE(r, 2e-5) << c.name;
      EXPECT_EQ(grown.quality.converged_columns, n) << c.name;
      ++exact;
    }
  }
  EXPECT_GT(exact, 40);
}

TEST(DynamicInvariants, ColumnsHaveNoMoreThanAllowed) {
  for (const oracle::NamedMatrix& c : Larger()) {
    const int64_t n = c.a.n_cols;
    const PatternView of_a = c.a.pattern();
    for (const int limit : {1, 2, 5, 9}) {
      DynamicSpaiOptions options = Steps(8, 3);
      options.max_column_nnz = limit;
      const DynamicSpaiPattern grown = Grow(c.a, options);
      EXPECT_LE(grown.quality.nnz_column_max, limit);
      int64_t longest = 0;
      for (int64_t k = 0; k < n; ++k) {
        longest = std::max(longest, static_cast<int64_t>(Column(grown.m, k).size()));
      }
      EXPECT_EQ(grown.quality.nnz_column_max, longest) << c.name;
      // What it begins with stays, even where that is more; nothing joins it then.
      const DynamicSpaiPattern from_a = Grow(c.a, options, 2, &of_a);
      for (int64_t k = 0; k < n; ++k) {
        std::vector<int64_t> start = Column(of_a, k);
        if (!std::binary_search(start.begin(), start.end(), k)) {
          start.insert(std::lower_bound(start.begin(), start.end(), k), k);
        }
        const std::vector<int64_t> now = Column(from_a.m, k);
        if (static_cast<int64_t>(start.size()) >= limit) {
          // Of dependent columns some are refused.
          EXPECT_TRUE(std::includes(start.begin(), start.end(), now.begin(), now.end()));
        } else {
          EXPECT_LE(static_cast<int64_t>(now.size()), limit) << c.name;
        }
      }
    }
  }
}

// Without steps: static SPAI on the diagonal, or on the given pattern.
TEST(DynamicInvariants, NoStepsAreStaticSpai) {
  const CscMatrix a = oracle::RandomIrregular(60, 5, 9);
  const DynamicSpaiPattern grown = Grow(a, Steps(0));
  EXPECT_EQ(Numbers(a, grown, {}).m.values, Build(a, DiagonalPattern(60), {}).m.values);
  const PatternView of_a = a.pattern();
  const DynamicSpaiPattern from_a = Grow(a, Steps(0), 2, &of_a);
  EXPECT_EQ(from_a.m.row_idx, a.row_idx);
  EXPECT_EQ(Numbers(a, from_a, {}).m.values, Build(a, nullptr, StaticSpaiOptions{}).m.values);
}

// P A Pᵀ grows P M Pᵀ; a permutation changes ties, so of a matrix without.
TEST(DynamicInvariants, APermutedMatrixHasThePermutedInverse) {
  const CscMatrix a = oracle::RandomIrregular(70, 6, 31);
  const int64_t n = a.n_cols;
  std::vector<int64_t> p(static_cast<size_t>(n));
  std::iota(p.begin(), p.end(), 0);
  oracle::Random random(5);
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(p[static_cast<size_t>(i)], p[static_cast<size_t>(random.Below(i + 1))]);
  }
  const oracle::Dense d = oracle::ToDense(static_cast<CscView>(a));
  oracle::Dense moved(n, n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      moved(p[static_cast<size_t>(i)], p[static_cast<size_t>(j)]) = d(i, j);
    }
  }
  const CscMatrix b = oracle::FromDense(moved);
  for (const int s : {1, 3}) {
    const DynamicSpaiPattern of_a = Grow(a, Steps(5, s)), of_b = Grow(b, Steps(5, s));
    for (int64_t k = 0; k < n; ++k) {
      std::vector<int64_t> expected;
      for (const int64_t j : Column(of_a.m, k)) expected.push_back(p[static_cast<size_t>(j)]);
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(Column(of_b.m, p[static_cast<size_t>(k)]), expected) << k;
    }
  }
}

// A D has the pattern of D⁻¹ M for any diagonal D; of powers of two to the last bit of growth.
TEST(DynamicInvariants, ScaledColumnsChangeNoPattern) {
  CscMatrix a = oracle::RandomIrregular(70, 6, 8);
  const DynamicSpaiPattern before = Grow(a, Steps(6, 2, 0.1));
  oracle::Random random(4);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const double scale =
        std::ldexp(random.Below(2) == 0 ? 1 : -1, static_cast<int>(random.Below(80)) - 40);
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      a.values[static_cast<size_t>(p)] *= scale;
    }
  }
  ExpectSame(Grow(a, Steps(6, 2, 0.1)), before, "scaled columns");
}

// α A, of α that is no power of two: the same M but for its size, where nothing ties.
TEST(DynamicInvariants, AScaledMatrixHasTheScaledInverse) {
  CscMatrix a = oracle::RandomIrregular(70, 6, 18);
  const DynamicSpaiOptions options = Steps(6, 2);
  const DynamicSpaiPattern before = Grow(a, options);
  const StaticSpaiResult m = Numbers(a, before, options);
  for (double& v : a.values) v *= 1e9 / 3;
  const DynamicSpaiPattern now = Grow(a, options);
  EXPECT_EQ(now.m.row_idx, before.m.row_idx);
  const StaticSpaiResult scaled = Numbers(a, now, options);
  for (size_t p = 0; p < m.m.values.size(); ++p) {
    EXPECT_NEAR(scaled.m.values[p] * (1e9 / 3), m.m.values[p],
                1e-12 * std::abs(m.m.values[p]) + 1e-12);
  }
}

// Growth in fp32 takes other entries where scores nearly tie: the residuals are near.
TEST(DynamicInvariants, GrowthInFp32IsNearlyAsGood) {
  for (const oracle::NamedMatrix& c : Larger()) {
    if (c.name.starts_with("badly")) continue;
    DynamicSpaiOptions options = Steps(5, 3, 0.05);
    const DynamicSpaiPattern in_double = Grow(c.a, options);
    options.growth_precision = Precision::kFp32;
    const DynamicSpaiPattern in_float = Grow(c.a, options);
    ExpectCanonical(in_float.m, c.name);
    const double full = oracle::Norm(Residuals(c.a, in_double, options));
    const double half = oracle::Norm(Residuals(c.a, in_float, options));
    EXPECT_LE(half, 1.05 * full + 5e-3) << c.name;
  }
}

}  // namespace
}  // namespace spaid::kernels
