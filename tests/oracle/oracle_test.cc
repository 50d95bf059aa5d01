// The references themselves, by hand and by what mathematics promises.
#include "tests/oracle/oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/oracle/generators.h"

namespace spaid::oracle {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(OracleTest, WorkedFourByFourExampleOfTheLiterature) {
  const Dense a = DenseOfRows({{10, 10, 0, 14}, {0, 10, 2, 0}, {13, 0, 0, 1}, {0, 5, 0, 0}});
  const Vector first = SpaiColumn(a, 0, {0});
  EXPECT_THAT(first, ElementsAre(DoubleNear(10.0 / 269, 1e-15), 0, 0, 0));
  const Vector second = SpaiColumn(a, 0, {0, 3});
  EXPECT_THAT(second,
              ElementsAre(DoubleNear(-1.0 / 172, 1e-15), 0, 0, DoubleNear(13.0 / 172, 1e-15)));
}

TEST(OracleTest, LeastSquaresOfADeficientSystemIsBasicAndMinimal) {
  const Dense a = DenseOfRows({{1, 2, 3}, {2, 4, 6}, {1, 2, 3}});
  int64_t rank = -1;
  const Vector b{1, 0, 1};
  const Vector x = LeastSquares(a, b, 1e-13, &rank);
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(x[0], 0);
  EXPECT_EQ(x[1], 0);
  EXPECT_NEAR(x[2], 6.0 / 54, 1e-15);
  EXPECT_NEAR(LeastSquaresResidual(a, b), std::sqrt(2 - 36.0 / 54), 1e-14);
}

TEST(OracleTest, NormSurvivesExtremeValues) {
  EXPECT_DOUBLE_EQ(Norm({3e200, 4e200}), 5e200);
  EXPECT_DOUBLE_EQ(Norm({3e-200, 4e-200}), 5e-200);
  EXPECT_TRUE(std::isnan(Norm({1, NAN})));
}

TEST(OracleTest, LuAndLeastSquaresAgreeOnRegularMatrices) {
  for (const auto& [name, sparse, regular] : Zoo(2)) {
    if (!regular || name.rfind("badly", 0) == 0) continue;
    SCOPED_TRACE(name);
    const Dense a = ToDense(kernels::CscView(sparse));
    Vector truth(size_t(a.cols));
    for (size_t i = 0; i < truth.size(); ++i) truth[i] = std::sin(1.0 + double(i));
    const Vector b = Multiply(a, truth);
    const auto lu = LuSolve(a, b);
    ASSERT_TRUE(lu.has_value());
    const Vector qr = LeastSquares(a, b);
    for (size_t i = 0; i < truth.size(); ++i) {
      EXPECT_NEAR((*lu)[i], truth[i], 1e-9);
      EXPECT_NEAR(qr[i], truth[i], 1e-9);
    }
  }
  EXPECT_FALSE(LuSolve(DenseOfRows({{0, 1}, {0, 2}}), {1, 1}).has_value());
}

TEST(OracleTest, FullPatternGivesTheInverse) {
  const Dense a = ToDense(kernels::CscView(RandomIrregular(12, 3, 4)));
  Dense full(12, 12);
  for (double& v : full.a) v = 1;
  const Dense m = Spai(a, PatternFromDense(full));
  EXPECT_LT(SpaiFrobenius(a, m), 1e-13);
}

TEST(OracleTest, PatternPowerOfAChain) {
  const Dense chain = DenseOfRows({{0, 0, 0}, {1, 0, 0}, {0, 1, 0}});
  EXPECT_EQ(PatternPower(chain, 1).a, DenseOfRows({{1, 0, 0}, {1, 1, 0}, {0, 1, 1}}).a);
  EXPECT_EQ(PatternPower(chain, 2).a, DenseOfRows({{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}).a);
}

TEST(OracleTest, KrylovMethodsSolve) {
  const Dense spd = ToDense(kernels::CscView(Laplacian2d(6, 5)));
  const Dense general = ToDense(kernels::CscView(ConvectionDiffusion(6, 5, 2)));
  const Vector b(30, 1.0);
  const KrylovRun cg = Cg(spd, b, nullptr, 1e-10, 100);
  EXPECT_TRUE(cg.converged);
  EXPECT_LE(Norm(Residual(spd, cg.x, b)), 1e-9 * Norm(b));
  const KrylovRun bicgstab = Bicgstab(general, b, nullptr, 1e-10, 100);
  EXPECT_TRUE(bicgstab.converged);
  EXPECT_LE(Norm(Residual(general, bicgstab.x, b)), 1e-9 * Norm(b));
  // GMRES is optimal: never above BiCGSTAB at the same number of products, never rising.
  const Vector gmres = GmresResiduals(general, b, nullptr, 30);
  EXPECT_LT(gmres.back(), 1e-10);
  for (size_t i = 1; i < gmres.size(); ++i) EXPECT_LE(gmres[i], gmres[i - 1] * (1 + 1e-12) + 1e-14);
  for (size_t i = 0; i < bicgstab.residuals.size() && 2 * i < gmres.size(); ++i) {
    EXPECT_LE(gmres[2 * i], bicgstab.residuals[i] * (1 + 1e-8) + 1e-13);
  }
  const Vector zero(30, 0.0);
  EXPECT_TRUE(Cg(spd, zero, nullptr, 1e-10, 10).converged);
  EXPECT_EQ(Norm(Bicgstab(general, zero, nullptr, 1e-10, 10).x), 0);
}

TEST(GeneratorsTest, TheZooIsSquareSeededAndRegularAsSaid) {
  const auto zoo = Zoo(42), again = Zoo(42), other = Zoo(43);
  ASSERT_EQ(zoo.size(), again.size());
  bool differs = false;
  for (size_t z = 0; z < zoo.size(); ++z) {
    SCOPED_TRACE(zoo[z].name);
    EXPECT_EQ(zoo[z].a.values, again[z].a.values);
    EXPECT_EQ(zoo[z].a.row_idx, again[z].a.row_idx);
    differs |= zoo[z].a.values != other[z].a.values;
    EXPECT_EQ(zoo[z].a.n_rows, zoo[z].a.n_cols);
    for (int64_t j = 0; j < zoo[z].a.n_cols; ++j) {
      EXPECT_FALSE(kernels::CscView(zoo[z].a).column(j).empty());
    }
    if (zoo[z].name.rfind("badly", 0) == 0) continue;  // full rank only after scaling
    const Dense a = ToDense(kernels::CscView(zoo[z].a));
    int64_t rank = 0;
    LeastSquares(a, Vector(size_t(a.rows), 1.0), 1e-12, &rank);
    EXPECT_EQ(rank == a.cols, zoo[z].regular);
  }
  EXPECT_TRUE(differs);
}

TEST(GeneratorsTest, SpdMatricesAreDefinite) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const kernels::CscMatrix a = RandomSpd(25, 5, seed);
    const Dense d = ToDense(kernels::CscView(a));
    EXPECT_EQ(Transpose(d).a, d.a);
    EXPECT_TRUE(Cg(d, Vector(25, 1.0), nullptr, 1e-8, 200).converged);
  }
}

}  // namespace
}  // namespace spaid::oracle
