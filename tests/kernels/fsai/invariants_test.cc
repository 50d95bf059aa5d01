// What mathematics promises.
#include <numbers>
#include <numeric>

#include "kernels/bench/problems.h"
#include "kernels/fsai/sampled_kaporin.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

std::vector<oracle::NamedMatrix> Gallery() {
  std::vector<oracle::NamedMatrix> gallery = SpdZoo(21);
  gallery.push_back({"P7", bench::ConvectionDiffusion(9, 0), true});
  gallery.push_back({"P27", bench::Laplacian27(8), true});
  gallery.push_back({"E80", bench::Elasticity(5), true});
  gallery.push_back({"aniso", bench::Anisotropic(30, 1e-3, std::numbers::pi / 8), true});
  return gallery;
}

FsaiOptions Filtered(FsaiOptions options) {
  options.post_filter = 0.05;
  return options;
}

TEST(FsaiInvariants, UnitDiagonal) {
  for (const oracle::NamedMatrix& named : Gallery()) {
    for (const FsaiOptions& options : {Grow(0), Grow(1), Grow(30), Grow(3, 5), Grow(70), Static(),
                                       Static(2), Filtered(Grow(20)), Filtered(Static(2))}) {
      const FsaiResult g = Build(named.a, options);
      EXPECT_EQ(g.quality.not_spd_rows, 0) << named.name;
      ExpectUnitDiagonal(named.a, g, 1e-12, named.name);
    }
  }
}

TEST(FsaiInvariants, NoStepsAreJacobi) {
  for (const oracle::NamedMatrix& named : SpdZoo(2)) {
    const oracle::Dense a = oracle::ToDense(static_cast<CscView>(named.a));
    const FsaiResult g = Build(named.a, Grow(0));
    ASSERT_EQ(g.g_rows.nnz(), a.rows);
    for (int64_t i = 0; i < a.rows; ++i) {
      EXPECT_DOUBLE_EQ(g.g_rows.values[static_cast<size_t>(i)], 1 / std::sqrt(a(i, i)));
    }
    EXPECT_EQ(g.quality.kaporin, 1.0);
  }
}

// A full lower pattern gives the inverse Cholesky factor: G A Gᵀ = E.
TEST(FsaiInvariants, AFullPatternGivesTheInverseFactor) {
  for (const oracle::NamedMatrix& named : SpdZoo(9)) {
    const oracle::Dense a = oracle::ToDense(static_cast<CscView>(named.a));
    const int64_t n = a.rows;
    Pattern full;
    full.n_rows = full.n_cols = n;
    full.col_ptr.push_back(0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) full.row_idx.push_back(static_cast<int32_t>(j));
      full.col_ptr.push_back(full.nnz());
    }
    const PatternView view = full;
    for (const FsaiOptions& options : {Static(), Grow(0), Grow(100)}) {
      const FsaiResult g = Build(named.a, options, 2, &view);
      for (int64_t i = 0; i < n; ++i) {
        const oracle::Vector row = Row(g, i);
        for (int64_t j = 0; j <= i; ++j) {
          const oracle::Vector other = Row(g, j);
          double sum = 0;
          for (int64_t s = 0; s <= i; ++s) {
            for (int64_t t = 0; t <= j; ++t) {
              sum += row[static_cast<size_t>(s)] * a(s, t) * other[static_cast<size_t>(t)];
            }
          }
          ASSERT_NEAR(sum, i == j ? 1.0 : 0.0, 1e-10)
              << named.name << " (" << i << ", " << j << ")";
        }
      }
    }
  }
}

