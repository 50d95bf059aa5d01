// Many threads that submit, watch, cancel, leave and join at once: for ThreadSanitizer, and to hold
// the one invariant that matters to all of them: every job ends exactly once, and says so to
// everyone.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/base/status.h"
#include "server/sched/coalescer.h"
#include "server/sched/job.h"
#include "server/sched/job_table.h"
#include "server/sched/scheduler.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {
namespace {

constexpr int kThreads = 4, kJobsEach = 150;

std::atomic<int> yields{0};

// A short computation that polls its stop flag, and its turn, as the kernels do.
absl::Status Compute(Job& job, JobTurn* turn = nullptr) {
  auto stop = std::make_shared<std::atomic<bool>>(false);
  job.SetStopHook([stop](StopCause) { stop->store(true); });
  for (int i = 0; i < 50; ++i) {
    if (turn != nullptr && i % 10 == 5 && turn->Over()) {
      ++yields;
      turn->Yield();
    }
    if (stop->load()) return absl::CancelledError("stopped");
    job.ReportProgress(v1::STAGE_BUILD, i, 50);
    job.ReportResidual(0, i, 1.0 / (i + 1));
    std::this_thread::yield();
  }
  return absl::OkStatus();
}

TEST(SchedStressTest, EveryJobEndsOnce) {
  SetLogSink([](LogLevel, const std::string&) {});
  std::atomic<int> ended{0}, accepted{0};
  JobTable table({.max_ended = 50});
  JobCoalescer coalescer;
  SchedulerOptions options;
  options.dispatch.devices = {{.name = "cpu"}, {.name = "cpu:1"}};
  options.dispatch.max_queued = 16;
  options.on_ended = [&](const std::shared_ptr<Job>& job) {
    ++ended;
    table.Ended(job);
  };
  {
    Scheduler scheduler(options);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        for (int i = 0; i < kJobsEach; ++i) {
          const auto submit = [&]() -> absl::StatusOr<JobCoalescer::Ticket> {
            JobLimits limits;
            if (random() % 4 == 0) limits.max_queue = std::chrono::microseconds(random() % 2000);
            if (random() % 4 == 0) limits.max_run = std::chrono::microseconds(random() % 500 + 1);
            JobCoalescer::Ticket ticket;
            ticket.job = Job::Create({.tenant = "t" + std::to_string(t % 2),
                                      .kind = v1::JOB_KIND_BUILD,
                                      .matrix = {},
                                      .preconditioner = {}},
                                     limits, RealClock());
            ticket.waiter = *ticket.job->Attach({.detach = random() % 8 == 0, .deadline = {}});
            table.Add(ticket.job);
            const absl::Status status =
                scheduler.Submit(ticket.job, {.predicted_ms = 0.1},
                                 [](Job& job, const Assignment&) { return Compute(job); });
            if (!status.ok()) {
              table.Remove(*ticket.job);
              return status;
            }
            ++accepted;
            return ticket;
          };
          auto ticket = coalescer.Join(
              std::to_string(random() % 8), {}, [] { return false; }, submit);
          if (!ticket.ok()) {
            EXPECT_EQ(ReasonOf(ticket.status()), "QUEUE_FULL");
            continue;
          }
          switch (random() % 4) {
            case 0:
              ticket->waiter.Leave();
              break;
            case 1:
              ticket->job->RequestStop(StopCause::kCancelled);
              break;
            default:
              break;
          }
          (void)table.List("t0", {.state = v1::JOB_STATE_UNSPECIFIED}, {});
          (void)scheduler.Where(*ticket->job);
          if (random() % 2) continue;  // leaves
          AwaitEnd(ticket->job);
          const JobEvents events = ticket->job->Read(1, 10'000);
          EXPECT_TRUE(events.end);
          for (size_t e = 0; e < events.events.size(); ++e) {
            EXPECT_EQ(events.events[e].number(), static_cast<int64_t>(e) + 1);
            EXPECT_EQ(events.events[e].has_finished(), e + 1 == events.events.size());
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(scheduler.Drain(RealClock().Now() + std::chrono::seconds(60)));
    EXPECT_EQ(ended.load(), accepted.load());
  }
  EXPECT_GT(accepted.load(), 0);
  EXPECT_LE(table.size(), 50);
  SetLogSink(nullptr);
}

TEST(SchedStressTest, DrainWhileOthersSubmit) {
  SetLogSink([](LogLevel, const std::string&) {});
  std::atomic<int> ended{0}, accepted{0};
  SchedulerOptions options;
  options.on_ended = [&](const std::shared_ptr<Job>&) { ++ended; };
  {
    Scheduler scheduler(options);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        while (!stop) {
          auto job = Job::Create(
              {.tenant = "t", .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, {},
              RealClock());
          const absl::Status status = scheduler.Submit(
              job, {.predicted_ms = 0.1}, [](Job& j, const Assignment&) { return Compute(j); });
          if (status.ok()) {
            ++accepted;
          } else if (ReasonOf(status) == "DRAINING") {
            return;
          }
        }
      });
    }
    while (accepted < 20) std::this_thread::yield();
    EXPECT_TRUE(scheduler.Drain(RealClock().Now() + std::chrono::milliseconds(20)));
    stop = true;
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(scheduler.load().queued, 0);
  }
  EXPECT_EQ(ended.load(), accepted.load());
  SetLogSink(nullptr);
}

TEST(SchedStressTest, DevicesAreLostWhileOthersSubmit) {
  SetLogSink([](LogLevel, const std::string&) {});
  std::atomic<int> ended{0}, accepted{0}, lost{0}, looks{0};
  SchedulerOptions options;
  options.dispatch.devices = {{.name = "cpu"}, {.name = "gpu:0"}, {.name = "gpu:1"}};
  options.on_ended = [&](const std::shared_ptr<Job>&) { ++ended; };
  options.on_lost = [&](size_t, const absl::Status&) { ++lost; };
  options.probe_every = std::chrono::milliseconds(1);
  options.probe = [&](size_t device, size_t) -> absl::Status {
    if (device != 1 || ++looks < 20) return absl::OkStatus();
    return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone when idle");
  };
  {
    Scheduler scheduler(options);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        for (int i = 0; i < kJobsEach; ++i) {
          auto job = Job::Create(
              {.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}}, {},
              RealClock());
          const DeviceMask devices = 1 + random() % 7;
          const bool loses = t == 0 && i == kJobsEach / 2;
          const absl::Status status = scheduler.Submit(
              job,
              {.predicted_ms = 0.1,
               .devices = loses ? DeviceBit(2) : devices,
               .fallback = random() % 2 == 0 ? DeviceBit(0) : 0},
              [=](Job& own, const Assignment& at) -> absl::Status {
                if (loses && at.device == "gpu:1") {
                  return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone");
                }
                return Compute(own);
              });
          (void)scheduler.Where(*job);
          (void)scheduler.load();
          if (!status.ok()) {
            EXPECT_EQ(ReasonOf(status), "DEVICE_LOST");
            continue;
          }
          ++accepted;
          if (random() % 2 == 0) AwaitEnd(job);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(scheduler.Drain(RealClock().Now() + std::chrono::seconds(60)));
    EXPECT_EQ(ended.load(), accepted.load());
    EXPECT_FALSE(scheduler.DeviceStatus(2).ok());
    EXPECT_TRUE(scheduler.DeviceStatus(0).ok());
  }
  EXPECT_GE(lost.load(), 1);
  SetLogSink(nullptr);
}

// Several devices and slots, classes and tenants; the jobs of a storm are cancelled by name, left,
// joined, given deadlines and limits, by all threads at once; one device fails in the middle, and
// at the end a drain comes while others still submit.
class SchedStormTest : public testing::Test {
 protected:
  static constexpr int kStormThreads = 8, kStormJobs = 250;

  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
    SchedulerOptions options;
    options.dispatch.slice = std::chrono::milliseconds(0);  // each check may be a turn's end
    options.dispatch.max_paused = 64;
    options.dispatch.devices = {{.name = "cpu", .slots = 3},
                                {.name = "gpu:0", .slots = 2, .memory_bytes = 1000},
                                {.name = "gpu:1", .memory_bytes = 1000}};
    options.dispatch.max_queued = 10'000;
    options.dispatch.small_ms = 1;
    options.dispatch.max_passed_over = std::chrono::milliseconds(5);
    options.dispatch.tenant_weights = {{"t1", 3.0}};
    options.on_ended = [this](const std::shared_ptr<Job>&) { ++ended_; };
    scheduler_ = std::make_unique<Scheduler>(options);
  }
  void TearDown() override {
    scheduler_.reset();
    SetLogSink(nullptr);
  }

  struct Submitted {
    std::shared_ptr<Job> job;
    JobWaiter waiter;
    absl::Status status;
  };
  Submitted Submit(std::mt19937& random, JobLimits limits, std::optional<TimePoint> deadline,
                   JobWork run) {
    Submitted submitted;
    submitted.job = Job::Create({.tenant = "t" + std::to_string(random() % 4),
                                 .kind = v1::JOB_KIND_BUILD,
                                 .matrix = {},
                                 .preconditioner = {},
                                 .priority = static_cast<Priority>(random() % 3)},
                                limits, RealClock());
    submitted.waiter = *submitted.job->Attach({.detach = false, .deadline = deadline});
    Work work{.predicted_ms = random() % 3 == 0 ? 5.0 : 0.1};
    work.devices = 1 + random() % 7;
    work.fallback = DeviceBit(0);
    if ((work.devices & DeviceBit(0)) == 0) {
      work.device_bytes = static_cast<int64_t>(random() % 600);
      if (random() % 4 == 0) work.max_devices = 2;
    }
    work.yields = random() % 4 != 0;
    submitted.status = scheduler_->Submit(submitted.job, std::move(work), std::move(run));
    if (submitted.status.ok()) ++accepted_;
    return submitted;
  }
  // Each of them has ended, with one event that says so, behind all others.
  static void ExpectEnded(const std::shared_ptr<Job>& job) {
    AwaitEnd(job);
    const JobEvents events = job->Read(1, 10'000);
    ASSERT_TRUE(events.end);
    for (size_t e = 0; e < events.events.size(); ++e) {
      ASSERT_EQ(events.events[e].number(), static_cast<int64_t>(e) + 1);
      ASSERT_EQ(events.events[e].has_finished(), e + 1 == events.events.size());
    }
  }
  void ExpectIdle() {
    EXPECT_TRUE(scheduler_->Drain(RealClock().Now() + std::chrono::seconds(60)));
    const Scheduler::Load load = scheduler_->load();
    EXPECT_EQ(load.queued, 0);
    EXPECT_EQ(load.running, 0);
    EXPECT_EQ(ended_.load(), accepted_.load());
  }
  template <class Run>
  static void AtOnce(const Run& run) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kStormThreads; ++t) threads.emplace_back([&run, t] { run(t); });
    for (std::thread& thread : threads) thread.join();
  }

