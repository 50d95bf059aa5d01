#include "kernels/amg/prolongation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "kernels/amg/scaling.h"
#include "kernels/amg/tentative.h"
#include "kernels/sparse/products.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/multigrid.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

Aggregates AggregatesOf(std::vector<int32_t> of_node) {
  Aggregates made;
  for (const int32_t g : of_node) {
    made.of_node.push_back(g);
    made.count = std::max<int64_t>(made.count, g + 1);
    made.isolated += g < 0;
  }
  return made;
}

// [-1 2 -1].
CscMatrix Path(int64_t n) {
  oracle::Dense a(n, n);
  for (int64_t i = 0; i < n; ++i) {
    a(i, i) = 2;
    if (i > 0) a(i, i - 1) = a(i - 1, i) = -1;
  }
  return oracle::FromDense(a);
}

// All steps to P of one level.
struct Coarsened {
  SharedMatrix rows;
  CscMatrix filtered;
  NearNull near;
  StrongGraph graph;
  Aggregates aggregates;
  Tentative tentative;
  Smoothed smoothed;
};

Coarsened Coarsen(const CscMatrix& a, bool symmetric, int block, const NearNullInput& input,
                  int threads) {
  Coarsened c;
  auto scaled =
      ScaleToUnitDiagonal(symmetric ? a : Transpose(CscView(a)), symmetric, Threads(threads));
  EXPECT_TRUE(scaled.ok()) << scaled.status().message();
  double rayleigh = 0;
  auto near = MakeNearNull(*scaled, input, block, Threads(threads), &rayleigh);
  EXPECT_TRUE(near.ok()) << near.status().message();
  c.near = *std::move(near);
  c.rows = std::move(scaled->rows);
  auto couplings = Couplings(c.rows, symmetric, block, Threads(threads));
  EXPECT_TRUE(couplings.ok());
  c.graph = *FindStrong(*couplings, 0.25, Threads(threads));
  c.aggregates = *Aggregate(c.graph, 0, Threads(threads));
  c.tentative = *MakeTentative(c.aggregates, c.near, block, Threads(threads));
  c.filtered = *FilterWeak(c.rows, c.graph, c.aggregates, c.near, block, 0.1, Threads(threads));
  c.smoothed = *SmoothProlongation(c.filtered, c.tentative, Threads(threads));
  return c;
}

std::vector<double> Times(const CscView& rows, std::span<const double> x) {
  std::vector<double> y(static_cast<size_t>(rows.n_cols), 0.0);
  ForEntries(rows, [&](int64_t i, int64_t j, double v) {
    y[static_cast<size_t>(j)] += v * x[static_cast<size_t>(i)];
  });
  return y;
}

