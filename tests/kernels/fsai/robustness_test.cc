// What is no SPD matrix, and what would break a plain implementation; every error.
#include <gmock/gmock.h>

#include "kernels/fsai/fsai_tuning.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const CscView& a, const FsaiOptions& options, StatusCode code,
                   const std::string& reason, int64_t index, const std::string& field) {
  for (const int threads : {1, 2}) {
    const auto result = BuildFsai(a, nullptr, options, Threads(threads));
    ASSERT_FALSE(result.ok()) << reason;
    EXPECT_EQ(result.status().code(), code);
    EXPECT_EQ(result.status().reason(), reason) << result.status().message();
    EXPECT_EQ(result.status().index(), index);
    EXPECT_EQ(result.status().field(), field);
  }
}

TEST(FsaiErrors, OptionsOutOfRange) {
  const CscMatrix a = oracle::Laplacian2d(3, 3);
  const auto refused = [&](const std::string& field, const auto& change) {
    for (const bool adaptive : {true, false}) {
      FsaiOptions options;
      options.adaptive = adaptive;
      change(options);
      ExpectRefused(a, options, StatusCode::kInvalidArgument, "BAD_FSAI_OPTION", -1, field);
      EXPECT_FALSE(EstimateFsai(a.pattern(), nullptr, options, Threads(1)).ok());
      EXPECT_FALSE(FsaiPattern(a, nullptr, options, Threads(1)).ok());
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int bad : {-1, kMaxFsaiSteps + 1}) {
    refused("k_max", [bad](FsaiOptions& o) { o.k_max = bad; });
  }
  for (const int bad : {0, kMaxFsaiPerStep + 1}) {
    refused("step_size", [bad](FsaiOptions& o) { o.s = bad; });
  }
  for (const double bad : {-0.1, 1.0, nan}) {
    refused("epsilon", [bad](FsaiOptions& o) { o.epsilon = bad; });
    refused("min_gain", [bad](FsaiOptions& o) { o.min_gain = bad; });
    refused("drop_tol", [bad](FsaiOptions& o) { o.drop_tol = bad; });
    refused("post_filter", [bad](FsaiOptions& o) { o.post_filter = bad; });
    refused("symmetry_tolerance", [bad](FsaiOptions& o) { o.symmetry_tolerance = bad; });
  }
  refused("pattern_power", [](FsaiOptions& o) { o.power = 0; });
  for (const int bad : {-1, 65}) {
    refused("repeat_hash_bits", [bad](FsaiOptions& o) { o.repeat_hash_bits = bad; });
  }
  for (const double bad : {-1.0, nan, std::numeric_limits<double>::infinity()}) {
    refused("time_budget", [bad](FsaiOptions& o) { o.time_budget_ms = bad; });
  }
}

TEST(FsaiErrors, NotSquare) {
  CscMatrix a = oracle::Laplacian2d(3, 3);
  a.n_rows = 10;
  ExpectRefused(a, {}, StatusCode::kInvalidArgument, "NOT_SQUARE", -1, "n_rows");
}

TEST(FsaiErrors, DiagonalsThatAreNotPositive) {
  for (const double bad : {0.0, -1.0, 1e-320 * 0}) {
    for (const FsaiOptions& options : {Grow(3), Static()}) {
      CscMatrix a = FromRows({{2, 1, 0}, {1, 9, 1}, {0, 1, 9}});
      for (double& v : a.values) v = v == 9 ? bad : v;  // the first of two
      ExpectRefused(a, options, StatusCode::kFailedPrecondition, "NOT_POSITIVE_DEFINITE", 1,
                    "values");
    }
  }
  // Not stored.
  ExpectRefused(FromRows({{2, 1}, {1, 0}}), Grow(1), StatusCode::kFailedPrecondition,
                "NOT_POSITIVE_DEFINITE", 1, "values");
  FsaiOptions drop = Static();
  drop.drop_tol = 0.1;
  EXPECT_EQ(FsaiPattern(FromRows({{2, 1}, {1, 0}}), nullptr, drop, Threads(1)).status().reason(),
            "NOT_POSITIVE_DEFINITE");
}

TEST(FsaiErrors, WhereSymmetryBreaks) {
  for (const FsaiOptions& options : {Grow(3), Static()}) {
    const auto value =
        BuildFsai(FromRows({{4, 1, 0}, {1, 4, 2}, {0, 1, 4}}), nullptr, options, Threads(2));
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.status().reason(), "NOT_SYMMETRIC");
    EXPECT_EQ(value.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(value.status().index(), 1);
    EXPECT_THAT(value.status().message(), HasSubstr("(2, 1) is 1, (1, 2) is 2"));
    // An entry without a mirror.
    const auto lonely =
        BuildFsai(FromRows({{4, 0, 1}, {0, 4, 0}, {0, 0, 4}}), nullptr, options, Threads(2));
    ASSERT_FALSE(lonely.ok());
    EXPECT_EQ(lonely.status().index(), 0);
    EXPECT_THAT(lonely.status().message(), HasSubstr("(2, 0) is 0, (0, 2) is 1"));
  }
}

TEST(FsaiErrors, SymmetryIsUpToATolerance) {
  const CscMatrix a = FromRows({{4, 1, 0}, {1 + 1e-9, 4, 1e-15}, {0, 0, 4}});
  FsaiOptions options = Grow(3);
  ExpectRefused(a, options, StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", 0, "values");
  options.symmetry_tolerance = 1e-9;
  EXPECT_TRUE(BuildFsai(a, nullptr, options, Threads(1)).ok());
  options.adaptive = false;
  EXPECT_TRUE(BuildFsai(a, nullptr, options, Threads(1)).ok());
  // What an assembly leaves is no asymmetry, but of somebody who asks for none at all.
  const CscMatrix rounded = FromRows({{4, 1}, {1 + 1e-15, 4}});
  EXPECT_TRUE(BuildFsai(rounded, nullptr, Grow(3), Threads(1)).ok());
  options.symmetry_tolerance = 0;
  EXPECT_EQ(BuildFsai(rounded, nullptr, options, Threads(1)).status().reason(), "NOT_SYMMETRIC");
}

TEST(FsaiErrors, Patterns) {
  const CscMatrix a = oracle::Laplacian2d(3, 1);
  Pattern p;
  p.n_rows = p.n_cols = 2;
  p.col_ptr = {0, 1, 2};
  p.row_idx = {0, 1};
  const PatternView small = p;
  for (const FsaiOptions& options : {Grow(2), Static()}) {
    EXPECT_EQ(BuildFsai(a, &small, options, Threads(1)).status().reason(), "PATTERN_SIZE_MISMATCH");
  }
  EXPECT_EQ(BuildFsaiOn(p, a, Static(), Threads(1)).status().reason(), "PATTERN_SIZE_MISMATCH");
  EXPECT_EQ(EstimateFsai(a.pattern(), &small, Grow(2), Threads(1)).status().reason(),
            "PATTERN_SIZE_MISMATCH");
  p.n_rows = p.n_cols = 3;
  for (const int32_t last : {1, 0}) {  // without its diagonal; and full, but not lower
    p.col_ptr = {0, 1, 2, 3};
    p.row_idx = {0, 1, last};
    const auto refused = BuildFsaiOn(p, a, Static(), Threads(1));
    EXPECT_EQ(refused.status().reason(), "PATTERN_NOT_LOWER");
    EXPECT_EQ(refused.status().index(), 2);
  }
  p.col_ptr = {0, 2, 3, 4};
  p.row_idx = {0, 1, 1, 2};
  EXPECT_EQ(BuildFsaiOn(p, a, Static(), Threads(1)).status().index(), 0);
}

// Rows before the bad pivot are those of the SPD part; those behind keep what they had.
TEST(FsaiRobustness, IndefiniteMatricesAreCounted) {
  // The leading 2 x 2 is definite, row 2 makes it indefinite: A(1, 2) = 5.
  const CscMatrix a = FromRows({{4, 1, 0, 0}, {1, 4, 5, 0}, {0, 5, 4, 1}, {0, 0, 1, 4}});
  for (const FsaiOptions& options : {Grow(1), Static()}) {
    const FsaiResult g = Build(a, options);
    EXPECT_EQ(g.quality.not_spd_rows, 1);
    EXPECT_EQ(g.quality.first_not_spd, 2);
    const oracle::Vector row = Row(g, 2);
    EXPECT_EQ(row[0], 0.0);
    EXPECT_EQ(row[1], 0.0);
    EXPECT_EQ(row[2], 0.5);
    EXPECT_NE(Row(g, 3)[2], 0.0);
    for (const double v : g.g_rows.values) EXPECT_TRUE(std::isfinite(v));
  }
}

// The second column of the local problem is the bad one: the first stays.
TEST(FsaiRobustness, WhatCameBeforeABadPivotStays) {
  const CscMatrix a = FromRows({{4, 4, 1}, {4, 4, 0.5}, {1, 0.5, 4}});  // singular at 1
  for (const FsaiOptions& options : {Grow(2), Static()}) {
    const FsaiResult g = Build(a, options);
    EXPECT_EQ(g.quality.first_not_spd, 1);
    EXPECT_EQ(g.quality.not_spd_rows, 2);
    const double psi = 4 - 0.25;
    EXPECT_NEAR(Row(g, 2)[0], -0.25 / std::sqrt(psi), 1e-15);
    EXPECT_EQ(Row(g, 2)[1], 0.0);
    EXPECT_NEAR(g.psi_ratio[2], psi / 4, 1e-15);
  }
}

TEST(FsaiRobustness, RandomIndefiniteMatricesGiveFiniteRows) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    oracle::Dense a(40, 40);
    oracle::Random random(seed);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < i; ++j) a(i, j) = a(j, i) = random.Uniform(-1, 1);
      a(i, i) = 1;
    }
    for (FsaiOptions options : {Grow(40), Grow(5, 8), Static()}) {
      options.post_filter = seed == 3 ? 0.1 : 0;
      const FsaiResult g = Build(oracle::FromDense(a), options);
      EXPECT_GT(g.quality.not_spd_rows, 0);
      EXPECT_GT(g.quality.first_not_spd, 0);
      for (const double v : g.g_rows.values) EXPECT_TRUE(std::isfinite(v));
      for (const double v : g.psi_ratio) EXPECT_GT(v, 0);
      for (const double v : g.psi_ratio) EXPECT_LE(v, 1 + 1e-12);
    }
  }
}

