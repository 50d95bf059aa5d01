// A scheduler of one device on a clock that stands still, and jobs for it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/sched/job.h"
#include "server/sched/scheduler.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {

class SchedulerTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
  }
  void TearDown() override {
    scheduler_.reset();
    SetLogSink(nullptr);
  }
  void Make(int64_t max_queued = 10) {
    SchedulerOptions options;
    options.dispatch.max_queued = max_queued;
    options.clock = &clock_;
    // Tests turn the clock faster than a thread of a busy machine can notice a stop.
    options.stop_grace = std::chrono::hours(100'000);
    options.metrics = &metrics_;
    options.on_ended = [this](const std::shared_ptr<Job>& job) {
      std::lock_guard lock(mutex_);
      ended_.push_back(job->name());
    };
    scheduler_ = std::make_unique<Scheduler>(options);
  }
  std::shared_ptr<Job> NewJob(JobLimits limits = {}, v1::JobKind kind = v1::JOB_KIND_BUILD) {
    return Job::Create({.tenant = "t", .kind = kind, .matrix = {}, .preconditioner = {}}, limits,
                       clock_);
  }
  std::shared_ptr<Job> Submit(JobWork work, double predicted_ms = 100, JobLimits limits = {}) {
    auto job = NewJob(limits);
    const absl::Status status =
        scheduler_->Submit(job, {.predicted_ms = predicted_ms}, std::move(work));
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  static JobWork Nothing() {
    return [](Job&, const Assignment&) { return absl::OkStatus(); };
  }
  // The worker is busy with this until opened.
  std::shared_ptr<Job> Block(double predicted_ms = 100) {
    auto job = Submit(gate_.Work(), predicted_ms);
    gate_.AwaitBegun();
    return job;
  }
  // Ended as StopError(cause) says.
  static std::string EndReason(const std::shared_ptr<Job>& job) {
    AwaitEnd(job);
    return ReasonOf(job->error());
  }

  FakeClock clock_;
  Metrics metrics_;
  Gate gate_;
  std::mutex mutex_;
  std::vector<std::string> ended_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace spaid::server
