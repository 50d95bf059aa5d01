// Rows that repeat others: copied or grown, the same bits; and copied wherever they do repeat.
#include "kernels/fsai/repeats.h"

#include <cstdint>
#include <numbers>

#include "kernels/bench/problems.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

struct Case {
  const char* name;
  CscMatrix a;
  double copied;  // share of the rows that is, at the least; 0: none
};

// a(i, j) and a(j, i) += by.
void Change(CscMatrix& a, int64_t i, int64_t j, double by) {
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
CscMatrix Coins(int64_t n) {
  return Tridiagonal(n, [](int64_t i) {
    const uint64_t x = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    return ((x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u) >> 63 == 0 ? -0.25 : -0.375;
  });
}

// A cycle: no row is at a boundary but by its number.
CscMatrix Cycle(int64_t n) {
  oracle::Dense d(n, n);
  for (int64_t i = 0; i < n; ++i) {
    d(i, i) = 2.5;
    d(i, (i + 1) % n) = d((i + 1) % n, i) = -1;
    d(i, (i + 7) % n) = d((i + 7) % n, i) = -0.125;
  }
  return oracle::FromDense(d);
}

// The coefficients of rows from n / 2 on are four times those before.
CscMatrix TwoBlocks(CscMatrix a) {
  oracle::Vector x(static_cast<size_t>(a.n_cols), 1.0);
  for (size_t i = x.size() / 2; i < x.size(); ++i) x[i] = 2;
  return Scaled(a, x);
}

std::vector<Case> Cases() {
  std::vector<Case> all;
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

void ExpectSameFigures(const FsaiResult& x, const FsaiResult& y, const std::string& what) {
  ExpectSame(x, y, what);
  EXPECT_EQ(x.quality.not_spd_rows, y.quality.not_spd_rows) << what;
  EXPECT_EQ(x.quality.first_not_spd, y.quality.first_not_spd) << what;
  EXPECT_EQ(x.quality.converged_rows, y.quality.converged_rows) << what;
  EXPECT_EQ(x.quality.nnz_row_max, y.quality.nnz_row_max) << what;
  EXPECT_EQ(x.quality.flops, y.quality.flops) << what;
}

TEST(FsaiRepeats, AreTheRowsThemselves) {
  for (const Case& c : Cases()) {
    for (FsaiOptions options : {Grow(30), Grow(9), Grow(4, 5), Grow(30, 1, 0.7)}) {
      for (const auto precision : {FsaiPrecision::kFp64, FsaiPrecision::kFp32}) {
        const std::string what = std::string(c.name) + ", k_max " + std::to_string(options.k_max);
        options.precision = precision;
        options.repeat_hash_bits = 0;
        const FsaiResult grown = Build(c.a, options);
        EXPECT_EQ(grown.quality.copied_rows, 0) << what;
        options.repeat_hash_bits = 64;
        const FsaiResult copied = Build(c.a, options);
        ExpectSameFigures(copied, grown, what);
        const auto rows = static_cast<double>(copied.quality.copied_rows);
        EXPECT_GE(rows, c.copied * static_cast<double>(c.a.n_cols)) << what;
        if (c.copied == 0 && options.k_max > 9 && options.epsilon == 0) {
          EXPECT_LE(rows, 0.1 * static_cast<double>(c.a.n_cols)) << what;
        }
      }
    }
  }
}

TEST(FsaiRepeats, AreFoundForAnyNumberOfThreads) {
  const CscMatrix a = bench::ConvectionDiffusion(16, 0);
  const FsaiResult one = Build(a, Grow(20), 1);
  for (const int threads : {2, 3}) {
    const FsaiResult g = Build(a, Grow(20), threads);
    ExpectSameFigures(g, one, "threads");
    EXPECT_EQ(g.quality.copied_rows, one.quality.copied_rows);
  }
}

// Rows that hash alike are compared.
TEST(FsaiRepeats, AreNotBelievedOfAHash) {
  for (const CscMatrix& a : {bench::ConvectionDiffusion(14, 0), Coins(3000), Cycle(300),
                             bench::WithVaryingCoefficients(bench::ConvectionDiffusion(9, 0))}) {
    FsaiOptions options = Grow(12);
    options.repeat_hash_bits = 0;
    const FsaiResult grown = Build(a, options);
    for (const int bits : {1, 2, 4}) {
      options.repeat_hash_bits = bits;
      ExpectSameFigures(Build(a, options), grown, std::to_string(bits) + " bits");
    }
  }
}

// Rows of A alike, but not those that growth goes on to.
TEST(FsaiRepeats, DependOnAllThatIsRead) {
  const CscMatrix a = Coins(4000);
  int64_t before = a.n_cols;
  for (const int k_max : {1, 4, 16}) {
    FsaiOptions options = Grow(k_max);
    const FsaiResult copied = Build(a, options);
    options.repeat_hash_bits = 0;
    ExpectSameFigures(copied, Build(a, options), std::to_string(k_max));
    EXPECT_LT(copied.quality.copied_rows, before);
    before = copied.quality.copied_rows;
    if (k_max == 1) {
      EXPECT_GT(before, 3900);
    }
  }
  EXPECT_LT(before, 2000);
}

TEST(FsaiRepeats, OfAnInitialPattern) {
  const CscMatrix a = bench::ConvectionDiffusion(14, 0);
  // Tril(A), and of some rows the diagonal alone.
  Pattern initial;
  initial.n_rows = initial.n_cols = a.n_cols;
  initial.col_ptr.push_back(0);
  for (int64_t i = 0; i < a.n_cols; ++i) {
    for (const int32_t j : a.pattern().column(i)) {
      if (j <= i && (j == i || i % 5 != 0)) initial.row_idx.push_back(j);
    }
    initial.col_ptr.push_back(initial.nnz());
  }
  const PatternView view = initial;
  for (const int k_max : {0, 8}) {
    FsaiOptions options = Grow(k_max);
    const FsaiResult copied = Build(a, options, 2, &view);
    options.repeat_hash_bits = 0;
    ExpectSameFigures(copied, Build(a, options, 2, &view), "initial pattern");
    EXPECT_GT(copied.quality.copied_rows, a.n_cols / 2);
  }
}

TEST(FsaiRepeats, ComeBeforeAFilter) {
  const CscMatrix a = bench::Laplacian27(12);
  FsaiOptions options = Grow(20);
  options.post_filter = 0.05;
  const FsaiResult copied = Build(a, options);
  options.repeat_hash_bits = 0;
  ExpectSameFigures(copied, Build(a, options), "filtered");
  EXPECT_GT(copied.quality.copied_rows, a.n_cols / 3);
}

// By the definition: entries, distances, diagonal entries of neighbours.
TEST(LikeRows, AreOfOneKind) {
  const CscMatrix a = Tridiagonal(64, [](int64_t i) { return i == 40 ? -0.5 : -0.25; });
  SymmetricMatrix s{a, {}, true};
  s.diagonal.values.assign(64, 1.0);
  Array<int32_t> like = LikeRows(s, 64, 2);
  ASSERT_EQ(like.size(), 64u);
  for (int32_t i = 0; i < 64; ++i) {
    const int32_t expected = i == 0 || i == 40 || i == 41 || i == 63 ? i : 1;
    EXPECT_EQ(like[static_cast<size_t>(i)], expected) << i;
  }
  s.diagonal.values[20] = 1.5;
  like = LikeRows(s, 64, 2);
  EXPECT_EQ(like[18], 1);
  EXPECT_EQ(like[19], 19);
  EXPECT_EQ(like[21], 21);
  // Hashes of one bit: those that are not like the first of theirs are like none.
  like = LikeRows(s, 1, 2);
  for (const int32_t i : {0, 19, 20, 21, 40, 41, 63}) {
    for (const int32_t j : {5, 50}) {
      EXPECT_NE(like[static_cast<size_t>(i)], like[static_cast<size_t>(j)]) << i;
    }
  }
}

TEST(LikeRows, AreNotWorthASearchWhereFewRepeat) {
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(9, 0));
  SymmetricMatrix s{a, {}, true};
  s.diagonal.values.assign(static_cast<size_t>(a.n_cols), 1.0);
  EXPECT_TRUE(LikeRows(s, 64, 2).empty());
}

}  // namespace
}  // namespace spaid::kernels