TEST(Tentative, OnesByHand) {
  const auto t = MakeTentative(AggregatesOf({0, 0, 1, -1, 1}), {.n = 5, .count = 1, .values = {}},
                               1, Threads(1));
  ASSERT_TRUE(t.ok());
  EXPECT_THAT(t->p.pattern->col_ptr, ElementsAre(0, 1, 2, 3, 3, 4));
  EXPECT_THAT(t->p.pattern->row_idx, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(t->p.values, ElementsAre(1, 1, 1, 1));
  EXPECT_TRUE(t->coarse.ones());
  EXPECT_EQ(t->coarse.n, 2);
}

TEST(Tentative, OrthonormalBlocksByHand) {
  NearNull near{.n = 4, .count = 1, .values = {}};
  near.values = {3, 4, 5, 12};
  const auto t = MakeTentative(AggregatesOf({0, 0, 1, 1}), near, 1, Threads(1));
  ASSERT_TRUE(t.ok());
  EXPECT_THAT(t->p.values, ElementsAre(0.6, 0.8, 5.0 / 13, 12.0 / 13));
  EXPECT_THAT(t->coarse.values, ElementsAre(5, 13));
}

TEST(Tentative, ReproducesTheNearNullVectorsAndIsOrthonormal) {
  oracle::Random random(5);
  const int block = 2;
  const int64_t nodes = 30, n = nodes * block;
  std::vector<int32_t> of_node;
  for (int64_t i = 0; i < nodes; ++i) of_node.push_back(i == 7 ? -1 : static_cast<int32_t>(i / 6));
  NearNull near{.n = n, .count = 3, .values = {}};
  for (int64_t i = 0; i < 3 * n; ++i) near.values.push_back(random.Uniform(-1, 1));
  const auto t = MakeTentative(AggregatesOf(of_node), near, block, Threads(2));
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(t->dependent, 0);
  const oracle::Dense p = DenseOf(t->p);
  const oracle::Dense square = oracle::Multiply(oracle::Transpose(p), p);
  for (int64_t i = 0; i < square.rows; ++i) {
    for (int64_t j = 0; j < square.cols; ++j) ASSERT_NEAR(square(i, j), i == j, 1e-14);
  }
  for (int k = 0; k < 3; ++k) {
    const auto back = Times(
        t->p, std::span(t->coarse.values)
                  .subspan(static_cast<size_t>(k * t->coarse.n), static_cast<size_t>(t->coarse.n)));
    for (int64_t i = 0; i < n; ++i) {
      const double expected = i / block == 7 ? 0 : near.values[static_cast<size_t>(k * n + i)];
      ASSERT_NEAR(back[static_cast<size_t>(i)], expected, 1e-14);
    }
  }
}

// One node cannot carry three rotations.
TEST(Tentative, DropsColumnsThatDepend) {
  NearNull near{.n = 2, .count = 3, .values = {}};
  near.values = {1, 0, 0, 1, 1, 1};
  const auto t = MakeTentative(AggregatesOf({0}), near, 2, Threads(1));
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(t->dependent, 1);
  EXPECT_EQ(t->p.nnz(), 2);
}

TEST(Prolongation, OfAPathByHand) {
  // ρ = 2, ω = 2/3: a middle keeps 1 - 2/3 (1 - 1/2 - 1/2), an end gives 2/3 · 1/2 to the next
  // aggregate.
  const CscMatrix a = Path(9);
  auto scaled = ScaleToUnitDiagonal(a, true, Threads(1));
  ASSERT_TRUE(scaled.ok());
  auto couplings = Couplings(scaled->rows, true, 1, Threads(1));
  const StrongGraph graph = *FindStrong(*couplings, 0.25, Threads(1));
  const Aggregates aggregates = AggregatesOf({0, 0, 0, 1, 1, 1, 2, 2, 2});
  const NearNull near{.n = 9, .count = 1, .values = {}};
  const Tentative tentative = *MakeTentative(aggregates, near, 1, Threads(1));
  const CscMatrix filtered = *FilterWeak(scaled->rows, graph, aggregates, near, 1, 0.1, Threads(1));
  const Smoothed smoothed = *SmoothProlongation(filtered, tentative, Threads(1));
  EXPECT_DOUBLE_EQ(smoothed.rho, 2);
  const oracle::Dense p = DenseOf(smoothed.p);
  const double third = 1.0 / 3;
  const oracle::Dense expected = oracle::DenseOfRows({{2 * third, 0, 0},
                                                      {1, 0, 0},
                                                      {2 * third, third, 0},
                                                      {third, 2 * third, 0},
                                                      {0, 1, 0},
                                                      {0, 2 * third, third},
                                                      {0, third, 2 * third},
                                                      {0, 0, 1},
                                                      {0, 0, 2 * third}});
  for (size_t k = 0; k < expected.a.size(); ++k) EXPECT_NEAR(p.a[k], expected.a[k], 1e-15) << k;
  // A_1 of the middle aggregate is P_1ᵀ A P_1.
  const CscMatrix ap = *Multiply(scaled->rows, smoothed.p, Threads(1));
  const CscMatrix coarse = *Multiply(Transpose(CscView(smoothed.p)), ap, Threads(1));
  const oracle::Dense direct =
      oracle::Multiply(oracle::Transpose(p), oracle::Multiply(DenseOf(scaled->rows), p));
  const oracle::Dense got = DenseOf(coarse);
  for (size_t k = 0; k < direct.a.size(); ++k) EXPECT_NEAR(got.a[k], direct.a[k], 1e-15);
}

TEST(Prolongation, WeakEntriesGoToTheDiagonal) {
  // Row 0 is strong with 1 and weak with 2: 4 - 0.5 is left of the diagonal.
  const CscMatrix a = oracle::FromRows({{4, -3, -.5}, {-3, 4, 0}, {-.5, 0, 4}});
  auto couplings = Couplings(a, true, 1, Threads(1));
  const StrongGraph graph = *FindStrong(*couplings, 0.25, Threads(1));
  const NearNull near{.n = 3, .count = 1, .values = {}};
  const CscMatrix f = *FilterWeak(a, graph, AggregatesOf({0, 0, -1}), near, 1, 0.1, Threads(1));
  const oracle::Dense got = DenseOf(f);
  EXPECT_EQ(got(0, 0), 1);
  EXPECT_DOUBLE_EQ(got(0, 1), -3 / 3.5);
  EXPECT_EQ(got(0, 2), 0);
  EXPECT_EQ(got(2, 2), 1);
}

TEST(Prolongation, EqualsTheDefinitionBitForBitForAnyNumberOfThreads) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    const Coarsened c = Coarsen(problem.rows, problem.symmetric, 1, {}, 1);
    const oracle::Dense filtered = DenseOf(c.filtered);
    oracle::Dense smoother(filtered.rows, filtered.cols);
    const double omega = 4 / (3 * c.smoothed.rho);
    for (int64_t i = 0; i < filtered.rows; ++i) {
      for (int64_t j = 0; j < filtered.cols; ++j) {
        smoother(i, j) = (i == j ? 1.0 : 0.0) + -omega * filtered(i, j);
      }
    }
    const oracle::Dense expected = oracle::MultiplyInOrder(smoother, DenseOf(c.tentative.p));
    bool cut = false;  // of at most twelve aggregates
    for (int64_t i = 0; i < expected.rows; ++i) {
      int64_t entries = 0;
      for (int64_t j = 0; j < expected.cols; ++j) entries += expected(i, j) != 0;
      cut = cut || entries > 12;
    }
    const oracle::Dense p = DenseOf(c.smoothed.p);
    if (!cut) {
      EXPECT_EQ(p.a, expected.a);
    }
    for (const int threads : {2, 5}) {
      const Coarsened again = Coarsen(problem.rows, problem.symmetric, 1, {}, threads);
      EXPECT_EQ(Copy(again.smoothed.p.values), Copy(c.smoothed.p.values));
      EXPECT_EQ(Copy(again.smoothed.p.pattern->row_idx), Copy(c.smoothed.p.pattern->row_idx));
    }
  }
}

