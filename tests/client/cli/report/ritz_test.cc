// Ritz values: known by hand, by closed forms, and by Eigen's dense solvers.
#include "client/cli/report/ritz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <vector>

#include "client/cli/gallery.h"
#include "client/cli/report/operators.h"

namespace spaid::cli {
namespace {

using Complex = std::complex<double>;
using Eigen::Map;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Operator Of(const MatrixXd& a) {
  return [a](std::span<const double> x, std::span<double> y) {
    Map<VectorXd>(y.data(), a.rows()) = a * Map<const VectorXd>(x.data(), a.cols());
  };
}

// The columns of what an operator does.
MatrixXd Dense(const Operator& op, int64_t n) {
  MatrixXd a(n, n);
  for (int64_t k = 0; k < n; ++k) {
    const VectorXd e = VectorXd::Unit(n, k);
    op({e.data(), static_cast<size_t>(n)}, {a.col(k).data(), static_cast<size_t>(n)});
  }
  return a;
}

MatrixXd Random(int64_t n) {
  std::srand(7);
  return MatrixXd::Random(n, n);
}

CscMatrix Sparse(const MatrixXd& a) {
  CscMatrix sparse{.n = a.rows(), .col_ptr = {0}};
  for (int64_t j = 0; j < a.cols(); ++j) {
    for (int64_t i = 0; i < a.rows(); ++i) {
      if (a(i, j) == 0) continue;
      sparse.row_idx.push_back(static_cast<int32_t>(i));
      sparse.values.push_back(a(i, j));
    }
    sparse.col_ptr.push_back(static_cast<int64_t>(sparse.row_idx.size()));
  }
  return sparse;
}

std::vector<double> Reals(const RitzValues& ritz) {
  std::vector<double> values;
  for (const RitzValue& v : ritz.values) {
    EXPECT_EQ(v.value.imag(), 0);
    values.push_back(v.value.real());
  }
  std::sort(values.begin(), values.end());
  return values;
}

// The largest distance of one of `values` to the nearest of `others`.
template <class Values>
double Distance(const RitzValues& ritz, const Values& others) {
  double most = 0;
  for (const RitzValue& v : ritz.values) {
    double least = std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < others.size(); ++k) {
      least = std::min(least, std::abs(v.value - Complex(others(k))));
    }
    most = std::max(most, least);
  }
  return most;
}

TEST(Lanczos, KnowsMatricesOfTwoAndThree) {
  MatrixXd a(2, 2);
  a << 2, 1, 1, 2;
  const RitzValues two = Lanczos(Of(a), 2, {});
  EXPECT_THAT(Reals(two), ElementsAre(DoubleNear(1, 1e-14), DoubleNear(3, 1e-14)));
  EXPECT_TRUE(two.symmetric);
  EXPECT_EQ(two.steps, 2);
  // Indefinite: 0 and ±√2, by magnitude.
  MatrixXd b(3, 3);
  b << 0, 1, 0, 1, 0, 1, 0, 1, 0;
  const RitzValues three = Lanczos(Of(b), 3, {});
  EXPECT_THAT(Reals(three), ElementsAre(DoubleNear(-std::sqrt(2), 1e-14), DoubleNear(0, 1e-14),
                                        DoubleNear(std::sqrt(2), 1e-14)));
  EXPECT_NEAR(std::abs(three.values.front().value), 0, 1e-14);
}

TEST(Lanczos, FindsAWholeKnownSpectrum) {
  const int64_t n = 50;
  const VectorXd d = VectorXd::LinSpaced(n, 1, 50);
  const RitzValues all = Lanczos(Of(d.asDiagonal()), n, {.steps = 60});
  EXPECT_EQ(all.steps, 50);
  const std::vector<double> values = Reals(all);
  ASSERT_EQ(values.size(), 50u);
  for (int64_t k = 0; k < n; ++k) EXPECT_NEAR(values[k], d(k), 1e-11);
  for (const RitzValue& v : all.values) EXPECT_TRUE(v.settled);
}

TEST(Lanczos, SettledMeansThatAnEigenvalueIsAsNear) {
  const int64_t n = 300;
  VectorXd d = VectorXd::LinSpaced(n, 1, 2);
  d(0) = 1e-3;
  d(1) = 40;
  const RitzValues ritz = Lanczos(Of(d.asDiagonal()), n, {.steps = 20});
  EXPECT_EQ(ritz.end, RitzEnd::kSteps);
  int settled = 0;
  for (const RitzValue& v : ritz.values) {
    const double near = (d.array() - v.value.real()).abs().minCoeff();
    EXPECT_GE(v.value.real(), 1e-3 - 1e-12);
    EXPECT_LE(v.value.real(), 40 + 1e-12);
    if (!v.settled) continue;
    ++settled;
    EXPECT_LE(near, 1e-3 * std::abs(v.value) + 1e-14);
  }
  EXPECT_GT(settled, 0);
  EXPECT_LT(settled, 20);
  EXPECT_TRUE(ritz.values.back().settled) << "far from all others";
}

TEST(Lanczos, HasTheEndsOfPoissonsSpectrum) {
  const int m = 12;
  const auto a = Generate("poisson", m);
  ASSERT_TRUE(a.ok());
  const SpectrumOperator op = OperatorOf(*a, true, nullptr);
  EXPECT_TRUE(op.symmetric);
  const RitzValues ritz = Lanczos(op.apply, a->n, {.steps = 100});
  const double cosine = std::cos(std::numbers::pi / (m + 1));
  const double scale = a->values[0] / 6;  // of the diagonal
  EXPECT_NEAR(Reals(ritz).back(), scale * (6 + 6 * cosine), scale * 1e-6);
  EXPECT_NEAR(Reals(ritz).front(), scale * (6 - 6 * cosine), scale * 1e-6);
}

TEST(Arnoldi, KnowsMatricesOfTwoAndThree) {
  MatrixXd turn(2, 2);
  turn << 0, -1, 1, 0;
  const RitzValues two = Arnoldi(Of(turn), 2, {});
  ASSERT_EQ(two.values.size(), 2u);
  EXPECT_FALSE(two.symmetric);
  EXPECT_LT(Distance(two, Eigen::Vector2cd(Complex(0, 1), Complex(0, -1))), 1e-14);
  MatrixXd upper(3, 3);
  upper << 1, 5, 7, 0, 2, 9, 0, 0, 3;
  EXPECT_LT(Distance(Arnoldi(Of(upper), 3, {}), Eigen::Vector3d(1, 2, 3)), 1e-12);
}

TEST(Arnoldi, AgreesWithADenseSolver) {
  const int64_t n = 40;
  const MatrixXd a = Random(n);
  const auto exact = Eigen::EigenSolver<MatrixXd>(a).eigenvalues().eval();
  const RitzValues all = Arnoldi(Of(a), n, {.steps = 40});
  ASSERT_EQ(all.values.size(), 40u);
  EXPECT_LT(Distance(all, exact), 1e-11);
  for (size_t k = 1; k < all.values.size(); ++k) {
    EXPECT_LE(std::abs(all.values[k - 1].value), std::abs(all.values[k].value));
  }
  // And as Lanczos does where it is symmetric.
  const MatrixXd symmetric = a + a.transpose();
  const auto real = Eigen::SelfAdjointEigenSolver<MatrixXd>(symmetric).eigenvalues().eval();
  EXPECT_LT(Distance(Arnoldi(Of(symmetric), n, {.steps = 40}), real), 1e-11);
  EXPECT_LT(Distance(Lanczos(Of(symmetric), n, {.steps = 40}), real), 1e-11);
}

TEST(Arnoldi, TheInverseGivesOneAtOnce) {
  const MatrixXd a = Random(30) + 4 * MatrixXd::Identity(30, 30);
  const CscMatrix sparse = Sparse(a), inverse = Sparse(a.inverse());
  const SpectrumOperator op = OperatorOf(sparse, false, &inverse);
  EXPECT_EQ(op.name, "A M");
  const RitzValues ritz = Arnoldi(op.apply, 30, {});
  EXPECT_EQ(ritz.end, RitzEnd::kInvariant);
  EXPECT_EQ(ritz.steps, 1);
  ASSERT_EQ(ritz.values.size(), 1u);
  EXPECT_NEAR(std::abs(ritz.values[0].value - 1.0), 0, 1e-12);
  EXPECT_TRUE(ritz.values[0].settled);
}

TEST(Krylov, EndsWhereTheSpaceIsInvariant) {
  // Two different eigenvalues: two steps, one copy of each.
  VectorXd d = VectorXd::Constant(20, 3);
  d.tail(10).setConstant(-5);
  const RitzValues two = Lanczos(Of(d.asDiagonal()), 20, {});
  EXPECT_EQ(two.end, RitzEnd::kInvariant);
  EXPECT_THAT(Reals(two), ElementsAre(DoubleNear(-5, 1e-13), DoubleNear(3, 1e-13)));
  const RitzValues zero = Arnoldi(Of(MatrixXd::Zero(5, 5)), 5, {});
  EXPECT_EQ(zero.end, RitzEnd::kInvariant);
  ASSERT_EQ(zero.values.size(), 1u);
  EXPECT_EQ(zero.values[0].value, 0.0);
  const RitzValues one = Lanczos(Of(MatrixXd::Constant(1, 1, -7)), 1, {});
  EXPECT_THAT(Reals(one), ElementsAre(-7));
}

TEST(Krylov, SaysWhatLimitedIt) {
  const int64_t n = 100;
  const MatrixXd a = VectorXd::LinSpaced(n, 1, 2).asDiagonal();
  // Four vectors, and the one that is being made.
  const RitzValues memory = Lanczos(Of(a), n, {.basis_bytes = 5 * 8 * n});
  EXPECT_EQ(memory.end, RitzEnd::kMemory);
  EXPECT_EQ(memory.steps, 4);
  EXPECT_EQ(memory.values.size(), 4u);
  const RitzValues nothing = Arnoldi(Of(a), n, {.basis_bytes = 8 * n});
  EXPECT_EQ(nothing.end, RitzEnd::kMemory);
  EXPECT_THAT(nothing.values, IsEmpty());
  const RitzValues time = Lanczos(Of(a), n, {.time_limit = {}});
  EXPECT_EQ(time.end, RitzEnd::kTime);
  EXPECT_EQ(time.steps, 0);
  std::stop_source stop;
  const Operator stopping = [&](std::span<const double> x, std::span<double> y) {
    Of(a)(x, y);
    stop.request_stop();
  };
  const RitzValues stopped = Lanczos(stopping, n, {.stop = stop.get_token()});
  EXPECT_EQ(stopped.end, RitzEnd::kStopped);
  EXPECT_EQ(stopped.steps, 1);
}

TEST(Krylov, SaysThatNumbersAreNotFinite) {
  MatrixXd a = MatrixXd::Identity(5, 5);
  a(2, 2) = std::numeric_limits<double>::quiet_NaN();
  for (const RitzValues& ritz : {Lanczos(Of(a), 5, {}), Arnoldi(Of(a), 5, {})}) {
    EXPECT_EQ(ritz.end, RitzEnd::kNotFinite);
    EXPECT_THAT(ritz.values, IsEmpty());
  }
  // Finite products, whose projection is not.
  const MatrixXd huge = MatrixXd::Constant(4, 4, 1e308);
  EXPECT_EQ(Lanczos(Of(huge), 4, {}).end, RitzEnd::kNotFinite);
}

TEST(Krylov, ASeedMakesItTheSameAgain) {
  const MatrixXd a = Random(80);
  const auto values = [&](uint64_t seed) {
    std::vector<Complex> list;
    for (const RitzValue& v : Arnoldi(Of(a), 80, {.steps = 10, .seed = seed}).values) {
      list.push_back(v.value);
    }
    return list;
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));
}

