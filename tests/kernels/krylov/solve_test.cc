// What Solve() refuses, and what it keeps bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/run.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

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
  for (const int64_t s : {0, -1, 17}) {
    ExpectRefused(Refusal({.shadow_vectors = s}), "BAD_SHADOW_VECTORS", "shadow_vectors");
  }
  ExpectRefused(Refusal({.basis_bytes = -1}), "BAD_BASIS_BYTES", "basis_bytes");
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

TEST(Solve, ABasisBeyondMemoryIsRefused) {
  const int64_t n = 4'000'000;
  const Vector ones(static_cast<size_t>(n), 1.0);
  const DiagonalOperator a(ones);
  SolveOptions options{.method = Method::kGmres, .rtol = 1e-10, .max_iterations = n, .restart = n};
  const auto r = Solve(a, nullptr, ones, {}, options, {});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(r.status().reason(), "BASIS_TOO_LARGE");
  EXPECT_EQ(r.status().field(), "restart");
  options.restart = 2;
  EXPECT_TRUE(Solve(a, nullptr, ones, {}, options, {}).ok());
  options.basis_bytes = int64_t{1} << 60;
  const auto grown = Solve(a, nullptr, ones, {}, options, {});
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.status().reason(), "BASIS_TOO_LARGE");
  EXPECT_EQ(grown.status().field(), "basis_bytes");
}

// Bytes of a basis of m + 1 vectors of n, and of the triangle R.
int64_t BasisBytes(int64_t m, int64_t n) { return 8 * (m + 1) * n + 4 * m * m; }

TEST(RestartLength, GrowsWithTheBytesThatItMayTake) {
  const auto length = [](int64_t bytes, int64_t n, int64_t restart = 50, int64_t most = 10000) {
    return RestartLength({.max_iterations = most, .restart = restart, .basis_bytes = bytes}, n);
  };
  EXPECT_EQ(length(0, 1000), 50);
  EXPECT_EQ(length(0, 20), 20) << "no more than n";
  EXPECT_EQ(length(1, 1000), 50) << "never under restart";
  EXPECT_EQ(length(BasisBytes(50, 1000), 1000), 50);
  for (const int64_t n : {100, 1000, 54321}) {
    for (const int64_t m : {51, 77, 100}) {
      EXPECT_EQ(length(BasisBytes(m, n), n), m) << n;
      EXPECT_EQ(length(BasisBytes(m, n) - 1, n, 1), m - 1) << n;
    }
  }
  EXPECT_EQ(length(int64_t{1} << 40, 1000), 1000);
  EXPECT_EQ(length(int64_t{1} << 40, 1000, 50, 70), 70) << "no more than there may be iterations";
  EXPECT_EQ(length(INT64_MAX, INT32_MAX, INT32_MAX, INT32_MAX), INT32_MAX);
  EXPECT_EQ(length(1000, 1'000'000, 1), 1) << "not even the first vector has room";
}

TEST(HostAlone, NamesWhatNoDeviceHas) {
  for (const Method method : {Method::kAuto, Method::kCg, Method::kBicgstab, Method::kGmres}) {
    EXPECT_EQ(HostAlone({.method = method}), "");
  }
  EXPECT_EQ(HostAlone({.method = Method::kBicgstab, .basis_bytes = 1}), "") << "not read";
  EXPECT_THAT(HostAlone({.method = Method::kMinres}), ::testing::HasSubstr("MINRES"));
  EXPECT_THAT(HostAlone({.method = Method::kIdr}), ::testing::HasSubstr("IDR"));
  EXPECT_THAT(HostAlone({.method = Method::kGmres, .basis_bytes = 1}),
              ::testing::HasSubstr("GMRES that grows"));
}

TEST(Solve, RightHandSidesOfGmresShareOneBasis) {
  const CscMatrix a = oracle::ConvectionDiffusion(12, 10, 1.0);
  const CsrOperator op = CsrOperator::FromColumns(a);
  const SolveOptions options{.method = Method::kGmres, .rtol = 1e-10, .restart = 20};
  const Context context;
  krylov::Team team(a.n_cols, 1);
  const auto solve = [&](uint64_t seed) {
    const Vector b = RandomVector(a.n_cols, seed);
    Vector x(b.size(), 0.0);
    RhsResult out;
    const krylov::System system{.b = b, .x0 = {}, .x = x};
    const krylov::Terms terms{.b_norm = Norm(b),
                              .target = 1e-10 * Norm(b),
                              .rhs = 0,
                              .options = &options,
                              .context = &context};
    krylov::Run run(op, nullptr, system, terms, &team, &out);
    krylov::RunGmres(run);
    run.Conclude();
    EXPECT_EQ(out.outcome, Outcome::kConverged) << out.detail;
    return x;
  };
  solve(1);
  std::vector<const double*> vectors;
  for (size_t k = 0; k <= 20; ++k) vectors.push_back(team.Basis(k).data());
  const Vector second = solve(2);
  for (size_t k = 0; k <= 20; ++k) EXPECT_EQ(team.Basis(k).data(), vectors[k]) << k;
  krylov::Team fresh(a.n_cols, 1);
  std::swap(team, fresh);
  EXPECT_EQ(solve(2), second) << "what the first left behind is not read";
}

// No number in a request makes the count of bytes overflow.
TEST(SolveDeviceBytes, CountTheBasis) {
  const SolveOptions short_recurrence{.method = Method::kBicgstab};
  const SolveOptions gmres{.method = Method::kGmres, .restart = 50};
  const int64_t n = 1'000'000, plain = SolveDeviceBytes(n, 7 * n, 0, 1, short_recurrence);
  EXPECT_GE(SolveDeviceBytes(n, 7 * n, 0, 1, gmres), plain + 8 * 51 * n);
  EXPECT_LE(SolveDeviceBytes(n, 7 * n, 0, 1, gmres), plain + 8 * 52 * n);
  const int64_t most = INT32_MAX;
  EXPECT_GT(SolveDeviceBytes(most, most, most, 1,
                             {.method = Method::kGmres, .max_iterations = most, .restart = most}),
            int64_t{1} << 62);
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
