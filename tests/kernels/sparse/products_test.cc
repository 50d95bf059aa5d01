#include "kernels/sparse/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/sparse/transpose.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

Context Threads(int threads) { return {.stop = {}, .progress = nullptr, .threads = threads}; }

// Each entry by its definition, in ascending order of the inner index.
oracle::Dense SummedInOrder(const oracle::Dense& a, const oracle::Dense& b) {
  oracle::Dense c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t k = 0; k < a.cols; ++k) {
        if (a(i, k) != 0 && b(k, j) != 0) c(i, j) = std::fma(a(i, k), b(k, j), c(i, j));
      }
    }
  }
  return c;
}

// By rows: the dense matrix of a view is its transpose.
oracle::Dense DenseOf(const CscView& rows) { return oracle::Transpose(oracle::ToDense(rows)); }

TEST(Products, ByHand) {
  // [1 2 0; 0 0 3] [4 0; 0 5; 6 0] = [4 10; 18 0]
  const CscMatrix a = Make(3, 2, {0, 2, 3}, {0, 1, 2}, {1, 2, 3});
  const CscMatrix b = Make(2, 3, {0, 1, 2, 3}, {0, 1, 0}, {4, 5, 6});
  const auto c = Multiply(a, b, Threads(1));
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->n_cols, 2);
  EXPECT_EQ(c->n_rows, 2);
  EXPECT_THAT(c->col_ptr, ElementsAre(0, 2, 3));
  EXPECT_THAT(c->row_idx, ElementsAre(0, 1, 0));
  EXPECT_THAT(c->values, ElementsAre(4, 10, 18));
  EXPECT_TRUE(MultiplyUpTo(3, a, b, Threads(1))->has_value());
  EXPECT_FALSE(MultiplyUpTo(2, a, b, Threads(1))->has_value());
  EXPECT_EQ(ProductsOf(a, b, 1), 3);
}

TEST(Products, AnEntryThatCancelsIsStored) {
  const CscMatrix a = Make(2, 1, {0, 2}, {0, 1}, {1, -1});
  const CscMatrix b = Make(1, 2, {0, 1, 2}, {0, 0}, {7, 7});
  const auto c = Multiply(a, b, Threads(1));
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(c->values, ElementsAre(0));
}

TEST(Products, EqualTheDefinitionBitForBitForAnyNumberOfThreads) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (const auto& named : oracle::Zoo(seed)) {
      SCOPED_TRACE(named.name);
      const CscMatrix& a = named.a;
      const CscMatrix b = RandomSparse(a.n_cols, 3, 10, false, seed + 100);
      const oracle::Dense expected = SummedInOrder(DenseOf(a), DenseOf(b));
      std::vector<CscMatrix> results;
      for (const int threads : {1, 2, 5}) {
        auto c = Multiply(a, b, Threads(threads));
        ASSERT_TRUE(c.ok()) << c.status().message();
        results.push_back(*std::move(c));
      }
      ExpectCanonical(results[0].pattern());
      const oracle::Dense got = DenseOf(results[0]);
      EXPECT_EQ(got.a, expected.a);
      for (const CscMatrix& other : results) {
        EXPECT_EQ(Copy(other.row_idx), Copy(results[0].row_idx));
        EXPECT_EQ(Copy(other.values), Copy(results[0].values));
      }
      const int64_t entries = results[0].nnz();
      const auto up_to = MultiplyUpTo(entries, a, b, Threads(2));
      ASSERT_TRUE(up_to.ok() && up_to->has_value());
      EXPECT_EQ(Copy((*up_to)->values), Copy(results[0].values));
      if (entries > 0) {
        EXPECT_FALSE(MultiplyUpTo(entries - 1, a, b, Threads(5))->has_value());
      }
      std::vector<double> again(results[0].values.size(), 99);
      ASSERT_TRUE(MultiplyOn(results[0].pattern(), a, b, Threads(2), again).ok());
      EXPECT_EQ(again, Copy(results[0].values));
    }
  }
}

// Rows of a node are summed together.
TEST(Products, OfNodesEqualTheDefinitionBitForBit) {
  for (int size = 2; size <= 7; ++size) {
    SCOPED_TRACE(size);
    // Larger than a batch, whose end falls into a node.
    const CscMatrix a = OfNodes(RandomSparse(600 / size, 4, 2, false, 7).pattern(), size, 8);
    CscMatrix b = RandomSparse(a.n_cols, 3, 10, false, 9);
    const auto c = Multiply(a, b, Threads(3));
    ASSERT_TRUE(c.ok());
    ExpectCanonical(c->pattern());
    EXPECT_EQ(DenseOf(*c).a, SummedInOrder(DenseOf(a), DenseOf(b)).a);
    std::vector<double> again(c->values.size(), 99);
    ASSERT_TRUE(MultiplyOn(c->pattern(), a, b, Threads(2), again).ok());
    EXPECT_EQ(again, Copy(c->values));
    // An infinity stays in the rows that it belongs to.
    b.values[0] = std::numeric_limits<double>::infinity();
    const auto with = Multiply(a, b, Threads(1));
    ASSERT_TRUE(with.ok());
    const oracle::Dense got = DenseOf(*with), expected = SummedInOrder(DenseOf(a), DenseOf(b));
    for (size_t p = 0; p < got.a.size(); ++p) {
      ASSERT_TRUE(got.a[p] == expected.a[p] || (std::isnan(got.a[p]) && std::isnan(expected.a[p])));
    }
    const auto found = Multiply(a, b, Threads(2), RowOrder::kAsFound);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(Copy(Transpose(*found).row_idx), Copy(Transpose(*with).row_idx));
  }
}

