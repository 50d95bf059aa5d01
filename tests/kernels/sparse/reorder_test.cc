#include "kernels/sparse/reorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/sparse/transpose.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Array<int32_t> Order(const PatternView& a, int threads = 1) {
  auto order = ReverseCuthillMcKee(a, Context{.threads = threads});
  EXPECT_TRUE(order.ok());
  std::vector<int> used(Z(a.n_cols), 0);
  for (const int32_t j : *order) ++used[Z(j)];
  EXPECT_EQ(std::ssize(*order), a.n_cols);
  EXPECT_THAT(used, Each(1));
  return *std::move(order);
}

CscMatrix Permuted(const CscView& a, std::span<const int32_t> order, int threads = 1) {
  auto b = PermuteSymmetric(a, order, Context{.threads = threads});
  EXPECT_TRUE(b.ok());
  ExpectCanonical(*b);
  return *std::move(b);
}

int64_t Bandwidth(const PatternView& a) {
  int64_t bandwidth = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (const int32_t i : a.column(j)) bandwidth = std::max(bandwidth, std::abs(i - j));
  }
  return bandwidth;
}

TEST(ReverseCuthillMcKeeTest, APathByHand) {
  // 0 - 2 - 1 - 3.
  const CscMatrix a = oracle::FromRows({{2, 0, 1, 0}, {0, 2, 1, 1}, {1, 1, 2, 0}, {0, 1, 0, 2}});
  const Array<int32_t> order = Order(a.pattern());
  EXPECT_THAT(order, AnyOf(ElementsAre(0, 2, 1, 3), ElementsAre(3, 1, 2, 0)));
  EXPECT_EQ(Bandwidth(Permuted(a, order).pattern()), 1);
}

TEST(ReverseCuthillMcKeeTest, AStarStartsAtALeaf) {
  // The centre, 2, has distance 1 to all: second from an end.
  oracle::Dense dense = oracle::Identity(5);
  for (int64_t k = 0; k < 5; ++k) dense(k, 2) = dense(2, k) = 1;
  const Array<int32_t> order = Order(oracle::FromDense(dense).pattern());
  EXPECT_EQ(order[3], 2);
}

TEST(ReverseCuthillMcKeeTest, EmptyDiagonalAndComponents) {
  EXPECT_THAT(Order(Make(1, 1, {0, 0}, {}, {}).pattern()), ElementsAre(0));
  EXPECT_THAT(Order(Make(3, 3, {0, 0, 0, 0}, {}, {}).pattern()), ElementsAre(2, 1, 0));
  // {0, 3}, {1}, {2, 4}: side by side each.
  const CscMatrix a = Make(5, 5, {0, 1, 2, 3, 4, 5}, {3, 1, 4, 0, 2}, {1, 1, 1, 1, 1});
  EXPECT_EQ(Bandwidth(Permuted(a, Order(a.pattern())).pattern()), 1);
  EXPECT_THAT(ReverseCuthillMcKee(Make(0, 0, {0}, {}, {}).pattern(), {})->size(), 0);
}

TEST(ReverseCuthillMcKeeTest, UnsymmetricPatternsGoByBothSides) {
  // A cycle of one-way entries: as a graph, a ring.
  CscMatrix a;
  const std::vector<int32_t> ring = RandomPermutation(50, 3);
  std::vector<int32_t> next(50);
  for (size_t k = 0; k < 50; ++k) next[Z(ring[k])] = ring[(k + 1) % 50];
  a.n_rows = a.n_cols = 50;
  a.col_ptr.push_back(0);
  for (const int32_t i : next) {
    a.row_idx.push_back(i);
    a.values.push_back(1);
    a.col_ptr.push_back(a.nnz());
  }
  EXPECT_EQ(Bandwidth(Permuted(a, Order(a.pattern())).pattern()), 2);
}

TEST(ReverseCuthillMcKeeTest, AShuffledGridGetsItsBandwidthBack) {
  const int64_t nx = 60, ny = 25;
  const CscMatrix grid = oracle::Laplacian2d(nx, ny);
  const CscMatrix shuffled = Permuted(grid, RandomPermutation(nx * ny, 7));
  EXPECT_GT(Bandwidth(shuffled.pattern()), 1000);
  const CscMatrix back = Permuted(shuffled, Order(shuffled.pattern()));
  EXPECT_LE(Bandwidth(back.pattern()), ny + 2);  // levels are diagonals of at most ny nodes
}

