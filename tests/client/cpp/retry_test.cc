#include "client/cpp/retry.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace spaid::internal {
namespace {

using std::chrono::milliseconds;

Error Unavailable() {
  Error error;
  error.code = Code::kUnavailable;
  error.reason = "CONNECTION_LOST";
  return error;
}

Error Busy(int retry_ms) {
  Error error;
  error.code = Code::kResourceExhausted;
  error.reason = "QUEUE_FULL";
  error.retry_after = milliseconds(retry_ms);
  return error;
}

TEST(Retry, DoublesFromTheFirstDelayUpToTheLongest) {
  const RetryPolicy policy{.max_attempts = 100};
  const double top = 1.0;
  EXPECT_EQ(NextDelay(policy, 1, 1, Unavailable(), Repeat::kSafe, top), milliseconds(100));
  EXPECT_EQ(NextDelay(policy, 2, 1, Unavailable(), Repeat::kSafe, top), milliseconds(200));
  EXPECT_EQ(NextDelay(policy, 4, 1, Unavailable(), Repeat::kSafe, top), milliseconds(800));
  EXPECT_EQ(NextDelay(policy, 9, 1, Unavailable(), Repeat::kSafe, top), milliseconds(5000));
  EXPECT_EQ(NextDelay(policy, 90, 1, Unavailable(), Repeat::kSafe, top), milliseconds(5000));
  EXPECT_EQ(NextDelay(policy, 1, 1, Unavailable(), Repeat::kSafe, 0.0), milliseconds(50));
}

TEST(Retry, EndsWithTheLastAttempt) {
  const RetryPolicy policy{.max_attempts = 3};
  EXPECT_TRUE(NextDelay(policy, 2, 1, Unavailable(), Repeat::kSafe, 0));
  EXPECT_FALSE(NextDelay(policy, 3, 1, Unavailable(), Repeat::kSafe, 0));
}

TEST(Retry, NeverBeforeTheServerSays) {
  const RetryPolicy policy;
  const auto delay = NextDelay(policy, 1, 1, Busy(700), Repeat::kSafe, 0.5);
  ASSERT_TRUE(delay);
  EXPECT_GE(*delay, milliseconds(700));
  EXPECT_LE(*delay, milliseconds(800));
}

TEST(Retry, ALongWaitIsTheCallersToDecide) {
  EXPECT_FALSE(NextDelay(RetryPolicy{}, 1, 1, Busy(31'000), Repeat::kSafe, 0));
}

TEST(Retry, ExhaustedWithoutADelayIsFinal) {
  Error error = Busy(1);
  error.retry_after.reset();  // MATRIX_TOO_LARGE: it will not get smaller
  EXPECT_FALSE(NextDelay(RetryPolicy{}, 1, 1, error, Repeat::kSafe, 0));
}

TEST(Retry, OtherCodesAreFinal) {
  for (int code = 0; code <= 16; ++code) {
    Error error;
    error.code = static_cast<Code>(code);
    if (error.code == Code::kUnavailable) continue;
    EXPECT_FALSE(NextDelay(RetryPolicy{}, 1, 1, error, Repeat::kSafe, 0)) << code;
  }
}

TEST(Retry, WhatMayHaveEndedTheServerIsTriedOnceMoreAlone) {
  const RetryPolicy policy;
  EXPECT_TRUE(NextDelay(policy, 1, 1, Unavailable(), Repeat::kSafe, 0));
  EXPECT_FALSE(NextDelay(policy, 2, 2, Unavailable(), Repeat::kSafe, 0));
  EXPECT_TRUE(NextDelay(policy, 3, 3, Unavailable(), Repeat::kFollow, 0));
  // It did not reach a server, or was refused: not of what was sent.
  Error unreachable = Unavailable();
  unreachable.reason = "UNREACHABLE";
  EXPECT_TRUE(NextDelay(policy, 2, 1, unreachable, Repeat::kSafe, 0));
  Error draining = Unavailable();
  draining.retry_after = milliseconds(5);
  EXPECT_TRUE(NextDelay(policy, 2, 1, draining, Repeat::kSafe, 0));
}

TEST(Retry, WhatIsNotIdempotentIsRepeatedOnlyIfItNeverBegan) {
  EXPECT_FALSE(NextDelay(RetryPolicy{}, 1, 1, Unavailable(), Repeat::kOnlyIfRefused, 0));
  Error draining = Unavailable();
  draining.retry_after = milliseconds(5);
  EXPECT_TRUE(NextDelay(RetryPolicy{}, 1, 1, draining, Repeat::kOnlyIfRefused, 0));
  Error unreachable = Unavailable();
  unreachable.reason = "UNREACHABLE";
  EXPECT_TRUE(NextDelay(RetryPolicy{}, 1, 1, unreachable, Repeat::kOnlyIfRefused, 0));
  EXPECT_TRUE(NextDelay(RetryPolicy{}, 1, 1, Busy(5), Repeat::kOnlyIfRefused, 0));
}

TEST(Retry, JitterIsInRange) {
  for (int i = 0; i < 1000; ++i) {
    const double jitter = Jitter();
    ASSERT_GE(jitter, 0);
    ASSERT_LT(jitter, 1);
  }
}

TEST(Retry, AStopEndsTheSleep) {
  std::stop_source source;
  const auto start = std::chrono::steady_clock::now();
  std::jthread other([&] { source.request_stop(); });
  EXPECT_FALSE(SleepUnlessStopped(std::chrono::hours(1), source.get_token()));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_TRUE(SleepUnlessStopped(milliseconds(1), std::stop_token()));
}

}  // namespace
}  // namespace spaid::internal