// Definite in fp64, not in fp32.
TEST(FsaiRobustness, DefiniteInDoublePrecisionOnly) {
  const double c = 1 - 1e-9;
  const CscMatrix a = FromRows({{1, c}, {c, 1}});
  FsaiOptions options = Grow(1);
  EXPECT_EQ(Build(a, options).quality.not_spd_rows, 0);
  options.precision = Precision::kFp32;
  const FsaiResult g = Build(a, options);
  EXPECT_EQ(g.quality.not_spd_rows, 1);
  EXPECT_EQ(g.quality.first_not_spd, 1);
  EXPECT_EQ(Row(g, 1)[1], 1.0);
}

TEST(FsaiRobustness, TheEndsOfTheRange) {
  for (const double size : {1e300, 1e-300}) {
    CscMatrix a = oracle::Laplacian2d(6, 6);
    for (double& v : a.values) v *= size;
    for (FsaiOptions options : {Grow(10), Static()}) {
      for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
        options.precision = precision;
        const FsaiResult g = Build(a, options);
        EXPECT_EQ(g.quality.not_spd_rows, 0);
        EXPECT_LT(g.quality.kaporin, 0.9);
        for (const double v : g.g_rows.values) EXPECT_TRUE(std::isfinite(v));
      }
    }
  }
}

