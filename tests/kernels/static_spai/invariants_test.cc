// What mathematics and the contract promise, whatever the numbers are.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

class Invariants : public ::testing::TestWithParam<LocalSolver> {};
INSTANTIATE_TEST_SUITE_P(Solvers, Invariants,
                         ::testing::Values(LocalSolver::kAuto, LocalSolver::kQr,
                                           LocalSolver::kGram));

template <class T>
bool SameBits(const Array<T>& x, const Array<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

TEST_P(Invariants, FullPatternGivesTheInverse) {
  for (const int64_t n : {2, 5, 33, 70}) {  // 70: more than one chunk of columns with equal J
    const CscMatrix a = oracle::RandomIrregular(n, 4, 11);
    const Pattern full = FullPattern(n);
    const StaticSpaiResult result = Build(a, full, With(GetParam()));
    EXPECT_LE(result.quality.residual_frobenius, 1e-9) << n;
    const oracle::Dense dense = oracle::ToDense(static_cast<const CscView&>(a));
    oracle::Vector e(static_cast<size_t>(n), 0);
    e[static_cast<size_t>(n / 2)] = 1;
    const oracle::Vector x = *oracle::LuSolve(dense, e);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(result.m.values[static_cast<size_t>(n / 2 * n + i)], x[static_cast<size_t>(i)],
                  1e-9 * oracle::Norm(x));
    }
  }
}

TEST_P(Invariants, DiagonalPatternGivesScaledJacobi) {
  const CscMatrix a = oracle::RandomIrregular(60, 5, 12);
  const Pattern diagonal = DiagonalPattern(60);
  const StaticSpaiResult result = Build(a, diagonal, With(GetParam()));
  const oracle::Dense dense = oracle::ToDense(static_cast<const CscView&>(a));
  for (int64_t k = 0; k < 60; ++k) {
    double squared = 0;
    for (int64_t i = 0; i < 60; ++i) squared += dense(i, k) * dense(i, k);
    EXPECT_NEAR(result.m.values[static_cast<size_t>(k)], dense(k, k) / squared,
                1e-14 * std::abs(dense(k, k)) / squared);
  }
}

TEST_P(Invariants, LargerPatternsNeverFitWorse) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(6)) {
    // Rows of 1e±12: what a column of the larger pattern could add is under the rounding of its
    // norm, so its local problem is numerically rank-deficient where the smaller one is not.
    if (entry.name.starts_with("badly_scaled")) continue;
    const Pattern diagonal = DiagonalPattern(entry.a.n_cols);
    std::vector<StaticSpaiResult> steps;
    steps.push_back(Build(entry.a, diagonal, With(GetParam())));
    for (const int power : {1, 2, 3}) {
      steps.push_back(Build(entry.a, nullptr, With(GetParam(), power)));
    }
    for (size_t s = 1; s < steps.size(); ++s) {
      for (size_t k = 0; k < steps[s].residual_norms.size(); ++k) {
        EXPECT_LE(steps[s].residual_norms[k], (1 + 1e-6) * steps[s - 1].residual_norms[k] + 1e-10)
            << entry.name << " step " << s << " column " << k;
      }
    }
  }
}

TEST_P(Invariants, ThreadCountDoesNotChangeABit) {
  for (const CscMatrix& a : {oracle::RandomIrregular(3000, 6, 13), oracle::Laplacian2d(40, 50),
                             oracle::DenseRowAndColumn(2000, 14)}) {
    StaticSpaiOptions options = With(GetParam());
    options.post_filter = 0.01;
    const StaticSpaiResult one = Build(a, nullptr, options, 1);
    for (const int threads : {2, 3, 8}) {
      const StaticSpaiResult many = Build(a, nullptr, options, threads);
      EXPECT_TRUE(SameBits(one.m.values, many.m.values));
      EXPECT_TRUE(SameBits(one.m.row_idx, many.m.row_idx));
      EXPECT_TRUE(SameBits(one.residual_norms, many.residual_norms));
      EXPECT_EQ(one.quality.residual_frobenius, many.quality.residual_frobenius);
    }
  }
}

TEST_P(Invariants, RebuildEqualsAFreshBuildBitForBit) {
  const CscMatrix a = oracle::RandomIrregular(500, 6, 15);
  CscMatrix changed = a;
  oracle::Random random(16);
  for (double& v : changed.values) v *= random.Uniform(0.5, 2);
  const StaticSpaiOptions options = With(GetParam());
  auto plan = PlanStaticSpai(a, nullptr, options, {});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(BuildStaticSpai(**plan, a, options, {}).ok());
  auto rebuilt = BuildStaticSpai(**plan, changed, options, {});
  ASSERT_TRUE(rebuilt.ok());
  const StaticSpaiResult fresh = Build(changed, nullptr, options);
  EXPECT_TRUE(SameBits(rebuilt->m.values, fresh.m.values));
  EXPECT_TRUE(SameBits(rebuilt->residual_norms, fresh.residual_norms));
}

