// Values that are sent to a GPU ahead: what room they take there, and how they end.
#include "server/engine/values_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "server/base/metrics.h"
#include "server/engine/adapter.h"
#include "tests/server/engine/matrices.h"
#include "tests/server/fake_engine.h"

namespace spaid::server {
namespace {

// A quarter of a fake GPU, 250 bytes, is for what is kept there.
class ValuesAheadTest : public ::testing::Test {
 protected:
  std::shared_ptr<Matrix> Put(int64_t n) {
    auto matrix = *adapter_.Prepare(Diagonal(n), kernels::Layout::kCsc, {});
    matrix->pattern->ValuesGoTo(0);
    return matrix;
  }
  std::shared_ptr<ValuesAhead> Begin(const Matrix& a) {
    return adapter_.BeginAhead("t", a.pattern);
  }

  FakeEngine engine_{{FakeGpu(0)}};
  Metrics metrics_;
  EngineAdapter adapter_{engine_, {.threads = 1, .least_ahead_bytes = 80, .metrics = &metrics_}};
};

TEST_F(ValuesAheadTest, TakeFreeRoomAlone) {
  const auto a = Put(15), b = Put(16);
  auto first = Begin(*a), second = Begin(*b);
  ASSERT_TRUE(first && second) << "120 and 128 bytes";
  EXPECT_EQ(Begin(*Put(10)), nullptr) << "nothing goes for it";
  first->Come(a->values.data(), 15);
  engine_.WaitForAhead(120);
  first.reset();
  EXPECT_EQ(engine_.ahead_held, 0);
  EXPECT_NE(Begin(*Put(10)), nullptr) << "its room is free again";
  EXPECT_EQ(Begin(*Put(32)), nullptr) << "256 bytes";
}

TEST_F(ValuesAheadTest, AreWorthTheirWay) {
  const auto few = Put(9), never = Put(11);
  EXPECT_EQ(Begin(*few), nullptr);
  never->pattern->ValuesGoTo(StoredPattern::kNowhere);
  EXPECT_EQ(Begin(*never), nullptr);
}

TEST_F(ValuesAheadTest, WithWhatIsKeptTheyGo) {
  const auto a = Put(10);
  auto ahead = Begin(*a);
  ahead->Come(a->values.data(), 10);
  EXPECT_EQ(engine_.ahead_held, 80);
  ASSERT_NE(ahead->copy(), nullptr);
  EXPECT_EQ(adapter_.DropKept(0), 1);
  EXPECT_EQ(engine_.ahead_held, 0);
  EXPECT_EQ(ahead->copy(), nullptr);
  ahead->Come(a->values.data(), 10);
  EXPECT_EQ(ahead->copy(), nullptr) << "it is over";
  EXPECT_EQ(a->pattern->values_go_to(), StoredPattern::kNowhere);
}

// The thread that looks at arriving values, an eviction, and the end of the upload.
TEST_F(ValuesAheadTest, MayBeDroppedAtAnyTime) {
  constexpr int kRounds = 100;
  const auto a = Put(30);
  for (int round = 0; round < kRounds; ++round) {
    a->pattern->ValuesGoTo(0);
    auto ahead = Begin(*a);
    ASSERT_NE(ahead, nullptr);
    std::latch all(3);
    std::thread sends([&, mine = ahead]() mutable {
      all.arrive_and_wait();
      for (int64_t count = 1; count <= 30; ++count) mine->Come(a->values.data(), count);
      mine.reset();
    });
    std::thread drops([&] {
      all.arrive_and_wait();
      adapter_.DropKept(0);
    });
    all.arrive_and_wait();
    ahead.reset();
    sends.join();
    drops.join();
    EXPECT_EQ(engine_.ahead_held, 0);
  }
}

}  // namespace
}  // namespace spaid::server
