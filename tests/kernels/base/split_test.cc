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

TEST(PieceProgress, ScalesToItsUnitsAndStopsShortOfThem) {
  Recorder sink;
  SharedProgress progress(&sink, Stage::kBuild, 100, 2);
  PieceProgress whole(progress, 0, 40, 40), short_of(progress, 1, 60, 59);
  whole.OnProgress(Stage::kBuild, 0, 0);
  whole.OnProgress(Stage::kBuild, 1, 4);
  short_of.OnProgress(Stage::kBuild, 60, 60);
  whole.OnProgress(Stage::kBuild, 4, 4);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{10, 100}, {69, 100}, {99, 100}};
  EXPECT_EQ(sink.told, expected);
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
