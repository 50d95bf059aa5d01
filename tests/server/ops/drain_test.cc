#include "server/ops/drain.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "server/ops/signals.h"
#include "server/ops/watchdog.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

struct Recorder {
  std::vector<std::string> calls;
  bool hurry = false, worked = true, streamed = true;
  TimePoint deadline;

  DrainSteps Steps() {
    return {.not_ready = [this] { calls.push_back("not_ready"); },
            .wait =
                [this](milliseconds grace) {
                  calls.push_back("wait " + std::to_string(grace.count()));
                  return hurry;
                },
            .refuse_new = [this] { calls.push_back("refuse_new"); },
            .finish_work =
                [this](TimePoint d) {
                  calls.push_back("finish_work");
                  deadline = d;
                  return worked;
                },
            .finish_streams =
                [this](TimePoint) {
                  calls.push_back("finish_streams");
                  return streamed;
                },
            .shut_down = [this] { calls.push_back("shut_down"); }};
  }
};

TEST(Drain, GoesInOrder) {
  Recorder r;
  const TimePoint before = RealClock().Now();
  EXPECT_TRUE(Drain({.grace = milliseconds(7), .deadline = milliseconds(60'000)}, r.Steps()));
  EXPECT_EQ(r.calls, (std::vector<std::string>{"not_ready", "wait 7", "refuse_new", "finish_work",
                                               "finish_streams", "shut_down"}));
  EXPECT_GE(r.deadline, before + milliseconds(60'000));
}

TEST(Drain, ASecondSignalHurries) {
  Recorder r;
  r.hurry = true;
  EXPECT_TRUE(Drain({.grace = milliseconds(7), .deadline = milliseconds(60'000)}, r.Steps()));
  EXPECT_LE(r.deadline, RealClock().Now());
}

TEST(Drain, SaysWhatDidNotFinish) {
  Recorder r;
  r.worked = false;
  EXPECT_FALSE(Drain({}, r.Steps()));
  r.worked = true;
  r.streamed = false;
  EXPECT_FALSE(Drain({}, r.Steps()));
  EXPECT_EQ(r.calls.back(), "shut_down");  // even so
}

TEST(ShutdownSignals, AreWaitedFor) {
  ShutdownSignals signals;
  int hung_up = 0;
  const auto count = [&] { ++hung_up; };
  EXPECT_FALSE(signals.WaitFor(milliseconds(0), count));
  kill(getpid(), SIGTERM);
  const auto on = [] { return true; };
  EXPECT_EQ(signals.Wait(milliseconds(10'000), on, count), "SIGTERM");
  EXPECT_EQ(signals.Wait(
                milliseconds(1), [] { return false; }, count),
            "");
  EXPECT_EQ(hung_up, 0);
  kill(getpid(), SIGHUP);
  EXPECT_EQ(signals.Wait(
                milliseconds(1), [&] { return hung_up == 0; }, count),
            "");
  EXPECT_EQ(hung_up, 1);
  kill(getpid(), SIGHUP);
  EXPECT_FALSE(signals.WaitFor(milliseconds(1), count));  // a drain serves, too
  EXPECT_EQ(hung_up, 2);
  kill(getpid(), SIGINT);
  EXPECT_TRUE(signals.WaitFor(milliseconds(10'000), [] {}));
}

TEST(ShutdownSignals, AreTakenWhateverWasInherited) {
  // A library's thread, which any signal may reach.
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) std::this_thread::yield();
  });
  sigset_t all;
  sigfillset(&all);
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  ShutdownSignals signals;
  for (const int signal : {SIGTERM, SIGINT}) {
    kill(getpid(), signal);
    EXPECT_EQ(signals.Wait(
                  milliseconds(10'000), [] { return false; }, [] {}),
              signal == SIGTERM ? "SIGTERM" : "SIGINT");
    pthread_kill(other.native_handle(), signal);
    EXPECT_TRUE(signals.WaitFor(milliseconds(10'000), [] {}));
  }
  EXPECT_FALSE(signals.WaitFor(milliseconds(0), [] {}));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  over = true;
  other.join();
}

TEST(WatchdogDeathTest, BitesOnlyWhenItIsLeftAlone) {
  { const Watchdog watchdog(std::chrono::seconds(60), "nothing"); }
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const Watchdog watchdog(std::chrono::seconds(0), "the test");
        pause();
      },
      testing::ExitedWithCode(1), "shutdown_hangs.*the test");
}

}  // namespace
}  // namespace spaid::server
