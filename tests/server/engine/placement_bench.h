// What the tests of placement share: everything behind the services, over a fake engine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/job_factory.h"
#include "tests/server/engine/matrices.h"
#include "tests/server/fake_engine.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {

using Devices = std::vector<kernels::DeviceInfo>;

// Everything behind the services, over a fake engine with these devices.
class Bench {
 public:
  // `max_devices`: that a build may be split over.
  explicit Bench(Devices devices, int max_devices = 1)
      : Bench(std::move(devices), [&] {
          EngineAdapterOptions options;
          options.max_devices = max_devices;
          return options;
        }()) {}
  // Threads and metrics of `with_options` are set here.
  Bench(Devices devices, EngineAdapterOptions with_options)
      : engine(std::move(devices)), adapter(engine, [&] {
          with_options.threads = 1;
          with_options.metrics = &metrics;
          return with_options;
        }()) {
    SetLogSink([](LogLevel, const std::string&) {});
    SchedulerOptions options;
    options.dispatch.devices.clear();
    for (size_t d = 0; d < adapter.device_names().size(); ++d) {
      options.dispatch.devices.push_back(
          {.name = adapter.device_names()[d], .slots = adapter.slots(d).count});
    }
    options.on_ended = [this](const std::shared_ptr<Job>& job) { jobs.Ended(job); };
    options.prepare = [this](size_t device) { return adapter.MeasureCopy(device); };
    options.probe = [this](size_t device, size_t slot) { return adapter.Probe(device, slot); };
    options.on_lost = [this](size_t device, const absl::Status&) { adapter.DropKept(device); };
    scheduler = std::make_unique<Scheduler>(options);
    job_factory =
        std::make_unique<JobFactory>(JobFactory::Parts{.adapter = &adapter,
                                                       .matrices = &matrices,
                                                       .preconditioners = &preconditioners,
                                                       .scheduler = scheduler.get(),
                                                       .jobs = &jobs,
                                                       .metrics = &metrics});
  }
  ~Bench() {
    engine.Release();
    scheduler.reset();
    SetLogSink(nullptr);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // [4 1; 0 d]: another d is another matrix on the same pattern.
  Stored<Matrix> Put(double d = 3) {
    kernels::CscMatrix raw = Upper();
    raw.values[2] = d;
    auto matrix = *adapter.Prepare(std::move(raw), kernels::Layout::kCsc, {});
    return *matrices.Put("t", matrix, matrix->bytes(), matrix->ContentKey());
  }
  absl::StatusOr<JobFactory::BuildTicket> Build(
      const Stored<Matrix>& a, v1::EngineKind kind = v1::ENGINE_KIND_STATIC_SPAI,
      v1::LocalSolver local_solver = v1::LOCAL_SOLVER_AUTO) {
    v1::PreconditionerSpec spec;
    spec.set_engine(kind);
    spec.mutable_static_spai()->set_local_solver(local_solver);
    return job_factory->StartBuild(
        {.tenant = "t", .matrix = a, .spec = spec, .field = "spec", .terms = {}});
  }
  // Builds to the end.
  v1::Preconditioner Built(const Stored<Matrix>& a,
                           v1::EngineKind kind = v1::ENGINE_KIND_STATIC_SPAI,
                           v1::LocalSolver local_solver = v1::LOCAL_SOLVER_AUTO) {
    auto ticket = Build(a, kind, local_solver);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok()) return {};
    AwaitEnd(ticket->job);
    EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
    const auto result = std::static_pointer_cast<const BuildOutcome>(ticket->job->result());
    return result == nullptr ? v1::Preconditioner() : ToProto(result->preconditioner);
  }
  std::string FailedBuild(const Stored<Matrix>& a) {
    auto ticket = Build(a);
    if (!ticket.ok()) return ReasonOf(ticket.status());
    AwaitEnd(ticket->job);
    return ReasonOf(ticket->job->error());
  }
  absl::StatusOr<JobFactory::SolveTicket> Solve(const Stored<Matrix>& a, v1::EngineKind kind,
                                                const std::string& tenant = "t",
                                                int block_size = 0) {
    JobFactory::SolveRequest request;
    request.tenant = tenant;
    request.matrix = a;
    request.spec.emplace().set_engine(kind);
    if (block_size > 0) {
      request.spec->mutable_jacobi()->set_block_size(block_size);
    } else {
      request.spec->mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_AUTO);
    }
    request.b.assign(2, 6.0);
    return job_factory->StartSolve(std::move(request));
  }
  v1::SolveDone Solved(const Stored<Matrix>& a, v1::EngineKind kind,
                       const std::string& tenant = "t") {
    auto ticket = Solve(a, kind, tenant);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok()) return {};
    AwaitEnd(ticket->job);
    EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
    const auto result = std::static_pointer_cast<const SolveOutcome>(ticket->job->result());
    return result == nullptr ? v1::SolveDone() : result->done;
  }

  // Solves on the device, and lets the matrix go.
  void SolveAndDelete(Stored<Matrix> a) {
    Solved(a, v1::ENGINE_KIND_NONE);
    EXPECT_TRUE(matrices.Delete("t", a.handle).ok());
  }

  FakeEngine engine;
  Metrics metrics;
  MatrixStore matrices{{.prefix = "matrices/",
                        .what = "matrix",
                        .limit_flag = "--matrix-store-bytes",
                        .max_bytes = 1 << 20,
                        .too_large_reason = reason::kMatrixTooLarge}};
  PreconditionerStore preconditioners{{.prefix = "preconditioners/",
                                       .what = "preconditioner",
                                       .limit_flag = "--preconditioner-store-bytes",
                                       .max_bytes = 1 << 20,
                                       .too_large_reason = reason::kBuildTooLarge}};
  JobTable jobs{JobTableOptions{}};
  EngineAdapter adapter;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<JobFactory> job_factory;
};

inline Devices CpuAndGpu() { return {FakeCpu(), FakeGpu(0)}; }

// n unknowns: long enough for a GPU where n is large.
inline Stored<Matrix> PutDiagonal(Bench& bench, int n) {
  auto matrix = *bench.adapter.Prepare(Diagonal(n), kernels::Layout::kCsc, {});
  return Stored<Matrix>{.handle = "large", .value = matrix, .existed = false};
}

}  // namespace spaid::server
