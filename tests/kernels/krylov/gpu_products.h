// Products by sparse matrices on a CUDA device against the CPU's: what the tests of their layouts
// share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels::krylov_test {

class GpuProducts : public ::testing::Test {
 protected:
  using Matrix = std::unique_ptr<cuda::Matrix>;
  using Operator = std::unique_ptr<cuda::Operator>;

  explicit GpuProducts(bool by_rows) : by_rows_(by_rows) {}

  void SetUp() override {
    device_ = Open(0);
    ASSERT_NE(device_, nullptr);
  }

  std::shared_ptr<CudaDevice> Open(int64_t memory_limit) const {
    auto device =
        OpenGpu(memory_limit, WithRowsBytes(by_rows_ ? std::numeric_limits<int64_t>::max() : 0));
    EXPECT_TRUE(device.ok()) << device.status().message();
    return device.ok() ? *device : nullptr;
  }

  cuda::Context& context() const { return ContextOf(*device_); }

  Matrix Upload(const CscMatrix& a) {
    return std::make_unique<cuda::Matrix>(cuda::UploadMatrix(context(), a, a.values.data()));
  }
  Operator MakeOf(const cuda::Matrix* matrix, bool symmetric, bool fp32) {
    return std::make_unique<cuda::Operator>(
        cuda::MakeOperator(context(), matrix->pattern(), matrix->values.get(),
                           symmetric ? cuda::Order::kBoth : cuda::Order::kColumns, fp32));
  }
  Operator Make(const CscMatrix& a, bool symmetric = false, bool fp32 = false) {
    return MakeOf(Upload(a).get(), symmetric, fp32);
  }
  Operator OfBuilt(const BuiltOnDevice& built, cuda::Order order, bool fp32) {
    return std::make_unique<cuda::Operator>(cuda::MakeOperator(
        context(), {built.n, built.col_ptr, built.row_idx}, built.values, order, fp32));
  }
  void Update(const cuda::Matrix& matrix, cuda::Operator& op) {
    cuda::UpdateOperator(context(), matrix, op);
    context().Synchronize();
  }
  // Matrices that have not the operator's pattern are refused.
  void ExpectMismatch(const CscMatrix& a, cuda::Operator& op) {
    const Matrix matrix = Upload(a);
    const Status status = cuda::Guard(
        *device_, [&](cuda::Context& there) { cuda::UpdateOperator(there, *matrix, op); });
    EXPECT_EQ(status.reason(), "PLAN_MISMATCH");
  }
  Vector Apply(const Operator& op, const Vector& x) {
    const auto n = static_cast<int64_t>(x.size());
    Vector y(x.size(), std::numeric_limits<double>::quiet_NaN());
    const cuda::Buffer<double> from(context(), n), to(context(), n);
    from.CopyIn(x.data(), n);
    cuda::Apply(context(), *op, from.get(), to.get());
    to.CopyOut(y.data(), n);
    context().Synchronize();
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
    const Operator op = MakeOf(matrix.get(), false, false);
    const Vector y = Apply(op, x);
    ExpectNear(a, x, y, Product(a, x), 1e-14, what);
    // The CPU adds a row's products one after another.
    const double one_by_one = 1e-16 * std::sqrt(static_cast<double>(a.n_cols));
    ExpectNear(a, x, y, cpu, std::max(1e-14, one_by_one), what + ", CPU");
    for (int repeat = 0; repeat < 3; ++repeat) ASSERT_EQ(Apply(op, x), y) << what;
    ASSERT_EQ(Apply(MakeOf(matrix.get(), false, false), x), y) << what;
    if (*IsExactlySymmetric(a, {})) {
      const Operator symmetric = MakeOf(matrix.get(), true, false);
      const Vector y_symmetric = Apply(symmetric, x);
      ExpectNear(a, x, y_symmetric, y, 1e-14, what + ", symmetric");
      ASSERT_EQ(Apply(symmetric, x), y_symmetric) << what << ", symmetric";
      // The same sums in the same order, unless one of them is by rows.
      if (by_rows_) {
        ASSERT_EQ(y_symmetric, y) << what << ", symmetric";
      }
    }
    // The values are rounded to fp32, the sums are not.
    const Vector y32 = Apply(MakeOf(matrix.get(), false, true), x);
    ExpectNear(a, x, y32, cpu, std::ldexp(1.0, -23), what + ", fp32");
    CscMatrix rounded = a;
    for (double& v : rounded.values) v = static_cast<float>(v);
    ExpectNear(a, x, y32, Product(rounded, x), 1e-14, what + ", rounded");
  }

  // What a product must move: tells the layouts apart.
  int64_t Bytes(const Operator& op) { return cuda::BytesPerProduct(*op); }

  // Of the operator, on the smallest device that has room for it, once smaller ones have refused it
  // and kept nothing.
  int64_t BytesOnTheLeastDevice(const CscMatrix& a, bool symmetric) {
    int64_t bytes = 0;
    int refused = 0;
    for (int64_t limit = 1 << 20; bytes == 0 && limit < (int64_t{1} << 30); limit += limit / 8) {
      device_ = Open(limit);
      if (device_ == nullptr) break;
      const auto used = [&] { return UsedNow(*device_); };
      const Status status = cuda::Guard(*device_, [&](cuda::Context&) {
        const Matrix matrix = Upload(a);
        const int64_t before = used();
        const Operator op = MakeOf(matrix.get(), symmetric, false);
        bytes = used() - before;
      });
      if (!status.ok()) {
        ++refused;
        EXPECT_EQ(status.reason(), "DEVICE_OUT_OF_MEMORY");
      }
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