  std::atomic<int> ended_{0}, accepted_{0};
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedStormTest, CancelledByManyInEveryState) {
  std::mutex mutex;
  std::vector<std::shared_ptr<Job>> known;  // to all threads
  std::atomic<int> told{0}, stopped{0};
  AtOnce([&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    std::vector<Submitted> own;
    std::vector<JobSubscription> watched;
    for (int i = 0; i < kStormJobs; ++i) {
      own.push_back(Submit(random, {}, {},
                           [](Job& job, const Assignment& at) { return Compute(job, at.turn); }));
      ASSERT_TRUE(own.back().status.ok()) << own.back().status;
      const auto bell = std::make_shared<std::atomic<bool>>(false);
      Job* const raw = own.back().job.get();
      watched.push_back(own.back().job->Subscribe(1, [bell, raw, &told] {
        if (raw->ended() && !bell->exchange(true)) ++told;
      }));
      std::shared_ptr<Job> other;
      {
        const std::lock_guard lock(mutex);
        known.push_back(own.back().job);
        other = known[random() % known.size()];
      }
      switch (random() % 4) {
        case 0:
          if (other->RequestStop(StopCause::kCancelled)) ++stopped;
          break;
        case 1:
          own[random() % own.size()].waiter.Leave();
          break;
        case 2:  // somebody in a hurry joins, and leaves at once
          (void)other->Attach(
              {.detach = false, .deadline = {}, .priority = static_cast<Priority>(random() % 3)});
          break;
        default:
          (void)scheduler_->Where(*other);
          (void)scheduler_->jobs(5);
      }
    }
    for (const Submitted& submitted : own) ExpectEnded(submitted.job);
  });
  ExpectIdle();
  EXPECT_EQ(accepted_, kStormThreads * kStormJobs);
  EXPECT_EQ(told, accepted_) << "everyone who watches, once";
  EXPECT_GT(yields, 0);
  EXPECT_GT(stopped, 0);
}