// Twelve aggregates a row, and the row's sum.
TEST(Prolongation, CutsLongRows) {
  const CscMatrix a = oracle::Arrow(60);
  // The hub is strong with everyone where everyone is an aggregate.
  StrongGraph graph{.n = 60, .ptr = {}, .neighbours = {}, .weights = {}, .leader = {}};
  std::vector<int32_t> of_node;
  graph.ptr.push_back(0);
  for (int32_t i = 0; i < 60; ++i) {
    for (int32_t j = 0; j < 60; ++j) {
      if (i != j && (i == 59 || j == 59)) graph.neighbours.push_back(j), graph.weights.push_back(1);
    }
    graph.ptr.push_back(static_cast<int64_t>(graph.neighbours.size()));
    graph.leader.push_back(-1);
    of_node.push_back(i / 2);
  }
  const NearNull near{.n = 60, .count = 1, .values = {}};
  const Aggregates aggregates = AggregatesOf(of_node);
  const CscMatrix filtered = *FilterWeak(a, graph, aggregates, near, 1, 0.1, Threads(2));
  const Tentative tentative = *MakeTentative(aggregates, near, 1, Threads(2));
  const Smoothed smoothed = *SmoothProlongation(filtered, tentative, Threads(2));
  EXPECT_EQ(CscView(smoothed.p).column(59).size(), 12u);
  double sum = 0, whole = 0;
  for (const double v : CscView(smoothed.p).column_values(59)) sum += v;
  for (const double v : CscView(filtered).column_values(59)) whole += v;
  EXPECT_NEAR(sum, 1 - 4 / (3 * smoothed.rho) * whole, 1e-12);
}

