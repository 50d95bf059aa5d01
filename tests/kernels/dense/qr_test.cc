#include "kernels/dense/qr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dense/simd.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

struct Solution {
  int64_t status = 0;  // first bad column of HouseholderQr, or the rank of PivotedQr
  oracle::Vector x;
};

class Problem {
 public:
  Problem(const oracle::Dense& a, const oracle::Vector& b) : a_(a), b_(b) {
    shape_.rows = PadToLanes(std::max(a.rows, a.cols));
    shape_.ld = PaddedLeadingDimension(shape_.rows);
    shape_.n_factor = a.cols;
    shape_.n_total = a.cols + 1;
    shape_.ldr = a.cols;
    dense_ = storage_.Ensure(shape_.ld * shape_.n_total);
    r_ = upper_.Ensure(a.cols * a.cols);
  }

  Solution Unpivoted(const std::vector<int64_t>* row_end, double tolerance = 1e-13) {
    Fill();
    Solution s;
    s.status = HouseholderQr(shape_, dense_, row_end ? row_end->data() : nullptr, r_, tolerance);
    if (s.status >= 0) return s;
    double* y = dense_ + a_.cols * shape_.ld;
    UpperSolve(a_.cols, shape_.ldr, r_, y);
    s.x.assign(y, y + a_.cols);
    return s;
  }

  Solution Pivoted(double tolerance = 1e-13) {
    Fill();
    Solution s;
    std::vector<int64_t> permutation(static_cast<size_t>(a_.cols));
    s.status = PivotedQr(shape_, dense_, r_, permutation.data(), tolerance);
    if (s.status < 0) return s;
    double* y = dense_ + a_.cols * shape_.ld;
    UpperSolve(s.status, shape_.ldr, r_, y);
    s.x.assign(static_cast<size_t>(a_.cols), 0);
    for (int64_t q = 0; q < s.status; ++q) {
      s.x[static_cast<size_t>(permutation[static_cast<size_t>(q)])] = y[q];
    }
    return s;
  }

 private:
  void Fill() {
    std::fill(r_, r_ + a_.cols * a_.cols, std::numeric_limits<double>::quiet_NaN());
    std::fill(dense_, dense_ + shape_.ld * shape_.n_total, 0.0);
    for (int64_t j = 0; j < a_.cols; ++j) {
      for (int64_t i = 0; i < a_.rows; ++i) dense_[j * shape_.ld + i] = a_(i, j);
    }
    for (int64_t i = 0; i < a_.rows; ++i) {
      dense_[a_.cols * shape_.ld + i] = b_[static_cast<size_t>(i)];
    }
  }

  oracle::Dense a_;
  oracle::Vector b_;
  QrShape shape_;
  AlignedBuffer storage_, upper_;
  double* dense_;
  double* r_;
};

oracle::Dense RandomDense(int64_t m, int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  oracle::Dense a(m, n);
  for (double& v : a.a) v = random.Uniform(-1, 1);
  return a;
}

oracle::Vector RandomVector(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  oracle::Vector v(static_cast<size_t>(n));
  for (double& x : v) x = random.Uniform(-1, 1);
  return v;
}

double ResidualOf(const oracle::Dense& a, const oracle::Vector& x, const oracle::Vector& b) {
  return oracle::Norm(oracle::Residual(a, x, b));
}

TEST(HouseholderQr, LineThroughThreePointsByHand) {
  // Points (0, 1), (1, 2), (2, 4): least-squares line 5/6 + 3/2 t.
  oracle::Dense a(3, 2);
  a.a = {1, 1, 1, 0, 1, 2};
  const Solution s = Problem(a, {1, 2, 4}).Unpivoted(nullptr);
  ASSERT_EQ(s.status, -1);
  EXPECT_NEAR(s.x[0], 5.0 / 6, 1e-15);
  EXPECT_NEAR(s.x[1], 1.5, 1e-15);
}

