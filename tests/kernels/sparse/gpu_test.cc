// Products and transposes by rows on a CUDA device against the host's, bit for bit. Without a
// device every test is skipped, with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/sparse/cuda/node_products.h"
#include "kernels/sparse/cuda/products.h"
#include "kernels/sparse/transpose.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/base/on_device.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

const ::testing::Environment* const kOnDevice = ::testing::AddGlobalTestEnvironment(new OnDevice);

const std::shared_ptr<CudaDevice>& Device() {
  static const std::shared_ptr<CudaDevice> device = OpenGpu().value();
  return device;
}

template <class Work>
void There(CudaDevice& device, const Work& work) {
  const auto lock = device.Lock();
  const Status status = cuda::Guard(device, work);
  ASSERT_TRUE(status.ok()) << status.message();
}

cuda::RowMatrix Send(cuda::Context& context, const CscMatrix& rows) {
  return cuda::UploadRows(context, rows.pattern(), rows.values.data());
}

// Bits, so that -0 is not 0.
std::vector<uint64_t> Bits(const Array<double>& of) {
  std::vector<uint64_t> bits(of.size());
  std::copy_n(reinterpret_cast<const uint64_t*>(of.data()), of.size(), bits.begin());
  return bits;
}

void ExpectEqual(const CscMatrix& got, const CscMatrix& expected) {
  EXPECT_EQ(got.n_rows, expected.n_rows);
  EXPECT_EQ(got.n_cols, expected.n_cols);
  ASSERT_EQ(Copy(got.col_ptr), Copy(expected.col_ptr));
  ASSERT_EQ(Copy(got.row_idx), Copy(expected.row_idx));
  EXPECT_EQ(Bits(got.values), Bits(expected.values));
}

// With the entries of each row in ascending order.
CscMatrix Sorted(CscMatrix rows) {
  for (int64_t i = 0; i < rows.n_cols; ++i) {
    std::vector<std::pair<int32_t, double>> row;
    const auto begin = static_cast<size_t>(rows.col_ptr[static_cast<size_t>(i)]);
    for (size_t p = 0; p < rows.pattern().column(i).size(); ++p) {
      row.emplace_back(rows.row_idx[begin + p], rows.values[begin + p]);
    }
    std::sort(row.begin(), row.end());
    for (size_t p = 0; p < row.size(); ++p) {
      std::tie(rows.row_idx[begin + p], rows.values[begin + p]) = row[p];
    }
  }
  return rows;
}

CscMatrix WithOtherValues(CscMatrix of, uint64_t seed) {
  oracle::Random random(seed);
  for (double& value : of.values) value = random.Uniform(-1, 1);
  return of;
}

// Everything that can be asked of A B, on `device`.
void ExpectTheHosts(const CscMatrix& a, const CscMatrix& b, CudaDevice& device = *Device()) {
  const auto expected = Multiply(a, b, Context());
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const CscMatrix a2 = WithOtherValues(a, 5), b2 = WithOtherValues(b, 6);
  const auto again = Multiply(a2, b2, Context());
  ASSERT_TRUE(again.ok());
  There(device, [&](cuda::Context& context) {
    const cuda::RowMatrix left = Send(context, a), right = Send(context, b);
    cuda::RowMatrix c = cuda::Multiply(context, left, right);
    ExpectEqual(cuda::DownloadRows(context, c), *expected);
    int64_t longest = 0, empty = 0;
    for (int64_t i = 0; i < expected->n_cols; ++i) {
      const auto entries = static_cast<int64_t>(expected->pattern().column(i).size());
      longest = std::max(longest, entries);
      empty += entries == 0;
    }
    EXPECT_EQ(c.longest, longest);
    EXPECT_EQ(c.empty, empty);
    cuda::RowMatrix found = cuda::Multiply(context, left, right, RowOrder::kAsFound);
    ExpectEqual(Sorted(cuda::DownloadRows(context, found)), *expected);
    EXPECT_TRUE(cuda::MultiplyUpTo(context, expected->nnz(), left, right).has_value());
    if (expected->nnz() > 0) {
      EXPECT_FALSE(cuda::MultiplyUpTo(context, expected->nnz() - 1, left, right).has_value());
    }
    const cuda::RowMatrix left2 = Send(context, a2), right2 = Send(context, b2);
    for (cuda::RowMatrix* on : {&c, &found}) {
      cuda::MultiplyOn(context, left2, right2, *on);
      ExpectEqual(Sorted(cuda::DownloadRows(context, *on)), *again);
    }
  });
}

