// Products by sparse matrices by rows on a CUDA device against the CPU's. Skipped, with the reason,
// where there is no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/static_spai/static_spai_cuda.h"
#include "tests/kernels/krylov/gpu_products.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

struct Case {
  std::string name;
  CscMatrix a;
};

class GpuRows : public GpuProducts {
 protected:
  GpuRows() : GpuProducts(/*by_rows=*/true) {}

  // The same products bit by bit, also where an x_j that is not finite shows which columns stand
  // where a slice has no entries; the same room.
  void ExpectSameLayout(const Operator& op, const Operator& other, int64_t n,
                        const std::string& what) {
    EXPECT_EQ(Bytes(op), Bytes(other)) << what;
    Vector x = RandomVector(n, 11);
    for (const bool finite : {true, false}) {
      for (size_t j = 0; !finite && j < x.size(); j += 7) {
        x[j] = std::numeric_limits<double>::infinity();
      }
      const Vector y = Apply(op, x), y_other = Apply(other, x);
      for (size_t i = 0; i < y.size(); ++i) {
        if (std::isnan(y[i]) && std::isnan(y_other[i])) continue;
        ASSERT_EQ(y[i], y_other[i]) << what << ", row " << i << (finite ? "" : ", x not finite");
      }
    }
  }
};