TEST_P(Invariants, PermutingUnknownsPermutesM) {
  const int64_t n = 200;
  const CscMatrix a = oracle::RandomIrregular(n, 5, 17);
  std::vector<int64_t> to(static_cast<size_t>(n));
  std::iota(to.begin(), to.end(), 0);
  oracle::Random random(18);
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(to[static_cast<size_t>(i)], to[static_cast<size_t>(random.Below(i + 1))]);
  }
  const oracle::Dense dense = oracle::ToDense(static_cast<const CscView&>(a));
  oracle::Dense permuted(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      permuted(to[static_cast<size_t>(i)], to[static_cast<size_t>(j)]) = dense(i, j);
    }
  }
  const StaticSpaiResult plain = Build(a, nullptr, With(GetParam()));
  const StaticSpaiResult other = Build(oracle::FromDense(permuted), nullptr, With(GetParam()));
  const oracle::Dense m = oracle::ToDense(static_cast<const CscView&>(plain.m));
  const oracle::Dense pm = oracle::ToDense(static_cast<const CscView&>(other.m));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(pm(to[static_cast<size_t>(i)], to[static_cast<size_t>(j)]), m(i, j),
                  1e-9 * (1 + std::abs(m(i, j))));
    }
  }
}

TEST_P(Invariants, ColumnScalingByPowersOfTwoScalesTheRowsOfMExactly) {
  const CscMatrix a = oracle::RandomIrregular(100, 5, 19);
  CscMatrix scaled = a;
  for (int64_t j = 0; j < 100; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      scaled.values[static_cast<size_t>(p)] *= std::ldexp(1.0, static_cast<int>(j % 41) - 20);
    }
  }
  const StaticSpaiResult plain = Build(a, nullptr, With(GetParam()));
  const StaticSpaiResult other = Build(scaled, nullptr, With(GetParam()));
  EXPECT_TRUE(SameBits(plain.residual_norms, other.residual_norms));
  for (size_t p = 0; p < plain.m.values.size(); ++p) {
    EXPECT_EQ(std::ldexp(other.m.values[p], plain.m.row_idx[p] % 41 - 20), plain.m.values[p]);
  }
}

TEST(StaticSpaiGroups, EqualColumnSetsFarApartShareAndAgreeWithQr) {
  // Unknowns u_i and v_i of one node are n apart: field-major ordering.
  const int64_t nodes = 80;
  oracle::Dense dense(2 * nodes, 2 * nodes);
  oracle::Random random(20);
  for (int64_t i = 0; i < nodes; ++i) {
    for (int64_t j = std::max<int64_t>(0, i - 2); j < std::min(nodes, i + 3); ++j) {
      for (const int64_t r : {i, i + nodes}) {
        for (const int64_t c : {j, j + nodes}) {
          dense(r, c) = random.Uniform(-1, 1) + (r == c ? 6 : 0);
        }
      }
    }
  }
  const CscMatrix a = oracle::FromDense(dense);
  const StaticSpaiResult gram = Build(a, nullptr, With(LocalSolver::kGram));
  const StaticSpaiResult qr = Build(a, nullptr, With(LocalSolver::kQr));
  for (size_t p = 0; p < gram.m.values.size(); ++p) {
    EXPECT_NEAR(gram.m.values[p], qr.m.values[p], 1e-12);
  }
  auto plan = PlanStaticSpai(a, nullptr, With(LocalSolver::kGram), {});
  ASSERT_TRUE(plan.ok());
  // Shared factors: 80 of them for 160 columns, of n2 = 10 and n1 = 18 inside.
  EXPECT_LT(Counts(**plan).qr_flops, 80 * (2 * 18 * 100 - 2000.0 / 3 + 4 * 18 * 10 * 2) + 1);
}

// --- stop and progress -----------------------------------------------------------------------

class StopAfterFirst : public ProgressSink {
 public:
  explicit StopAfterFirst(StopSource* source) : source_(source) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (stage != Stage::kBuild) return;
    ++calls;
    last_done = done;
    last_total = total;
    if (source_ != nullptr) source_->Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}

  int calls = 0;
  int64_t last_done = 0, last_total = 0;

 private:
  StopSource* source_;
};

TEST(StaticSpaiStop, CancelledAfterTheFirstBatch) {
  const CscMatrix a = oracle::Laplacian2d(400, 400);
  auto plan = PlanStaticSpai(a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok());
  StopSource source;
  StopAfterFirst sink(&source);
  const Context context{.stop = source.token(), .progress = &sink, .threads = 2};
  auto result = BuildStaticSpai(**plan, a, {}, context);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
  // One batch of the worker that cancelled, at most one more that was under way.
  EXPECT_LE(sink.calls, 2);
  EXPECT_LT(sink.last_done, a.n_cols / 4);
}

TEST(StaticSpaiStop, ProgressCountsColumnsUpToAll) {
  const CscMatrix a = oracle::Laplacian2d(150, 150);
  auto plan = PlanStaticSpai(a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok());
  StopAfterFirst sink(nullptr);
  const Context context{.stop = {}, .progress = &sink, .threads = 2};
  ASSERT_TRUE(BuildStaticSpai(**plan, a, {}, context).ok());
  EXPECT_GT(sink.calls, 1);
  EXPECT_EQ(sink.last_done, a.n_cols);
  EXPECT_EQ(sink.last_total, a.n_cols);
}

TEST(StaticSpaiStop, PlanAndEstimateStopToo) {
  const CscMatrix a = oracle::Laplacian2d(60, 60);
  StopSource source;
  source.Request(StopReason::kTimeLimit);
  const Context context{.stop = source.token(), .progress = nullptr, .threads = 2};
  auto plan = PlanStaticSpai(a, nullptr, {}, context);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kDeadlineExceeded);
  auto estimate = EstimateStaticSpai(a, nullptr, {}, context);
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.status().code(), StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace spaid::kernels