// Rows of so many entries in random columns.
CscMatrix OfLengths(const std::vector<int64_t>& lengths, int64_t columns, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a{.n_rows = columns,
              .n_cols = static_cast<int64_t>(lengths.size()),
              .col_ptr = {0},
              .row_idx = {},
              .values = {}};
  for (const int64_t length : lengths) {
    std::vector<int32_t> own = RandomPermutation(columns, static_cast<uint64_t>(length) + seed);
    own.resize(static_cast<size_t>(length));
    std::sort(own.begin(), own.end());
    for (const int32_t column : own) {
      a.row_idx.push_back(column);
      a.values.push_back(random.Uniform(-1, 1));
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

CscMatrix Identity(int64_t n) {
  CscMatrix one{.n_rows = n, .n_cols = n, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t i = 0; i < n; ++i) {
    one.row_idx.push_back(static_cast<int32_t>(i));
    one.values.push_back(1);
    one.col_ptr.push_back(i + 1);
  }
  return one;
}

TEST(GpuProducts, ByHand) {
  // [1 2 0; 0 0 3] [4 0; 0 5; 6 0] = [4 10; 18 0]
  const CscMatrix a = Make(3, 2, {0, 2, 3}, {0, 1, 2}, {1, 2, 3});
  const CscMatrix b = Make(2, 3, {0, 1, 2, 3}, {0, 1, 0}, {4, 5, 6});
  There(*Device(), [&](cuda::Context& context) {
    const CscMatrix c =
        cuda::DownloadRows(context, cuda::Multiply(context, Send(context, a), Send(context, b)));
    EXPECT_EQ(c.n_rows, 2);
    EXPECT_THAT(c.col_ptr, ElementsAre(0, 2, 3));
    EXPECT_THAT(c.row_idx, ElementsAre(0, 1, 0));
    EXPECT_THAT(c.values, ElementsAre(4, 10, 18));
  });
}

// An entry that cancels is stored, and the first product of -0 stays one.
TEST(GpuProducts, ZerosAreTheHosts) {
  ExpectTheHosts(Make(2, 1, {0, 2}, {0, 1}, {1, -1}), Make(1, 2, {0, 1, 2}, {0, 0}, {7, 7}));
  ExpectTheHosts(Make(1, 1, {0, 1}, {0}, {-1}), Make(1, 1, {0, 1}, {0}, {0}));
}

TEST(GpuProducts, OfNothing) {
  ExpectTheHosts(Make(0, 0, {0}, {}, {}), Make(0, 0, {0}, {}, {}));
  ExpectTheHosts(Make(3, 2, {0, 0, 0}, {}, {}), Make(4, 3, {0, 1, 1, 2}, {3, 0}, {1, 2}));
  ExpectTheHosts(Make(3, 2, {0, 2, 3}, {0, 1, 2}, {1, 2, 3}), Make(5, 3, {0, 0, 0, 0}, {}, {}));
}

TEST(GpuProducts, HaveTheHostsBitsOnTheZoo) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    for (const auto& named : oracle::Zoo(seed)) {
      SCOPED_TRACE(named.name);
      for (const double mean : {0.4, 3.0, 9.0, 20.0}) {
        ExpectTheHosts(named.a, RandomSparse(named.a.n_cols, mean, 10, false, seed + 100));
      }
    }
  }
}

TEST(GpuProducts, HaveTheHostsBitsOnRowsOfAllLengths) {
  std::vector<int64_t> lengths;
  for (const int64_t edge : {0, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 6000}) {
    for (const int64_t length : {edge - 1, edge, edge + 1}) {
      if (length >= 0) lengths.push_back(length);
    }
  }
  const CscMatrix b = OfLengths(lengths, 6001, 1);
  ExpectTheHosts(Identity(b.n_cols), b);
  // Many sums: all rows of B in each row of C.
  std::vector<int64_t> all(7, static_cast<int64_t>(lengths.size()));
  ExpectTheHosts(OfLengths(all, b.n_cols, 2), b);
}

// Tables are as large as rows of B of the mean length make them.
TEST(GpuProducts, CountRowsOnceMoreThatAreLongerThanTheyLook) {
  std::vector<int64_t> lengths(3000, 2);
  for (size_t i = 0; i < lengths.size(); i += 100) lengths[i] = 40 * static_cast<int64_t>(i / 100);
  const CscMatrix b = OfLengths(lengths, 5000, 3);
  ExpectTheHosts(Identity(b.n_cols), b);
  ExpectTheHosts(OfLengths({3000, 1, 300, 40, 0, 700}, b.n_cols, 4), b);
}

// And far fewer entries than products.
TEST(GpuProducts, OfManyProductsForEachEntry) {
  const std::vector<int64_t> left(50, 900), right(2000, 10);
  ExpectTheHosts(OfLengths(left, 2000, 5), OfLengths(right, 40, 6));
}

TEST(GpuProducts, OfColumnsAtPowersOfTwo) {
  CscMatrix b{.n_rows = 1 << 20, .n_cols = 300, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t i = 0; i < b.n_cols; ++i) {
    for (int64_t k = 0; k < 60; ++k) {
      b.row_idx.push_back(static_cast<int32_t>(k << 14));
      b.values.push_back(static_cast<double>(i + k));
    }
    b.col_ptr.push_back(b.nnz());
  }
  ExpectTheHosts(OfLengths(std::vector<int64_t>(200, 30), 300, 7), b);
}

TEST(GpuProducts, OfHubsAndDenseRows) {
  for (const int64_t n : {300, 5000}) {
    const CscMatrix arrow = oracle::Arrow(n);
    ExpectTheHosts(RandomSparse(n, 4, 3, true, 8), arrow);
    ExpectTheHosts(arrow, RandomSparse(n, 4, 3, true, 9));
  }
  const CscMatrix cross = oracle::DenseRowAndColumn(3000, 10);
  ExpectTheHosts(cross, RandomSparse(3000, 2, 3, false, 11));
}

// Rows without tables, one after the other.
TEST(GpuProducts, KeepToTheMemoryThatThereIs) {
  const int64_t columns = 200000;
  const CscMatrix b = OfLengths(std::vector<int64_t>(40, 3000), columns, 12);
  const CscMatrix a = OfLengths(std::vector<int64_t>(20, 2), 40, 13);
  // B, and C twice, take 6 MB; sums of one row 1.6.
  const std::shared_ptr<CudaDevice> small = OpenGpu(12 << 20).value();
  ExpectTheHosts(a, b, *small);
}

TEST(GpuProducts, OfOtherRowsThanColumnsFail) {
  const auto lock = Device()->Lock();
  const Status status = cuda::Guard(*Device(), [&](cuda::Context& context) {
    cuda::Multiply(context, Send(context, Identity(3)), Send(context, Identity(4)));
  });
  EXPECT_FALSE(status.ok());
}

// A block of `rows` x `columns` values for each entry.
CscMatrix Inflated(const CscMatrix& nodes, int rows, int columns, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a{.n_rows = nodes.n_rows * columns,
              .n_cols = nodes.n_cols * rows,
              .col_ptr = {0},
              .row_idx = {},
              .values = {}};
  for (int64_t i = 0; i < a.n_cols; ++i) {
    for (const int32_t node : nodes.pattern().column(i / rows)) {
      for (int c = 0; c < columns; ++c) {
        a.row_idx.push_back(node * columns + c);
        a.values.push_back(random.Uniform(-1, 1));
      }
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

void ExpectNodesAreTheHosts(const CscMatrix& left, const CscMatrix& right, int rows, int inner,
                            int columns) {
  SCOPED_TRACE(std::to_string(rows) + ", " + std::to_string(inner) + ", " +
               std::to_string(columns));
  const CscMatrix a = Inflated(left, rows, inner, 1), b = Inflated(right, inner, columns, 2);
  const CscMatrix expected = Multiply(a, b, Context()).value();
  There(*Device(), [&](cuda::Context& context) {
    const cuda::RowMatrix a_there = Send(context, a), b_there = Send(context, b);
    const auto a_nodes = cuda::ByNodes(context, a_there, rows, inner),
               b_nodes = cuda::ByNodes(context, b_there, inner, columns);
    ASSERT_TRUE(a_nodes && b_nodes);
    const auto c = cuda::MultiplyNodes(context, expected.nnz(), *a_nodes, *b_nodes);
    ASSERT_TRUE(c.has_value());
    ExpectEqual(cuda::DownloadRows(context, c->whole), expected);
    EXPECT_EQ(c->nodes.nnz * rows * columns, expected.nnz());
    if (expected.nnz() > 0) {
      EXPECT_FALSE(cuda::MultiplyNodes(context, expected.nnz() - 1, *a_nodes, *b_nodes));
    }
    // As found: in another order, told by the nodes, too.
    const auto found =
        cuda::MultiplyNodes(context, expected.nnz(), *a_nodes, *b_nodes, RowOrder::kAsFound);
    ExpectEqual(Transpose(CscView(Transpose(CscView(cuda::DownloadRows(context, found->whole))))),
                expected);
  });
}

TEST(GpuNodeProducts, HaveTheHostsBits) {
  for (const auto& [rows, inner, columns] : {std::tuple{3, 3, 3},
                                             {3, 3, 6},
                                             {6, 3, 6},
                                             {6, 6, 6},
                                             {2, 2, 3},
                                             {3, 2, 3},
                                             {1, 4, 1},
                                             {8, 4, 8},
                                             {2, 2, 1}}) {
    const CscMatrix left = RandomSparse(150, 9, 4, false, 3);
    ExpectNodesAreTheHosts(left, RandomSparse(left.n_rows, 3, 4, false, 5), rows, inner, columns);
    ExpectNodesAreTheHosts(left, RandomSparse(left.n_rows, 12, 4, false, 6), rows, inner, columns);
  }
  // Rows of one node, of none, and of so many that no sums in shared memory do.
  ExpectNodesAreTheHosts(OfLengths({0, 1, 300, 0, 2}, 300, 3),
                         OfLengths(std::vector<int64_t>(300, 1), 40, 5), 3, 3, 3);
  ExpectNodesAreTheHosts(OfLengths({300, 0, 4}, 300, 3),
                         OfLengths(std::vector<int64_t>(300, 40), 4000, 5), 3, 3, 3);
  // More columns than are marked in shared memory.
  ExpectNodesAreTheHosts(OfLengths(std::vector<int64_t>(50, 4), 300, 3),
                         OfLengths(std::vector<int64_t>(300, 3), 40000, 5), 3, 3, 3);
}

TEST(GpuNodeProducts, WholeNodesAreTold) {
  const CscMatrix nodes = RandomSparse(60, 5, 4, false, 3);
  const CscMatrix whole = Inflated(nodes, 3, 2, 4);
  const auto told = [&](const CscMatrix& a, int rows, int columns) {
    bool is = false;
    There(*Device(), [&](cuda::Context& context) {
      const cuda::RowMatrix there = Send(context, a);
      is = cuda::ByNodes(context, there, rows, columns).has_value();
    });
    return is;
  };
  EXPECT_TRUE(told(whole, 3, 2));
  EXPECT_TRUE(told(whole, 1, 2));
  EXPECT_TRUE(told(whole, 3, 1));
  EXPECT_FALSE(told(whole, 2, 2));
  EXPECT_FALSE(told(whole, 3, 4));
  EXPECT_FALSE(told(whole, 7, 2)) << "no whole number of rows";
  for (const size_t at : {size_t{0}, whole.row_idx.size() / 2, whole.row_idx.size() - 1}) {
    CscMatrix moved = whole;  // one entry less
    int64_t row = 0;
    while (moved.col_ptr[static_cast<size_t>(row) + 1] <= static_cast<int64_t>(at)) ++row;
    moved.row_idx.erase(moved.row_idx.begin() + static_cast<std::ptrdiff_t>(at));
    moved.values.erase(moved.values.begin() + static_cast<std::ptrdiff_t>(at));
    for (auto i = static_cast<size_t>(row) + 1; i < moved.col_ptr.size(); ++i) --moved.col_ptr[i];
    EXPECT_FALSE(told(moved, 3, 2)) << at;
  }
}

TEST(GpuTranspose, IsTheHostsOfAnyShape) {
  std::vector<CscMatrix> all;
  for (const auto& named : oracle::Zoo(1)) all.push_back(named.a);
  all.push_back(OfLengths({3, 0, 900, 5, 5, 1}, 1000, 14));
  all.push_back(OfLengths(std::vector<int64_t>(9000, 1), 2, 15));    // two long rows
  all.push_back(OfLengths(std::vector<int64_t>(9000, 3), 700, 16));  // a prolongation
  all.push_back(Make(3, 2, {0, 0, 0}, {}, {}));
  for (const CscMatrix& a : all) {
    const CscMatrix expected = Transpose(CscView(a));
    There(*Device(), [&](cuda::Context& context) {
      const cuda::RowMatrix turned = cuda::Transpose(context, Send(context, a));
      ExpectEqual(cuda::DownloadRows(context, turned), expected);
      int64_t empty = 0;
      for (int64_t i = 0; i < expected.n_cols; ++i) empty += expected.pattern().column(i).empty();
      EXPECT_EQ(turned.empty, empty);
      EXPECT_EQ(turned.columns, expected.n_rows);
    });
  }
}

}  // namespace
}  // namespace spaid::kernels