TEST(Products, ManyRowsOverSeveralBatches) {
  const CscMatrix a = oracle::Laplacian2d(61, 53);
  const auto c = Multiply(a, a, Threads(2));
  ASSERT_TRUE(c.ok());
  ExpectCanonical(c->pattern());
  // (A A) x = A (A x) exactly, in integers.
  std::vector<double> x(static_cast<size_t>(a.n_cols));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 17) - 8;
  const auto times = [](const CscView& m, const std::vector<double>& v) {
    std::vector<double> y(static_cast<size_t>(m.n_cols), 0.0);
    ForEntries(m, [&](int64_t i, int64_t j, double value) {
      y[static_cast<size_t>(j)] += value * v[static_cast<size_t>(i)];
    });
    return y;
  };
  EXPECT_EQ(times(*c, x), times(a, times(a, x)));
  // (A B)^T = B^T A^T.
  const CscMatrix b = oracle::ConvectionDiffusion(61, 53, 2.0);
  const CscMatrix left = Transpose(*Multiply(a, b, Threads(2)));
  const auto right = Multiply(Transpose(b), Transpose(a), Threads(2));
  ASSERT_TRUE(right.ok());
  EXPECT_EQ(Copy(left.row_idx), Copy(right->row_idx));
}

// In a product of three the order in the middle does not matter.
TEST(Products, AsFoundIsTheSameMatrix) {
  const CscMatrix a = oracle::ConvectionDiffusion(23, 19, 2.0);
  const auto sorted = Multiply(a, a, Threads(2));
  const auto found = Multiply(a, a, Threads(2), RowOrder::kAsFound);
  ASSERT_TRUE(sorted.ok() && found.ok());
  EXPECT_EQ(DenseOf(*found).a, DenseOf(*sorted).a);
  EXPECT_NE(Copy(found->row_idx), Copy(sorted->row_idx));
  const auto left = Multiply(a, *found, Threads(2)), right = Multiply(a, *sorted, Threads(2));
  ASSERT_TRUE(left.ok() && right.ok());
  EXPECT_EQ(Copy(left->row_idx), Copy(right->row_idx));
  EXPECT_EQ(Copy(left->values), Copy(right->values));
}

TEST(Products, EmptyMatrices) {
  const CscMatrix none = Make(0, 0, {0}, {}, {});
  const auto c = Multiply(none, none, Threads(2));
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->nnz(), 0);
  const CscMatrix empty_rows = Make(3, 4, {0, 0, 0, 0, 0}, {}, {});
  const CscMatrix b = Make(2, 3, {0, 1, 1, 1}, {1}, {2});
  const auto d = Multiply(empty_rows, b, Threads(2));
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->n_cols, 4);
  EXPECT_EQ(d->n_rows, 2);
  EXPECT_EQ(d->nnz(), 0);
}

TEST(Products, NonFiniteValuesGoOn) {
  const double infinity = std::numeric_limits<double>::infinity();
  const CscMatrix a = Make(2, 1, {0, 2}, {0, 1}, {infinity, 1});
  const CscMatrix b = Make(1, 2, {0, 1, 2}, {0, 0}, {1, -infinity});
  const auto c = Multiply(a, b, Threads(1));
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(std::isnan(c->values[0]));
}

TEST(Products, RefuseSizesThatDoNotFit) {
  const CscMatrix a = Make(3, 1, {0, 1}, {2}, {1});
  const CscMatrix b = Make(1, 2, {0, 1, 2}, {0, 0}, {1, 1});
  const auto c = Multiply(a, b, Threads(1));
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.status().reason(), "SIZE_MISMATCH");
  EXPECT_EQ(MultiplyUpTo(1, a, b, Threads(1)).status().reason(), "SIZE_MISMATCH");
  std::vector<double> values;
  EXPECT_EQ(MultiplyOn(b, a, b, Threads(1), values).reason(), "SIZE_MISMATCH");
}

TEST(Products, Stop) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  Context context = Threads(2);
  context.stop = source.token();
  EXPECT_EQ(Multiply(a, a, context).status().reason(), "CANCELLED");
  EXPECT_EQ(MultiplyUpTo(1, a, a, context).status().reason(), "CANCELLED");
  std::vector<double> values(static_cast<size_t>(a.nnz()));
  EXPECT_EQ(MultiplyOn(a.pattern(), a, a, context, values).reason(), "CANCELLED");
}

}  // namespace
}  // namespace spaid::kernels
