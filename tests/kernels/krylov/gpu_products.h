// Products by sparse matrices on a CUDA device against the CPU's: what the tests of their layouts
// share. Skipped, with the reason, where there is no device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "kernels/base/cuda_device.h"
#include "kernels/krylov/cuda_layout.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels::krylov_test {

class GpuProducts : public ::testing::Test {
 protected:
  using Matrix = std::unique_ptr<CudaMatrix>;
  using Operator = std::unique_ptr<CudaLayout>;

  explicit GpuProducts(bool by_rows) : by_rows_(by_rows) {}

  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    device_ = Open(0);
    ASSERT_NE(device_, nullptr);
  }

  std::shared_ptr<CudaDevice> Open(int64_t memory_limit) const {
    auto device = CudaDevice::Open(
        ListCudaDevices().devices[0], memory_limit,
        by_rows_ ? WithRowsBytes<std::numeric_limits<int64_t>::max()>() : WithRowsBytes<0>());
    EXPECT_TRUE(device.ok()) << device.status().message();
    return device.ok() ? *device : nullptr;
  }

  CudaContext& context() const { return device_->context(); }
  static void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
  // Null after a failure.
  template <class T>
  static std::unique_ptr<T> Must(Result<std::unique_ptr<T>> made) {
    ExpectOk(made.status());
    return made.ok() ? *std::move(made) : nullptr;
  }

  Matrix Upload(const CscMatrix& a) { return Must(context().UploadMatrix(a.pattern(), a.values)); }
  Operator MakeOf(const CudaMatrix& matrix, bool symmetric, bool fp32) {
    return Must(matrix.LayOut(symmetric, fp32));
  }
  Operator Make(const CscMatrix& a, bool symmetric = false, bool fp32 = false) {
    return MakeOf(*Upload(a), symmetric, fp32);
  }
  Vector Apply(const Operator& op, const Vector& x) {
    Vector y(x.size(), std::numeric_limits<double>::quiet_NaN());
    ExpectOk(op->Apply(x, y));
    return y;
  }

  // |y - expected| <= relative |A| |x|, row by row.
  static void ExpectNear(const CscMatrix& a, const Vector& x, const Vector& y,
                         const Vector& expected, double relative, const std::string& what) {
    CscMatrix size = a;
    for (double& v : size.values) v = std::abs(v);
    Vector size_x = x;
    for (double& v : size_x) v = std::abs(v);
    const Vector bound = Product(size, size_x);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_LE(std::abs(y[i] - expected[i]), relative * bound[i]) << what << ", row " << i;
    }
  }

  void ExpectEqualsTheCpu(const CscMatrix& a, const std::string& what) {
    const Vector x = RandomVector(a.n_cols, 7);
    Vector cpu(x.size());
    CsrOperator::FromColumns(a).Apply(x, cpu, 1);
    const Matrix matrix = Upload(a);
    const Operator op = MakeOf(*matrix, false, false);
    const Vector y = Apply(op, x);
    ExpectNear(a, x, y, Product(a, x), 1e-14, what);
    // The CPU adds a row's products one after another.
    const double one_by_one = 1e-16 * std::sqrt(static_cast<double>(a.n_cols));
    ExpectNear(a, x, y, cpu, std::max(1e-14, one_by_one), what + ", CPU");
    for (int repeat = 0; repeat < 3; ++repeat) ASSERT_EQ(Apply(op, x), y) << what;
    ASSERT_EQ(Apply(MakeOf(*matrix, false, false), x), y) << what;
    if (*IsExactlySymmetric(a, {})) {
      const Operator symmetric = MakeOf(*matrix, true, false);
      const Vector y_symmetric = Apply(symmetric, x);
      ExpectNear(a, x, y_symmetric, y, 1e-14, what + ", symmetric");
      ASSERT_EQ(Apply(symmetric, x), y_symmetric) << what << ", symmetric";
      // The same sums in the same order, unless one of them is by rows.
      if (by_rows_) {
        ASSERT_EQ(y_symmetric, y) << what << ", symmetric";
      }
    }
    // The values are rounded to fp32, the sums are not.
    const Vector y32 = Apply(MakeOf(*matrix, false, true), x);
    ExpectNear(a, x, y32, cpu, std::ldexp(1.0, -23), what + ", fp32");
    CscMatrix rounded = a;
    for (double& v : rounded.values) v = static_cast<float>(v);
    ExpectNear(a, x, y32, Product(rounded, x), 1e-14, what + ", rounded");
  }

  // What a product must move: tells the layouts apart.
  int64_t Bytes(const Operator& op) { return op->BytesPerProduct(); }

  // Of the operator, on the smallest device that has room for it, once smaller ones have refused it
  // and kept nothing.
  int64_t BytesOnTheLeastDevice(const CscMatrix& a, bool symmetric) {
    int64_t bytes = 0;
    int refused = 0;
    for (int64_t limit = 1 << 20; bytes == 0 && limit < (int64_t{1} << 30); limit += limit / 8) {
      device_ = Open(limit);
      if (device_ == nullptr) break;
      const auto used = [&] { return context().used_bytes(); };
      auto matrix = context().UploadMatrix(a.pattern(), a.values);
      if (!matrix.ok()) continue;
      const int64_t before = used();
      {
        const auto op = (*matrix)->LayOut(symmetric, false);
        if (op.ok()) {
          bytes = used() - before;
        } else {
          ++refused;
          EXPECT_EQ(op.status().reason(), "DEVICE_OUT_OF_MEMORY") << op.status().message();
        }
      }
      EXPECT_EQ(used(), before);
      matrix->reset();
      EXPECT_EQ(used(), 0);
      EXPECT_TRUE(device_->Probe().ok());
    }
    EXPECT_GT(bytes, 0);
    EXPECT_GT(refused, 0);
    return bytes;
  }

  const bool by_rows_;
  std::shared_ptr<CudaDevice> device_;
};

}  // namespace spaid::kernels::krylov_test
