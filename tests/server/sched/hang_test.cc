// What hangs, and devices that are looked at after an error that nobody expected.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/sched/hang_watch.h"
#include "server/sched/job.h"
#include "server/sched/scheduler.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// --- HangWatch, by hand ---

// Ticks of 100 ms each, from `now` on; the threads that were found silent.
std::vector<size_t> Pass(HangWatch& watch, TimePoint* now, int ticks) {
  std::vector<size_t> hung;
  for (int i = 0; i < ticks; ++i) {
    *now += watch.tick();
    for (const HangWatch::Hung& found : watch.Tick(*now)) hung.push_back(found.thread);
  }
  return hung;
}

TEST(HangWatch, SilenceIsMeasuredAgainstThePredictionAndTheFloor) {
  HangWatch watch({.factor = 10, .floor = milliseconds(1600)});
  ASSERT_EQ(watch.tick(), milliseconds(100));
  TimePoint now{};
  EXPECT_FALSE(watch.watching());
  watch.Begin(0, nullptr, /*predicted_ms=*/1, now);
  watch.Begin(1, nullptr, /*predicted_ms=*/300, now);  // 3 s
  watch.Begin(2, nullptr, /*predicted_ms=*/1, now);
  watch.End(2);
  EXPECT_EQ(Pass(watch, &now, 15), std::vector<size_t>{});
  EXPECT_EQ(Pass(watch, &now, 1), std::vector<size_t>{0});
  EXPECT_TRUE(watch.watching());
  EXPECT_EQ(Pass(watch, &now, 13), std::vector<size_t>{});
  EXPECT_EQ(Pass(watch, &now, 1), std::vector<size_t>{1});
  EXPECT_FALSE(watch.watching()) << "each is told of once";
}

TEST(HangWatch, ASignOfLifeBeginsItAnew) {
  HangWatch watch({.factor = 1, .floor = milliseconds(1600)});
  TimePoint now{};
  bool alive = false;
  watch.Begin(
      0, [&] { return std::exchange(alive, false); }, 0, now);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Pass(watch, &now, 15), std::vector<size_t>{});
    alive = true;
    EXPECT_EQ(Pass(watch, &now, 1), std::vector<size_t>{});
  }
  EXPECT_EQ(Pass(watch, &now, 16), std::vector<size_t>{0});
}

TEST(HangWatch, AProcessThatWasStoppedHasNotBeenSilent) {
  HangWatch watch({.factor = 1, .floor = milliseconds(1600)});
  TimePoint now{};
  watch.Begin(0, nullptr, 0, now);
  now += seconds(3600);  // SIGSTOP ... SIGCONT
  EXPECT_TRUE(watch.Tick(now).empty());
  EXPECT_EQ(Pass(watch, &now, 13), std::vector<size_t>{}) << "two ticks for the hour";
  EXPECT_EQ(Pass(watch, &now, 1), std::vector<size_t>{0});
}

TEST(HangWatch, OffWatchesNobodyAndPredictionsHaveNoEnd) {
  HangWatch off({.factor = 0});
  off.Begin(0, nullptr, 0, TimePoint{});
  EXPECT_FALSE(off.watching());
  HangWatch watch({.factor = 1e6, .floor = milliseconds(1600)});
  TimePoint now{};
  watch.Begin(0, nullptr, /*predicted_ms=*/1e300, now);
  EXPECT_EQ(Pass(watch, &now, 100), std::vector<size_t>{});
}

// --- In the scheduler ---

