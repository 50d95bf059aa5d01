// What Solve() refuses, and what it keeps bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"

namespace spaid::kernels::krylov_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Status Refusal(const SolveOptions& options, const Vector& b = {1, 1}, const Vector& x0 = {},
               const LinearOperator* m = nullptr) {
  const CscMatrix a = Diagonal({1, 2});
  const CsrOperator op = CsrOperator::FromColumns(a);
  const auto r = Solve(op, m, b, x0, options, {});
  EXPECT_FALSE(r.ok());
  return r.ok() ? Status() : r.status();
}

void ExpectRefused(const Status& status, const std::string& reason, const std::string& field,
                   int64_t index = -1) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << reason;
  EXPECT_EQ(status.reason(), reason);
  EXPECT_EQ(status.field(), field) << reason;
  EXPECT_EQ(status.index(), index) << reason;
  EXPECT_FALSE(status.message().empty()) << reason;
}

TEST(Solve, RefusesTolerancesThatMeanNothing) {
  for (const double rtol : {0.0, -1e-8, kNan, kInf}) {
    ExpectRefused(Refusal({.rtol = rtol}), "BAD_TOLERANCE", "rtol");
  }
  for (const double atol : {-1.0, kNan, kInf}) {
    ExpectRefused(Refusal({.rtol = 1e-8, .atol = atol}), "BAD_TOLERANCE", "atol");
  }
}

TEST(Solve, RefusesCountsOutOfRange) {
  for (const int64_t k : {int64_t{0}, int64_t{-3}, int64_t{1} << 31}) {
    ExpectRefused(Refusal({.max_iterations = k}), "BAD_MAX_ITERATIONS", "max_iterations");
  }
  for (const int64_t m : {0, -1}) ExpectRefused(Refusal({.restart = m}), "BAD_RESTART", "restart");
  ExpectRefused(Refusal({.method = Method::kAuto}), "METHOD_NOT_RESOLVED", "method");
}

TEST(Solve, RefusesVectorsOfWrongLength) {
  ExpectRefused(Refusal({}, {1, 2, 3}), "RHS_LENGTH_MISMATCH", "rhs");
  ExpectRefused(Refusal({}, {}), "RHS_LENGTH_MISMATCH", "rhs");
  ExpectRefused(Refusal({}, {1, 2}, {1}), "RHS_LENGTH_MISMATCH", "initial_guess");
  const Vector d{1, 1, 1};
  const DiagonalOperator m(d);
  ExpectRefused(Refusal({}, {1, 2}, {}, &m), "PRECONDITIONER_SIZE_MISMATCH", "preconditioner");
}

TEST(Solve, NamesTheFirstValueThatIsNotFinite) {
  const Status rhs = Refusal({}, {1, 2, 3, kNan, kInf, 0});
  ExpectRefused(rhs, "NON_FINITE_VALUE", "rhs", 3);
  EXPECT_THAT(rhs.message(), ::testing::HasSubstr("row 1 of vector 1"));
  ExpectRefused(Refusal({}, {1, 2}, {kInf, 0}), "NON_FINITE_VALUE", "initial_guess", 0);
}

TEST(Solve, AnInitialGuessWhoseResidualOverflowsIsNonFinite) {
  const CscMatrix a = Diagonal({1e200, 1});
  const Vector b{1, 1}, x0{1e200, 0};
  const SolveResult r = MustSolve(a, nullptr, b, {}, x0);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite);
  EXPECT_THAT(r.rhs[0].detail, ::testing::HasSubstr("initial guess"));
}

// y = [1 c; −c 1] x: GMRES(1) gains a factor of c/√(1 + c²) a step.
class Rotation : public LinearOperator {
 public:
  explicit Rotation(double c) : c_(c) {}
  int64_t n() const override { return 2; }
  void Apply(std::span<const double> x, std::span<double> y, int) const override {
    y[0] = x[0] + c_ * x[1];
    y[1] = x[1] - c_ * x[0];
  }
  int64_t bytes_per_apply() const override { return 32; }

 private:
  double c_;
};

TEST(Solve, ALongHistoryIsThinnedEvenly) {
  const Rotation a(500);
  const Vector b{1, 0};
  const SolveOptions options{
      .method = Method::kGmres, .rtol = 1e-6, .max_iterations = 230'000, .restart = 1};
  RecordingSink sink;
  const auto r = Solve(a, nullptr, b, {}, options, Context{.stop = {}, .progress = &sink});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kMaxIterations) << r->rhs[0].detail;
  EXPECT_EQ(sink.points.size(), 230'001u) << "the sink sees every iteration";
  const auto& history = r->rhs[0].history;
  EXPECT_LE(history.size(), 100'000u);
  EXPECT_GE(history.size(), 50'000u);
  for (size_t k = 0; k < history.size(); ++k) {
    ASSERT_EQ(history[k].iteration, static_cast<int32_t>(4 * k));
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
