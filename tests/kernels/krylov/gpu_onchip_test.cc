// Solves within shared memory: which systems they take, and against the CPU where the shares of
// blocks are uneven, nearly empty, or full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bench/problems.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/solve_on_device.h"

namespace spaid::kernels::krylov_test {
namespace {

std::shared_ptr<const CudaOperator> Place(const CscView& a) {
  return CudaOperator::OfMatrix(Device(), a, false, Context()).value();
}

bool IsOnChip(const CudaOperator& a, const CudaOperator* m) {
  return MostColumns(a, m, Method::kBicgstab) == 1;
}

// n by n, of (-1 4 -1) in each row but in those where `empty` says that there is nothing.
template <class Empty>
CscMatrix Tridiagonal(int64_t n, const Empty& empty) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr = {0};
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = std::max<int64_t>(j - 1, 0); i <= std::min(j + 1, n - 1); ++i) {
      if (empty(i) || empty(j)) continue;
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 4 : -1);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}
CscMatrix Tridiagonal(int64_t n) {
  return Tridiagonal(n, [](int64_t) { return false; });
}

// Tridiagonal but for a row and a column of `length` entries, from the middle on.
CscMatrix WithHub(int64_t n, int64_t length) {
  const int64_t hub = n / 2, end = hub + 2 + length;
  const CscMatrix plain = Tridiagonal(n);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr = {0};
  const double value = -1 / static_cast<double>(length);
  for (int64_t j = 0; j < n; ++j) {
    const bool is_leaf = j >= hub + 2 && j < end;
    if (is_leaf) {
      a.row_idx.push_back(static_cast<int32_t>(hub));
      a.values.push_back(value);
    }
    for (int64_t p = plain.col_ptr[j]; p < plain.col_ptr[j + 1]; ++p) {
      a.row_idx.push_back(plain.row_idx[p]);
      a.values.push_back(plain.values[p]);
    }
    for (int64_t i = hub + 2; j == hub && i < end; ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(value);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

void ExpectAsOnTheCpu(const CscMatrix& a, bool jacobi, const std::string& what) {
  const auto a_there = Place(a);
  Vector inverse;
  std::shared_ptr<const CudaOperator> m_there;
  if (jacobi) {
    inverse = DiagonalOf(a);
    for (size_t i = 0; i < inverse.size(); ++i) {
      inverse[i] = (1 + 0.1 * std::sin(static_cast<double>(i))) / inverse[i];
    }
    m_there = CudaOperator::OfDiagonal(Device(), inverse).value();
  }
  const DiagonalOperator m(inverse);
  // In the range of A where some rows are empty.
  const Vector b = Product(a, RandomVector(a.n_cols, 5));
  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    const SolveOptions options{.method = method, .rtol = 1e-10, .max_iterations = 200};
    const SolveResult gpu = SolveCuda(*a_there, m_there.get(), a, b, {}, options, {}).value();
    const SolveResult cpu =
        Solve(CsrOperator::FromColumns(a), jacobi ? &m : nullptr, b, {}, options, {}).value();
    const std::string label = what + ", " + Name(method);
    EXPECT_EQ(gpu.rhs[0].outcome, cpu.rhs[0].outcome) << label << ": " << gpu.rhs[0].detail;
    // BiCGSTAB's counts scatter under rounding (gpu_solve_test.cc).
    const auto count = static_cast<double>(cpu.rhs[0].iterations);
    const double share = method == Method::kBicgstab ? 0.25 : 0.03;
    EXPECT_NEAR(static_cast<double>(gpu.rhs[0].iterations), count, std::max(2.0, share * count))
        << label;
    ASSERT_GE(gpu.rhs[0].history.size(), std::min<size_t>(cpu.rhs[0].history.size(), 6)) << label;
    for (size_t k = 0; k < std::min<size_t>(6, cpu.rhs[0].history.size()); ++k) {
      const double want = cpu.rhs[0].history[k].relative_residual;
      EXPECT_NEAR(gpu.rhs[0].history[k].relative_residual, want, 1e-6 * want + 1e-14) << label;
    }
    ExpectHonest(a, b, options, gpu, label);
    const SolveResult again = SolveCuda(*a_there, m_there.get(), a, b, {}, options, {}).value();
    EXPECT_EQ(std::memcmp(again.x.data(), gpu.x.data(), gpu.x.size() * sizeof(double)), 0) << label;
  }
}

// The largest value of [low, high] where fits(value), of a property that is lost from there on.
template <class Fits>
int64_t Largest(int64_t low, int64_t high, const Fits& fits) {
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

class GpuOnChip : public ::testing::Test {
  void SetUp() override {
    if (Launches()) GTEST_SKIP() << "no system is solved on the chip";
  }
};

TEST_F(GpuOnChip, IsForSmallSystemsWithoutAnExplicitM) {
  const CscMatrix a = bench::ConvectionDiffusion(12, 0);
  const auto there = Place(a);
  const auto diagonal = CudaOperator::OfDiagonal(Device(), DiagonalOf(a)).value();
  EXPECT_TRUE(IsOnChip(*there, nullptr));
  EXPECT_TRUE(IsOnChip(*there, diagonal.get()));
  EXPECT_FALSE(IsOnChip(*there, there.get()));
  // 27 million bytes by rows.
  EXPECT_FALSE(IsOnChip(*Place(bench::ConvectionDiffusion(69, 0)), nullptr));
}

TEST_F(GpuOnChip, OfAnySize) {
  for (const int64_t n : {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 500, 513, 1023, 4223, 4225, 16384,
                          16897, 67585, 70000}) {
    const CscMatrix a = Tridiagonal(n);
    ASSERT_TRUE(IsOnChip(*Place(a), nullptr)) << n;
    ExpectAsOnTheCpu(a, n % 2 == 0, "n = " + std::to_string(n));
  }
}

TEST_F(GpuOnChip, RowsWithoutEntries) {
  for (const int64_t n : {5, 100, 9000}) {
    const auto first = Tridiagonal(n, [](int64_t i) { return i % 5 < 3; });
    ExpectAsOnTheCpu(first, false, "some, n = " + std::to_string(n));
    // All rows of some blocks.
    const auto half = Tridiagonal(n, [n](int64_t i) { return i > n / 3; });
    ExpectAsOnTheCpu(half, false, "most, n = " + std::to_string(n));
  }
}

TEST_F(GpuOnChip, LongRows) {
  for (const int64_t length : {17, 33, 700, 2000}) {
    const CscMatrix a = WithHub(9001, length);
    ASSERT_TRUE(IsOnChip(*Place(a), nullptr)) << length;
    ExpectAsOnTheCpu(a, length % 2 == 0, "hub of " + std::to_string(length));
  }
  // A block of all rows with all columns: many pieces of each.
  ExpectAsOnTheCpu(bench::Elasticity(4), true, "elasticity");
}

TEST_F(GpuOnChip, UpToWhatFitsAndBeyond) {
  const int64_t n =
      Largest(1000, 800'000, [](int64_t at) { return IsOnChip(*Place(Tridiagonal(at)), nullptr); });
  ASSERT_GT(n, 50'000);
  ASSERT_LT(n, 800'000);
  ExpectAsOnTheCpu(Tridiagonal(n), true, "most rows");
  ExpectAsOnTheCpu(Tridiagonal(n + 1), true, "a row more");
  const int64_t length = Largest(
      100, 20'000, [](int64_t at) { return IsOnChip(*Place(WithHub(50'000, at)), nullptr); });
  ASSERT_LT(length, 20'000);
  ASSERT_GT(length, 1000);
  ExpectAsOnTheCpu(WithHub(50'000, length), false, "the longest row");
  ExpectAsOnTheCpu(WithHub(50'000, length + 1), false, "a longer row");
}

TEST_F(GpuOnChip, NewValuesAreAsIfTheyHadAlwaysBeenThere) {
  CscMatrix a = bench::Circuit(3000, 3, 300);
  auto there = Place(a);
  for (double& value : a.values) value *= 1.25;
  there = CudaOperator::WithValues(there, a, Context()).value();
  const Vector b = RandomVector(a.n_cols, 8);
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8, .max_iterations = 60};
  const SolveResult got = SolveCuda(*there, nullptr, a, b, {}, options, {}).value();
  const SolveResult want = SolveCuda(*Place(a), nullptr, a, b, {}, options, {}).value();
  EXPECT_EQ(std::memcmp(got.x.data(), want.x.data(), want.x.size() * sizeof(double)), 0);
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
