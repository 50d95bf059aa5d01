// Many threads that submit, watch, cancel, leave and join at once: for ThreadSanitizer, and to hold
// the one invariant that matters to all of them: every job ends exactly once, and says so to
// everyone.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
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

// A short computation that polls its stop flag as the kernels do.
absl::Status Compute(Job& job) {
  auto stop = std::make_shared<std::atomic<bool>>(false);
  job.SetStopHook([stop](StopCause) { stop->store(true); });
  for (int i = 0; i < 50; ++i) {
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
  options.probe = [&](size_t device) -> absl::Status {
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

}  // namespace
}  // namespace spaid::server
