// What a sink is told of a matrix whose columns are finished by several threads, in any order.
#include "kernels/base/result_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/split.h"
#include "tests/kernels/base/recording_sink.h"

namespace spaid::kernels {
namespace {

// Column k has k % 3 + 1 entries.
struct Columns {
  explicit Columns(int64_t n) {
    for (int64_t k = 0; k < n; ++k) col_ptr.push_back(col_ptr.back() + k % 3 + 1);
    row_idx.resize(static_cast<size_t>(col_ptr.back()));
    values.resize(row_idx.size());
  }
  void Fill(int64_t begin, int64_t end) {
    for (int64_t p = col_ptr[static_cast<size_t>(begin)]; p < col_ptr[static_cast<size_t>(end)];
         ++p) {
      values[static_cast<size_t>(p)] = static_cast<double>(p) + 0.5;
    }
  }
  std::vector<int64_t> col_ptr{0};
  std::vector<int32_t> row_idx;
  std::vector<double> values;
};

TEST(ShownResult, TellsTheFirstColumnsOfWhichAllAreFinished) {
  Columns m(5);  // blocks of one column
  RecordingSink sink;
  ShownResult shown;
  shown.Show(&sink, m.col_ptr, m.row_idx, m.values);
  EXPECT_TRUE(shown.showing());
  EXPECT_EQ(sink.col_ptr, m.col_ptr);
  EXPECT_EQ(sink.marks, std::vector<int64_t>{});
  shown.Finished(3, 4);
  shown.Finished(1, 2);
  EXPECT_EQ(sink.marks, std::vector<int64_t>{});
  m.Fill(0, 2);
  shown.Finished(0, 1);
  EXPECT_EQ(sink.marks, (std::vector<int64_t>{2}));
  m.Fill(2, 5);
  shown.FinishedAll();
  EXPECT_EQ(sink.marks, (std::vector<int64_t>{2, 5}));
  shown.FinishedAll();
  EXPECT_EQ(sink.values, m.values);
  shown.Keep();
  EXPECT_FALSE(shown.showing());
  EXPECT_EQ(sink.withdrawals, 0);
}

TEST(ShownResult, WithdrawsWhatNobodyKeeps) {
  Columns m(4);
  RecordingSink sink;
  {
    ShownResult shown;
    shown.Show(&sink, m.col_ptr, m.row_idx, m.values);
    ShownResult moved = std::move(shown);
    ShownResult assigned;
    assigned = std::move(moved);
    const ShownResult copy = assigned;  // shows nothing, so it has nothing to withdraw
    EXPECT_FALSE(copy.showing());
    EXPECT_EQ(sink.withdrawals, 0);
  }
  EXPECT_EQ(sink.withdrawals, 1);
}

TEST(ShownResult, WithoutASinkNothingHappens) {
  Columns m(4);
  ShownResult shown;
  shown.Show(nullptr, m.col_ptr, m.row_idx, m.values);
  shown.Finished(0, 4);
  shown.FinishedAll();
  EXPECT_FALSE(shown.showing());
}

TEST(ShownResult, AnEmptyMatrixIsFinished) {
  const std::vector<int64_t> col_ptr{0};
  RecordingSink sink;
  ShownResult shown;
  shown.Show(&sink, col_ptr, {}, {});
  shown.FinishedAll();
  EXPECT_EQ(sink.patterns, 1);
  EXPECT_EQ(sink.marks, std::vector<int64_t>{});
  shown.Keep();
}

// As devices that share a build: each fills its range in an order of its own. The last one to begin
// may be the first to end.
TEST(ShownResult, OfPiecesOnlyGrows) {
  constexpr int64_t kColumns = 300'000;
  for (const int pieces : {1, 2, 3, 8}) {
    SCOPED_TRACE(pieces);
    Columns m(kColumns);
    RecordingSink sink;
    ShownResult shown;
    shown.Show(&sink, m.col_ptr, m.row_idx, m.values);
    const std::vector<IndexRange> ranges =
        CutByWork(kColumns, pieces, 1, [](int64_t k) { return 1 + static_cast<double>(k % 7); });
    const Status status = AtOnce(ranges.size(), [&](size_t i) -> Status {
      std::vector<int64_t> cuts{ranges[i].begin, ranges[i].end};
      std::mt19937_64 random(i);
      for (int c = 0; c < 99; ++c) {
        cuts.push_back(ranges[i].begin +
                       static_cast<int64_t>(random() % static_cast<uint64_t>(ranges[i].size())));
      }
      std::sort(cuts.begin(), cuts.end());
      std::vector<size_t> order(cuts.size() - 1);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t part : order) {
        m.Fill(cuts[part], cuts[part + 1]);
        shown.Finished(cuts[part], cuts[part + 1]);
      }
      return {};
    });
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(sink.columns(), kColumns);
    EXPECT_EQ(sink.values, m.values);  // each was final when it was shown
    shown.Keep();
  }
}

}  // namespace
}  // namespace spaid::kernels
