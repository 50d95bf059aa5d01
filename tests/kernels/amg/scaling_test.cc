#include "kernels/amg/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/kernels/amg/problems.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Scaling, OfASymmetricMatrixByHand) {
  const auto scaled = ScaleToUnitDiagonal(oracle::FromRows({{4, -2}, {-2, 16}}), true, Threads(1));
  ASSERT_TRUE(scaled.ok());
  EXPECT_THAT(scaled->rows.values, ElementsAre(1, -0.25, -0.25, 1));
  EXPECT_THAT(scaled->scale, ElementsAre(0.5, 0.25));
  EXPECT_EQ(scaled->sign, 1);
  EXPECT_DOUBLE_EQ(scaled->beta, 1.5);
}

TEST(Scaling, TurnsANegativeDefiniteMatrix) {
  const auto scaled = ScaleToUnitDiagonal(oracle::FromRows({{-4, 2}, {2, -16}}), true, Threads(1));
  ASSERT_TRUE(scaled.ok());
  EXPECT_THAT(scaled->rows.values, ElementsAre(1, -0.25, -0.25, 1));
  EXPECT_EQ(scaled->sign, -1);
}

TEST(Scaling, LeavesOthersAsTheyAre) {
  const CscMatrix a = oracle::FromRows({{4, 1}, {-2, 16}});
  const auto scaled = ScaleToUnitDiagonal(a, false, Threads(1));
  ASSERT_TRUE(scaled.ok());
  EXPECT_THAT(scaled->rows.values, ElementsAre(4, 1, -2, 16));  // by rows
  EXPECT_TRUE(scaled->scale.empty());
}

TEST(Scaling, StaysSymmetricToTheLastBit) {
  const CscMatrix a = From(gallery::BadlyScaled2d(20, 12));
  const auto scaled = ScaleToUnitDiagonal(a, true, Threads(2));
  ASSERT_TRUE(scaled.ok());
  EXPECT_EQ(oracle::ToDense(scaled->rows).a, oracle::Transpose(oracle::ToDense(scaled->rows)).a);
}

TEST(Scaling, RefusesDiagonals) {
  const auto zero =
      ScaleToUnitDiagonal(oracle::FromRows({{1, 1, 0}, {1, 0, 2}, {0, 2, 3}}), true, Threads(1));
  EXPECT_EQ(zero.status().reason(), "ZERO_DIAGONAL");
  EXPECT_EQ(zero.status().index(), 1);
  EXPECT_THAT(zero.status().message(), HasSubstr("static-spai"));
  const auto mixed = ScaleToUnitDiagonal(oracle::FromRows({{1, 0}, {0, -1}}), true, Threads(1));
  EXPECT_EQ(mixed.status().reason(), "NOT_POSITIVE_DEFINITE");
  EXPECT_EQ(mixed.status().index(), 1);
  EXPECT_TRUE(ScaleToUnitDiagonal(oracle::FromRows({{1, 1}, {0, -1}}), false, Threads(1)).ok());
}

Result<NearNull> NearOf(const CscMatrix& a, const NearNullInput& input, int block,
                        double* rayleigh) {
  auto scaled = ScaleToUnitDiagonal(a, true, Threads(1));
  EXPECT_TRUE(scaled.ok());
  return MakeNearNull(*scaled, input, block, Threads(1), rayleigh);
}

TEST(NearNull, OnesWhereTheDiagonalIsConstant) {
  double rayleigh = 0;
  const auto near = NearOf(oracle::Laplacian2d(10, 10), {}, 1, &rayleigh);
  ASSERT_TRUE(near.ok());
  EXPECT_TRUE(near->ones());
  // Σ a_ij / Σ a_ii = 40 / 400.
  EXPECT_NEAR(rayleigh, 0.1, 1e-14);
}

// D A D has D⁻¹ 1 nearly in its null space, which the diagonal gives back.
TEST(NearNull, UndoesABadScaling) {
  double plain = 0, scaled = 0;
  ASSERT_TRUE(NearOf(oracle::Laplacian2d(20, 20), {}, 1, &plain).ok());
  const auto near = NearOf(From(gallery::BadlyScaled2d(20, 8)), {}, 1, &scaled);
  ASSERT_TRUE(near.ok());
  EXPECT_NEAR(scaled, plain, 1e-10);
}

TEST(NearNull, GivenVectorsAreScaled) {
  const std::vector<double> vectors = {1, 2, 3, 5};
  double rayleigh = 0;
  const auto near =
      NearOf(oracle::FromRows({{4, 1}, {1, 9}}),
             {.vectors = vectors, .count = 2, .coordinates = {}, .dimension = 0}, 1, &rayleigh);
  ASSERT_TRUE(near.ok());
  EXPECT_THAT(near->values, ElementsAre(2, 6, 6, 15));
}

TEST(NearNull, BlocksHaveAVectorForEachUnknown) {
  double rayleigh = 0;
  const auto near = NearOf(oracle::FromRows({{1, 0}, {0, 1}}), {}, 2, &rayleigh);
  ASSERT_TRUE(near.ok());
  EXPECT_THAT(near->values, ElementsAre(1, 0, 0, 1));
}

TEST(NearNull, RotationsByHand) {
  const CscMatrix e = oracle::FromRows({{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}});
  const std::vector<double> xy = {0, 2, 5, 5};  // (0, 5), (2, 5): centred (-1, 0), (1, 0)
  double rayleigh = 0;
  const auto near =
      NearOf(e, {.vectors = {}, .count = 0, .coordinates = xy, .dimension = 2}, 2, &rayleigh);
  ASSERT_TRUE(near.ok());
  EXPECT_EQ(near->count, 3);
  EXPECT_THAT(near->values, ElementsAre(1, 0, 1, 0, 0, 1, 0, 1, -0.0, -1, -0.0, 1));
}

TEST(NearNull, Refusals) {
  const CscMatrix a = oracle::FromRows({{2, 0}, {0, 2}});
  double rayleigh = 0;
  const std::vector<double> short_one = {1}, dependent = {1, 2, 2, 4}, zero = {0, 0};
  const std::vector<double> nan = {1, std::numeric_limits<double>::quiet_NaN()};
  const auto reason = [&](const NearNullInput& input, int block) {
    return NearOf(a, input, block, &rayleigh).status();
  };
  EXPECT_EQ(
      reason({.vectors = short_one, .count = 1, .coordinates = {}, .dimension = 0}, 1).reason(),
      "BAD_NEAR_NULL_SPACE");
  EXPECT_EQ(reason({.vectors = nan, .count = 1, .coordinates = {}, .dimension = 0}, 1).index(), 1);
  const Status status =
      reason({.vectors = dependent, .count = 2, .coordinates = {}, .dimension = 0}, 1);
  EXPECT_EQ(status.reason(), "RANK_DEFICIENT");
  EXPECT_EQ(status.index(), 1);
  EXPECT_EQ(reason({.vectors = zero, .count = 1, .coordinates = {}, .dimension = 0}, 1).reason(),
            "RANK_DEFICIENT");
  EXPECT_EQ(reason({.vectors = {}, .count = 0, .coordinates = nan, .dimension = 2}, 2).reason(),
            "BAD_COORDINATES");
  EXPECT_EQ(reason({.vectors = {}, .count = 0, .coordinates = zero, .dimension = 1}, 1).reason(),
            "BAD_COORDINATES");
  EXPECT_EQ(
      reason({.vectors = {}, .count = 0, .coordinates = short_one, .dimension = 2}, 2).reason(),
      "BAD_COORDINATES");
}

}  // namespace
}  // namespace spaid::kernels
