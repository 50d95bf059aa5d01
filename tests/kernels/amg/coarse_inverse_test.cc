#include "kernels/amg/coarse_inverse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/kernels/amg/problems.h"

namespace spaid::kernels {
namespace {

oracle::Dense DenseOf(const CoarseInverse& inverse) {
  oracle::Dense dense(inverse.n, inverse.n);
  for (int64_t i = 0; i < inverse.n; ++i) {
    for (int64_t j = 0; j < inverse.n; ++j)
      dense(i, j) = inverse.rows[static_cast<size_t>(i * inverse.n + j)];
  }
  return dense;
}

TEST(CoarseInverse, ByHand) {
  const auto inverse = InvertCoarse(oracle::FromRows({{4, 1}, {2, 3}}), true, Threads(1));
  ASSERT_TRUE(inverse.ok());
  const auto general =
      InvertCoarse(Transpose(CscView(oracle::FromRows({{4, 1}, {2, 3}}))), false, Threads(1));
  ASSERT_TRUE(general.ok());
  const oracle::Dense got = DenseOf(*general);
  EXPECT_NEAR(got(0, 0), 0.3, 1e-15);
  EXPECT_NEAR(got(0, 1), -0.1, 1e-15);
  EXPECT_NEAR(got(1, 0), -0.2, 1e-15);
  EXPECT_NEAR(got(1, 1), 0.4, 1e-15);
}

TEST(CoarseInverse, IsTheInverse) {
  for (const Problem& problem : Problems()) {
    if (problem.name == "hubs") continue;  // singular
    SCOPED_TRACE(problem.name);
    const auto inverse = InvertCoarse(problem.rows, problem.symmetric, Threads(2));
    ASSERT_TRUE(inverse.ok());
    EXPECT_EQ(inverse->singular_pivots, 0);
    const oracle::Dense product = oracle::Multiply(DenseOf(problem.rows), DenseOf(*inverse));
    const int64_t n = inverse->n;
    double size = 0;
    for (const double value : inverse->rows) size = std::max(size, std::fabs(value));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j)
        ASSERT_NEAR(product(i, j), i == j ? 1 : 0, 1e-11 * std::max(1.0, size));
    }
  }
}

TEST(CoarseInverse, ExchangesRowsWhereTheDiagonalIsZero) {
  const CscMatrix rows = Transpose(CscView(oracle::FromRows({{0, 2, 0}, {0, 0, 4}, {8, 0, 0}})));
  const auto inverse = InvertCoarse(rows, false, Threads(1));
  ASSERT_TRUE(inverse.ok());
  EXPECT_EQ(DenseOf(*inverse).a,
            oracle::ToDense(oracle::FromRows({{0, 0, .125}, {.5, 0, 0}, {0, .25, 0}})).a);
}

// A x = b is solved where b is in the range, up to the null space.
TEST(CoarseInverse, LeavesOutWhatIsSingular) {
  const CscMatrix a = From(gallery::GraphLaplacian(90));
  const auto inverse = InvertCoarse(a, true, Threads(2));
  ASSERT_TRUE(inverse.ok());
  EXPECT_EQ(inverse->singular_pivots, 1);
  const oracle::Dense dense = oracle::ToDense(a), m = DenseOf(*inverse);
  oracle::Vector b(90, 0.0);
  b[3] = 1, b[70] = -1;
  const oracle::Vector r = oracle::Residual(dense, oracle::Multiply(m, b), b);
  EXPECT_LT(oracle::Norm(r), 1e-12);
  for (int64_t i = 0; i < 90; ++i) {
    for (int64_t j = 0; j < i; ++j) ASSERT_EQ(m(i, j), m(j, i));
  }
}

// A part without a boundary that became one unknown: nothing but rounding is left of its diagonal.
TEST(CoarseInverse, LeavesOutAnUnknownOfRoundingAlone) {
  const CscMatrix a = oracle::FromRows({{1, 0.5, 0}, {0.5, 1, 0}, {0, 0, 1e-16}});
  const auto inverse = InvertCoarse(a, true, Threads(1));
  ASSERT_TRUE(inverse.ok()) << inverse.status().message();
  EXPECT_EQ(inverse->singular_pivots, 1);
  const std::vector<double> expected = {4.0 / 3, -2.0 / 3, 0, -2.0 / 3, 4.0 / 3, 0, 0, 0, 0};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(inverse->rows[i], expected[i], 1e-15) << i;
}

TEST(CoarseInverse, SameBitsForAnyNumberOfThreads) {
  const CscMatrix a = oracle::Laplacian2d(20, 18);
  const auto one = InvertCoarse(a, true, Threads(1)), five = InvertCoarse(a, true, Threads(5));
  ASSERT_TRUE(one.ok() && five.ok());
  EXPECT_TRUE(std::equal(one->rows.begin(), one->rows.end(), five->rows.begin()));
}

TEST(CoarseInverse, RefusesWhatIsNotFinite) {
  CscMatrix a = oracle::Laplacian2d(3, 3);
  a.values[4] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(InvertCoarse(a, true, Threads(1)).status().reason(), "NON_FINITE_VALUE");
}

TEST(CoarseInverse, Stops) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  Context context = Threads(1);
  context.stop = source.token();
  for (const bool symmetric : {true, false}) {
    EXPECT_EQ(InvertCoarse(oracle::Laplacian2d(3, 3), symmetric, context).status().reason(),
              "CANCELLED");
  }
}

}  // namespace
}  // namespace spaid::kernels