// A dense last row has as many candidates as there are rows; a factor of it would take 8 n² bytes.
TEST(FsaiRobustness, OneDenseRow) {
  const int64_t n = 3 * fsai_tuning::kDenseSlots;
  for (const int64_t hub : {n - 1, int64_t{0}}) {
    const CscMatrix a = Hub(n, hub, 7);
    const FsaiResult grown = Build(a, Grow(3, 4));
    EXPECT_EQ(grown.quality.not_spd_rows, 0);
    ExpectUnitDiagonal(a, grown, 1e-12, "grown");
    const FsaiResult fixed = Build(a, Static());
    EXPECT_EQ(fixed.quality.not_spd_rows, 0);
    EXPECT_EQ(fixed.g_rows.nnz(), 2 * n - 1);
    EXPECT_EQ(fixed.quality.slow_rows, hub == 0 ? 0 : 1);
    EXPECT_EQ(fixed.quality.not_converged_rows, 0);
    ExpectUnitDiagonal(a, fixed, 1e-12, "fixed");
    const auto counts = EstimateFsai(a.pattern(), nullptr, Static(), Threads(2));
    ASSERT_TRUE(counts.ok());
    EXPECT_LT(counts->host_bytes, 1 << 30);
  }
  // The largest of the dense row's entries are what it grows by.
  const CscMatrix a = Hub(n, n - 1, 7);
  const auto last = static_cast<CscView>(a).column(n - 1);
  const auto values = static_cast<CscView>(a).column_values(n - 1);
  int64_t largest = 0;
  for (int64_t p = 0; p + 1 < n; ++p) {
    if (std::abs(values[static_cast<size_t>(p)]) > std::abs(values[static_cast<size_t>(largest)])) {
      largest = p;
    }
  }
  const FsaiResult one = Build(a, Grow(1));
  const auto row = one.g_rows.pattern().column(n - 1);
  ASSERT_EQ(row.size(), 2u);
  EXPECT_EQ(row[0], last[static_cast<size_t>(largest)]);
}

