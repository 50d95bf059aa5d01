#include "tests/kernels/krylov/helpers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/krylov/operators.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {

CscMatrix Diagonal(const Vector& d) {
  const auto n = static_cast<int64_t>(d.size());
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (int64_t k = 0; k <= n; ++k) a.col_ptr.push_back(k);
  for (int64_t k = 0; k < n; ++k) a.row_idx.push_back(static_cast<int32_t>(k));
  a.values.assign(d.begin(), d.end());
  return a;
}

CscMatrix CyclicShift(int64_t n) {
  CscMatrix a = Diagonal(Vector(static_cast<size_t>(n), 1.0));
  for (int64_t k = 0; k < n; ++k) a.row_idx[k] = static_cast<int32_t>((k + 1) % n);
  return a;
}

CscMatrix Neumann(int64_t n) {
  oracle::Dense dense(n, n);
  for (int64_t i = 0; i < n; ++i) {
    for (const int64_t j : {i - 1, i + 1}) {
      if (j < 0 || j >= n) continue;
      dense(i, j) = -1;
      dense(i, i) += 1;
    }
  }
  return oracle::FromDense(dense);
}

Vector Product(const CscView& a, std::span<const double> x) {
  std::vector<long double> y(static_cast<size_t>(a.n_rows), 0.0L);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      y[a.row_idx[p]] += static_cast<long double>(a.values[p]) * x[j];
    }
  }
  return Vector(y.begin(), y.end());
}

double ResidualNorm(const CscView& a, std::span<const double> x, std::span<const double> b) {
  std::vector<long double> r(b.begin(), b.end());
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      r[a.row_idx[p]] -= static_cast<long double>(a.values[p]) * x[j];
    }
  }
  long double sum = 0;
  for (const long double v : r) sum += v * v;
  return static_cast<double>(std::sqrt(sum));
}

double Norm(std::span<const double> v) {
  long double sum = 0;
  for (const long double e : v) sum += e * e;
  return static_cast<double>(std::sqrt(sum));
}

Vector RandomVector(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  Vector v(static_cast<size_t>(n));
  for (double& e : v) e = random.Uniform(-1, 1);
  return v;
}

Vector DiagonalOf(const CscView& a) {
  Vector d(static_cast<size_t>(a.n_cols), 0.0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (a.row_idx[p] == j) d[j] = a.values[p];
    }
  }
  return d;
}

SolveResult MustSolve(const CscView& a, const LinearOperator* m, std::span<const double> b,
                      const SolveOptions& options, std::span<const double> x0,
                      const Context& context) {
  auto result = SolveHere(a, m, b, x0, options, context);
  EXPECT_TRUE(result.ok()) << result.status().reason() << ": " << result.status().message();
  if (!result.ok()) return {};
  return *std::move(result);
}

void ExpectHonest(const CscView& a, std::span<const double> b, const SolveOptions& options,
                  const SolveResult& result, const std::string& what) {
  const auto n = static_cast<size_t>(a.n_cols);
  ASSERT_EQ(result.x.size(), b.size()) << what;
  ASSERT_EQ(result.rhs.size(), b.size() / n) << what;
  for (size_t k = 0; k < result.rhs.size(); ++k) {
    const RhsResult& rhs = result.rhs[k];
    const std::string label = what + ", rhs " + std::to_string(k) + ": " + Name(rhs.outcome) +
                              " after " + std::to_string(rhs.iterations) + " (" + rhs.detail + ")";
    const auto x = std::span<const double>(result.x).subspan(k * n, n);
    const auto bk = b.subspan(k * n, n);
    const double truth = ResidualNorm(a, x, bk);
    const double b_norm = Norm(bk);
    // fp64 forms each residual entry to within the rounding of |A||x| + |b|.
    double rounding = b_norm;
    {
      Vector abs_x(x.begin(), x.end());
      for (double& v : abs_x) v = std::abs(v);
      CscMatrix abs_a{a.n_rows, a.n_cols, {}, {}, {}};
      abs_a.col_ptr.assign(a.col_ptr.begin(), a.col_ptr.end());
      abs_a.row_idx.assign(a.row_idx.begin(), a.row_idx.end());
      abs_a.values.assign(a.values.begin(), a.values.end());
      for (double& v : abs_a.values) v = std::abs(v);
      rounding += Norm(Product(abs_a, abs_x));
    }
    rounding *= 1e-14;
    EXPECT_NEAR(rhs.true_residual, truth, rounding + 1e-10 * truth) << label;
    EXPECT_LE(truth, b_norm * (1 + 1e-12) + rounding) << label << ": worse than x = 0";
    if (rhs.outcome == Outcome::kConverged) {
      EXPECT_LE(truth, std::max(options.rtol * b_norm, options.atol) * (1 + 1e-10) + rounding)
          << label;
    } else {
      EXPECT_FALSE(rhs.detail.empty()) << label;
      EXPECT_GT(rhs.true_residual, std::max(options.rtol * b_norm, options.atol)) << label;
    }
    EXPECT_LE(rhs.iterations, options.max_iterations) << label;
    ASSERT_FALSE(rhs.history.empty()) << label;
    EXPECT_EQ(rhs.history.front().iteration, 0) << label;
    EXPECT_EQ(rhs.history.back().iteration, rhs.iterations) << label;
  }
}

std::vector<Method> MethodsHere() {
  std::vector<Method> methods = {Method::kCg, Method::kBicgstab, Method::kGmres};
  if (OnHost()) methods.insert(methods.end(), {Method::kMinres, Method::kIdr});
  return methods;
}

std::string Name(Method method) {
  switch (method) {
    case Method::kAuto:
      return "AUTO";
    case Method::kCg:
      return "CG";
    case Method::kBicgstab:
      return "BICGSTAB";
    case Method::kGmres:
      return "GMRES";
    case Method::kMinres:
      return "MINRES";
    case Method::kIdr:
      return "IDR";
  }
  return "?";
}

std::string Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kConverged:
      return "CONVERGED";
    case Outcome::kMaxIterations:
      return "MAX_ITERATIONS";
    case Outcome::kStagnated:
      return "STAGNATED";
    case Outcome::kBreakdown:
      return "BREAKDOWN";
    case Outcome::kIndefinite:
      return "INDEFINITE";
    case Outcome::kNonFinite:
      return "NON_FINITE";
    case Outcome::kTimeLimit:
      return "TIME_LIMIT";
    case Outcome::kCancelled:
      return "CANCELLED";
  }
  return "?";
}

}  // namespace spaid::kernels::krylov_test
