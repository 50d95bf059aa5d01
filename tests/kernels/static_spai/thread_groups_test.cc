// The choice of thread groups (Chu, Wang, Chen, Gao 2023): needs no device.
#include "kernels/static_spai/thread_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spaid::kernels {
namespace {

TEST(ThreadGroups, AreTheNextPowerOfTwo) {
  EXPECT_EQ(GroupThreads(1), 1);
  EXPECT_EQ(GroupThreads(2), 2);
  EXPECT_EQ(GroupThreads(3), 4);
  EXPECT_EQ(GroupThreads(8), 8);
  EXPECT_EQ(GroupThreads(9), 16);
  EXPECT_EQ(GroupThreads(256), 256);
  EXPECT_EQ(GroupThreads(257), 256);  // nt
  EXPECT_EQ(GroupThreads(100000), 256);
}

// Table 3 of the paper: matrix, mean and largest entries of a column, its choice.
TEST(ThreadGroups, ThePaperChoosesAsInItsTable) {
  struct Row {
    const char* matrix;
    double mean;
    int64_t largest;
    ThreadStrategy chosen;
  };
  constexpr ThreadStrategy kS1 = ThreadStrategy::kConstant, kS2 = ThreadStrategy::kVariable;
  constexpr Row kRows[] = {
      {"cbuckle", 49.45, 600, kS2}, {"2cubes_sphere", 16.23, 31, kS1},
      {"offshore", 16.33, 31, kS1}, {"ASIC_320ks", 4.09, 210, kS2},
      {"apache2", 6.74, 8, kS1},    {"G3_circuit", 4.83, 6, kS1},
      {"power9", 12.15, 627, kS2},  {"msdoor", 46.10, 77, kS1},
      {"thermal2", 6.99, 11, kS1},  {"Fault_639", 42.65, 267, kS2},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(PaperStrategy(row.largest, row.mean), row.chosen) << row.matrix;
  }
}

TEST(ThreadGroups, PredictionsAddUpAndGrow) {
  QrSize sizes[kGroupSizes] = {};
  EXPECT_EQ(PredictVariableMs(sizes), 0);
  EXPECT_EQ(PredictConstantMs(sizes, 8), 0);
  sizes[3].fit = {
      .problems = 100000, .chunks = 100000, .steps = 700000, .entries = 4900000, .longest = 7};
  const double one = PredictVariableMs(sizes);
  EXPECT_GT(one, 0);
  EXPECT_EQ(PredictConstantMs(sizes, 3), one);  // the same launch
  EXPECT_GT(PredictConstantMs(sizes, 7), one);  // threads that have nothing to do
  // One long problem: the others need not have its threads.
  sizes[7].fit = {.problems = 1, .chunks = 4, .steps = 400, .entries = 9000, .longest = 400};
  EXPECT_GT(PredictVariableMs(sizes), one);
  EXPECT_GT(PredictConstantMs(sizes, 7), PredictVariableMs(sizes));
  // Columns that outnumber their own size's threads have one each in a larger group.
  sizes[7] = {};
  sizes[3].spill = sizes[3].fit;
  EXPECT_NE(PredictConstantMs(sizes, 3), PredictConstantMs(sizes, 4));
}

TEST(StrategyTrials, TheModelDecidesWhereItIsSure) {
  StrategyTrials trials;
  EXPECT_EQ(trials.Choose(1, 3), ThreadStrategy::kConstant);
  EXPECT_EQ(trials.Choose(3, 1), ThreadStrategy::kVariable);
  for (int run = 0; run < 5; ++run) trials.Add(ThreadStrategy::kConstant, 10);
  EXPECT_EQ(trials.Choose(1, 3), ThreadStrategy::kConstant);
}

TEST(StrategyTrials, TheFasterOneIsSettledOn) {
  for (const ThreadStrategy faster : {ThreadStrategy::kConstant, ThreadStrategy::kVariable}) {
    StrategyTrials trials;
    std::vector<ThreadStrategy> chosen;
    for (int build = 0; build < 9; ++build) {
      chosen.push_back(trials.Choose(1, 1.2));
      // The first build of all takes long whatever it does.
      trials.Add(chosen.back(), (chosen.back() == faster ? 1 : 1.1) + (build == 0 ? 50 : 0));
    }
    EXPECT_EQ(chosen[0], ThreadStrategy::kConstant);  // as predicted
    EXPECT_EQ(std::ranges::count(chosen.begin(), chosen.begin() + 6, ThreadStrategy::kConstant), 3);
    for (size_t build = 6; build < chosen.size(); ++build) EXPECT_EQ(chosen[build], faster);
  }
}

TEST(StrategyTrials, ForcedBuildsCount) {
  StrategyTrials trials;
  for (int run = 0; run < 3; ++run) trials.Add(ThreadStrategy::kConstant, 2);
  EXPECT_EQ(trials.Choose(1, 1.5), ThreadStrategy::kVariable);
  for (int run = 0; run < 3; ++run) trials.Add(ThreadStrategy::kVariable, 1);
  EXPECT_EQ(trials.Choose(1, 1.5), ThreadStrategy::kVariable);
}

}  // namespace
}  // namespace spaid::kernels
