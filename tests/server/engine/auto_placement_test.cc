// What engine AUTO is told of the solve to come, and where what it chose is built.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <utility>

#include "tests/server/engine/placement_bench.h"

namespace spaid::server {
namespace {

v1::PreconditionerSpec Auto() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_AUTO);
  return spec;
}

// A solve of so many right-hand sides with AUTO, to its end.
v1::SolveDone Solved(Bench& bench, const Stored<Matrix>& a, int rhs_count = 1) {
  JobFactory::SolveRequest request;
  request.tenant = "t";
  request.matrix = a;
  request.spec = Auto();
  request.solve.rhs_count = rhs_count;
  request.solve.options.method = kernels::Method::kBicgstab;
  request.b.assign(static_cast<size_t>(a.value->n() * rhs_count), 1.0);
  auto ticket = bench.job_factory->StartSolve(std::move(request));
  EXPECT_TRUE(ticket.ok()) << ticket.status();
  if (!ticket.ok()) return {};
  AwaitEnd(ticket->job);
  EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
  const auto result = std::static_pointer_cast<const SolveOutcome>(ticket->job->result());
  return result == nullptr ? v1::SolveDone() : result->done;
}

// What AUTO was asked to count with for it.
kernels::PreconditionerSpec AskedOf(Bench& bench, const Stored<Matrix>& a, int rhs_count = 1) {
  Solved(bench, a, rhs_count);
  return bench.engine.resolved().spec;
}

TEST(AutoPlacementTest, AutoCountsWithWhereTheSolveRuns) {
  Bench bench(CpuAndGpu());
  bench.engine.SolveOnGpus();
  const Stored<Matrix> medium = PutDiagonal(bench, 1000), large = PutDiagonal(bench, 200'000);
  for (const auto& [a, rhs_count, backend] : {std::tuple{bench.Put(3), 1, kernels::Backend::kCpu},
                                              {medium, 1, kernels::Backend::kCpu},
                                              {medium, 8, kernels::Backend::kCuda},
                                              {large, 1, kernels::Backend::kCuda}}) {
    const kernels::PreconditionerSpec asked = AskedOf(bench, a, rhs_count);
    EXPECT_EQ(asked.backend, backend) << a.value->n() << ", " << rhs_count;
    EXPECT_EQ(asked.n_rhs, rhs_count);
    EXPECT_EQ(asked.method, kernels::Method::kBicgstab);
  }
  // Of a build alone nothing is known but A.
  ASSERT_TRUE(bench.job_factory->EstimateBuild("t", *large.value, Auto(), "spec").ok());
  EXPECT_EQ(bench.engine.resolved().spec.backend, kernels::Backend::kCuda);
  EXPECT_EQ(bench.engine.resolved().spec.n_rhs, 1);
  EXPECT_EQ(bench.engine.resolved().spec.method, kernels::Method::kAuto);
  // What is named is built for nobody in particular.
  v1::PreconditionerSpec named;
  named.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  ASSERT_TRUE(bench.job_factory->EstimateBuild("t", *large.value, named, "spec").ok());
  EXPECT_EQ(bench.engine.resolved().spec.backend, kernels::Backend::kCpu);

  bench.engine.BreakDevice(1);
  EXPECT_FALSE(bench.adapter.Probe(1, 0).ok());
  EXPECT_EQ(AskedOf(bench, large).backend, kernels::Backend::kCpu);
  Bench cpu({FakeCpu()});
  EXPECT_EQ(AskedOf(cpu, PutDiagonal(cpu, 200'000)).backend, kernels::Backend::kCpu);
  Bench gpu({FakeGpu(0)});
  gpu.engine.SolveOnGpus();
  EXPECT_EQ(AskedOf(gpu, gpu.Put(3)).backend, kernels::Backend::kCuda);
}

TEST(AutoPlacementTest, WhatAutoChoseForAGpuIsBuiltThere) {
  Bench bench(CpuAndGpu());
  bench.engine.SolveOnGpus();
  bench.engine.auto_choice = kernels::EngineKind::kStaticSpai;
  bench.engine.predicted_ms = 0.25;  // of the build, which alone would be the CPU's
  const Stored<Matrix> large = PutDiagonal(bench, 200'000);
  const auto placed = [&](const Stored<Matrix>& a, const v1::PreconditionerSpec& spec) {
    const auto estimate = bench.job_factory->EstimateBuild("t", *a.value, spec, "spec");
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return estimate->choice.placement();
  };
  v1::PreconditionerSpec named;
  named.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_EQ(placed(large, named).rfind("cpu: ", 0), 0u);
  EXPECT_EQ(placed(bench.Put(3), Auto()).rfind("cpu: ", 0), 0u);
  EXPECT_EQ(placed(large, Auto()).rfind("gpu:0: ", 0), 0u);
  const v1::SolveDone done = Solved(bench, large);
  EXPECT_EQ(done.choice().engine(), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_EQ(done.device(), "gpu:0");
  // Where it fits.
  bench.engine.SetDeviceBytes(1001);
  EXPECT_NE(placed(large, Auto()).find("cpu: the build may take 1001 bytes"), std::string::npos);
}

}  // namespace
}  // namespace spaid::server
