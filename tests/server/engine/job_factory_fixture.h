// Shared by tests of the job factory: one over the fake engine, with stores and a scheduler.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/job_factory.h"
#include "tests/server/engine/matrices.h"
#include "tests/server/fake_engine.h"
#include "tests/server/forged.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {

class JobFactoryTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
    Make();
  }
  void TearDown() override {
    scheduler_.reset();
    SetLogSink(nullptr);
  }
  void Make(int64_t max_queued = 10, int64_t max_build_bytes = 0,
            int64_t ladder_bytes = int64_t{1} << 30, int64_t max_lu_n = 10) {
    scheduler_.reset();
    adapter_ = std::make_unique<EngineAdapter>(
        engine_, EngineAdapterOptions{.threads = 1,
                                      .max_build_bytes = max_build_bytes,
                                      .ladder_bytes = ladder_bytes,
                                      .max_lu_n = max_lu_n,
                                      .metrics = &metrics_});
    SchedulerOptions options;
    options.dispatch.max_queued = max_queued;
    options.on_ended = [this](const std::shared_ptr<Job>& job) { jobs_.Ended(job); };
    scheduler_ = std::make_unique<Scheduler>(options);
    bench_ = std::make_unique<JobFactory>(JobFactory::Parts{.adapter = adapter_.get(),
                                                            .matrices = &matrices_,
                                                            .preconditioners = &preconditioners_,
                                                            .scheduler = scheduler_.get(),
                                                            .jobs = &jobs_,
                                                            .metrics = &metrics_});
  }
  Stored<Matrix> Put(kernels::CscMatrix raw, bool pattern_only = false,
                     const std::string& tenant = "t") {
    if (pattern_only) raw.values.clear();
    auto matrix =
        *adapter_->Prepare(std::move(raw), kernels::Layout::kCsc,
                           {.sort_and_sum = false, .pattern_only = pattern_only, .label = {}});
    return *matrices_.Put(tenant, matrix, matrix->bytes(), matrix->ContentKey(), {},
                          [&](const Matrix& stored) { return stored.SameContent(*matrix); });
  }
  // Another matrix of the same XXH3 digests.
  static kernels::CscMatrix Forged(kernels::CscMatrix a) {
    const std::vector<double> forged = SameXxh3(a.values);
    a.values.assign(forged.begin(), forged.end());
    return a;
  }
  static v1::PreconditionerSpec Spec(v1::EngineKind kind = v1::ENGINE_KIND_STATIC_SPAI) {
    v1::PreconditionerSpec spec;
    spec.set_engine(kind);
    return spec;
  }
  absl::StatusOr<JobFactory::BuildTicket> StartBuild(const Stored<Matrix>& a,
                                                     v1::PreconditionerSpec spec = Spec(),
                                                     JobFactory::Terms terms = {},
                                                     const std::string& tenant = "t") {
    return bench_->StartBuild({.tenant = tenant,
                               .matrix = a,
                               .spec = std::move(spec),
                               .field = "header.spec",
                               .terms = terms});
  }
  JobFactory::SolveRequest Solve(const Stored<Matrix>& a) {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = a;
    request.spec = Spec(v1::ENGINE_KIND_NONE);
    request.b.assign(static_cast<size_t>(a.value->n()), 6.0);
    return request;
  }
  // A solve whose first computation breaks down.
  absl::StatusOr<JobFactory::SolveTicket> StartSolveThatBreaks(v1::EngineKind kind) {
    JobFactory::SolveRequest request = Solve(Put(Diagonal(3)));
    request.spec = Spec(kind);
    engine_.break_solves = 1;
    return bench_->StartSolve(std::move(request));
  }
  static std::shared_ptr<const BuildOutcome> Built(const JobFactory::BuildTicket& ticket) {
    AwaitEnd(ticket.job);
    EXPECT_TRUE(ticket.job->error().ok()) << ticket.job->error();
    return std::static_pointer_cast<const BuildOutcome>(ticket.job->result());
  }
  static std::shared_ptr<const SolveOutcome> Solved(const JobFactory::SolveTicket& ticket) {
    AwaitEnd(ticket.job);
    EXPECT_TRUE(ticket.job->error().ok()) << ticket.job->error();
    return std::static_pointer_cast<const SolveOutcome>(ticket.job->result());
  }

  FakeEngine engine_;
  Metrics metrics_;
  MatrixStore matrices_{{.prefix = "matrices/",
                         .what = "matrix",
                         .limit_flag = "--matrix-store-bytes",
                         .max_bytes = 1 << 20,
                         .too_large_reason = reason::kMatrixTooLarge}};
  PreconditionerStore preconditioners_{{.prefix = "preconditioners/",
                                        .what = "preconditioner",
                                        .limit_flag = "--preconditioner-store-bytes",
                                        .max_bytes = 1 << 20,
                                        .too_large_reason = reason::kBuildTooLarge}};
  JobTable jobs_{JobTableOptions{}};
  std::unique_ptr<EngineAdapter> adapter_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<JobFactory> bench_;
};

}  // namespace spaid::server
