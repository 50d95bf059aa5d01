#include "kernels/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

namespace spaid::kernels {
namespace {

class EveryIndexOnce : public testing::TestWithParam<std::tuple<int64_t, int64_t, int>> {};

TEST_P(EveryIndexOnce, InBatchesOfTheRightSize) {
  const auto [n, batch, threads] = GetParam();
  std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
  std::atomic<int> bad{0};
  ParallelFor(n, batch, threads, [&, batch = batch, n = n](int64_t begin, int64_t end, int worker) {
    if (worker < 0 || worker >= ResolveThreads(threads)) ++bad;
    if (begin % batch != 0 || (end - begin != batch && end != n) || begin >= end) ++bad;
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  EXPECT_EQ(bad, 0);
  for (const auto& s : seen) ASSERT_EQ(s, 1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EveryIndexOnce,
                         testing::Combine(testing::Values(0, 1, 2, 7, 1000),
                                          testing::Values(1, 3, 64, 5000),
                                          testing::Values(0, 1, 2, 5)));

TEST(ParallelForTest, HugeRangeDoesNotOverflow) {
  // Two batches that together reach the end of int64.
  std::atomic<int> batches{0};
  std::atomic<int64_t> last{0};
  const int64_t n = INT64_MAX;
  ParallelFor(n, n - 5, 2, [&](int64_t begin, int64_t end, int) {
    ++batches;
    if (begin > 0) last = end;
  });
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(last, n);
}

TEST(ParallelForTest, ResolveThreads) {
  EXPECT_GE(ResolveThreads(0), 1);
  EXPECT_EQ(ResolveThreads(-3), ResolveThreads(0));
  EXPECT_EQ(ResolveThreads(3), 3);
  EXPECT_LE(ResolveThreads(1 << 30), 4096);
}

// Batches that can only end when `parties` of them run at the same time.
class Rendezvous {
 public:
  explicit Rendezvous(int parties) : parties_(parties) {}
  bool Meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++here_;
    all_.notify_all();
    return all_.wait_for(lock, std::chrono::seconds(60), [&] { return here_ >= parties_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  const int parties_;
  int here_ = 0;
};

TEST(ParallelForTest, BatchesRunAtTheSameTimeOnDifferentWorkers) {
  for (int round = 0; round < 100; ++round) {  // also after the helpers went to sleep
    Rendezvous rendezvous(3);
    std::vector<int> worker_of(3, -1);
    std::atomic<bool> met{true};
    ParallelFor(3, 1, 3, [&](int64_t begin, int64_t, int worker) {
      worker_of[static_cast<size_t>(begin)] = worker;
      if (!rendezvous.Meet()) met = false;
    });
    ASSERT_TRUE(met) << round;
    EXPECT_NE(worker_of[0], worker_of[1]);
    EXPECT_NE(worker_of[0], worker_of[2]);
    EXPECT_NE(worker_of[1], worker_of[2]);
  }
}

TEST(ParallelForTest, AWorkerNumberIsNeverUsedTwiceAtOnce) {
  std::vector<std::atomic<int>> in_use(4);
  std::atomic<int> clashes{0};
  ParallelFor(2000, 1, 4, [&](int64_t, int64_t, int worker) {
    auto& mine = in_use[static_cast<size_t>(worker)];
    if (mine.fetch_add(1) != 0) ++clashes;
    mine.fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ParallelForTest, WritesOfTheBodyAreSeenAfterwards) {
  // No atomics: ThreadSanitizer would report a missing ordering.
  std::vector<int64_t> values(10000);
  for (int round = 1; round <= 200; ++round) {
    ParallelFor(10000, 100, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
  }
  for (int64_t i = 0; i < 10000; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], 200 * i);
}

TEST(ParallelForTest, NestedCallsEnd) {
  std::atomic<int64_t> sum{0};
  ParallelFor(8, 1, 4, [&](int64_t, int64_t, int) {
    ParallelFor(8, 1, 4, [&](int64_t, int64_t, int) {
      ParallelFor(16, 2, 3, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    });
  });
  EXPECT_EQ(sum, 8 * 8 * 16);
}

TEST(ParallelForTest, ConcurrentCallersShareThePool) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&wrong, c] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int64_t> partial(64, 0);
        ParallelFor(640, 10, 1 + c % 4, [&](int64_t begin, int64_t end, int) {
          partial[static_cast<size_t>(begin / 10)] = end - begin;
          if (begin == 0) {
            ParallelFor(4, 1, 2, [&](int64_t, int64_t, int) {});
          }
        });
        int64_t sum = 0;
        for (const int64_t p : partial) sum += p;
        if (sum != 640) ++wrong;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

// Checks that calls come one at a time and go up.
class RecordingSink : public ProgressSink {
 public:
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (inside_.fetch_add(1) != 0) overlapped = true;
    if (stage != Stage::kBuild || done <= last || done > total) wrong = true;
    last = done;
    last_total = total;
    ++calls;
    inside_.fetch_sub(1);
  }
  void OnResidual(const ResidualPoint&) override { wrong = true; }

  int64_t last = 0, last_total = 0;
  int calls = 0;
  bool wrong = false;
  std::atomic<bool> overlapped{false};

 private:
  std::atomic<int> inside_{0};
};

TEST(ParallelForTest, ProgressGoesUpOneCallABatch) {
  RecordingSink sink;
  Context context;
  context.progress = &sink;
  context.threads = 4;
  EXPECT_EQ(ParallelFor(1003, 10, context, Stage::kBuild, [](int64_t, int64_t, int) {}),
            StopReason::kNone);
  EXPECT_EQ(sink.calls, 101);
  EXPECT_EQ(sink.last, 1003);
  EXPECT_EQ(sink.last_total, 1003);
  EXPECT_FALSE(sink.wrong);
  EXPECT_FALSE(sink.overlapped);
}

TEST(ParallelForTest, StopEndsWithinOneBatchAWorker) {
  for (const int threads : {1, 4}) {
    StopSource source;
    Context context;
    context.stop = source.token();
    context.threads = threads;
    std::atomic<int> after{0};
    std::atomic<bool> requested{false};
    const StopReason reason =
        ParallelFor(1'000'000, 1, context, Stage::kBuild, [&](int64_t begin, int64_t, int) {
          if (requested) ++after;
          if (begin == 10) {
            source.Request(StopReason::kCancelled);
            requested = true;
          }
        });
    EXPECT_EQ(reason, StopReason::kCancelled);
    // A worker may have polled just before the request, and taken one batch.
    EXPECT_LE(after, threads);
  }
}

TEST(ParallelForTest, TimeLimitInThePastRunsNothing) {
  StopSource source;
  source.SetTimeLimit(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  Context context;
  context.stop = source.token();
  std::atomic<int> batches{0};
  EXPECT_EQ(ParallelFor(100, 1, context, Stage::kPlan, [&](int64_t, int64_t, int) { ++batches; }),
            StopReason::kTimeLimit);
  EXPECT_EQ(batches, 0);
  EXPECT_EQ(ParallelFor(0, 1, context, Stage::kPlan, [&](int64_t, int64_t, int) { ++batches; }),
            StopReason::kTimeLimit);
}

TEST(ParallelForTest, AStopAfterTheLastBatchIsNoStop) {
  StopSource source;
  Context context;
  context.stop = source.token();
  context.threads = 1;
  EXPECT_EQ(ParallelFor(5, 1, context, Stage::kPlan,
                        [&](int64_t begin, int64_t, int) {
                          if (begin == 4) source.Request(StopReason::kCancelled);
                        }),
            StopReason::kNone);
}

TEST(ParallelForTest, WhatABatchThrowsReachesTheCallerAndEndsTheLoop) {
  for (const int threads : {1, 2, 8}) {
    std::atomic<int> batches{0};
    const auto body = [&](int64_t begin, int64_t, int) {
      ++batches;
      if (begin == 3) throw std::runtime_error("boom");
    };
    // Years of batches: it returns because the loop ends.
    EXPECT_THROW(ParallelFor(int64_t{1} << 60, 1, threads, body), std::runtime_error);
    batches = 0;
    ParallelFor(3, 1, threads, body);  // the pool works on
    EXPECT_EQ(batches, 3);
  }
}

TEST(Lower, KeepsTheLeastOfWhatAllThreadsGive) {
  std::atomic<int64_t> least{5000};
  ParallelFor(1000, 1, 4, [&](int64_t begin, int64_t, int) { Lower(least, begin * 7 % 1000 + 3); });
  EXPECT_EQ(least, 3);
  Lower(least, 4);
  EXPECT_EQ(least, 3);
}

}  // namespace
}  // namespace spaid::kernels