TEST(HouseholderQr, AgreesWithTheOracle) {
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {2, 1}, {8, 8}, {9, 3}, {25, 7}, {40, 17}, {125, 27}, {130, 64}}) {
    const oracle::Dense a = RandomDense(m, n, static_cast<uint64_t>(m * 1000 + n));
    const oracle::Vector b = RandomVector(m, 5);
    const oracle::Vector expected = oracle::LeastSquares(a, b);
    for (const Solution& s : {Problem(a, b).Unpivoted(nullptr), Problem(a, b).Pivoted()}) {
      ASSERT_EQ(s.x.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(s.x[i], expected[i], 1e-9 * (1 + oracle::Norm(expected))) << m << "x" << n;
      }
    }
  }
}

TEST(HouseholderQr, StaircaseGivesTheSameAsAllRows) {
  oracle::Dense a = RandomDense(50, 20, 3);
  std::vector<int64_t> row_end;
  for (int64_t j = 0; j < 20; ++j) {
    row_end.push_back(8 + 2 * j);
    for (int64_t i = row_end.back(); i < 50; ++i) a(i, j) = 0;
  }
  oracle::Vector b(50, 0);
  b[4] = 1;
  const Solution all = Problem(a, b).Unpivoted(nullptr);
  const Solution stairs = Problem(a, b).Unpivoted(&row_end);
  ASSERT_EQ(stairs.status, -1);
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(stairs.x[i], all.x[i], 1e-11);
}

TEST(HouseholderQr, NamesTheFirstDependentColumn) {
  oracle::Dense a = RandomDense(30, 12, 9);
  for (int64_t i = 0; i < 30; ++i) a(i, 7) = a(i, 2) - 3 * a(i, 5);
  EXPECT_EQ(Problem(a, RandomVector(30, 1)).Unpivoted(nullptr).status, 7);
  for (int64_t i = 0; i < 30; ++i) a(i, 4) = 0;
  EXPECT_EQ(Problem(a, RandomVector(30, 1)).Unpivoted(nullptr).status, 4);
  a(3, 1) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Problem(a, RandomVector(30, 1)).Unpivoted(nullptr).status, 1);
  EXPECT_EQ(Problem(a, RandomVector(30, 1)).Pivoted().status, -1);
}

TEST(HouseholderQr, WideProblemIsDeficientAtTheRowCount) {
  // A staircase that ends under the diagonal: more unknowns than equations.
  const oracle::Dense a = RandomDense(3, 5, 2);
  const std::vector<int64_t> row_end(5, 3);
  EXPECT_EQ(Problem(a, {1, 0, 0}).Unpivoted(&row_end).status, 3);
  const Solution s = Problem(a, {1, 0, 0}).Pivoted();
  EXPECT_EQ(s.status, 3);
  EXPECT_NEAR(ResidualOf(a, s.x, {1, 0, 0}), 0, 1e-13);
}

TEST(PivotedQr, RankDeficientGivesABasicSolutionOfMinimalResidual) {
  for (const int64_t rank : {0, 1, 5, 11}) {
    const oracle::Dense a = oracle::Multiply(RandomDense(30, rank, 4), RandomDense(rank, 12, 5));
    const oracle::Vector b = RandomVector(30, 6);
    const Solution s = Problem(a, b).Pivoted();
    ASSERT_EQ(s.status, rank);
    EXPECT_LE(std::count_if(s.x.begin(), s.x.end(), [](double v) { return v != 0; }), rank);
    EXPECT_NEAR(ResidualOf(a, s.x, b), oracle::LeastSquaresResidual(a, b), 1e-11);
  }
}

TEST(PivotedQr, TakesTheLargestColumnFirst) {
  // diag(1, 100, 10) in three rows: |R| diagonal 100, 10, 1 in this order.
  oracle::Dense a(3, 3);
  a(0, 0) = 1;
  a(1, 1) = 100;
  a(2, 2) = 10;
  const Solution s = Problem(a, {2, 300, 40}).Pivoted();
  ASSERT_EQ(s.status, 3);
  EXPECT_NEAR(s.x[0], 2, 1e-12);
  EXPECT_NEAR(s.x[1], 3, 1e-12);
  EXPECT_NEAR(s.x[2], 4, 1e-12);
  // With a tolerance of 5 % the smallest column is dropped.
  const Solution dropped = Problem(a, {2, 300, 40}).Pivoted(0.05);
  EXPECT_EQ(dropped.status, 2);
  EXPECT_EQ(dropped.x[0], 0);
}

}  // namespace
}  // namespace spaid::kernels