TEST_F(SchedStormTest, EveryDeadlineEndsItsOwnJob) {
  std::atomic<int> late{0}, done{0};
  AtOnce([&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    std::vector<std::pair<Submitted, std::string>> own;
    for (int i = 0; i < kStormJobs; ++i) {
      JobLimits limits;
      std::optional<TimePoint> deadline;
      const auto soon = std::chrono::microseconds(1 + random() % 3000);
      std::string reason;
      switch (random() % 4) {
        case 0:
          limits.max_queue = soon;
          reason = "MAX_QUEUE";
          break;
        case 1:
          limits.max_run = soon / 10;
          reason = "MAX_RUN";
          break;
        case 2:
          deadline = RealClock().Now() + soon;
          reason = "DEADLINE";
          break;
        default:
          break;
      }
      own.emplace_back(Submit(random, limits, deadline,
                              [](Job& job, const Assignment& at) { return Compute(job, at.turn); }),
                       reason);
    }
    for (const auto& [submitted, reason] : own) {
      if (!submitted.status.ok()) {
        EXPECT_EQ(ReasonOf(submitted.status), "DEADLINE_INFEASIBLE");
        EXPECT_EQ(reason, "DEADLINE");
        continue;
      }
      ExpectEnded(submitted.job);
      if (submitted.job->state() == v1::JOB_STATE_SUCCEEDED) {
        ++done;
      } else {
        EXPECT_EQ(ReasonOf(submitted.job->error()), reason);
        ++late;
      }
    }
  });
  ExpectIdle();
  EXPECT_GT(late, 0);
  EXPECT_GT(done, 0);
}