// Long rows by CG equal what a factor gives, also where a pivot is bad.
TEST(FsaiRobustness, LongRowsBySubstitution) {
  const int64_t n = fsai_tuning::kDenseRow + 300;
  CscMatrix a = Hub(n, n - 1, 2);
  const FsaiResult g = Build(a, Static());
  EXPECT_EQ(g.quality.slow_rows, 1);
  // Row n - 1: g̃_j = −a_j / 2, ψ = a − Σ a_j² / 2.
  const auto values = static_cast<CscView>(a).column_values(n - 1);
  double psi = values.back();
  for (int64_t j = 0; j + 1 < n; ++j) {
    psi -= values[static_cast<size_t>(j)] * values[static_cast<size_t>(j)] / 2;
  }
  const auto row = static_cast<CscView>(g.g_rows).column_values(n - 1);
  for (int64_t j = 0; j + 1 < n; ++j) {
    EXPECT_NEAR(row[static_cast<size_t>(j)], -values[static_cast<size_t>(j)] / 2 / std::sqrt(psi),
                1e-13);
  }
  EXPECT_NEAR(g.psi_ratio.back(), psi / values.back(), 1e-12);
  // Less than the sum needs: indefinite.
  a.values.back() = 1;
  const FsaiResult bad = Build(a, Static());
  EXPECT_EQ(bad.quality.not_spd_rows, 1);
  EXPECT_EQ(bad.quality.first_not_spd, n - 1);
  EXPECT_EQ(Row(bad, n - 1).back(), 1.0);
}

}  // namespace
}  // namespace spaid::kernels
