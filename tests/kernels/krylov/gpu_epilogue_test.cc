// What a product's epilogue is promised (kernels/krylov/cuda/product_cuda.h).
#include "tests/kernels/krylov/gpu_epilogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/base/device.h"
#include "kernels/bench/problems.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

class GpuEpilogue : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
  }
  static EpilogueResult Run(const CscMatrix& a, const Vector& x, int launches, bool skip) {
    EpilogueResult result;
    EXPECT_EQ(RunEpilogue(a.n_cols, a.col_ptr.data(), a.row_idx.data(), a.values.data(), x.data(),
                          launches, skip, &result),
              "");
    return result;
  }
};

TEST_F(GpuEpilogue, EachRowOnceAndEachBlockEndsOnce) {
  struct Case {
    std::string name;
    CscMatrix a;
  };
  const Case cases[] = {
      {"one", krylov_test::Rows({{-4}})},
      {"irregular", oracle::RandomIrregular(1000, 5, 1)},
      {"many blocks", bench::ConvectionDiffusion(70, 400)},
      {"elasticity", bench::Elasticity(8)},
      {"circuit", bench::Circuit(8000, 12, 300)},
      {"a row in a few pieces", oracle::DenseRowAndColumn(9000, 1)},
      {"a row in many pieces", oracle::DenseRowAndColumn(400'000, 1)},
  };
  for (const Case& c : cases) {
    const Vector x = RandomVector(c.a.n_cols, 4);
    const EpilogueResult once = Run(c.a, x, 1, false);
    const Vector y = Product(c.a, x);
    long double dot = 0, square = 0, size = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(once.rows[i], 1) << c.name << ", row " << i;
      dot += static_cast<long double>(x[i]) * y[i];
      square += static_cast<long double>(y[i]) * y[i];
      size += std::abs(x[i] * y[i]);
    }
    for (const int32_t finishes : once.finishes) ASSERT_EQ(finishes, 256) << c.name;
    EXPECT_NEAR(once.sums[0], static_cast<double>(dot), 1e-12 * static_cast<double>(size + 1));
    EXPECT_NEAR(once.sums[1], static_cast<double>(square), 1e-12 * static_cast<double>(square + 1));

    const EpilogueResult often = Run(c.a, x, 20, false);
    EXPECT_EQ(often.y, once.y) << c.name;
    for (const int32_t rows : often.rows) ASSERT_EQ(rows, 20) << c.name;
    for (const int k : {0, 1}) EXPECT_EQ(often.sums[k], once.sums[k]) << c.name;  // bit for bit
  }
}

TEST_F(GpuEpilogue, SkippedLaunchesDoNothing) {
  const CscMatrix a = oracle::DenseRowAndColumn(9000, 1);
  const EpilogueResult skipped = Run(a, RandomVector(a.n_cols, 4), 3, true);
  for (const double y : skipped.y) ASSERT_EQ(y, 0);
  for (const int32_t rows : skipped.rows) ASSERT_EQ(rows, 0);
  for (const int32_t finishes : skipped.finishes) ASSERT_EQ(finishes, 0);
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