TEST_F(SchedStormTest, ADeviceFailsAndADrainComesInTheMiddle) {
  std::atomic<int> lost{0}, drained{0}, done{0}, runs{0};
  std::atomic<bool> failing{false}, told{false};
  std::binary_semaphore in_the_middle{0};
  const auto tell = [&] {
    if (!told.exchange(true)) in_the_middle.release();
  };
  std::thread drain;
  std::once_flag drain_once;
  AtOnce([&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    std::vector<Submitted> own;
    for (int i = 0; i < kStormJobs; ++i) {
      own.push_back(Submit(random, {}, {}, [&](Job& job, const Assignment& at) -> absl::Status {
        const int run = ++runs;
        if (run > 400 && failing) tell();
        if (run > 200 && at.device == "gpu:0") {
          failing = true;
          return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone");
        }
        return Compute(job, at.turn);
      }));
      if (i == kStormJobs / 2 && t == 0) {
        std::call_once(drain_once, [&] {
          drain = std::thread([&] {
            in_the_middle.acquire();
            EXPECT_TRUE(scheduler_->Drain(RealClock().Now() + std::chrono::milliseconds(20)));
          });
        });
      }
    }
    for (const Submitted& submitted : own) {
      if (!submitted.status.ok()) {
        EXPECT_EQ(ReasonOf(submitted.status), "DRAINING");
        continue;
      }
      ExpectEnded(submitted.job);
      const std::string why = ReasonOf(submitted.job->error());
      ++(why == "DEVICE_LOST" ? lost : why == "DRAINING" ? drained : done);
      EXPECT_TRUE(why.empty() || why == "DEVICE_LOST" || why == "DRAINING") << why;
    }
  });
  tell();
  drain.join();
  ExpectIdle();
  EXPECT_EQ(lost + drained + done, accepted_);
  EXPECT_FALSE(scheduler_->DeviceStatus(1).ok());
  EXPECT_LE(lost, 2) << "what ran on its slots: all else had somewhere to go";
  EXPECT_GE(lost, 1);
  EXPECT_GT(done, 200);
}

}  // namespace
}  // namespace spaid::server