TEST(FsaiInvariants, PsiNeverGrows) {
  for (const oracle::NamedMatrix& named : Gallery()) {
    // Entries that join one by one; several, and few steps; several, and many. Of few steps and
    // many the same gradients are rounded differently, and these matrices are full of ties.
    for (const auto& [k_max, fewer, s] : {std::tuple{25, 7, 1}, {8, 5, 4}, {25, 12, 4}}) {
      const FsaiResult g = Build(named.a, Grow(k_max, s));
      const std::vector<double>& kaporin = g.quality.kaporin_by_step;
      EXPECT_EQ(kaporin[0], 1.0);
      for (size_t t = 1; t < kaporin.size(); ++t) EXPECT_LE(kaporin[t], kaporin[t - 1]);
      EXPECT_NEAR(kaporin.back(), g.quality.kaporin, 1e-13);
      const FsaiResult less = Build(named.a, Grow(fewer, s));
      for (size_t i = 0; i < g.psi_ratio.size(); ++i) {
        EXPECT_LE(g.psi_ratio[i], less.psi_ratio[i] * (1 + 1e-14)) << named.name << ", row " << i;
      }
      for (size_t t = 0; t <= static_cast<size_t>(fewer); ++t) {
        EXPECT_EQ(less.quality.kaporin_by_step[t] < 1, kaporin[t] < 1);
        EXPECT_NEAR(less.quality.kaporin_by_step[t], kaporin[t], 1e-14);
      }
    }
  }
}

// The first rows do not see what comes after them.
TEST(FsaiInvariants, LeadingRowsAreThoseOfTheLeadingMinor) {
  const CscMatrix whole = bench::Laplacian27(7);
  oracle::Dense minor(100, 100);
  for (int64_t j = 0; j < 100; ++j) {
    const auto rows = static_cast<CscView>(whole).column(j);
    for (size_t p = 0; p < rows.size() && rows[p] < 100; ++p) {
      minor(rows[p], j) = static_cast<CscView>(whole).column_values(j)[p];
    }
  }
  for (const FsaiOptions& options : {Grow(20), Grow(3, 5)}) {
    const FsaiResult all = Build(whole, options), part = Build(oracle::FromDense(minor), options);
    for (int64_t i = 0; i < 100; ++i) {
      oracle::Vector row = Row(all, i);
      row.resize(100);
      EXPECT_EQ(row, Row(part, i)) << i;
    }
  }
}

// Blocks that do not meet may come in any order.
TEST(FsaiInvariants, PermutedBlocks) {
  const CscMatrix a = oracle::RandomSpd(30, 5, 6);
  const oracle::Dense d = oracle::ToDense(static_cast<CscView>(a));
  oracle::Dense twice(60, 60);
  for (int64_t i = 0; i < 30; ++i) {
    for (int64_t j = 0; j < 30; ++j) twice(2 * i, 2 * j) = twice(2 * i + 1, 2 * j + 1) = d(i, j);
  }
  const FsaiResult one = Build(a, Grow(9)), two = Build(oracle::FromDense(twice), Grow(9));
  for (int64_t i = 0; i < 30; ++i) {
    const oracle::Vector row = Row(one, i);
    for (const int64_t shift : {0, 1}) {
      const oracle::Vector other = Row(two, 2 * i + shift);
      for (int64_t j = 0; j < 30; ++j) {
        EXPECT_EQ(other[static_cast<size_t>(2 * j + shift)], row[static_cast<size_t>(j)]);
      }
    }
  }
}

// c A with a power of four: G / √c to the last bit. And D A D with powers of two on a prescribed
// pattern: G D⁻¹.
TEST(FsaiInvariants, PowersOfTwoScaleG) {
  for (const oracle::NamedMatrix& named : Gallery()) {
    const auto n = static_cast<size_t>(named.a.n_cols);
    const FsaiResult g = Build(named.a, Grow(15));
    for (const double root : {4096.0, 1.0 / 1024}) {
      const FsaiResult scaled = Build(Scaled(named.a, oracle::Vector(n, root)), Grow(15));
      ASSERT_EQ(scaled.g_rows.row_idx, g.g_rows.row_idx) << named.name;
      for (size_t p = 0; p < g.g_rows.values.size(); ++p) {
        ASSERT_EQ(scaled.g_rows.values[p] * root, g.g_rows.values[p]) << named.name;
      }
    }
    oracle::Random random(4);
    oracle::Vector d(n);
    for (double& x : d) x = std::ldexp(1.0, static_cast<int>(random.Below(17)) - 8);
    const FsaiResult fixed = Build(named.a, Static());
    const FsaiResult scaled = Build(Scaled(named.a, d), Static());
    ASSERT_EQ(scaled.g_rows.row_idx, fixed.g_rows.row_idx);
    for (int64_t i = 0; i < named.a.n_cols; ++i) {
      const oracle::Vector row = Row(fixed, i), other = Row(scaled, i);
      for (size_t j = 0; j < n; ++j) {
        ASSERT_NEAR(other[j] * d[j], row[j], 1e-12 * std::abs(row[j]) + 1e-14) << named.name;
      }
    }
  }
}

