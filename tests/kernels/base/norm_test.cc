#include "kernels/base/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace spaid::kernels {
namespace {

TEST(NormTest, SquaresNeitherOverflowNorUnderflow) {
  EXPECT_EQ(Norm({}), 0);
  EXPECT_EQ(Norm(std::vector<double>{0, -0.0}), 0);
  for (const double unit : {1.0, 0x1p1000, 0x1p-1040}) {
    EXPECT_EQ(Norm(std::vector<double>{3 * unit, 0, -4 * unit}), 5 * unit);
  }
}

TEST(NormTest, IsInfiniteWhereAnElementIsNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Norm(std::vector<double>{1, -kInfinity}), kInfinity);
  EXPECT_EQ(Norm(std::vector<double>{std::nan("")}), kInfinity);
}

}  // namespace
}  // namespace spaid::kernels
