// Against the definition, dense and slow.
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

constexpr double kNoise = 8.0 / (int64_t{1} << 53);

std::vector<int64_t> PatternOf(const FsaiResult& g, int64_t i) {
  const auto row = g.g_rows.pattern().column(i);
  return {row.begin(), row.end() - 1};
}

TEST(FsaiOracle, GrowsAsTheDefinitionSays) {
  int64_t compared = 0, decided_by_rounding = 0;
  for (const uint64_t seed : {3u, 4u}) {
    for (const oracle::NamedMatrix& named : SpdZoo(seed)) {
      const oracle::Dense a = oracle::ToDense(static_cast<CscView>(named.a));
      for (const auto& [k_max, s, epsilon, min_gain] : {std::tuple{0, 1, 0.0, 0.0},
                                                        {1, 1, 0.0, 0.0},
                                                        {4, 1, 0.0, 0.0},
                                                        {12, 1, 0.3, 0.0},
                                                        {3, 5, 0.0, 0.0},
                                                        {30, 1, 1e-3, 1e-3},
                                                        {30, 1, 0.0, 0.05},
                                                        {5, 3, 0.0, 0.05},
                                                        {40, 1, 0.0, 0.0},
                                                        {6, 32, 0.0, 0.0}}) {
        FsaiOptions options = Grow(k_max, s, epsilon);
        options.min_gain = min_gain;
        const FsaiResult g = Build(named.a, options);
        EXPECT_EQ(g.quality.not_spd_rows, 0) << named.name;
        for (int64_t i = 0; i < a.rows; ++i) {
          const oracle::FsaiRow row =
              oracle::FsaiGrown(a, i, k_max, s, epsilon, kNoise, {}, min_gain);
          // Where two gradients are as good as equal, rounding chooses; and where one is near the
          // noise, whether it is.
          if (row.margin < 1e-11) {
            ++decided_by_rounding;
            continue;
          }
          ++compared;
          ASSERT_EQ(PatternOf(g, i), row.pattern)
              << named.name << ", row " << i << ", k " << k_max << ", s " << s;
          const oracle::Vector values = Row(g, i);
          for (int64_t j = 0; j <= i; ++j) {
            const auto at = static_cast<size_t>(j);
            // Relative to what column j of G can be.
            const double scale = 1 / std::sqrt(a(j, j));
            ASSERT_NEAR(values[at] / scale, row.g[at] / scale, 1e-9)
                << named.name << " (" << i << ", " << j << ")";
          }
          ASSERT_NEAR(g.psi_ratio[static_cast<size_t>(i)], row.psi.back() / a(i, i), 1e-12);
        }
      }
    }
  }
  EXPECT_GT(compared, 3 * decided_by_rounding);
}

TEST(FsaiOracle, KaporinByStepIsThatOfTheDefinition) {
  const CscMatrix sparse = oracle::RandomSpd(60, 6, 8);
  const oracle::Dense a = oracle::ToDense(static_cast<CscView>(sparse));
  const int k_max = 6;
  const FsaiResult g = Build(sparse, Grow(k_max));
  ASSERT_EQ(g.quality.kaporin_by_step.size(), 7u);
  for (int t = 0; t <= k_max; ++t) {
    double log = 0;
    for (int64_t i = 0; i < a.rows; ++i) {
      const oracle::FsaiRow row = oracle::FsaiGrown(a, i, t, 1, 0, kNoise);
      log += std::log(row.psi.back() / a(i, i));
    }
    EXPECT_NEAR(g.quality.kaporin_by_step[static_cast<size_t>(t)], std::exp(log / 60), 1e-12) << t;
  }
}

TEST(FsaiOracle, StaticRowsSolveTheirSystems) {
  for (const oracle::NamedMatrix& named : SpdZoo(11)) {
    const oracle::Dense a = oracle::ToDense(static_cast<CscView>(named.a));
    for (const int power : {1, 2, 3}) {
      const FsaiResult g = Build(named.a, Static(power));
      const oracle::Dense pattern = oracle::PatternPower(a, power);
      for (int64_t i = 0; i < a.rows; ++i) {
        std::vector<int64_t> expected;
        for (int64_t j = 0; j < i; ++j) {
          if (pattern(i, j) != 0) expected.push_back(j);
        }
        ASSERT_EQ(PatternOf(g, i), expected) << named.name << ", row " << i << ", p " << power;
        const oracle::FsaiRow row = oracle::FsaiOn(a, i, expected);
        const oracle::Vector values = Row(g, i);
        for (int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<size_t>(j);
          ASSERT_NEAR(values[at] * std::sqrt(a(j, j)), row.g[at] * std::sqrt(a(j, j)), 1e-9)
              << named.name << " (" << i << ", " << j << ")";
        }
      }
    }
  }
}

TEST(FsaiOracle, DropTolDropsPairs) {
  for (const oracle::NamedMatrix& named : SpdZoo(5)) {
    const oracle::Dense a = oracle::ToDense(static_cast<CscView>(named.a));
    FsaiOptions options = Static(2);
    options.drop_tol = 0.1;
    oracle::Dense kept = a;
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < a.rows; ++j) {
        if (i != j && std::abs(a(i, j)) < 0.1 * std::sqrt(a(i, i)) * std::sqrt(a(j, j))) {
          kept(i, j) = 0;
        }
      }
    }
    const oracle::Dense pattern = oracle::PatternPower(kept, 2);
    const auto made = FsaiPattern(named.a, nullptr, options, Threads(2));
    ASSERT_TRUE(made.ok());
    const FsaiResult g = Build(named.a, options);
    for (int64_t i = 0; i < a.rows; ++i) {
      std::vector<int64_t> expected;
      for (int64_t j = 0; j < i; ++j) {
        if (pattern(i, j) != 0) expected.push_back(j);
      }
      EXPECT_EQ(PatternOf(g, i), expected) << named.name << ", row " << i;
    }
    EXPECT_EQ(made->row_idx, g.g_rows.row_idx) << named.name;
  }
}

}  // namespace
}  // namespace spaid::kernels
