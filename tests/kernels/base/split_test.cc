// Ranges of about equal work, and the threads that share them.
#include "kernels/base/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace spaid::kernels {
namespace {

// Ascending, without gaps, none empty.
void ExpectCover(const std::vector<IndexRange>& ranges, int64_t n) {
  ASSERT_FALSE(ranges.empty());
  EXPECT_EQ(ranges.front().begin, 0);
  EXPECT_EQ(ranges.back().end, n);
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_GT(ranges[i].size(), 0) << i;
    if (i > 0) {
      EXPECT_EQ(ranges[i].begin, ranges[i - 1].end) << i;
    }
  }
}

double WorkOf(const IndexRange& range, const std::vector<double>& work) {
  return std::accumulate(work.begin() + range.begin, work.begin() + range.end, 0.0);
}

std::vector<IndexRange> Cut(const std::vector<double>& work, int parts, int threads = 2) {
  return CutByWork(static_cast<int64_t>(work.size()), parts, threads,
                   [&](int64_t k) { return work[static_cast<size_t>(k)]; });
}

TEST(CutByWork, BalancesWorkThatGrows) {
  std::vector<double> work(100000);
  for (size_t k = 0; k < work.size(); ++k) work[k] = 1 + static_cast<double>(k * k);
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  for (const int parts : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(parts);
    const auto ranges = Cut(work, parts);
    ASSERT_EQ(ranges.size(), static_cast<size_t>(parts));
    ExpectCover(ranges, 100000);
    for (const IndexRange& range : ranges) {
      EXPECT_NEAR(WorkOf(range, work), total / parts, 0.02 * total / parts);
    }
  }
}

TEST(CutByWork, DoesNotDependOnThreads) {
  std::vector<double> work(70001);
  for (size_t k = 0; k < work.size(); ++k) work[k] = 1 + static_cast<double>(k * 7919 % 1009);
  const auto one = Cut(work, 4, 1), many = Cut(work, 4, 7);
  ASSERT_EQ(one.size(), many.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].end, many[i].end);
}

// The others share the rest, wherever it stands.
TEST(CutByWork, GivesOneDeviceTheDenseColumn) {
  for (const int64_t dense : {int64_t{0}, int64_t{500}, int64_t{4000}, int64_t{7999}}) {
    SCOPED_TRACE(dense);
    std::vector<double> work(8000, 1.0);
    work[static_cast<size_t>(dense)] = 1e6;
    const auto ranges = Cut(work, 4);
    ASSERT_EQ(ranges.size(), 4u);
    ExpectCover(ranges, 8000);
    std::vector<double> others;
    for (const IndexRange& range : ranges) {
      if (dense < range.begin || dense >= range.end) others.push_back(WorkOf(range, work));
    }
    EXPECT_EQ(others.size(), 3u);
  }
}

TEST(CutByWork, HasNoEmptyRanges) {
  for (int64_t n = 1; n <= 9; ++n) {
    for (const int parts : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << n << " columns, " << parts << " devices");
      const auto ranges = Cut(std::vector<double>(static_cast<size_t>(n), 1.0), parts);
      EXPECT_EQ(ranges.size(), static_cast<size_t>(std::min<int64_t>(n, parts)));
      ExpectCover(ranges, n);
    }
  }
}

TEST(CutByColumns, CountsUnknownsNotColumns) {
  // 1000 columns of 40 entries, then 9000 of 4.
  std::vector<int64_t> ptr = {0};
  for (int k = 0; k < 10000; ++k) ptr.push_back(ptr.back() + (k < 1000 ? 40 : 4));
  const auto ranges = CutByColumns(2, ptr.data(), 10000, 1, 7.6, 2);
  ASSERT_EQ(ranges.size(), 2u);
  ExpectCover(ranges, 10000);
  EXPECT_LT(ranges[0].end, 1500);
  EXPECT_GT(ranges[0].end, 500);
  // Higher powers weigh long columns more, up to what a device takes.
  EXPECT_LE(CutByColumns(2, ptr.data(), 10000, 2, 7.6, 2)[0].end, ranges[0].end);
}

BatchedWork Sum(const std::vector<double>& work, int parts) {
  return SumWork(static_cast<int64_t>(work.size()), parts, 2,
                 [&](int64_t k) { return work[static_cast<size_t>(k)]; });
}

TEST(RangeQueue, HandsOutSmallerAndSmallerRanges) {
  const std::vector<double> even(64000, 1.0);
  const BatchedWork work = Sum(even, 2);
  RangeQueue queue(work, 2);
  std::vector<IndexRange> ranges;
  for (IndexRange next = queue.Take(false); next.size() > 0; next = queue.Take(false)) {
    ranges.push_back(next);
  }
  ExpectCover(ranges, 64000);
  // A quarter, a quarter of the rest, ..., at least one in 128.
  EXPECT_NEAR(static_cast<double>(ranges[0].size()), 16000, 64);
  EXPECT_NEAR(static_cast<double>(ranges[1].size()), 12000, 64);
  EXPECT_GT(ranges.size(), 10u);
  EXPECT_LT(ranges.size(), 20u);
  for (size_t i = 0; i + 1 < ranges.size(); ++i) EXPECT_GE(ranges[i].size(), 500 - 125) << i;
  EXPECT_EQ(queue.Take(false).size(), 0);
  queue.Refill();
  EXPECT_EQ(queue.Take(false).end, ranges[0].end);
  queue.Close();
  EXPECT_EQ(queue.Take(true).size(), 0);
}