TEST(OperatorOf, HasTheSpectrumOfMA) {
  const int64_t n = 12;
  const MatrixXd r = Random(n);
  const MatrixXd a = r * r.transpose() + MatrixXd::Identity(n, n);
  const MatrixXd g = r.triangularView<Eigen::Lower>();
  const CscMatrix sparse = Sparse(a);
  CscMatrix factor = Sparse(g);
  factor.is_factor = true;
  const SpectrumOperator factored = OperatorOf(sparse, true, &factor);
  EXPECT_EQ(factored.name, "G A Gᵀ");
  EXPECT_TRUE(factored.symmetric);
  EXPECT_LT((Dense(factored.apply, n) - g * a * g.transpose()).norm(), 1e-12 * a.norm());
  const MatrixXd ma = g.transpose() * g * a;
  const auto exact = Eigen::EigenSolver<MatrixXd>(ma).eigenvalues().eval();
  EXPECT_LT(Distance(Lanczos(factored.apply, n, {}), exact), 1e-10 * ma.norm());
  // The same M beside an A that is not symmetric.
  const CscMatrix other = Sparse(r);
  const SpectrumOperator general = OperatorOf(other, false, &factor);
  EXPECT_FALSE(general.symmetric);
  EXPECT_LT((Dense(general.apply, n) - r * g.transpose() * g).norm(), 1e-12 * r.norm());

  const MatrixXd d = VectorXd::LinSpaced(n, 1, 4).asDiagonal();
  const CscMatrix diagonal = Sparse(d), negative = Sparse(-d);
  const SpectrumOperator jacobi = OperatorOf(sparse, true, &diagonal);
  EXPECT_EQ(jacobi.name, "√D A √D");
  EXPECT_TRUE(jacobi.symmetric);
  EXPECT_LT(Distance(Lanczos(jacobi.apply, n, {}),
                     Eigen::EigenSolver<MatrixXd>(d * a).eigenvalues().eval()),
            1e-11 * a.norm());
  EXPECT_FALSE(OperatorOf(sparse, true, &negative).symmetric);
  EXPECT_FALSE(OperatorOf(other, false, &diagonal).symmetric);
}

TEST(WhyUnfit, LooksAtWhatCame) {
  const CscMatrix a = Sparse(MatrixXd::Identity(3, 3)), other = Sparse(MatrixXd::Identity(4, 4));
  EXPECT_THAT(WhyUnfit(a, a), IsEmpty());
  EXPECT_EQ(WhyUnfit(a, std::nullopt), "the server did not send M");
  EXPECT_EQ(WhyUnfit(a, other), "the server sent an M of 4 rows for an A of 3");
}

TEST(WhyLeftOut, BoundsBytesAndNumbers) {
  PreconditionerInfo m;
  m.host_bytes = int64_t{1} << 30;
  EXPECT_THAT(WhyLeftOut(m, 0), IsEmpty());
  EXPECT_THAT(WhyLeftOut(m, 11), IsEmpty());
  EXPECT_THAT(WhyLeftOut(m, 12), ::testing::StartsWith("left out: spectra of 12 "));
  ++m.host_bytes;
  EXPECT_EQ(WhyLeftOut(m, 0), "left out: M takes 1.07 GB, over 1.07 GB");
}

}  // namespace
}  // namespace spaid::cli
