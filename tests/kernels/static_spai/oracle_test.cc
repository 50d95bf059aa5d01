// Equivalence to the dense reference on seeded irregular and pathological matrices.
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

class AgainstOracle : public ::testing::TestWithParam<std::pair<LocalSolver, int>> {};
INSTANTIATE_TEST_SUITE_P(SolversAndPowers, AgainstOracle,
                         ::testing::Values(std::pair{LocalSolver::kAuto, 1},
                                           std::pair{LocalSolver::kQr, 1},
                                           std::pair{LocalSolver::kGram, 1},
                                           std::pair{LocalSolver::kGram, 2},
                                           std::pair{LocalSolver::kQr, 2}));

TEST_P(AgainstOracle, ResidualsAreMinimalInEveryColumn) {
  const auto [solver, power] = GetParam();
  for (const uint64_t seed : {1, 2}) {
    for (const oracle::NamedMatrix& entry : oracle::Zoo(seed)) {
      const oracle::Dense a = oracle::ToDense(static_cast<const CscView&>(entry.a));
      const StaticSpaiResult result = Build(entry.a, nullptr, With(solver, power));
      ASSERT_EQ(result.m.n_cols, entry.a.n_cols) << entry.name;
      const oracle::Vector expected = oracle::SpaiResiduals(a, oracle::Spai(a, result.m.pattern()));
      const std::vector<double> actual = ExplicitResiduals(entry.a, result.m);
      const std::vector<double> rounding = RoundingOfResiduals(entry.a, result.m);
      for (size_t k = 0; k < actual.size(); ++k) {
        // BadlyScaled has rows of very different size, so that forming A m − e rounds terms much
        // larger than the sum: no residual is known better than that.
        const double noise = rounding[k];
        EXPECT_LE(actual[k], (1 + 1e-6) * expected[k] + 1e-9 + noise)
            << entry.name << " column " << k;
        EXPECT_NEAR(actual[k], result.residual_norms[k], 1e-9 * (1 + actual[k]) + noise)
            << entry.name << " column " << k;
      }
    }
  }
}

TEST_P(AgainstOracle, ValuesAgreeWhereTheProblemIsWellConditioned) {
  const auto [solver, power] = GetParam();
  for (const oracle::NamedMatrix& entry : oracle::Zoo(3)) {
    // The reference decides on rank without scaling columns, and drops light columns as dependent.
    if (entry.name.starts_with("badly_scaled")) continue;
    const oracle::Dense a = oracle::ToDense(static_cast<const CscView&>(entry.a));
    const StaticSpaiResult pivots = Build(entry.a, nullptr, With(LocalSolver::kGram, power));
    const StaticSpaiResult result = Build(entry.a, nullptr, With(solver, power));
    const oracle::Dense expected = oracle::Spai(a, result.m.pattern());
    for (int64_t k = 0; k < a.cols; ++k) {
      if (pivots.min_scaled_pivots[static_cast<size_t>(k)] < 1e-4) continue;
      double size = 0, error = 0;
      for (int64_t p = result.m.col_ptr[static_cast<size_t>(k)];
           p < result.m.col_ptr[static_cast<size_t>(k) + 1]; ++p) {
        const double e = expected(result.m.row_idx[static_cast<size_t>(p)], k);
        size = std::max(size, std::abs(e));
        error = std::max(error, std::abs(result.m.values[static_cast<size_t>(p)] - e));
      }
      // Where e_k is out of reach the reference has rounding for zeros.
      EXPECT_LE(error, 1e-10 * size + 1e-14) << entry.name << " column " << k;
    }
  }
}

TEST(StaticSpaiAccuracy, GramKeepsUpWithQrInEveryColumn) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    for (const oracle::NamedMatrix& entry : oracle::Zoo(seed)) {
      for (const int power : {1, 2, 3}) {
        const StaticSpaiResult qr = Build(entry.a, nullptr, With(LocalSolver::kQr, power));
        const std::string what = entry.name + ", power " + std::to_string(power);
        ExpectGramAccuracy(entry.a, Build(entry.a, nullptr, With(LocalSolver::kGram, power)), qr,
                           what);
        ExpectGramAccuracy(entry.a, Build(entry.a, nullptr, With(LocalSolver::kAuto, power)), qr,
                           what);
      }
    }
  }
}

// Two columns at angle √pivot: scaled pivots down to the limit and under it.
TEST(StaticSpaiAccuracy, GramKeepsUpWithQrAtEveryPivot) {
  for (double angle = 1; angle > 1e-9; angle *= 0.5) {
    const CscMatrix a =
        FromRows({{1, 1, 0, 0.3}, {1, 1 + angle, 0.1, 0}, {0, angle / 3, 1, 1}, {0.5, 0.5, 0, 2}});
    for (const int power : {1, 2}) {
      const StaticSpaiResult qr = Build(a, nullptr, With(LocalSolver::kQr, power));
      const StaticSpaiResult gram = Build(a, nullptr, With(LocalSolver::kGram, power));
      ExpectGramAccuracy(a, gram, qr, "angle " + std::to_string(angle));
      if (angle < 1e-6) {
        EXPECT_GT(gram.quality.rescued_columns, 0);
      } else if (angle > 1e-2) {
        EXPECT_EQ(gram.quality.rescued_columns, 0);
      }
    }
  }
}

// Matrices whose smallest pivot hides their condition number.
TEST(StaticSpaiAccuracy, GramKeepsUpWithQrOnKahanMatrices) {
  for (const auto& [n, theta] : {std::pair{8, 0.3},
                                 {12, 0.5},
                                 {24, 0.8},
                                 {24, 1.1},
                                 {40, 0.9},
                                 {28, 1.0},
                                 {48, 1.2},
                                 {48, 1.4},
                                 {90, 1.2},
                                 {16, 1.0}}) {
    for (const uint64_t seed : {1, 2, 3}) {
      const CscMatrix a = OrthogonalKahan(n, theta, seed);
      // One column alone, several that share a factor, all of them.
      for (const int64_t full : {1, 3, n}) {
        const Pattern pattern = FullColumnsThenDiagonal(n, full);
        const StaticSpaiResult qr = Build(a, pattern, With(LocalSolver::kQr));
        for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kAuto}) {
          ExpectGramAccuracy(a, Build(a, pattern, With(solver)), qr,
                             "Kahan " + std::to_string(n) + ", theta " + std::to_string(theta) +
                                 ", full columns " + std::to_string(full));
        }
      }
    }
  }
}

// A good condition number needs no rescue, however small the determinant is.
TEST(StaticSpaiAccuracy, GramRescuesNoColumnOfAWellConditionedMatrix) {
  const CscMatrix a = oracle::Laplacian2d(12, 12);
  for (const int power : {1, 2, 3, 4, 5}) {
    const StaticSpaiResult gram = Build(a, nullptr, With(LocalSolver::kGram, power));
    EXPECT_EQ(gram.quality.rescued_columns, 0) << power;
    EXPECT_EQ(gram.quality.gram_columns, 144) << power;
  }
}

}  // namespace
}  // namespace spaid::kernels
