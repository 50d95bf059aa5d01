// What is predicted of some rows is what a build of them finds.
#include "kernels/fsai/fsai_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

TEST(FsaiSample, OfAllRowsIsTheKaporinReductionOfTheBuilds) {
  for (const uint64_t seed : {1, 2, 3}) {
    const CscMatrix a = oracle::RandomSpd(8, 4, seed);
    std::vector<int32_t> rows(8);
    std::iota(rows.begin(), rows.end(), 0);
    FsaiOptions options;
    options.k_max = 2;
    options.s = 2;
    const FsaiSample sample = SampleFsai(a, rows, options);
    ASSERT_EQ(sample.rows, 8);
    const auto grown = BuildFsai(a, nullptr, options, {});
    options.adaptive = false;
    const auto on_a = BuildFsai(a, nullptr, options, {});
    ASSERT_TRUE(grown.ok() && on_a.ok());
    EXPECT_NEAR(sample.grown_gain, -std::log(grown->quality.kaporin), 1e-12);
    EXPECT_NEAR(sample.static_gain, -std::log(on_a->quality.kaporin), 1e-12);
    EXPECT_EQ(sample.grown_entries * 8, static_cast<double>(grown->g_rows.nnz()));
  }
}

TEST(FsaiSample, OfADiagonalMatrixIsNoGain) {
  CscMatrix a;
  a.n_rows = a.n_cols = 3;
  a.col_ptr = {0, 1, 2, 3};
  a.row_idx = {0, 1, 2};
  a.values = {2, 3, 4};
  const std::vector<int32_t> rows = {0, 2};
  const FsaiSample sample = SampleFsai(a, rows, {});
  EXPECT_EQ(sample.rows, 2);
  EXPECT_EQ(sample.static_gain, 0);
  EXPECT_EQ(sample.grown_gain, 0);
  EXPECT_EQ(sample.grown_entries, 1);
}

}  // namespace
}  // namespace spaid::kernels
