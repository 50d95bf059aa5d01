// Classical coarsening: by hand, beside its definition, and as a hierarchy.
#include "kernels/amg/classical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/strength.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/multigrid.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

constexpr double kTheta = 0.25, kLeastLeft = 0.1;

Pattern DependencesOf(const CscView& rows, bool symmetric, int threads) {
  auto couplings = Couplings(rows, symmetric, 1, Threads(threads));
  EXPECT_TRUE(couplings.ok());
  auto depends = FindDependences(*couplings, kTheta, {}, Threads(threads));
  EXPECT_TRUE(depends.ok());
  return *std::move(depends);
}

Aggregates Coarse(const std::vector<bool>& is_coarse) {
  Aggregates made;
  for (const bool coarse : is_coarse) {
    made.of_node.push_back(coarse ? static_cast<int32_t>(made.count++) : -1);
  }
  return made;
}

SharedMatrix P(const CscView& rows, const Pattern& depends, const Aggregates& coarse,
               const NearNull& near, bool symmetric, int threads,
               const SharedPattern& kept = nullptr) {
  auto p = ExtendedInterpolation(rows, depends, coarse, near, symmetric, kLeastLeft, kept,
                                 Threads(threads));
  EXPECT_TRUE(p.ok()) << p.status().message();
  return *std::move(p);
}

NearNull OneVector(int64_t n, uint64_t seed) {
  NearNull near{.n = n, .count = 1, .values = {}};
  oracle::Random random(seed);
  for (int64_t i = 0; i < n; ++i) near.values.push_back(random.Uniform(0.5, 2));
  return near;
}