TEST(FsaiInvariants, NewValuesOnAGrownPattern) {
  for (const oracle::NamedMatrix& named : Gallery()) {
    const FsaiResult g = Build(named.a, Grow(12));
    const auto again = BuildFsaiOn(g.g_rows.pattern(), named.a, Grow(12), Threads(2));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->g_rows.row_idx, g.g_rows.row_idx);
    for (size_t i = 0; i < g.psi_ratio.size(); ++i) {
      EXPECT_NEAR(again->psi_ratio[i], g.psi_ratio[i], 1e-11) << named.name;
    }
    ExpectUnitDiagonal(named.a, *again, 1e-12, named.name);
  }
}

TEST(FsaiInvariants, SinglePrecisionStaysNear) {
  for (const oracle::NamedMatrix& named : Gallery()) {
    for (FsaiOptions options : {Grow(12), Grow(3, 5), Static()}) {
      const FsaiResult twice = Build(named.a, options);
      options.precision = Precision::kFp32;
      const FsaiResult single = Build(named.a, options);
      EXPECT_EQ(single.quality.not_spd_rows, 0) << named.name;
      EXPECT_NEAR(single.quality.kaporin, twice.quality.kaporin, 2e-3 * twice.quality.kaporin)
          << named.name;
      for (const double v : single.g_rows.values) {
        int exponent = 0;
        const double fraction = std::frexp(v, &exponent);
        ASSERT_EQ(static_cast<double>(static_cast<float>(fraction)), fraction);
      }
      ExpectUnitDiagonal(named.a, single, 1e-4, named.name);
    }
  }
}

TEST(FsaiInvariants, ThreadsDoNotChangeABit) {
  const CscMatrix matrices[] = {bench::Elasticity(7), bench::ConvectionDiffusion(14, 0),
                                Hub(2000, 0, 3), Hub(2000, 1999, 3), oracle::RandomSpd(3000, 8, 1)};
  for (const CscMatrix& a : matrices) {
    for (FsaiOptions options :
         {Grow(30), Grow(4, 8), Grow(2, 32), Static(), Filtered(Grow(10)), Filtered(Static())}) {
      for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
        options.precision = precision;
        const FsaiResult one = Build(a, options, 1);
        for (const int threads : {2, 3}) ExpectSame(one, Build(a, options, threads), "threads");
      }
    }
  }
}

// 128 rows of many tell the mean of the logarithms within three of their standard deviations.
TEST(FsaiInvariants, ASampleTellsKaporinsReduction) {
  FsaiOptions light;
  light.min_gain = 1e-2;
  for (const auto& a : {oracle::Laplacian2d(70, 60), oracle::RandomSpd(2500, 6, 3)}) {
    const FsaiResult whole = Build(a, light);
    double squares = 0, mean = 0;
    for (const double ratio : whole.psi_ratio) mean += std::log(ratio);
    mean /= static_cast<double>(a.n_cols);
    for (const double ratio : whole.psi_ratio) squares += std::pow(std::log(ratio) - mean, 2);
    const double deviation = std::sqrt(squares / static_cast<double>(a.n_cols) / 128);
    EXPECT_NEAR(std::log(SampledKaporin(a, light, 128)), mean, 3 * deviation + 1e-12);
    EXPECT_EQ(SampledKaporin(a, light, 128, 3), SampledKaporin(a, light, 128));
  }
}

}  // namespace
}  // namespace spaid::kernels