// "cpu" with two slots and "gpu:0", on a fake clock; hung after 1.6 s.
class HangTest : public testing::Test {
 protected:
  static constexpr DeviceMask kCpu = DeviceBit(0), kGpu = DeviceBit(1);
  static constexpr milliseconds kTick{100};

  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
    options_.dispatch.devices = {{.name = "cpu", .slots = 2}, {.name = "gpu:0"}};
    options_.clock = &clock_;
    options_.metrics = &metrics_;
    options_.hang = {.factor = 10, .floor = milliseconds(1600)};
    options_.on_lost = [this](size_t device, const absl::Status&) {
      std::lock_guard lock(mutex_);
      lost_.push_back(device);
    };
  }
  void TearDown() override {
    if (!stuck_released_) stuck_.set_value();
    gate_.Open();
    scheduler_.reset();
    SetLogSink(nullptr);
  }
  void Make() { scheduler_ = std::make_unique<Scheduler>(options_); }
  std::shared_ptr<Job> Submit(DeviceMask devices, JobWork work, double predicted_ms = 1,
                              DeviceMask fallback = 0, int max_devices = 1) {
    auto job =
        Job::Create({.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}},
                    {}, clock_);
    const absl::Status status = scheduler_->Submit(job,
                                                   {.predicted_ms = predicted_ms,
                                                    .devices = devices,
                                                    .fallback = fallback,
                                                    .max_devices = max_devices},
                                                   std::move(work));
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  static JobWork Nothing() {
    return [](Job&, const Assignment&) { return absl::OkStatus(); };
  }
  // Begins, and comes back when the test says so: deaf to stops.
  JobWork Stuck() {
    return [this, released = stuck_future_](Job& job, const Assignment&) -> absl::Status {
      begun_ = true;
      released.wait();
      job.SetOutcomes({v1::RhsOutcome()});  // too late
      return absl::OkStatus();
    };
  }
  void AwaitBegun() {
    while (!begun_) std::this_thread::yield();
  }
  void ReleaseStuck() {
    stuck_released_ = true;
    stuck_.set_value();
  }
  void PassUntil(const std::function<bool()>& done) {
    while (!done()) {
      clock_.Advance(kTick);
      // Who is about to say that he lives may have no core just now.
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  FakeClock clock_;
  Metrics metrics_;
  Gate gate_;
  std::promise<void> stuck_;
  std::shared_future<void> stuck_future_ = stuck_.get_future().share();
  bool stuck_released_ = false;
  std::atomic<bool> begun_{false};
  std::mutex mutex_;
  std::vector<size_t> lost_;
  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(HangTest, AJobWithoutASignOfLifeLosesItsDevice) {
  Make();
  auto hangs = Submit(kGpu, Stuck());
  AwaitBegun();
  auto alone = Submit(kGpu, Nothing()), falls_back = Submit(kGpu, Nothing(), 1, kCpu);
  PassUntil([&] { return hangs->ended(); });
  EXPECT_EQ(ReasonOf(hangs->error()), "DEVICE_LOST");
  EXPECT_EQ(hangs->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(hangs->error().message().find("gpu:0 hung: a job showed"), std::string::npos)
      << hangs->error();
  EXPECT_EQ(hangs->state(), v1::JOB_STATE_FAILED);
  EXPECT_GE(hangs->RunTime(), milliseconds(1600));
  EXPECT_EQ(scheduler_->healthy(), kCpu);
  AwaitEnd(alone);
  EXPECT_EQ(ReasonOf(alone->error()), "DEVICE_LOST");
  AwaitEnd(falls_back);
  EXPECT_TRUE(falls_back->error().ok());
  EXPECT_TRUE(scheduler_->hangs());
  // A drain does not wait for it.
  EXPECT_TRUE(scheduler_->Drain(clock_.Now()));
  // It may come back all the same: then its thread can be joined, and nobody is told anything new.
  const int64_t events = hangs->Snapshot().event_count();
  ReleaseStuck();
  while (scheduler_->hangs()) std::this_thread::yield();
  EXPECT_EQ(scheduler_->load().running, 0);
  EXPECT_EQ(hangs->state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(hangs->Snapshot().event_count(), events);
  EXPECT_EQ(hangs->Snapshot().outcomes_size(), 0);
  const std::string text = metrics_.Serialize();
  EXPECT_NE(text.find("cause=\"hung\""), std::string::npos) << text;
  std::lock_guard lock(mutex_);
  EXPECT_EQ(lost_, std::vector<size_t>{1}) << "told once";
}

TEST_F(HangTest, ALongJobThatShowsLifeIsLeftAlone) {
  Make();
  auto job = Submit(kGpu, Stuck());
  AwaitBegun();
  for (int i = 0; i < 200; ++i) {
    job->ReportResidual(0, i, 0.5);
    clock_.Advance(kTick);
    job->ReportProgress(v1::STAGE_BUILD, 0, 10);  // no further than before, and yet alive
    clock_.Advance(kTick);
  }
  EXPECT_FALSE(job->ended());
  EXPECT_EQ(scheduler_->healthy(), kCpu | kGpu);
  PassUntil([&] { return job->ended(); });
  EXPECT_EQ(scheduler_->healthy(), kCpu);
}

TEST_F(HangTest, TheCpuCanHangToo) {
  Make();
  auto hangs = Submit(kCpu, Stuck());
  AwaitBegun();
  hangs->RequestStop(StopCause::kCancelled);  // which it does not hear
  PassUntil([&] { return hangs->ended(); });
  EXPECT_EQ(ReasonOf(hangs->error()), "CANCELLED") << "as it was asked to";
  EXPECT_EQ(scheduler_->healthy(), kGpu);
}

TEST_F(HangTest, AllDevicesOfASplitJobAreLost) {
  options_.dispatch.devices = {{.name = "gpu:0"}, {.name = "gpu:1"}, {.name = "gpu:2"}};
  Make();
  auto hangs = Submit(kAnyDevice, Stuck(), /*predicted_ms=*/100, 0, /*max_devices=*/2);
  AwaitBegun();
  PassUntil([&] { return hangs->ended(); });
  EXPECT_EQ(scheduler_->healthy(), DeviceBit(2));
}

TEST_F(HangTest, OffWaitsForEver) {
  options_.hang.factor = 0;
  Make();
  auto job = Submit(kGpu, Stuck());
  AwaitBegun();
  for (int i = 0; i < 1000; ++i) clock_.Advance(seconds(10));
  auto other = Submit(kCpu, Nothing());
  AwaitEnd(other);
  EXPECT_FALSE(job->ended());
  ReleaseStuck();
  AwaitEnd(job);
  EXPECT_TRUE(job->error().ok());
}

TEST_F(HangTest, AMeasurementThatHangsHoldsUpNobodyForEver) {
  std::atomic<int> prepared{0};
  options_.prepare = [this](size_t device) -> absl::Status {
    if (device == 1) {
      begun_ = true;
      stuck_future_.wait();
    }
    return absl::OkStatus();
  };
  options_.on_prepared = [&] { ++prepared; };
  Make();
  AwaitBegun();
  auto job = Submit(kCpu, Nothing());
  EXPECT_FALSE(scheduler_->prepared());
  EXPECT_EQ(job->state(), v1::JOB_STATE_QUEUED);
  PassUntil([&] { return scheduler_->prepared(); });
  AwaitEnd(job);
  EXPECT_TRUE(job->error().ok());
  EXPECT_EQ(scheduler_->healthy(), kCpu);
  ReleaseStuck();
  while (scheduler_->hangs() || prepared == 0) std::this_thread::yield();
  EXPECT_EQ(prepared, 1);
}

TEST_F(HangTest, AMeasurementThatFindsTheDeviceDeadLosesIt) {
  options_.prepare = [](size_t device) -> absl::Status {
    if (device == 0) return absl::OkStatus();
    return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone; send it again");
  };
  Make();
  while (!scheduler_->prepared()) std::this_thread::yield();
  EXPECT_EQ(scheduler_->healthy(), kCpu);
}

TEST_F(HangTest, AProbeThatHangsLosesTheDevice) {
  options_.probe = [this](size_t device, size_t) -> absl::Status {
    if (device == 1) stuck_future_.wait();
    return absl::OkStatus();
  };
  options_.probe_every = seconds(10);
  Make();
  PassUntil([&] { return scheduler_->healthy() == kCpu; });
  auto job = Submit(kCpu, Nothing());
  AwaitEnd(job);
  EXPECT_TRUE(job->error().ok());
}

// --- Errors that nobody expected ---

TEST_F(HangTest, AnUnknownErrorHasTheDeviceLookedAtBeforeTheNextJob) {
  std::promise<void> look;
  std::atomic<int> looks{0};
  std::atomic<size_t> slot{99};
  options_.probe = [&, go = look.get_future().share()](size_t device, size_t at) -> absl::Status {
    EXPECT_EQ(device, 1U);
    ++looks;
    slot = at;
    go.wait();
    return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "dead; send it again");
  };
  options_.dispatch.devices[1].slots = 2;
  Make();
  auto fails = Submit(kGpu, [](Job&, const Assignment& at) -> absl::Status {
    EXPECT_LT(at.slot, 2U);
    return MakeError(absl::StatusCode::kInternal, "CUDA_ERROR", "cudaErrorUnknown");
  });
  while (looks == 0) std::this_thread::yield();
  // The other slot is free, and yet takes nothing.
  auto next = Submit(kGpu, Nothing()), other = Submit(kCpu, Nothing());
  AwaitEnd(other);
  EXPECT_EQ(next->state(), v1::JOB_STATE_QUEUED);
  look.set_value();
  AwaitEnd(fails);
  EXPECT_EQ(ReasonOf(fails->error()), "DEVICE_LOST") << "which is what it died of";
  AwaitEnd(next);
  EXPECT_EQ(ReasonOf(next->error()), "DEVICE_LOST");
  EXPECT_EQ(looks, 1);
  EXPECT_LT(slot, 2U);
}

TEST_F(HangTest, ADeviceThatAnswersGoesOn) {
  std::atomic<int> looks{0};
  options_.probe = [&](size_t, size_t) {
    ++looks;
    return absl::OkStatus();
  };
  Make();
  auto fails = Submit(kGpu, [](Job&, const Assignment&) -> absl::Status {
    return MakeError(absl::StatusCode::kInternal, "CUDA_ERROR", "cudaErrorInvalidValue");
  });
  AwaitEnd(fails);
  EXPECT_EQ(ReasonOf(fails->error()), "CUDA_ERROR");
  auto next = Submit(kGpu, Nothing());
  AwaitEnd(next);
  EXPECT_TRUE(next->error().ok());
  EXPECT_EQ(looks, 1);
  auto expected = Submit(kGpu, [](Job&, const Assignment&) -> absl::Status {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", "its own fault");
  });
  AwaitEnd(expected);
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace spaid::server