TEST(Dependences, OneEndIsEnough) {
  // 2 has 1 alone, which 1 finds weak.
  const CscMatrix a = oracle::FromRows({{10, -9, 0}, {-9, 10, -1}, {0, -1, 10}});
  const Pattern depends = DependencesOf(a, true, 1);
  EXPECT_THAT(depends.col_ptr, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(depends.row_idx, ElementsAre(1, 0, 1));
}

TEST(Dependences, StayWithinAnUnknownOfTheNodes) {
  const CscMatrix a =
      oracle::FromRows({{8, -7, -1, 0}, {-7, 8, 0, -1}, {-1, 0, 8, -7}, {0, -1, -7, 8}});
  auto couplings = Couplings(a, true, 1, Threads(1));
  ASSERT_TRUE(couplings.ok());
  const std::vector<uint8_t> unknown_of = {0, 1, 0, 1};
  auto depends = FindDependences(*couplings, kTheta, unknown_of, Threads(1));
  ASSERT_TRUE(depends.ok());
  EXPECT_THAT(depends->row_idx, ElementsAre(2, 3, 0, 1));
}

TEST(Splitting, WhatMostDependOnIsCoarse) {
  // A star: all depend on its middle.
  oracle::Dense a(6, 6);
  for (int64_t i = 0; i < 6; ++i) {
    a(i, i) = 6;
    if (i != 2) a(i, 2) = a(2, i) = -1;
  }
  const auto coarse = SplitPmis(DependencesOf(oracle::FromDense(a), true, 1), 0, Threads(1));
  ASSERT_TRUE(coarse.ok());
  EXPECT_THAT(coarse->of_node, ElementsAre(-1, -1, 0, -1, -1, -1));
  EXPECT_EQ(coarse->count, 1);
  EXPECT_EQ(coarse->isolated, 0);
}

TEST(Splitting, WhatNothingDependsOnIsFineAndMayBeIsolated) {
  // 0 and 1 depend on each other; 2 depends on 1 alone; 3 has no negative coupling.
  const CscMatrix a =
      oracle::FromRows({{10, -9, 0, 0}, {-9, 10, -1, 0}, {0, -1, 10, 2}, {0, 0, 2, 10}});
  const auto coarse = SplitPmis(DependencesOf(a, true, 1), 0, Threads(1));
  ASSERT_TRUE(coarse.ok());
  EXPECT_THAT(coarse->of_node, ElementsAre(-1, 0, -1, -1));
  EXPECT_EQ(coarse->isolated, 1);
}

// Row 1 has one coarse neighbour, 0, and row 2 none: it takes 0 and 4 through 1 and 3, which give
// half of what they are to it back to 2 itself.
TEST(Interpolation, OfAPathByHand) {
  oracle::Dense a(5, 5);
  for (int64_t i = 0; i < 5; ++i) {
    a(i, i) = 2;
    if (i > 0) a(i, i - 1) = a(i - 1, i) = -1;
  }
  const CscMatrix rows = oracle::FromDense(a);
  const Aggregates ends = Coarse({true, false, false, false, true});
  const SharedMatrix p =
      P(rows, DependencesOf(rows, true, 1), ends, {.n = 5, .count = 1, .values = {}}, true, 1);
  EXPECT_THAT(p.pattern->col_ptr, ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_THAT(p.pattern->row_idx, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(p.values, ElementsAre(1, 1, 0.5, 0.5, 1, 1));
}

TEST(Splitting, IsTheGreedyOneForAnyNumberOfThreads) {
  for (const auto& [name, rows, symmetric] : Problems()) {
    SCOPED_TRACE(name);
    const oracle::Dense depends = oracle::Dependences(oracle::Couplings(DenseOf(rows), 1), kTheta);
    const auto dependents = [&](int64_t j) {
      int64_t count = 0;
      for (int64_t i = 0; i < depends.rows; ++i) count += depends(i, j) != 0;
      return count;
    };
    const Aggregates expected = Coarse(
        oracle::SplitPmis(depends, [&](int64_t i) { return SplittingKey(dependents(i), i, 2); }));
    for (const int threads : {1, 3}) {
      const auto coarse = SplitPmis(DependencesOf(rows, symmetric, threads), 2, Threads(threads));
      ASSERT_TRUE(coarse.ok());
      EXPECT_EQ(coarse->of_node, expected.of_node);
      EXPECT_EQ(coarse->count, expected.count);
    }
  }
}

TEST(Interpolation, IsItsDefinition) {
  for (const auto& [name, rows, symmetric] : Problems()) {
    SCOPED_TRACE(name);
    const Pattern depends = DependencesOf(rows, symmetric, 1);
    const Aggregates coarse = *SplitPmis(depends, 0, Threads(1));
    std::vector<bool> is_coarse;
    for (const int32_t c : coarse.of_node) is_coarse.push_back(c >= 0);
    const NearNull near = OneVector(rows.n_cols, 3);
    const NearNull injected = Injected(near, coarse);
    const oracle::Dense dense = DenseOf(rows);
    const oracle::Dense whole = oracle::ExtendedInterpolation(
        dense, oracle::Dependences(oracle::Couplings(dense, 1), kTheta), is_coarse,
        oracle::Vector(near.values.begin(), near.values.end()), kLeastLeft);
    const SharedMatrix made = P(rows, depends, coarse, near, symmetric, 2);
    const CscView p = made;
    for (int64_t i = 0; i < rows.n_cols; ++i) {
      // Some weights may be zero, and are entries.
      std::vector<double> weights;
      double sum = 0;
      const auto columns = p.column(i);
      for (int64_t j = 0; j < rows.n_cols; ++j) {
        const int32_t c = coarse.of_node[static_cast<size_t>(j)];
        const bool is_entry = c >= 0 && std::binary_search(columns.begin(), columns.end(), c);
        if (whole(i, j) == 0 && !is_entry) continue;
        weights.push_back(std::fabs(whole(i, j)));
        sum += whole(i, j) * near.values[static_cast<size_t>(j)];
      }
      std::sort(weights.begin(), weights.end(), std::greater<>());
      ASSERT_EQ(columns.size(), std::min<size_t>(weights.size(), 4)) << i;
      double kept = 0;
      std::vector<double> at_columns;
      for (int64_t j = 0; j < rows.n_cols; ++j) {
        const int32_t c = coarse.of_node[static_cast<size_t>(j)];
        if (c < 0 || !std::binary_search(columns.begin(), columns.end(), c)) continue;
        at_columns.push_back(whole(i, j));
        kept += whole(i, j) * near.values[static_cast<size_t>(j)];
        // None is larger among those left out.
        ASSERT_GE(std::fabs(whole(i, j)), weights[columns.size() - 1] * (1 - 1e-12)) << i;
      }
      const double scale = kept != 0 && sum / kept > 0 ? sum / kept : 1;
      for (size_t q = 0; q < columns.size(); ++q) {
        ASSERT_NEAR(p.column_values(i)[q], scale * at_columns[q], 1e-12 * (1 + weights[0])) << i;
      }
    }
    for (const int threads : {1, 3}) {
      const SharedMatrix again = P(rows, depends, coarse, near, symmetric, threads, made.pattern);
      EXPECT_EQ(again.pattern, made.pattern);
      EXPECT_EQ(again.values, made.values) << "on its own pattern, the same bits";
    }
  }
}

// P takes the coarse near-null vector to the fine one where A does nothing to it.
TEST(Interpolation, KeepsTheNearNullVector) {
  CscMatrix a = From(gallery::GraphLaplacian(400));
  const NearNull near = OneVector(a.n_cols, 8);
  // D⁻¹ L D⁻¹, rows of L of sum zero: near is its null vector.
  std::vector<double> sums(static_cast<size_t>(a.n_cols), 0.0);
  ForEntries(
      a, [&](int64_t i, int64_t j, double v) { sums[static_cast<size_t>(j)] += i == j ? 0 : v; });
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      const int32_t i = a.row_idx[static_cast<size_t>(p)];
      double& value = a.values[static_cast<size_t>(p)];
      if (i == j) value = -sums[static_cast<size_t>(j)];
      value /= near.values[static_cast<size_t>(i)] * near.values[static_cast<size_t>(j)];
    }
  }
  const Pattern depends = DependencesOf(a, true, 2);
  const Aggregates coarse = *SplitPmis(depends, 0, Threads(2));
  const SharedMatrix p = P(a, depends, coarse, near, true, 2);
  const NearNull injected = Injected(near, coarse);
  int64_t rows = 0;
  for (int64_t i = 0; i < a.n_cols; ++i) {
    const auto columns = CscView(p).column(i);
    if (columns.empty()) continue;
    double back = 0;
    for (size_t q = 0; q < columns.size(); ++q) {
      back += CscView(p).column_values(i)[q] * injected.values[static_cast<size_t>(columns[q])];
    }
    ASSERT_NEAR(back, near.values[static_cast<size_t>(i)], 1e-10) << i;
    ++rows;
  }
  EXPECT_GT(rows, a.n_cols / 2);
}

AmgOptions Classical(AmgOptions options = {}) {
  options.coarsening = Coarsening::kClassical;
  return options;
}

CscMatrix Exactly(gallery::Matrix a) {
  gallery::Symmetrize({a.col_ptr, a.row_idx, a.values});
  return From(a);
}

TEST(ClassicalHierarchy, NeedsFewerIterationsThanAggregates) {
  struct Case {
    std::string name;
    CscMatrix a;
    bool symmetric;
    int64_t most;
  };
  const std::vector<Case> cases = {
      {"poisson", From(gallery::ConvectionDiffusion3d(32, 0)), true, 9},
      {"jumps", From(gallery::Jumps3d(32, 4, 3)), true, 10},
      {"anisotropy", Exactly(gallery::RotatedAnisotropy2d(200, 1e-3, 0.5236)), true, 20},
      {"convection", From(gallery::ConvectionDiffusion3d(32, 20)), false, 6}};
  for (const auto& [name, a, symmetric, most] : cases) {
    SCOPED_TRACE(name);
    const AmgResult built = Build(a, symmetric, Classical());
    EXPECT_LT(built.quality.operator_complexity, 3);
    EXPECT_TRUE(built.quality.inverted);
    const int64_t iterations = Iterations(a, symmetric, *built.hierarchy);
    EXPECT_LE(iterations, most);
    EXPECT_LT(iterations, Iterations(a, symmetric, *Build(a, symmetric).hierarchy));
  }
}

TEST(ClassicalHierarchy, TakesUnknownsOfANodeApart) {
  const CscMatrix a = Exactly(gallery::Elasticity3d(12));
  AmgOptions options = Classical(With(SmootherKind::kAfsai));
  options.block_size = 3;
  const AmgResult built = Build(a, true, options);
  EXPECT_EQ(built.quality.block_size, 3);
  EXPECT_LE(Iterations(a, true, *built.hierarchy), 14);
}

TEST(ClassicalHierarchy, SolvesSingularAndReducibleProblems) {
  const CscMatrix graph = From(gallery::GraphLaplacian(3000));
  AmgOptions large = Classical();
  large.max_operator_complexity = 10;
  EXPECT_LE(Iterations(graph, true, *Build(graph, true, large).hierarchy), 40);
  for (const auto& [name, rows, symmetric] : Problems()) {
    SCOPED_TRACE(name);
    const CscMatrix a = Transpose(CscView(rows));
    AmgOptions options = Classical();
    options.max_coarse_size = 5;
    const auto built = BuildAmg(a, symmetric, {}, options, Threads(2));
    if (!built.ok()) {
      EXPECT_EQ(built.status().reason(), "NO_COARSE_LEVEL");
      continue;
    }
    for (const double z : Applied(*built->hierarchy, RandomVector(a.n_cols, 4))) {
      ASSERT_TRUE(std::isfinite(z));
    }
  }
}

TEST(ClassicalHierarchy, HasTheSameBitsForAnyNumberOfThreads) {
  for (const bool symmetric : {true, false}) {
    const CscMatrix a = From(gallery::ConvectionDiffusion3d(20, symmetric ? 0 : 20));
    const std::vector<double> r = RandomVector(a.n_cols, 5);
    const auto once = Applied(*Build(a, symmetric, Classical(), {}, 1).hierarchy, r, 1);
    EXPECT_EQ(once, Applied(*Build(a, symmetric, Classical(), {}, 3).hierarchy, r, 3));
  }
}

TEST(ClassicalHierarchy, IsSymmetric) {
  const CscMatrix a = From(gallery::Jumps3d(16, 4, 3));
  AmgOptions options = Classical(With(SmootherKind::kL1Jacobi, Precision::kFp64));
  const AmgResult built = Build(a, true, options);
  EXPECT_TRUE(built.hierarchy->symmetric());
  const auto u = RandomVector(a.n_cols, 6), v = RandomVector(a.n_cols, 7);
  const double left = Dot(u, Applied(*built.hierarchy, v)),
               right = Dot(v, Applied(*built.hierarchy, u));
  EXPECT_NEAR(left, right, 1e-12 * std::fabs(left) + 1e-12);
}

TEST(ClassicalHierarchy, RefusesVectorsOfNodesWithSeveralUnknowns) {
  const CscMatrix a = Exactly(gallery::Elasticity3d(6));
  AmgOptions options = Classical();
  options.block_size = 3;
  const auto built = BuildAmg(a, true, NodesOfElasticity(6).input(), options, Threads(1));
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(built.status().reason(), "BAD_AMG_OPTION");
  EXPECT_EQ(built.status().field(), "coarsening");
}

TEST(ClassicalHierarchy, SaysWhereTheFirstLevelIsTooLarge) {
  const CscMatrix graph = From(gallery::GraphLaplacian(3000));
  const auto built = BuildAmg(graph, true, {}, Classical(), Threads(2));
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().reason(), "NO_COARSE_LEVEL");
  EXPECT_EQ(built.status().field(), "max_operator_complexity");
}

TEST(ClassicalHierarchy, TakesOneVectorOfYours) {
  const CscMatrix a = From(gallery::BadlyScaled2d(60, 8));
  std::vector<double> ones(static_cast<size_t>(a.n_cols), 1.0);
  const NearNullInput near{.vectors = ones, .count = 1, .coordinates = {}, .dimension = 0};
  EXPECT_LE(Iterations(a, true, *Build(a, true, Classical(), near).hierarchy), 40);
}

TEST(ClassicalHierarchy, StopsWhereItIsTold) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(16, 0));
  StopSource stop;
  stop.Request(StopReason::kCancelled);
  Context context = Threads(2);
  context.stop = stop.token();
  const auto built = BuildAmg(a, true, {}, Classical(), context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
