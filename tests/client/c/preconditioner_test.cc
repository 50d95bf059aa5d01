// M and G of the C interface: their arrays, and products with them beside those of a dense oracle.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/c/c_problem.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::c {
namespace {

// An arrow: a dense first row and column, and a diagonal. SPD.
CscMatrix Arrow(int64_t n) {
  CscMatrix a;
  a.n = n;
  a.col_ptr = {0};
  for (int64_t j = 0; j < n; ++j) {
    if (j > 0) {
      a.row_idx.push_back(0);
      a.values.push_back(-1.0 / static_cast<double>(n));
    }
    for (int64_t i = j; i < (j == 0 ? n : j + 1); ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 1.0 + 0.1 * static_cast<double>(j % 7)
                                : -1.0 / static_cast<double>(n));
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

std::vector<double> Waves(int64_t n, int count) {
  std::vector<double> x(static_cast<size_t>(n * count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<double>(3 * i + 1));
  return x;
}

// A copy of the arrays, as the interface gives them.
CscMatrix ArraysOf(const Preconditioner& m) {
  spaid_long n = 0;
  const spaid_long* ptr = nullptr;
  const int* idx = nullptr;
  const double* values = nullptr;
  int is_factor = -1;
  EXPECT_EQ(spaid_preconditioner_csc(m.get(), &n, &ptr, &idx, &values, &is_factor), 0);
  CscMatrix a;
  a.n = n;
  a.col_ptr.assign(ptr, ptr + n + 1);
  a.row_idx.assign(idx, idx + ptr[n]);
  a.values.assign(values, values + ptr[n]);
  a.is_factor = is_factor != 0;
  return a;
}

std::vector<double> Transposed(const CscMatrix& a, const std::vector<double>& x) {
  std::vector<double> y(x.size(), 0.0);
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t k = a.col_ptr[static_cast<size_t>(j)]; k < a.col_ptr[static_cast<size_t>(j) + 1];
         ++k) {
      y[static_cast<size_t>(j)] += a.values[static_cast<size_t>(k)] *
                                   x[static_cast<size_t>(a.row_idx[static_cast<size_t>(k)])];
    }
  }
  return y;
}

class CPreconditioner : public e2e::OneDaemon {
 protected:
  void SetUp() override {
    OneDaemon::SetUp();
    client_ = Connect(daemon_->address());
  }
  SystemPtr Make(const CscMatrix& a) {
    spaid_system* system = nullptr;
    EXPECT_EQ(spaid_system_csc(client_.get(), a.n, a.col_ptr.data(), 64, a.row_idx.data(), 32,
                               a.values.data(), SPAID_COPY, &system),
              0)
        << spaid_last_error();
    return SystemPtr(system);
  }
  Preconditioner Build(const SystemPtr& system, const Options& options, Report* report = nullptr) {
    spaid_preconditioner* m = nullptr;
    spaid_report* told = nullptr;
    EXPECT_EQ(spaid_build(system.get(), options.get(), &m, &told), 0) << spaid_last_error();
    Report owned(told);
    if (report != nullptr) *report = std::move(owned);
    return Preconditioner(m);
  }
  static std::vector<double> Apply(const Preconditioner& m, int operation, int count,
                                   const std::vector<double>& x) {
    std::vector<double> y(x.size(), NAN);
    EXPECT_EQ(spaid_apply(m.get(), operation, count, x.data(), y.data()), 0) << spaid_last_error();
    return y;
  }

  ClientPtr client_;
};

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(b[i])));
}

TEST_F(CPreconditioner, OfThreeUnknownsIsTheInverseByHand) {
  const Three a;
  spaid_system* made = nullptr;
  ASSERT_EQ(spaid_system_csr(client_.get(), 3, a.row_ptr.data(), 32, a.col_idx.data(), 32,
                             a.by_rows.data(), 0, &made),
            0);
  const SystemPtr system(made);
  // With power 2 the pattern is full, and M is the inverse.
  Report report;
  const Preconditioner m =
      Build(system, Set({{"engine", "static-spai"}, {"pattern-power", "2"}}), &report);
  ExpectNear(Apply(m, SPAID_M, 1, a.b), {1, 2, 3});
  EXPECT_EQ(Text(report, "engine"), "static-spai");
  EXPECT_EQ(Number(report, "nnz"), 9);
  EXPECT_EQ(Number(report, "is_factor"), 0);
  EXPECT_NEAR(Number(report, "quality.residual_frobenius"), 0, 1e-12);
  // Aᵀ (1 2 3)ᵀ = (0 4 10)ᵀ
  ExpectNear(Apply(m, SPAID_M_TRANSPOSED, 1, {0, 4, 10}), {1, 2, 3});
}

