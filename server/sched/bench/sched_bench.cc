// Measures the scheduler's own time per job: no gRPC, no numerics, jobs that do nothing.
//
//   spaid_sched_bench [--benchmark_filter=EmptyJob] [--benchmark_out=FILE]
//
// Times are of the wall, a job's or a call's; `cpu_us` is what all threads of the process took of
// the cores for one job. Lines of the log are made and thrown away; metrics are recorded, but in
// EmptyJob with metrics:0.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/sched/job.h"
#include "server/sched/job_table.h"
#include "server/sched/scheduler.h"

namespace spaid::server {
namespace {

using benchmark::State;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Adds what the process takes of the cores from its making on, for each of a benchmark's jobs.
class CpuCounter {
 public:
  void Stop(State& state) const {
    state.counters["cpu_us"] =
        1e6 * (CpuSeconds() - begin_) / static_cast<double>(state.iterations());
  }

 private:
  const double begin_ = CpuSeconds();
};

// Opened once.
class Door {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// A scheduler with its table of jobs, as the daemon has them, and jobs of several tenants in turn,
// every class of priority among them.
class Bench {
 public:
  Bench(int tenants, int devices, int slots, int64_t depth, bool metrics)
      : table_({.max_ended = 1000}), tenants_(tenants), depth_(depth) {
    SetLogSink([](LogLevel, const std::string&) {});
    SchedulerOptions options;
    options.dispatch.devices.clear();
    for (int d = 0; d < devices; ++d) {
      options.dispatch.devices.push_back({.name = "gpu:" + std::to_string(d), .slots = slots});
    }
    options.dispatch.max_queued = 2 * depth + 1024;
    if (metrics) options.metrics = &metrics_;
    options.on_ended = [this](const std::shared_ptr<Job>& job) {
      table_.Ended(job);
      const std::lock_guard lock(mutex_);
      --live_;
      if (live_ < depth_) fewer_.notify_one();
    };
    scheduler_ = std::make_unique<Scheduler>(std::move(options));
  }
  ~Bench() {
    scheduler_.reset();
    SetLogSink(nullptr);
  }

  Scheduler& scheduler() { return *scheduler_; }

  // The next tenant's next job, of the next class.
  void Submit(double predicted_ms, JobWork run) {
    const auto turn = static_cast<int>(next_++);
    constexpr Priority kClasses[] = {Priority::kNormal, Priority::kInteractive, Priority::kNormal,
                                     Priority::kBulk};
    auto job = Job::Create({.tenant = "tenant-" + std::to_string(turn % tenants_),
                            .kind = v1::JOB_KIND_SOLVE,
                            .matrix = {},
                            .preconditioner = {},
                            .priority = kClasses[turn / tenants_ % 4]},
                           {}, RealClock());
    const JobWaiter waiter = *job->Attach({.detach = true, .deadline = {}});
    {
      const std::lock_guard lock(mutex_);
      ++live_;
    }
    table_.Add(job);
    const Work work{.what = predicted_ms > 20 ? "build" : "solve", .predicted_ms = predicted_ms};
    if (!scheduler_->Submit(job, work, std::move(run)).ok()) std::abort();
  }
  // Until fewer jobs are queued or run than `depth`.
  void AwaitRoom() {
    std::unique_lock lock(mutex_);
    fewer_.wait(lock, [this] { return live_ < depth_; });
  }
  void AwaitLive(int64_t count) {
    std::unique_lock lock(mutex_);
    fewer_.wait(lock, [&] { return live_ <= count; });
  }