TEST(ReverseCuthillMcKeeTest, TheZooOneOrderForAnyThreads) {
  for (const auto& [name, a, regular] : oracle::Zoo(29)) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Order(a.pattern(), 5), Order(a.pattern()));
  }
  const CscMatrix large = RandomSparse(30'000, 6, 1, true, 3);
  const Array<int32_t> one = Order(large.pattern());
  const CscMatrix b = Permuted(large, one);
  for (const int threads : {2, 5}) {
    EXPECT_EQ(Order(large.pattern(), threads), one);
    EXPECT_EQ(Permuted(large, one, threads).values, b.values);
    EXPECT_EQ(Permuted(large, one, threads).row_idx, b.row_idx);
  }
}

TEST(ReverseCuthillMcKeeTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const Context context{.stop = cancel.token()};
  const CscMatrix a = oracle::Laplacian2d(10, 10);
  EXPECT_EQ(ReverseCuthillMcKee(a.pattern(), context).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(PermuteSymmetric(a, Order(a.pattern()), context).status().code(),
            StatusCode::kCancelled);
}

TEST(PermuteSymmetricTest, EqualsTheFormula) {
  for (const auto& [name, a, regular] : oracle::Zoo(31)) {
    SCOPED_TRACE(name);
    const std::vector<int32_t> order = RandomPermutation(a.n_cols, 5);
    const auto b = PermuteSymmetric(a, order, {});
    ASSERT_TRUE(b.ok());
    ExpectCanonical(b->pattern());
    const oracle::Dense before = oracle::ToDense(CscView(a)), after = oracle::ToDense(CscView(*b));
    for (int64_t k = 0; k < a.n_cols; ++k) {
      for (int64_t l = 0; l < a.n_cols; ++l) {
        ASSERT_EQ(after(k, l), before(order[Z(k)], order[Z(l)]));
      }
    }
  }
}

TEST(LocalityTest, ByHand) {
  const Locality l = LookAtLocality(Make(3, 3, {0, 1, 2, 4}, {0, 0, 0, 2}, {1, 1, 1, 1}));
  EXPECT_EQ(l.mean_distance, 1);  // columns 1 and 2: 1, 2, 0
  EXPECT_EQ(l.bandwidth, 2);
  EXPECT_FALSE(l.scattered());
  EXPECT_FALSE(LookAtLocality(Make(2, 2, {0, 0, 0}, {}, {})).scattered());
}

TEST(LocalityTest, AShuffledMeshIsScatteredAGridIsNot) {
  const CscMatrix grid = oracle::Laplacian2d(600, 700);
  EXPECT_EQ(LookAtLocality(grid.pattern()).scattered_share, 0);
  const CscMatrix shuffled = Permuted(grid, RandomPermutation(420'000, 3));
  const Locality l = LookAtLocality(shuffled.pattern());
  EXPECT_TRUE(l.scattered());
  EXPECT_NEAR(l.mean_distance, 0.8 * 420'000 / 3, 3000);  // the diagonal's is 0
  EXPECT_GT(l.scattered_share, 0.5);
  EXPECT_EQ(LookAtLocality(shuffled.pattern(), 5).scattered_share, l.scattered_share);
  const CscMatrix back = Permuted(shuffled, Order(shuffled.pattern()));
  EXPECT_FALSE(LookAtLocality(back.pattern()).scattered());
  EXPECT_LE(Bandwidth(back.pattern()), 602);
}

TEST(LocalityTest, FarEntriesThatGoAheadRowByRowAreNoScatter) {
  // Two unknowns a node, one after the other: far, but a stream each.
  const int64_t n = 300'000;
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    a.row_idx.push_back(static_cast<int32_t>(std::min(j, (j + n / 2) % n)));
    a.row_idx.push_back(static_cast<int32_t>(std::max(j, (j + n / 2) % n)));
    a.col_ptr.push_back(a.nnz());
  }
  a.values.assign(a.row_idx.size(), 1.0);
  EXPECT_LT(LookAtLocality(a.pattern()).scattered_share, 1e-5);  // where a stream begins
  // As small as a core's cache, nothing is far.
  EXPECT_FALSE(LookAtLocality(RandomSparse(kFarRows, 5, 1, true, 1).pattern()).scattered());
}

}  // namespace
}  // namespace spaid::kernels
