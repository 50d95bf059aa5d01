// Rows that repeat others: copied or grown, the same bits; and copied wherever they do repeat.
#include "kernels/fsai/repeats.h"

#include <cstdint>

#include "tests/kernels/fsai/repeat_cases.h"

namespace spaid::kernels {
namespace {

void ExpectTheRowsThemselves(Precision precision) {
  for (const RepeatCase& c : RepeatCases()) {
    for (FsaiOptions options : {Grow(30), Grow(9), Grow(4, 5), Grow(30, 1, 0.7)}) {
      const std::string what = std::string(c.name) + ", k_max " + std::to_string(options.k_max);
      options.precision = precision;
      options.repeat_hash_bits = 0;
      const FsaiResult grown = Build(c.a, options);
      EXPECT_EQ(grown.quality.copied_rows, 0) << what;
      options.repeat_hash_bits = 64;
      const FsaiResult copied = Build(c.a, options);
      ExpectSameFigures(copied, grown, what);
      EXPECT_EQ(copied.quality.flops, grown.quality.flops) << what;
      const auto rows = static_cast<double>(copied.quality.copied_rows);
      EXPECT_GE(rows, c.copied * static_cast<double>(c.a.n_cols)) << what;
      if (c.copied == 0 && options.k_max > 9 && options.epsilon == 0) {
        EXPECT_LE(rows, 0.1 * static_cast<double>(c.a.n_cols)) << what;
      }
    }
  }
}

TEST(FsaiRepeats, AreTheRowsThemselves) { ExpectTheRowsThemselves(Precision::kFp64); }

TEST(FsaiRepeats, AreTheRowsThemselvesInFp32) { ExpectTheRowsThemselves(Precision::kFp32); }

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
  const Pattern initial = UnevenStart(a);
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
  std::vector<double> diagonal(64, 1.0);
  Array<int32_t> like = LikeRows(a, diagonal, 64, 2);
  ASSERT_EQ(like.size(), 64u);
  for (int32_t i = 0; i < 64; ++i) {
    const int32_t expected = i == 0 || i == 40 || i == 41 || i == 63 ? i : 1;
    EXPECT_EQ(like[static_cast<size_t>(i)], expected) << i;
  }
  diagonal[20] = 1.5;
  like = LikeRows(a, diagonal, 64, 2);
  EXPECT_EQ(like[18], 1);
  EXPECT_EQ(like[19], 19);
  EXPECT_EQ(like[21], 21);
  // Hashes of one bit: those that are not like the first of theirs are like none.
  like = LikeRows(a, diagonal, 1, 2);
  for (const int32_t i : {0, 19, 20, 21, 40, 41, 63}) {
    for (const int32_t j : {5, 50}) {
      EXPECT_NE(like[static_cast<size_t>(i)], like[static_cast<size_t>(j)]) << i;
    }
  }
}

TEST(LikeRows, AreNotWorthASearchWhereFewRepeat) {
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(9, 0));
  const std::vector<double> diagonal(static_cast<size_t>(a.n_cols), 1.0);
  EXPECT_TRUE(LikeRows(a, diagonal, 64, 2).empty());
}

}  // namespace
}  // namespace spaid::kernels
