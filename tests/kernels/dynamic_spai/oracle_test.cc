// Growth against Grote's and Huckle's definition, computed slowly (tests/oracle/dynamic_spai.h).
#include <algorithm>
#include <limits>

#include "tests/kernels/dynamic_spai/helpers.h"
#include "tests/oracle/dynamic_spai.h"

namespace spaid::kernels {
namespace {

constexpr double kNoise = 8 * std::numeric_limits<double>::epsilon();  // of ‖r‖²
constexpr double kTie = 1e-8;                                          // between scores
constexpr double kLeastPivot = 1e-6;  // of columns J, squared: beyond, the Gram path knows less

struct Walk {
  int64_t steps = 0;       // checked
  int64_t too_ill = 0;     // and not
  int64_t of_columns = 0;  // with all their steps checked
};

// Follows growth step by step: of what it took each was, by the oracle's scores of the pattern
// before it, among the best; and it ended where it had to.
void FollowSteps(const oracle::NamedMatrix& c, const DynamicSpaiOptions& options, Walk& walk) {
  const oracle::Dense dense = oracle::ToDense(static_cast<CscView>(c.a));
  const int64_t n = c.a.n_cols;
  std::vector<DynamicSpaiPattern> after;
  for (int t = 0; t <= options.max_steps; ++t) {
    DynamicSpaiOptions some = options;
    some.max_steps = t;
    after.push_back(Grow(c.a, some));
    ExpectCanonical(after.back().m, c.name);
  }
  for (int64_t k = 0; k < n; ++k) {
    bool all = true;
    for (int t = 0; t < options.max_steps; ++t) {
      const std::vector<int64_t> before = Column(after[static_cast<size_t>(t)].m, k);
      const std::vector<int64_t> now = Column(after[static_cast<size_t>(t) + 1].m, k);
      const std::string what =
          c.name + ", column " + std::to_string(k) + ", step " + std::to_string(t + 1);
      ASSERT_TRUE(std::includes(now.begin(), now.end(), before.begin(), before.end())) << what;
      const oracle::SpaiScores scores = oracle::ScoreSpaiColumn(dense, k, before);
      if (scores.pivot < kLeastPivot) {
        ++walk.too_ill;
        all = false;
        break;
      }
      ++walk.steps;
      const double square = scores.residual * scores.residual;
      std::vector<double> best = scores.rho2;
      std::sort(best.begin(), best.end());
      std::vector<int64_t> added;
      std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                          std::back_inserter(added));
      if (added.empty()) {
        const bool enough = scores.residual <= options.tol + kTie;
        EXPECT_TRUE(enough || square - best.front() <= kTie ||
                    after[static_cast<size_t>(t) + 1].quality.dependent_columns > 0)
            << what << " added nothing, and could have lowered " << square << " to "
            << best.front();
        break;
      }
      EXPECT_GE(scores.residual, options.tol - kTie) << what;
      ASSERT_LE(added.size(), static_cast<size_t>(options.per_step)) << what;
      // As many as there are of any use.
      const auto useful = std::count_if(best.begin(), best.end(),
                                        [&](double rho2) { return square - rho2 > kTie; });
      if (after[static_cast<size_t>(t) + 1].quality.dependent_columns == 0) {
        EXPECT_GE(static_cast<int64_t>(added.size()), std::min<int64_t>(useful, options.per_step))
            << what;
      }
      for (const int64_t j : added) {
        EXPECT_LE(scores.rho2[static_cast<size_t>(j)], best[added.size() - 1] + kTie)
            << what << " added " << j;
      }
    }
    walk.of_columns += all ? 1 : 0;
  }
}

class Oracle : public ::testing::TestWithParam<std::pair<int, int>> {};  // steps, s
INSTANTIATE_TEST_SUITE_P(Steps, Oracle,
                         ::testing::Values(std::pair{5, 1}, std::pair{4, 2}, std::pair{2, 3},
                                           std::pair{3, 5}));

TEST_P(Oracle, TakesTheBestInEachStep) {
  Walk walk;
  for (const oracle::NamedMatrix& c : Cases(3)) {
    FollowSteps(c, Steps(GetParam().first, GetParam().second, 0.05), walk);
    if (HasFatalFailure()) return;
  }
  // Nearly all of it can be checked.
  EXPECT_GT(walk.steps, 2000);
  EXPECT_LT(walk.too_ill, walk.steps / 20);
}

TEST_P(Oracle, GrowsThePatternsOfTheDefinition) {
  int64_t equal = 0, near_ties = 0;
  for (const oracle::NamedMatrix& c : Cases(8)) {
    const oracle::Dense dense = oracle::ToDense(static_cast<CscView>(c.a));
    DynamicSpaiOptions options = Steps(GetParam().first, GetParam().second, 0.2);
    options.max_column_nnz = GetParam().second > 1 ? 6 : 0;
    const DynamicSpaiPattern grown = Grow(c.a, options);
    for (int64_t k = 0; k < c.a.n_cols; ++k) {
      const oracle::GrownColumn column =
          oracle::GrowSpaiColumn(dense, k, {k}, options.max_steps, options.per_step, options.tol,
                                 options.max_column_nnz, kNoise);
      if (column.margin < kTie || column.pivot < kLeastPivot) {
        ++near_ties;
        continue;
      }
      ++equal;
      EXPECT_EQ(Column(grown.m, k), column.pattern) << c.name << ", column " << k;
    }
  }
  EXPECT_GT(equal, 500);
  EXPECT_LT(near_ties, equal);
}

// From a given pattern.
TEST(OracleInitial, GrowsFromWhatIsGiven) {
  const oracle::NamedMatrix c{"random", oracle::RandomIrregular(40, 5, 77), true};
  const oracle::Dense dense = oracle::ToDense(static_cast<CscView>(c.a));
  const PatternView a_pattern = c.a.pattern();
  const DynamicSpaiOptions options = Steps(3, 2);
  const DynamicSpaiPattern grown = Grow(c.a, options, 2, &a_pattern);
  int64_t equal = 0;
  for (int64_t k = 0; k < 40; ++k) {
    const oracle::GrownColumn column =
        oracle::GrowSpaiColumn(dense, k, Column(a_pattern, k), 3, 2, 0, 0, kNoise);
    if (column.margin < kTie || column.pivot < kLeastPivot) continue;
    ++equal;
    EXPECT_EQ(Column(grown.m, k), column.pattern) << k;
  }
  EXPECT_GT(equal, 30);
}

// ‖r‖ that growth has is that of the pattern.
TEST(OracleResiduals, AreThoseOfThePatterns) {
  int64_t compared = 0;
  for (const oracle::NamedMatrix& c : Cases(5)) {
    const oracle::Dense dense = oracle::ToDense(static_cast<CscView>(c.a));
    const int64_t n = c.a.n_cols;
    const DynamicSpaiPattern grown = Grow(c.a, Steps(3, 2));
    for (int t = 0; t <= 3; ++t) {
      double log = 0, pivot = 1, least = 1;
      const DynamicSpaiPattern some = Grow(c.a, Steps(t, 2));
      for (int64_t k = 0; k < n; ++k) {
        const oracle::SpaiScores s = oracle::ScoreSpaiColumn(dense, k, Column(some.m, k));
        pivot = std::min(pivot, s.pivot);
        const double residual = s.residual > 1e-12 ? s.residual : std::sqrt(kNoise);
        least = std::min(least, s.residual > 1e-12 ? s.residual : 1);
        log += std::log(residual);
      }
      // 1 − (nearly 1) has few digits.
      if (pivot < kLeastPivot || least < 1e-4) break;
      const double mean = std::exp(log / static_cast<double>(n));
      EXPECT_NEAR(grown.quality.residual_by_step[static_cast<size_t>(t)], mean, 1e-6 * mean)
          << c.name << ", step " << t;
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

}  // namespace
}  // namespace spaid::kernels
