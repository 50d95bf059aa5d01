#include "kernels/amg/aggregation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "kernels/amg/strength.h"
#include "kernels/sparse/validation.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/multigrid.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

StrongGraph GraphOf(const CscView& rows, bool symmetric, int block, int threads,
                    double theta = 0.25) {
  auto couplings = Couplings(rows, symmetric, block, Threads(threads));
  EXPECT_TRUE(couplings.ok());
  auto graph = FindStrong(*couplings, theta, Threads(threads));
  EXPECT_TRUE(graph.ok());
  return *std::move(graph);
}

oracle::Dense WeightsOf(const StrongGraph& graph) {
  oracle::Dense weights(graph.n, graph.n);
  for (int64_t i = 0; i < graph.n; ++i) {
    for (size_t p = 0; p < graph.of(i).size(); ++p)
      weights(i, graph.of(i)[p]) = graph.weights_of(i)[p];
  }
  return weights;
}

TEST(Strength, ByHand) {
  // In row 0 -4 is strong, -1 just so at θ = 0.25, +3 is no coupling of smooth errors.
  const CscMatrix a =
      oracle::FromRows({{8, -4, -1, 3}, {-4, 8, 0, 0}, {-1, 0, 8, 0}, {3, 0, 0, 8}});
  const StrongGraph graph = GraphOf(a, true, 1, 1);
  EXPECT_THAT(graph.of(0), ElementsAre(1, 2));
  EXPECT_THAT(graph.of(1), ElementsAre(0));
  EXPECT_THAT(graph.of(2), ElementsAre(0));
  EXPECT_TRUE(graph.of(3).empty());
  EXPECT_DOUBLE_EQ(graph.weights_of(0)[0], 0.5);
  EXPECT_THAT(graph.leader, ElementsAre(-1, -1, -1, -1));
}

TEST(Strength, OneSidedCouplingsNameALeader) {
  // 2 has 1 alone, which 1 finds weak.
  const CscMatrix a = oracle::FromRows({{10, -9, 0}, {-9, 10, -1}, {0, -1, 10}});
  const StrongGraph graph = GraphOf(a, true, 1, 1);
  EXPECT_THAT(graph.of(1), ElementsAre(0));
  EXPECT_TRUE(graph.of(2).empty());
  EXPECT_EQ(graph.leader[2], 1);
}

TEST(Strength, OfBlocksIsTheNormOfTheBlock) {
  const CscMatrix a = oracle::FromRows({{1, 0, 3, 0}, {0, 1, 0, 4}, {3, 0, 1, 0}, {0, 4, 0, 1}});
  const StrongGraph graph = GraphOf(a, true, 2, 1);
  EXPECT_EQ(graph.n, 2);
  EXPECT_THAT(graph.of(0), ElementsAre(1));
  EXPECT_DOUBLE_EQ(graph.weights_of(0)[0], 5);
}

TEST(Strength, EqualsTheOracle) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    for (const int block : {1, 2, 3}) {
      if (problem.rows.n_cols % block != 0) continue;
      const auto expected =
          oracle::FindStrong(oracle::Couplings(DenseOf(problem.rows), block), 0.25);
      const StrongGraph graph = GraphOf(problem.rows, problem.symmetric, block, 2);
      const oracle::Dense weights = WeightsOf(graph);
      for (size_t p = 0; p < weights.a.size(); ++p) {
        ASSERT_NEAR(weights.a[p], expected.weight.a[p], 1e-13)
            << "block " << block << ", element " << p;
        ASSERT_EQ(weights.a[p] > 0, expected.weight.a[p] > 0);
      }
      for (size_t i = 0; i < expected.leader.size(); ++i)
        ASSERT_EQ(graph.leader[i], expected.leader[i]);
    }
  }
}

TEST(Aggregation, KeysOfALevelDiffer) {
  std::set<uint64_t> keys;
  for (int64_t i = 0; i < 10000; ++i) keys.insert(AggregationKey(i, 3));
  EXPECT_EQ(keys.size(), 10000u);
  EXPECT_NE(AggregationKey(5, 0), AggregationKey(5, 1));
}

TEST(Aggregation, EqualsTheGreedyOracleForAnyNumberOfThreads) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    for (const int level : {0, 1, 7}) {
      const auto strong = oracle::FindStrong(oracle::Couplings(DenseOf(problem.rows), 1), 0.25);
      const auto expected =
          oracle::Aggregate(strong, [&](int64_t i) { return AggregationKey(i, level); });
      for (const int threads : {1, 2, 5}) {
        const auto made = Aggregate(GraphOf(problem.rows, problem.symmetric, 1, threads), level,
                                    Threads(threads));
        ASSERT_TRUE(made.ok());
        const std::vector<int64_t> got(made->of_node.begin(), made->of_node.end());
        ASSERT_EQ(got, expected);
        ASSERT_EQ(made->isolated, std::count(expected.begin(), expected.end(), -1));
        ASSERT_EQ(made->count,
                  expected.empty() ? 0 : *std::max_element(expected.begin(), expected.end()) + 1);
      }
    }
  }
}

// Distances in the strong graph.
TEST(Aggregation, AggregatesAreConnectedAndSmall) {
  for (const auto& a : {oracle::Laplacian2d(40, 35), From(gallery::ConvectionDiffusion3d(14, 0))}) {
    const StrongGraph graph = GraphOf(a, true, 1, 2);
    const auto made = Aggregate(graph, 0, Threads(2));
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->isolated, 0);
    EXPECT_LT(made->count, a.n_cols / 4);
    std::vector<std::vector<int64_t>> members(static_cast<size_t>(made->count));
    for (int64_t i = 0; i < graph.n; ++i)
      members[static_cast<size_t>(made->of_node[static_cast<size_t>(i)])].push_back(i);
    for (const auto& nodes : members) {
      ASSERT_FALSE(nodes.empty());
      // One node from which the others are within three steps, inside the aggregate.
      const bool centred = std::any_of(nodes.begin(), nodes.end(), [&](int64_t centre) {
        std::set<int64_t> reached = {centre};
        for (int step = 0; step < 3; ++step) {
          for (const int64_t i : std::vector<int64_t>(reached.begin(), reached.end())) {
            for (const int32_t j : graph.of(i)) {
              if (std::count(nodes.begin(), nodes.end(), j) > 0) reached.insert(j);
            }
          }
        }
        return reached.size() == nodes.size();
      });
      ASSERT_TRUE(centred) << nodes[0];
    }
  }
}

TEST(Aggregation, NoCouplingsNoAggregates) {
  const CscMatrix a = oracle::FromRows({{2, 0, 0}, {0, 3, 0}, {0, 0, 4}});
  const auto made = Aggregate(GraphOf(a, true, 1, 1), 0, Threads(1));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->count, 0);
  EXPECT_EQ(made->isolated, 3);
}

TEST(Aggregation, Stops) {
  StopSource source;
  source.Request(StopReason::kTimeLimit);
  Context context = Threads(2);
  context.stop = source.token();
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  EXPECT_EQ(Couplings(a, true, 1, context).status().reason(), "TIME_LIMIT");
  EXPECT_EQ(Aggregate(GraphOf(a, true, 1, 1), 0, context).status().reason(), "TIME_LIMIT");
}

}  // namespace
}  // namespace spaid::kernels