TEST(RangeQueue, GivesWholePartsAndOnePartAll) {
  std::vector<double> work(5000, 1.0);
  for (size_t k = 0; k < 1000; ++k) work[k] = 5;
  const BatchedWork of_two = Sum(work, 2);
  RangeQueue two(of_two, 2);
  EXPECT_NEAR(static_cast<double>(two.Take(true).end), 900, 20);
  EXPECT_EQ(two.Take(true).end, 5000);
  const BatchedWork of_one = Sum(work, 1);
  RangeQueue one(of_one, 1);
  EXPECT_EQ(one.Take(false).size(), 5000);
  EXPECT_EQ(one.Take(false).size(), 0);
  // Fewer rows than parts: some get none.
  const BatchedWork few = Sum({1, 1}, 4);
  RangeQueue four(few, 4);
  EXPECT_EQ(four.Take(false).size(), 1);
  EXPECT_EQ(four.Take(true).size(), 1);
  EXPECT_EQ(four.Take(false).size(), 0);
}

// Parts whose clocks run by what rows really take, which is not what was predicted: whoever is
// first comes for more.
TEST(RangeQueue, EndsTogetherWhateverRowsTake) {
  std::vector<double> predicted(100000, 1.0), real(predicted.size());
  for (size_t k = 0; k < real.size(); ++k) {
    real[k] = k < 50000 ? 4 : 1 + 0.5 * static_cast<double>(k % 3);
  }
  const double all = std::accumulate(real.begin(), real.end(), 0.0);
  for (const int parts : {2, 3, 4, 8}) {
    SCOPED_TRACE(parts);
    const BatchedWork work = Sum(predicted, parts);
    RangeQueue queue(work, parts);
    std::vector<double> clocks(static_cast<size_t>(parts), 0.0);
    std::vector<IndexRange> ranges;
    for (;;) {
      double& first = *std::min_element(clocks.begin(), clocks.end());
      const IndexRange next = queue.Take(false);
      if (next.size() == 0) break;
      ranges.push_back(next);
      first += WorkOf(next, real);
    }
    ExpectCover(ranges, 100000);
    EXPECT_LT(*std::max_element(clocks.begin(), clocks.end()), 1.03 * all / parts);
  }
}

TEST(RangeQueue, GivesEachRowOnceToManyThreads) {
  const BatchedWork work = Sum(std::vector<double>(20000, 1.0), 4);
  RangeQueue queue(work, 4);
  std::vector<std::atomic<int>> taken(20000);
  ASSERT_TRUE(AtOnce(4, [&](size_t) {
                for (IndexRange next = queue.Take(false); next.size() > 0;
                     next = queue.Take(false)) {
                  for (int64_t k = next.begin; k < next.end; ++k) ++taken[static_cast<size_t>(k)];
                }
                return Status();
              }).ok());
  for (const auto& times : taken) EXPECT_EQ(times, 1);
}

TEST(AtOnce, RunsAllAndGivesTheFirstError) {
  std::atomic<int> runs = 0;
  const auto status = AtOnce(5, [&](size_t i) {
    ++runs;
    return i == 1 || i == 3
               ? Status(StatusCode::kInternal, i == 1 ? "FIRST" : "SECOND", "of the test")
               : Status();
  });
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(status.reason(), "FIRST");
  EXPECT_TRUE(AtOnce(3, [](size_t) { return Status(); }).ok());
  EXPECT_TRUE(AtOnce(0, [](size_t) { return Status(StatusCode::kInternal, "NO", "no"); }).ok());
}

TEST(AtOnce, ThrowsWhatAPieceThrowsOnceAllHaveReturned) {
  std::atomic<int> runs = 0;
  EXPECT_THROW((void)AtOnce(4,
                            [&](size_t i) {
                              ++runs;
                              if (i == 2) throw std::bad_alloc();
                              return Status();
                            }),
               std::bad_alloc);
  EXPECT_EQ(runs, 4);
}

class Recorder final : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t done, int64_t total) override { told.emplace_back(done, total); }
  void OnResidual(const ResidualPoint&) override {}
  std::vector<std::pair<int64_t, int64_t>> told;
};

TEST(SharedProgress, SumsPiecesAndNeverFallsBack) {
  Recorder sink;
  SharedProgress progress(&sink, Stage::kBuild, 100, 2);
  progress.Report(0, 10);
  progress.Report(1, 30);
  progress.Report(0, 5);
  progress.Report(0, 50);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{10, 100}, {40, 100}, {80, 100}};
  EXPECT_EQ(sink.told, expected);
  SharedProgress silent(nullptr, Stage::kBuild, 100, 2);
  silent.Report(1, 1);
}

// Pieces that write side by side into one array, each from where the ones before end: what builds
// do with their columns.
TEST(AtOnce, GathersPiecesInOrder) {
  std::vector<double> work(5000);
  for (size_t k = 0; k < work.size(); ++k) work[k] = 1 + static_cast<double>(k % 13);
  const auto ranges = Cut(work, 4);
  std::vector<int64_t> gathered(work.size(), -1);
  ASSERT_TRUE(AtOnce(ranges.size(), [&](size_t i) {
                for (int64_t k = ranges[i].begin; k < ranges[i].end; ++k) {
                  gathered[static_cast<size_t>(k)] = 3 * k;
                }
                return Status();
              }).ok());
  for (size_t k = 0; k < gathered.size(); ++k) EXPECT_EQ(gathered[k], 3 * static_cast<int64_t>(k));
}

}  // namespace
}  // namespace spaid::kernels