// P (coarse B) = B where A B = 0.
TEST(Prolongation, ConstantsStayInRowsOfSumZero) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(9, 0));
  const Coarsened c = Coarsen(a, true, 1, {}, 2);
  ASSERT_TRUE(c.near.ones());
  const std::vector<double> ones(static_cast<size_t>(c.tentative.coarse.n), 1.0);
  const auto sums = Times(c.smoothed.p, ones);
  const std::vector<double> fine(static_cast<size_t>(a.n_cols), 1.0);
  const auto of_a = Times(c.rows, fine);
  int64_t inner = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (std::fabs(of_a[i]) > 1e-13) continue;
    ++inner;
    ASSERT_NEAR(sums[i], 1, 1e-12);
  }
  EXPECT_EQ(inner, 7 * 7 * 7);
}

TEST(Prolongation, RigidBodyModesStayInFreeRows) {
  const int64_t m = 6;
  const CscMatrix a = From(gallery::Elasticity3d(m, gallery::Rounding::kBenchmarks));
  const int64_t nodes = a.n_cols / 3;
  std::vector<double> xyz(static_cast<size_t>(a.n_cols));
  int64_t at = 0;
  for (int64_t z = 0; z < m; ++z) {
    for (int64_t y = 0; y < m; ++y) {
      for (int64_t x = 1; x < m; ++x, ++at) {
        xyz[static_cast<size_t>(at)] = static_cast<double>(x);
        xyz[static_cast<size_t>(nodes + at)] = static_cast<double>(y);
        xyz[static_cast<size_t>(2 * nodes + at)] = static_cast<double>(z);
      }
    }
  }
  ASSERT_EQ(at, nodes);
  const Coarsened c =
      Coarsen(a, true, 3, {.vectors = {}, .count = 0, .coordinates = xyz, .dimension = 3}, 2);
  ASSERT_EQ(c.near.count, 6);
  int64_t free = 0;
  for (int k = 0; k < 6; ++k) {
    const auto fine =
        std::span(c.near.values)
            .subspan(static_cast<size_t>(k * a.n_cols), static_cast<size_t>(a.n_cols));
    const auto of_a = Times(c.rows, fine);
    const auto back =
        Times(c.smoothed.p, std::span(c.tentative.coarse.values)
                                .subspan(static_cast<size_t>(k * c.tentative.coarse.n),
                                         static_cast<size_t>(c.tentative.coarse.n)));
    for (size_t i = 0; i < back.size(); ++i) {
      // Blocks drop no weak entries where all neighbours are strong.
      if (std::fabs(of_a[i]) > 1e-12 ||
          c.filtered.pattern().column(static_cast<int64_t>(i)).size() !=
              CscView(c.rows).column(static_cast<int64_t>(i)).size()) {
        continue;
      }
      ++free;
      ASSERT_NEAR(back[i], fine[i], 1e-12);
    }
  }
  EXPECT_GT(free, 0);
}

TEST(Prolongation, TheBoundOnTheSpectralRadiusHolds) {
  // 1 - cos(k π / (n + 1)) of a path of unit diagonal: under 2, which the row sums are.
  auto scaled = ScaleToUnitDiagonal(Path(30), true, Threads(1));
  EXPECT_EQ(SpectralBound(scaled->rows, 2.2, 12, Threads(1)), 2);
  const double largest = 1 + std::cos(std::numbers::pi / 31);
  const double powered = SpectralBound(scaled->rows, 0, 12, Threads(1));
  EXPECT_GT(powered, largest);
  EXPECT_LE(powered, 2);
  EXPECT_EQ(powered * 64, std::round(powered * 64));
}

}  // namespace
}  // namespace spaid::kernels