TEST_F(CPreconditioner, ProductsAreThoseOfItsArrays) {
  for (const CscMatrix& a : {e2e::Irregular(400, 9), Arrow(300)}) {
    const SystemPtr system = Make(a);
    const Preconditioner m = Build(system, Set({{"engine", "static-spai"}}));
    const CscMatrix arrays = ArraysOf(m);
    EXPECT_FALSE(arrays.is_factor);
    const std::vector<double> x = Waves(a.n, 1);
    ExpectNear(Apply(m, SPAID_M, 1, x), e2e::Multiply(arrays, x));
    ExpectNear(Apply(m, SPAID_M_TRANSPOSED, 1, x), Transposed(arrays, x));
    const std::vector<double> three = Waves(a.n, 3), y = Apply(m, SPAID_M, 3, three);
    for (int k = 0; k < 3; ++k) {
      const auto begin = three.begin() + k * a.n;
      const std::vector<double> one(begin, begin + a.n);
      ExpectNear({y.begin() + k * a.n, y.begin() + (k + 1) * a.n}, e2e::Multiply(arrays, one));
    }
  }
}

TEST_F(CPreconditioner, OfAFactorIsItsTwoProducts) {
  for (const CscMatrix& a : {e2e::Poisson(20, 17), Arrow(300)}) {
    const SystemPtr system = Make(a);
    Report report;
    const Preconditioner m = Build(system, Set({{"engine", "afsai"}, {"k-max", "4"}}), &report);
    const CscMatrix g = ArraysOf(m);
    EXPECT_TRUE(g.is_factor);
    EXPECT_EQ(Number(report, "is_factor"), 1);
    EXPECT_EQ(Number(report, "nnz"), static_cast<double>(g.row_idx.size()));
    EXPECT_GE(Number(report, "quality.fsai.kaporin"), 0);
    double missing = 0;
    EXPECT_LT(spaid_report_number(report.get(), "quality.residual_frobenius", &missing), 0)
        << "FSAI measures none";
    const std::vector<double> x = Waves(a.n, 1);
    const std::vector<double> gx = e2e::Multiply(g, x), ggx = Transposed(g, gx);
    ExpectNear(Apply(m, SPAID_G, 1, x), gx);
    ExpectNear(Apply(m, SPAID_G_TRANSPOSED, 1, x), Transposed(g, x));
    ExpectNear(Apply(m, SPAID_M, 1, x), ggx);
    ExpectNear(Apply(m, SPAID_M_TRANSPOSED, 1, x), ggx);
  }
}

TEST_F(CPreconditioner, OfNewValuesComesWithoutItsPattern) {
  CscMatrix a = e2e::Poisson(30, 30);
  const SystemPtr system = Make(a);
  const Options options = Set({{"engine", "fsai"}});
  Report first, second, third;
  Preconditioner m = Build(system, options, &first);
  const CscMatrix before = ArraysOf(m);
  a = e2e::OtherValues(std::move(a));
  ASSERT_EQ(spaid_system_set_values(system.get(), a.values.data()), 0);
  const Preconditioner other = Build(system, options, &second);
  EXPECT_EQ(ArraysOf(other).row_idx, before.row_idx);
  EXPECT_NE(ArraysOf(other).values, before.values);
  EXPECT_EQ(Number(second, "bytes_down"), static_cast<double>(8 * before.values.size()));
  EXPECT_GT(Number(first, "bytes_down"), Number(second, "bytes_down"));
}

TEST_F(CPreconditioner, RefusesWhatCannotBe) {
  const SystemPtr system = Make(e2e::Irregular(50, 3));
  const Preconditioner m = Build(system, Set({{"engine", "jacobi"}}));
  std::vector<double> x(100, 1.0), y(100);
  EXPECT_EQ(spaid_apply(m.get(), SPAID_G, 1, x.data(), y.data()), SPAID_FAILED_PRECONDITION);
  EXPECT_EQ(Reason(), "NOT_A_FACTOR");
  EXPECT_EQ(spaid_apply(m.get(), 4, 1, x.data(), y.data()), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "operation");
  EXPECT_EQ(spaid_apply(m.get(), -1, 1, x.data(), y.data()), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(spaid_apply(m.get(), SPAID_M, 0, x.data(), y.data()), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "count");
  EXPECT_EQ(spaid_apply(m.get(), SPAID_M, 1, x.data(), x.data() + 49), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "y");
  EXPECT_EQ(spaid_apply(m.get(), SPAID_M, 1, x.data(), x.data() + 50), 0);
  EXPECT_EQ(spaid_preconditioner_csc(m.get(), nullptr, nullptr, nullptr, nullptr, nullptr), 0);
  // FSAI of a matrix that is not symmetric.
  spaid_preconditioner* none = m.get();
  EXPECT_LT(spaid_build(system.get(), Set({{"engine", "fsai"}}).get(), &none, nullptr), 0);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(Reason(), "");
}

}  // namespace
}  // namespace spaid::c