// A of the pattern of B and Bᵀ, symmetric.
CscMatrix SymmetricOf(const CscMatrix& b) {
  std::vector<std::set<int32_t>> columns(static_cast<size_t>(b.n_cols));
  for (int64_t j = 0; j < b.n_cols; ++j) {
    for (int64_t p = b.col_ptr[j]; p < b.col_ptr[j + 1]; ++p) {
      columns[static_cast<size_t>(j)].insert(b.row_idx[p]);
      columns[static_cast<size_t>(b.row_idx[p])].insert(static_cast<int32_t>(j));
    }
  }
  CscMatrix a;
  a.n_rows = a.n_cols = b.n_cols;
  for (int64_t j = 0; j < b.n_cols; ++j) {
    a.col_ptr.push_back(a.nnz());
    for (const int32_t i : columns[static_cast<size_t>(j)]) {
      a.row_idx.push_back(i);
      const int64_t low = std::min<int64_t>(i, j), high = std::max<int64_t>(i, j);
      a.values.push_back(std::sin(static_cast<double>(low + 3 * high)));
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

// Rows of the given lengths at random columns; some of them may be empty.
CscMatrix OfLengths(int64_t n, const std::vector<int64_t>& lengths, uint64_t seed) {
  oracle::Random random(seed);
  std::vector<std::vector<int32_t>> columns(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    // Every so many columns: distinct.
    const int64_t step = std::max<int64_t>(1, n / std::max<int64_t>(1, length));
    const int64_t shift = random.Below(n);
    for (int64_t k = 0; k < length; ++k) {
      columns[static_cast<size_t>((shift + k * step) % n)].push_back(static_cast<int32_t>(i));
    }
  }
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (const auto& column : columns) {
    a.col_ptr.push_back(a.nnz());
    for (const int32_t row : column) {
      a.row_idx.push_back(row);
      a.values.push_back(random.Uniform(-1, 1));
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

TEST_F(GpuRows, HandCheckable) {
  // Powers of two and small integers: exact.
  const CscMatrix a =
      krylov_test::Rows({{2, 0, 0, 1}, {0, 0, 0, 0}, {4, 8, 16, 32}, {0, -1, 0, 0}});
  const Vector x{1, 2, 3, 4}, y{6, 0, 196, -2};
  EXPECT_EQ(Apply(Make(a), x), y);
  EXPECT_EQ(Apply(Make(a, false, true), x), y);
  const CscMatrix symmetric = krylov_test::Rows({{1, 2}, {2, 5}});
  EXPECT_EQ(Apply(Make(symmetric, true), {3, 1}), (Vector{5, 11}));
  EXPECT_EQ(Apply(Make(krylov_test::Rows({{-4}})), {0.5}), Vector{-2});
}

TEST_F(GpuRows, EqualsTheCpuOnTheZoo) {
  for (const uint64_t seed : {1, 2}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed))
      ExpectEqualsTheCpu(named.a, named.name);
  }
}

TEST_F(GpuRows, EqualsTheCpuAroundTheSizesOfSlices) {
  for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000}) {
    ExpectEqualsTheCpu(oracle::RandomIrregular(n, 5, static_cast<uint64_t>(n)),
                       "irregular of " + std::to_string(n));
    ExpectEqualsTheCpu(OfLengths(n, std::vector<int64_t>(static_cast<size_t>(n), n), 3),
                       "dense of " + std::to_string(n));
  }
}

TEST_F(GpuRows, EqualsTheCpuOnTheGallery) {
  const Case cases[] = {
      {"P7_20", bench::ConvectionDiffusion(20, 0)},
      {"convdiff_20", bench::ConvectionDiffusion(20, 400)},
      {"P27_16", bench::Laplacian27(16)},
      {"aniso_60", bench::Anisotropic(60, 1e-3, std::numbers::pi / 8)},
      {"elasticity_9", bench::Elasticity(9)},
      {"circuit_8k", bench::Circuit(8000, 12, 300)},
      {"permuted", oracle::RowPermuted(5000, 2)},
      {"arrow", oracle::Arrow(3000)},
      {"badly scaled", oracle::BadlyScaled(500, 3)},
      {"dense row and column", oracle::DenseRowAndColumn(2500, 1)},
      {"larger than a grid", bench::ConvectionDiffusion(60, 400)},
  };
  for (const Case& c : cases) ExpectEqualsTheCpu(c.a, c.name);
}

TEST_F(GpuRows, RowsOfAllLengths) {
  oracle::Random random(5);
  for (const int64_t n : {33, 1000, 20000}) {
    // Mostly empty; empty slices.
    std::vector<int64_t> lengths(static_cast<size_t>(n), 0);
    ExpectEqualsTheCpu(OfLengths(n, lengths, 1), "nothing");
    for (int64_t i = 0; i < n; i += 61) lengths[static_cast<size_t>(i)] = 1 + i % 5;
    ExpectEqualsTheCpu(OfLengths(n, lengths, 1), "mostly empty rows");
    // Each longer than the one before.
    for (int64_t i = 0; i < n; ++i) lengths[static_cast<size_t>(i)] = std::min<int64_t>(i, 200);
    ExpectEqualsTheCpu(OfLengths(n, lengths, 2), "ascending rows");
    // A power law with hubs.
    for (int64_t& length : lengths) {
      length = std::min(n, static_cast<int64_t>(3 / (random.Uniform() + 1e-4)));
    }
    ExpectEqualsTheCpu(OfLengths(n, lengths, 3), "power law");
  }
}

// A symmetric matrix has its rows already; sorted from its columns they are the same.
TEST_F(GpuRows, SortedRowsAreThoseThatAreThere) {
  std::vector<Case> cases;
  oracle::Random random(9);
  for (const int64_t n : {31, 1000, 20'011}) {
    const std::string of = " of " + std::to_string(n);
    std::vector<int64_t> lengths(static_cast<size_t>(n), 0);
    for (int64_t i = 0; i < n; i += 61) lengths[static_cast<size_t>(i)] = 1 + i % 5;
    cases.push_back({"mostly empty rows" + of, SymmetricOf(OfLengths(n, lengths, 1))});
    for (int64_t i = 0; i < n; ++i) lengths[static_cast<size_t>(i)] = 3 + i % 2;
    cases.push_back({"rows of about equal length" + of, SymmetricOf(OfLengths(n, lengths, 2))});
    // Beside rows that are ranked side by side, those of a warp and of a block.
    for (const int64_t length : {47, 48, 49, 300, 511, 600, 4000}) {
      lengths[static_cast<size_t>(random.Below(n))] = std::min(length, n);
    }
    cases.push_back({"some long rows" + of, SymmetricOf(OfLengths(n, lengths, 3))});
    for (int64_t i = 0; i < n; ++i) lengths[static_cast<size_t>(i)] = std::min<int64_t>(i, 90);
    cases.push_back({"ascending rows" + of, SymmetricOf(OfLengths(n, lengths, 4))});
    for (int64_t& length : lengths) {
      length = std::min(n, static_cast<int64_t>(2 / (random.Uniform() + 1e-3)));
    }
    cases.push_back({"power law" + of, SymmetricOf(OfLengths(n, lengths, 5))});
  }
  // Longer rows than any block ranks.
  cases.push_back({"a dense row and column", SymmetricOf(oracle::DenseRowAndColumn(5000, 1))});
  cases.push_back({"P27", bench::Laplacian27(20)});
  cases.push_back({"elasticity", bench::Symmetrized(bench::Elasticity(9))});
  for (const Case& c : cases) {
    const Matrix matrix = Upload(c.a);
    for (const bool fp32 : {false, true}) {
      ExpectSameLayout(MakeOf(matrix.get(), true, fp32), MakeOf(matrix.get(), false, fp32),
                       c.a.n_cols, c.name + (fp32 ? ", fp32" : ""));
    }
  }
}

TEST_F(GpuRows, RowsInPieces) {
  // Around the lengths at which rows are cut.
  const int64_t n = 9000;
  std::vector<int64_t> lengths(static_cast<size_t>(n), 3);
  const int64_t longs[] = {1023, 1024, 1025, 2047, 2048, 2049, 3071, 3072, 3073, 9000};
  for (size_t i = 0; i < std::size(longs); ++i) lengths[137 * i] = longs[i];
  ExpectEqualsTheCpu(OfLengths(n, lengths, 1), "long rows");
  // More pieces than a grid has warps.
  for (int64_t i = 0; i < 1200; ++i) lengths[static_cast<size_t>(7 * i)] = 2049 + 5 * i;
  ExpectEqualsTheCpu(OfLengths(n, lengths, 2), "many long rows");
  // A row of more pieces than a grid has blocks, and a dense column.
  ExpectEqualsTheCpu(oracle::DenseRowAndColumn(700'000, 1), "a dense row of 700,000");
}

// Large enough to stream, its rows a power law with hubs, some of them empty; fp32 streams, too.
CscMatrix LargePowerLaw() {
  constexpr int64_t kRows = 1'400'000;
  oracle::Random random(7);
  std::vector<int64_t> lengths(kRows);
  for (int64_t& length : lengths) {
    length = std::min<int64_t>(
        3000, static_cast<int64_t>(1.7 * std::pow(random.Uniform() + 1e-6, -0.6) - 0.8));
  }
  return OfLengths(kRows, lengths, 3);
}

TEST_F(GpuRows, InTiles) {
  const CscMatrix a = LargePowerLaw();
  for (const bool fp32 : {false, true}) {
    const int64_t entry = fp32 ? 8 : 12;
    ASSERT_GE(entry * a.nnz(), 32'000'000);
    // Slices in an order of their rows would take 4.5 bytes a row beside entries, x and y.
    EXPECT_LT(Bytes(Make(a, false, fp32)), entry * a.nnz() + 20 * a.n_cols);
  }
  ExpectEqualsTheCpu(a, "large power law");
}

TEST_F(GpuRows, NewValues) {
  const Case cases[] = {{"circuit", bench::Circuit(3000, 5, 300)},
                        {"large power law", LargePowerLaw()},
                        {"elasticity", bench::Elasticity(6)},
                        {"a dense row", oracle::DenseRowAndColumn(5000, 1)}};
  for (const Case& c : cases) {
    CscMatrix a = c.a;
    const Vector x = RandomVector(a.n_cols, 3);
    const Matrix matrix = Upload(a);
    const Operator op = MakeOf(matrix.get(), false, false);
    const Operator op32 = MakeOf(matrix.get(), false, true);
    const Vector values = RandomVector(a.nnz(), 4);
    a.values.assign(values.begin(), values.end());
    cuda::UploadValues(context(), values.data(), *matrix);
    for (const Operator* own : {&op, &op32}) Update(*matrix, **own);
    EXPECT_EQ(Apply(op, x), Apply(Make(a), x)) << c.name;
    EXPECT_EQ(Apply(op32, x), Apply(Make(a, false, true), x)) << c.name;
  }
  const Operator op = Make(bench::Elasticity(5));
  ExpectMismatch(bench::Elasticity(6), *op);
}

TEST_F(GpuRows, DiagonalsAndTimes) {
  const Vector d = RandomVector(1001, 1), x = RandomVector(1001, 2);
  cuda::Buffer<double> there(context(), 1001);
  there.CopyIn(d.data(), 1001);
  const auto op = std::make_unique<cuda::Operator>(cuda::Diagonal{std::move(there)});
  const Vector y = Apply(op, x);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], d[i] * x[i]);
  EXPECT_GT(cuda::TimeProducts(context(), *op, 5), 0);
  EXPECT_EQ(Bytes(op), 24 * 1001);
  const CscMatrix a = bench::Laplacian27(10);
  const Operator rows = Make(a, true);
  EXPECT_GT(cuda::TimeProducts(context(), *rows, 120), 0);
  EXPECT_GE(Bytes(rows), 12 * a.nnz() + 16 * a.n_cols);
}

TEST_F(GpuRows, OfM) {
  const CscMatrix a = bench::Circuit(4000, 6, 200);
  const auto plan = PlanStaticSpaiCuda({&device_, 1}, a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (const double post_filter : {0.0, 0.05}) {
    StaticSpaiOptions options;
    options.post_filter = post_filter;
    std::shared_ptr<const BuiltOnDevice> m;
    ASSERT_TRUE(BuildStaticSpaiCuda(**plan, a, options, {}, nullptr, &m).ok());
    ASSERT_NE(m, nullptr);
    const Operator op = OfBuilt(*m, cuda::Order::kColumns, false);
    const CscMatrix host = Download(*m);
    const Vector x = RandomVector(a.n_cols, 3);
    ExpectNear(host, x, Apply(op, x), Product(host, x), 1e-14,
               "post-filter " + std::to_string(post_filter));
  }
}

// G is there by rows, and Gᵀ by columns.
TEST_F(GpuRows, OfG) {
  const Case cases[] = {{"P7", bench::ConvectionDiffusion(21, 0)},
                        {"aniso", bench::Anisotropic(70, 1e-3, std::numbers::pi / 8)},
                        {"elasticity", bench::Elasticity(7)}};
  for (const Case& c : cases) {
    const int64_t n = c.a.n_cols;
    const auto plan = PlanFsaiCuda({&device_, 1}, c.a, nullptr, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    FsaiOptions options;
    options.k_max = 14;
    options.epsilon = 1e-3;
    options.symmetry_tolerance = 1e-8;
    FsaiCudaOutputs outputs;
    const auto g = GrowFsaiCuda(**plan, nullptr, c.a, options, {}, nullptr, &outputs);
    ASSERT_TRUE(g.ok()) << c.name << ": " << g.status().message();
    ASSERT_NE(outputs.g, nullptr) << c.name;
    const CscMatrix &columns = outputs.g_columns, &rows = g->g_rows;  // of G
    const Vector x = RandomVector(n, 3);
    for (const bool transposed : {false, true}) {
      const CscMatrix& host = transposed ? rows : columns;
      for (const bool fp32 : {false, true}) {
        const std::string what =
            c.name + (transposed ? ", transposed" : "") + (fp32 ? ", fp32" : "");
        // G by rows is Gᵀ by columns.
        const Operator op =
            OfBuilt(*outputs.g, transposed ? cuda::Order::kColumns : cuda::Order::kRows, fp32);
        ExpectSameLayout(op, Make(host, false, fp32), n, what);
        if (!fp32) ExpectNear(host, x, Apply(op, x), Product(host, x), 1e-14, what);
      }
    }
  }
}

TEST_F(GpuRows, TheMemoryLimitIsHeld) {
  const CscMatrix a = oracle::DenseRowAndColumn(50'000, 1);
  EXPECT_GE(BytesOnTheLeastDevice(a, false), 12 * a.nnz());
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