 private:
  Metrics metrics_;
  JobTable table_;
  const int tenants_;
  const int64_t depth_;
  std::mutex mutex_;
  std::condition_variable fewer_;
  int64_t live_ = 0;
  uint64_t next_ = 0;
  std::unique_ptr<Scheduler> scheduler_;
};

absl::Status Nothing(Job&, const Assignment&) { return absl::OkStatus(); }

// One job from Submit to its end, in a queue that is kept `depth` long.
void EmptyJob(State& state) {
  const int devices = static_cast<int>(state.range(1));
  const int64_t depth = state.range(2);
  Bench bench(static_cast<int>(state.range(0)), devices, /*slots=*/1, depth, state.range(3) != 0);
  Door door;
  for (int64_t k = 0; k < depth; ++k) {
    bench.Submit(1, [&door](Job&, const Assignment&) {
      door.Await();
      return absl::OkStatus();
    });
  }
  door.Open();
  const CpuCounter cpu;
  for (auto _ : state) {
    bench.AwaitRoom();
    bench.Submit(1, Nothing);
  }
  cpu.Stop(state);
  state.SetItemsProcessed(state.iterations());
  bench.AwaitLive(0);
}
BENCHMARK(EmptyJob)
    ->ArgNames({"tenants", "devices", "queued", "metrics"})
    ->ArgsProduct({{1, 8, 64}, {1, 4}, {10, 1000, 10000}, {1}})
    ->Args({8, 1, 10, 0})
    ->Args({8, 1, 1000, 0})
    ->UseRealTime()
    ->MinTime(0.3)
    ->Unit(benchmark::kMicrosecond);

// The same of small jobs in a slot of their own, while a long job holds the first slot and others
// like it, `queued` in all, wait for that.
void SmallBesideLong(State& state) {
  const int64_t depth = state.range(1);
  Bench bench(static_cast<int>(state.range(0)), /*devices=*/1, /*slots=*/2, depth + 4, true);
  Door door;
  for (int64_t k = 0; k <= depth; ++k) {
    bench.Submit(10'000, [&door](Job&, const Assignment&) {
      door.Await();
      return absl::OkStatus();
    });
  }
  const CpuCounter cpu;
  for (auto _ : state) {
    bench.AwaitRoom();
    bench.Submit(1, Nothing);
  }
  cpu.Stop(state);
  state.SetItemsProcessed(state.iterations());
  door.Open();
  bench.AwaitLive(0);
}
BENCHMARK(SmallBesideLong)
    ->ArgNames({"tenants", "queued"})
    ->ArgsProduct({{1, 8, 64}, {10, 1000, 10000}})
    ->UseRealTime()
    ->MinTime(0.3)
    ->Unit(benchmark::kMicrosecond);

// Measures what a scrape of the metrics asks for while `queued` jobs wait and nothing starts.
void Load(State& state) {
  const int64_t depth = state.range(0);
  Bench bench(/*tenants=*/8, /*devices=*/1, /*slots=*/1, depth + 1, true);
  Door door;
  for (int64_t k = 0; k <= depth; ++k) {
    bench.Submit(1, [&door](Job&, const Assignment&) {
      door.Await();
      return absl::OkStatus();
    });
  }
  for (auto _ : state) benchmark::DoNotOptimize(bench.scheduler().load());
  door.Open();
  bench.AwaitLive(0);
}
BENCHMARK(Load)->ArgName("queued")->Arg(10)->Arg(1000)->Arg(10000)->Unit(benchmark::kMicrosecond);

// Measures the metrics of a job: a job of each kind asked for and ended, one call of each kind
// begun and ended, and a solve, as one solve of the daemon records them.
void RecordJob(State& state) {
  Metrics metrics;
  for (auto _ : state) {
    metrics.RpcStarted("MatrixService/UploadMatrix");
    metrics.BytesReceived(100'000);
    metrics.RpcEnded("MatrixService/UploadMatrix", "OK", "", 1e-3);
    metrics.RpcStarted("SolverService/Solve");
    metrics.BytesReceived(8'000);
    metrics.JobSubmitted("solve");
    metrics.BuildPhase("plan", 1e-3);
    metrics.BuildPhase("build", 1e-3);
    metrics.BuildPhase("assemble", 1e-3);
    metrics.SolveEnded("cg", "converged", 30, 1e-3);
    metrics.JobEnded("solve", "succeeded", "", 1e-3, 1e-3);
    metrics.BytesSent(8'000);
    metrics.RpcEnded("SolverService/Solve", "OK", "", 1e-3);
  }
}
BENCHMARK(RecordJob)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace spaid::server

BENCHMARK_MAIN();
