// Products by sparse matrices on a CUDA device against the CPU's: what the tests of their layouts
// share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "kernels/base/cuda_device.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/csc_cuda.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels::krylov_test {

class GpuProducts : public ::testing::Test {
 protected:
  using Matrix = std::unique_ptr<SpaidCudaMatrix, void (*)(SpaidCudaMatrix*)>;
  using Operator = std::unique_ptr<SpaidCudaOperator, void (*)(SpaidCudaOperator*)>;

  explicit GpuProducts(bool by_rows) : by_rows_(by_rows) {}

  void SetUp() override {
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

  const SpaidCudaInterface& api() const { return device_->api(); }
  void ExpectOk(int32_t result) const { EXPECT_EQ(result, kSpaidCudaOk) << message_; }

  Matrix Upload(const CscMatrix& a) {
    SpaidCudaMatrix* matrix = nullptr;
    const SpaidCudaCsc csc = CudaCsc(a);
    ExpectOk(api().upload_matrix(device_->context(), &csc, &matrix, message_, sizeof(message_)));
    return {matrix, api().free_matrix};
  }
  Operator MakeOf(const SpaidCudaMatrix* matrix, bool symmetric, bool fp32) {
    SpaidCudaOperator* op = nullptr;
    ExpectOk(api().operator_of_matrix(matrix, symmetric ? 1 : 0, fp32 ? 1 : 0, &op, message_,
                                      sizeof(message_)));
    return {op, api().free_operator};
  }
  Operator Make(const CscMatrix& a, bool symmetric = false, bool fp32 = false) {
    return MakeOf(Upload(a).get(), symmetric, fp32);
  }
  Vector Apply(const Operator& op, const Vector& x) {
    Vector y(x.size(), std::numeric_limits<double>::quiet_NaN());
    ExpectOk(api().apply_operator(op.get(), x.data(), y.data(), message_, sizeof(message_)));
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
  int64_t Bytes(const Operator& op) {
    double ms = 0;
    int64_t bytes = 0;
    ExpectOk(api().time_operator(op.get(), 1, &ms, &bytes, message_, sizeof(message_)));
    return bytes;
  }

  // Of the operator, on the smallest device that has room for it, once smaller ones have refused it
  // and kept nothing.
  int64_t BytesOnTheLeastDevice(const CscMatrix& a, bool symmetric) {
    int64_t bytes = 0;
    int refused = 0;
    for (int64_t limit = 1 << 20; bytes == 0 && limit < (int64_t{1} << 30); limit += limit / 8) {
      device_ = Open(limit);
      if (device_ == nullptr) break;
      const auto used = [&] { return api().used_bytes(device_->context()); };
      const SpaidCudaCsc csc = CudaCsc(a);
      SpaidCudaMatrix* matrix = nullptr;
      if (api().upload_matrix(device_->context(), &csc, &matrix, message_, sizeof(message_)) !=
          kSpaidCudaOk) {
        continue;
      }
      const int64_t before = used();
      SpaidCudaOperator* op = nullptr;
      const int32_t result =
          api().operator_of_matrix(matrix, symmetric ? 1 : 0, 0, &op, message_, sizeof(message_));
      if (result == kSpaidCudaOk) {
        bytes = used() - before;
        api().free_operator(op);
      } else {
        ++refused;
        EXPECT_EQ(result, kSpaidCudaOutOfMemory) << message_;
      }
      EXPECT_EQ(used(), before);
      api().free_matrix(matrix);
      EXPECT_EQ(used(), 0);
      EXPECT_TRUE(device_->Probe().ok());
    }
    EXPECT_GT(bytes, 0);
    EXPECT_GT(refused, 0);
    return bytes;
  }

  const bool by_rows_;
  std::shared_ptr<CudaDevice> device_;
  char message_[kCudaMessageBytes] = "";
};

}  // namespace spaid::kernels::krylov_test
