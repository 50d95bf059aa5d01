// The raster of a spy plot and lengths of rows, by hand.
#include "client/cli/report/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "client/cli/gallery.h"
#include "client/cli/report/figures.h"

namespace spaid::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Entries (row, column), by columns and rows; without values, which nobody looks at.
CscMatrix Pattern(int64_t n, const std::vector<std::pair<int32_t, int32_t>>& entries) {
  CscMatrix a{.n = n, .col_ptr = {0}};
  for (int64_t column = 0; column < n; ++column) {
    for (const auto& [i, j] : entries) {
      if (j == column) a.row_idx.push_back(i);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

TEST(Raster, HasACellForEachEntryOfASmallMatrix) {
  const PatternRaster raster = MakeRaster(Pattern(3, {{0, 0}, {2, 0}, {1, 2}}), 160);
  EXPECT_EQ(raster.size, 3);
  EXPECT_EQ(raster.most, 1);
  EXPECT_THAT(raster.counts, ElementsAre(1, 0, 0, 0, 0, 1, 1, 0, 0));
}

TEST(Raster, CountsEntriesInCells) {
  // Five rows in two cells: rows 0 to 2, rows 3 and 4.
  const PatternRaster raster =
      MakeRaster(Pattern(5, {{0, 0}, {2, 2}, {2, 3}, {3, 2}, {4, 4}, {3, 4}}), 2);
  EXPECT_EQ(raster.size, 2);
  EXPECT_THAT(raster.counts, ElementsAre(2, 1, 1, 2));
  EXPECT_EQ(raster.most, 2);
}

TEST(Raster, LosesNothingOfALargeMatrix) {
  const auto a = Generate("circuit", 20'000);
  ASSERT_TRUE(a.ok());
  const PatternRaster raster = MakeRaster(*a, 160);
  EXPECT_EQ(std::accumulate(raster.counts.begin(), raster.counts.end(), int64_t{0}),
            a->col_ptr.back());
  for (int k = 0; k < 160; ++k) EXPECT_GT(raster.at(k, k), 0) << "the diagonal is stored";
}

TEST(SpyFigure, DrawsWhatIsThere) {
  const std::string small = SpyFigure(MakeRaster(Pattern(3, {{0, 0}, {2, 0}, {1, 2}}), 160));
  EXPECT_THAT(small, HasSubstr("d=\"M0 0h.86M2 1h.86M0 2h.86\""));
  EXPECT_THAT(small, HasSubstr("viewBox=\"0 0 3 3\""));
  // Beyond 80 cells, neighbours of one shade are one line.
  std::vector<std::pair<int32_t, int32_t>> row;
  for (int32_t j = 10; j < 40; ++j) row.emplace_back(7, j);
  const std::string large = SpyFigure(MakeRaster(Pattern(100, row), 160));
  EXPECT_THAT(large, HasSubstr("class=\"shade4\" d=\"M10 7h30\""));
  EXPECT_THAT(large, Not(HasSubstr("shade0")));
}

TEST(SpyFigure, ShadesGoByTheLogarithm) {
  EXPECT_EQ(SpyShade(1, 1), 4);
  EXPECT_EQ(SpyShade(1, 1000), 0);
  EXPECT_EQ(SpyShade(3, 1000), 0);
  EXPECT_EQ(SpyShade(4, 1000), 1);
  EXPECT_EQ(SpyShade(1000, 1000), 4);
  EXPECT_EQ(SpyShade(250, 1000), 3);
}

TEST(Lengths, AreCountedByRowsAndColumns) {
  const PatternLengths lengths =
      MakeLengths(Pattern(4, {{0, 0}, {1, 1}, {0, 3}, {0, 2}, {3, 3}}), 32);
  EXPECT_EQ(lengths.rows.least, 0);
  EXPECT_EQ(lengths.rows.most, 3);
  EXPECT_EQ(lengths.rows.median, 1);
  EXPECT_EQ(lengths.rows.mean, 1.25);
  EXPECT_EQ(lengths.columns.most, 2);
  EXPECT_EQ(lengths.bandwidth, 3);
  ASSERT_EQ(lengths.bins.size(), 4u);
  std::vector<int64_t> rows, columns;
  for (const LengthBin& bin : lengths.bins) {
    EXPECT_EQ(bin.from, bin.to);
    rows.push_back(bin.rows);
    columns.push_back(bin.columns);
  }
  EXPECT_THAT(rows, ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(columns, ElementsAre(0, 3, 1, 0));
  EXPECT_TRUE(ColumnsDiffer(lengths));
}

TEST(Lengths, OfAnArrowAreBinnedByPowersOfTwo) {
  std::vector<std::pair<int32_t, int32_t>> arrow;
  for (int32_t k = 0; k < 1000; ++k) {
    if (k > 0) arrow.emplace_back(0, k);
    arrow.emplace_back(k, k);
    if (k > 0) arrow.emplace_back(k, 0);
  }
  const PatternLengths lengths = MakeLengths(Pattern(1000, arrow), 32);
  // From 2 on: 2, 3 to 5, 6 to 11, … 768 to 1000.
  EXPECT_LE(lengths.bins.size(), 12u);
  EXPECT_EQ(lengths.bins.front().from, 2);
  EXPECT_EQ(lengths.bins.front().rows, 999);
  EXPECT_EQ(lengths.bins.back().to, 1000);
  EXPECT_EQ(lengths.bins.back().rows, 1);
  EXPECT_FALSE(ColumnsDiffer(lengths));
  for (size_t k = 1; k < lengths.bins.size(); ++k) {
    EXPECT_EQ(lengths.bins[k].from, lengths.bins[k - 1].to + 1);
  }
}

TEST(Lengths, OfManyDifferentRowsHaveBinsOfOneWidth) {
  std::vector<std::pair<int32_t, int32_t>> triangle;
  for (int32_t i = 0; i < 100; ++i) {
    for (int32_t j = 0; j <= i; ++j) triangle.emplace_back(i, j);
  }
  const PatternLengths lengths = MakeLengths(Pattern(100, triangle), 32);
  EXPECT_EQ(lengths.bins.size(), 25u);
  int64_t rows = 0;
  for (const LengthBin& bin : lengths.bins) {
    EXPECT_EQ(bin.to - bin.from, 3);
    EXPECT_EQ(bin.rows, 4);
    rows += bin.rows;
  }
  EXPECT_EQ(rows, 100);
}

TEST(LengthFigure, HasABarForEachBinThatIsNotEmpty) {
  const PatternLengths lengths = MakeLengths(Pattern(2, {{0, 0}, {1, 1}, {1, 0}}), 32);
  const std::string svg = LengthFigure(lengths);
  // One row of each length; a column of each, too.
  size_t bars = 0;
  for (size_t at = svg.find("<rect"); at != svg.npos; at = svg.find("<rect", at + 1)) ++bars;
  EXPECT_EQ(bars, 2u);
  EXPECT_THAT(svg, HasSubstr(">stored entries</text>"));
}

}  // namespace
}  // namespace spaid::cli
