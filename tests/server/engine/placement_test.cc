// Where builds and solves run, and what becomes of them when a device fails.
#include <gtest/gtest.h>

#include "kernels/engine/cost.h"
#include "server/engine/resolved_build.h"
#include "tests/server/engine/placement_bench.h"

namespace spaid::server {
namespace {

TEST(PlacementTest, LargeBuildsGoToTheGpuSmallOnesToTheCpu) {
  Bench bench(CpuAndGpu());
  bench.engine.predicted_ms = 1000;
  const v1::Preconditioner large = bench.Built(bench.Put(3));
  EXPECT_EQ(large.device(), "gpu:0");
  EXPECT_NE(large.choice().placement().find("gpu:0: predicted at 1e+03 ms on the CPU"),
            std::string::npos)
      << large.choice().placement();
  bench.engine.predicted_ms = 0.25;
  const v1::Preconditioner small = bench.Built(bench.Put(4));
  EXPECT_EQ(small.device(), "cpu");
  EXPECT_NE(small.choice().placement().find("cpu: predicted at 0.25 ms"), std::string::npos)
      << small.choice().placement();
  bench.engine.predicted_ms = 1000;
  EXPECT_EQ(bench.Built(bench.Put(5), v1::ENGINE_KIND_JACOBI).device(), "cpu");
  EXPECT_EQ(bench.Built(bench.Put(6), v1::ENGINE_KIND_STATIC_SPAI, v1::LOCAL_SOLVER_QR).device(),
            "gpu:0");
  // A solve that builds is where the build is; any other is the CPU's.
  const v1::SolveDone builds = bench.Solved(bench.Put(7), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_EQ(builds.device(), "gpu:0");
  EXPECT_NE(builds.choice().placement(), "");
  EXPECT_EQ(bench.Solved(bench.Put(7), v1::ENGINE_KIND_STATIC_SPAI).device(), "cpu")
      << "what it needs is there already";
  EXPECT_EQ(bench.Solved(bench.Put(8), v1::ENGINE_KIND_JACOBI).device(), "cpu");
  EXPECT_EQ(bench.Solved(bench.Put(8), v1::ENGINE_KIND_NONE).device(), "cpu");
}

TEST(PlacementTest, TimingsAreSplitAndSayRebuild) {
  Bench bench(CpuAndGpu());
  const v1::Timings first = bench.Built(bench.Put(3)).build_timings();
  EXPECT_EQ(first.host_to_device_ms(), 3) << "of the plan and of the build";
  EXPECT_EQ(first.device_to_host_ms(), 3);
  EXPECT_EQ(first.assemble_ms(), 0.5);
  EXPECT_FALSE(first.rebuild());
  const v1::Timings second = bench.Built(bench.Put(4)).build_timings();
  EXPECT_TRUE(second.rebuild());
  EXPECT_EQ(second.plan_ms(), 0);
  EXPECT_EQ(second.host_to_device_ms(), 1);
  EXPECT_EQ(bench.engine.plans, 1);
  // Plans are a device's.
  bench.engine.predicted_ms = 1;
  const v1::Preconditioner on_cpu = bench.Built(bench.Put(5));
  EXPECT_EQ(on_cpu.device(), "cpu");
  EXPECT_FALSE(on_cpu.build_timings().rebuild());
  EXPECT_EQ(on_cpu.build_timings().host_to_device_ms(), 0);
}

TEST(PlacementTest, WithoutOtherDevicesThereIsNothingToChoose) {
  Bench cpu({FakeCpu()});
  const v1::Preconditioner there = cpu.Built(cpu.Put());
  EXPECT_EQ(there.device(), "cpu");
  EXPECT_EQ(there.choice().placement(), "");
  // A GPU alone does the work of the host, too.
  Bench gpu({FakeGpu(0)});
  gpu.engine.predicted_ms = 0.25;
  EXPECT_EQ(gpu.Built(gpu.Put(3)).device(), "gpu:0");
  EXPECT_EQ(gpu.Built(gpu.Put(4), v1::ENGINE_KIND_JACOBI).device(), "gpu:0");
  EXPECT_EQ(gpu.Solved(gpu.Put(5), v1::ENGINE_KIND_NONE).device(), "gpu:0");
}

TEST(PlacementTest, ABuildThatDoesNotFitTheDevice) {
  Bench bench(CpuAndGpu());
  bench.engine.SetDeviceBytes(1001);
  const v1::Preconditioner placed = bench.Built(bench.Put());
  EXPECT_EQ(placed.device(), "cpu");
  EXPECT_NE(placed.choice().placement().find("1001 bytes of device memory, over the limit of 1000"),
            std::string::npos)
      << placed.choice().placement();

  Bench gpu({FakeGpu(0)});
  gpu.engine.SetDeviceBytes(1001);
  const auto refused = gpu.Build(gpu.Put());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()), "BUILD_TOO_LARGE");
  EXPECT_EQ(MetaOf(refused.status(), "actual"), "1001");
  EXPECT_EQ(MetaOf(refused.status(), "limit"), "1000");
  EXPECT_NE(refused.status().message().find("--device-memory"), std::string::npos);
  EXPECT_EQ(ReasonOf(gpu.Solve(gpu.Put(), v1::ENGINE_KIND_STATIC_SPAI).status()),
            "BUILD_TOO_LARGE");
  // An estimate is not refused: it says so.
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  const auto estimate = gpu.job_factory->EstimateBuild("t", *gpu.Put().value, spec, "spec");
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->figures.device_bytes, 1001);
  EXPECT_NE(estimate->choice.placement().find("1000"), std::string::npos);
}

TEST(PlacementTest, ABuildThatFitsTheDeviceInWaves) {
  Bench bench(CpuAndGpu());
  bench.engine.predicted_ms = 1000;
  bench.engine.SetDeviceBytes(3000, 1000);
  const v1::Preconditioner placed = bench.Built(bench.Put());
  EXPECT_EQ(placed.device(), "gpu:0");
  EXPECT_EQ(
      placed.choice().placement(),
      "gpu:0: all at once may take 3000 bytes of device memory, over the limit of 1000 "
      "(--device-memory); where the gather tables find no room, they are made in waves, which "
      "takes about twice as long; predicted at 1e+03 ms on the CPU");
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  const auto estimate = bench.job_factory->EstimateBuild("t", *bench.Put(4).value, spec, "spec");
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->figures.device_bytes, 3000);
  EXPECT_EQ(estimate->figures.device_bytes_min, 1000);
  EXPECT_EQ(estimate->choice.placement(), placed.choice().placement());
  // A solve that builds goes the same way.
  EXPECT_EQ(bench.Solved(bench.Put(5), v1::ENGINE_KIND_STATIC_SPAI).device(), "gpu:0");
  // Waves cost time: the GPU pays later.
  bench.engine.predicted_ms = 1.4 * kernels::kGpuWorthMs;
  EXPECT_EQ(bench.Built(bench.Put(6)).device(), "cpu");
  bench.engine.SetDeviceBytes(1000, 500);
  const v1::Preconditioner whole = bench.Built(bench.Put(7));
  EXPECT_EQ(whole.device(), "gpu:0");
  EXPECT_EQ(whole.choice().placement().find("waves"), std::string::npos)
      << whole.choice().placement();

  Bench gpu({FakeGpu(0)});
  gpu.engine.SetDeviceBytes(3000, 1000);
  const v1::Preconditioner there = gpu.Built(gpu.Put());
  EXPECT_EQ(there.device(), "gpu:0");
  EXPECT_NE(there.choice().placement().find("in waves"), std::string::npos)
      << there.choice().placement();
}

TEST(PlacementTest, ABuildThatDoesNotFitTheDeviceInWavesEither) {
  Bench bench(CpuAndGpu());
  bench.engine.SetDeviceBytes(3000, 1001);
  const v1::Preconditioner placed = bench.Built(bench.Put());
  EXPECT_EQ(placed.device(), "cpu");
  EXPECT_EQ(placed.choice().placement(),
            "cpu: the build may take 1001 bytes of device memory, over the limit of 1000 "
            "(--device-memory), even with its tables made in waves");
  Bench gpu({FakeGpu(0)});
  gpu.engine.SetDeviceBytes(3000, 1001);
  const auto refused = gpu.Build(gpu.Put());
  EXPECT_EQ(ReasonOf(refused.status()), "BUILD_TOO_LARGE");
  EXPECT_EQ(MetaOf(refused.status(), "actual"), "1001");
  EXPECT_EQ(MetaOf(refused.status(), "limit"), "1000");
  EXPECT_NE(refused.status().message().find("even with its tables made in waves; use a lower"),
            std::string::npos)
      << refused.status();
}

TEST(PlacementTest, WhatIsReservedIsWithinTheLimit) {
  const FakeEngine engine({FakeCpu(), FakeGpu(0)});
  const EngineAdapter adapter(engine, {.threads = 1});
  ResolvedBuild build;
  build.spec.engine = kernels::EngineKind::kStaticSpai;
  kernels::BuildEstimate estimate{.device_bytes = 3000, .device_bytes_min = 600};
  estimate.predicted_ms = 1000;
  EXPECT_EQ(adapter.Place(build, estimate)->device_bytes, 1000);
  estimate.device_bytes = 900;
  EXPECT_EQ(adapter.Place(build, estimate)->device_bytes, 900);
  estimate.predicted_ms = 0.1;
  EXPECT_EQ(adapter.Place(build, estimate)->device_bytes, 0) << "the CPU's";
}

// Multigrid with options that no GPU builds.
TEST(PlacementTest, WhatNoGpuBuildsIsTheHosts) {
  const FakeEngine engine({FakeCpu(), FakeGpu(0)});
  const EngineAdapter adapter(engine, {.threads = 1});
  ResolvedBuild build;
  build.spec.engine = kernels::EngineKind::kAmg;
  kernels::BuildEstimate estimate;
  estimate.predicted_ms = 1000;
  const auto host = adapter.Place(build, estimate);
  EXPECT_TRUE(host->host_alone);
  EXPECT_FALSE(host->on_gpu);
  EXPECT_NE(host->why.find("cpu: multigrid with classical coarsening"), std::string::npos)
      << host->why;
  estimate.device_bytes = estimate.device_bytes_min = 900;
  estimate.predicted_device_ms = 10;
  EXPECT_TRUE(adapter.Place(build, estimate)->on_gpu);
  EXPECT_FALSE(adapter.Place(build, estimate)->host_alone);
  // Too large for any: the CPU's, or where there is none the host's of a GPU.
  estimate.device_bytes = estimate.device_bytes_min = 1001;
  const std::string why = adapter.Place(build, estimate)->why;
  EXPECT_EQ(why.find("cpu: the build may take 1001 bytes of device memory, over"), 0u) << why;
  const FakeEngine alone({FakeGpu(0)});
  const auto its_host = EngineAdapter(alone, {.threads = 1}).Place(build, estimate);
  EXPECT_TRUE(its_host.ok() && its_host->host_alone && !its_host->on_gpu);
  EXPECT_EQ(its_host->why, "the host of a GPU: " + why.substr(5));
}

TEST(PlacementTest, EstimatesSayWhereAndHowMuch) {
  Bench bench(CpuAndGpu());
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  const auto a = bench.Put();
  const auto large = bench.job_factory->EstimateBuild("t", *a.value, spec, "spec");
  EXPECT_EQ(large->figures.device_bytes, 100);
  EXPECT_EQ(large->choice.placement().rfind("gpu:0", 0), 0u);
  bench.engine.predicted_ms = 1;
  const auto small = bench.job_factory->EstimateBuild("t", *a.value, spec, "spec");
  EXPECT_EQ(small->figures.device_bytes, 0);
  EXPECT_EQ(small->figures.device_bytes_min, 0);
  EXPECT_EQ(small->choice.placement().rfind("cpu", 0), 0u);
}

TEST(PlacementTest, OutOfDeviceMemoryDropsPlansAndTriesOnceMore) {
  Bench bench(CpuAndGpu());
  bench.Built(bench.Put(3));
  EXPECT_EQ(bench.adapter.plan_cache().entries, 1);
  bench.engine.out_of_memory = 1;
  const v1::Preconditioner second = bench.Built(bench.Put(4));
  EXPECT_EQ(second.device(), "gpu:0");
  EXPECT_TRUE(second.build_timings().rebuild()) << "its own plan was in its hands";
  EXPECT_EQ(bench.adapter.plan_cache().entries, 0);
  bench.engine.out_of_memory = 2;
  EXPECT_EQ(bench.FailedBuild(bench.Put(5)), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(bench.scheduler->healthy(), DeviceMask{3}) << "a full device is not a lost one";
  EXPECT_EQ(bench.Built(bench.Put(6)).device(), "gpu:0");
}

TEST(PlacementTest, PlansOnADeviceAreBoundedByItsMemory) {
  Bench bench(CpuAndGpu());
  bench.engine.SetDeviceBytes(501);  // more than half of the device
  bench.Built(bench.Put(3));
  EXPECT_EQ(bench.adapter.plan_cache().entries, 0);
  EXPECT_FALSE(bench.Built(bench.Put(4)).build_timings().rebuild());
}

TEST(PlacementTest, CopiesOnADeviceAreBoundedByItsMemory) {
  Bench bench(CpuAndGpu());
  // A quarter of the device takes two.
  std::vector<std::string> names;
  for (const double d : {3.0, 4.0, 5.0}) {
    const v1::Preconditioner built = bench.Built(bench.Put(d));
    EXPECT_EQ(built.device(), "gpu:0");
    EXPECT_EQ(built.device_bytes(), 100);
    names.push_back(built.name());
  }
  const auto kept = [&](size_t i) {
    auto found = bench.preconditioners.Get("t", names[i]);
    EXPECT_TRUE(found.ok()) << found.status();
    return ToProto(*found).device_bytes();
  };
  EXPECT_EQ(kept(0), 0) << "the host's copy serves on";
  EXPECT_EQ(kept(1), 100);
  EXPECT_EQ(kept(2), 100);
  // One that is deleted makes room.
  ASSERT_TRUE(bench.preconditioners.Delete("t", names[2]).ok());
  names.push_back(bench.Built(bench.Put(6)).name());
  EXPECT_EQ(kept(1), 100);
  EXPECT_EQ(kept(3), 100);
  // All of them go when memory is wanted, or lost.
  bench.engine.out_of_memory = 1;
  names.push_back(bench.Built(bench.Put(7)).name());
  EXPECT_EQ(kept(1), 0);
  EXPECT_EQ(kept(3), 0);
  EXPECT_EQ(kept(4), 100);
  bench.adapter.DropKept(1);
  EXPECT_EQ(kept(4), 0);
  EXPECT_EQ(bench.Built(bench.Put(8), v1::ENGINE_KIND_JACOBI).device_bytes(), 0);
}

TEST(PlacementTest, WhatIsKeptSendsNoBuildIntoWaves) {
  Bench bench(CpuAndGpu());
  bench.engine.plans_in_waves = 1;
  bench.Built(bench.Put(3));
  EXPECT_EQ(bench.engine.plans, 1) << "nothing was in its way";
  bench.engine.plans_in_waves = 1;
  bench.Built(bench.Put(3), v1::ENGINE_KIND_STATIC_SPAI, v1::LOCAL_SOLVER_QR);
  EXPECT_EQ(bench.engine.plans, 3) << "once more, in the room of the first plan and its M";
  EXPECT_EQ(bench.adapter.plan_cache().entries, 1);
}

TEST(PlacementTest, ALostDeviceFailsItsJobAndTheOthersLiveOn) {
  Bench bench(CpuAndGpu());
  bench.Built(bench.Put(3));
  bench.engine.HoldBuilds();
  auto running = bench.Build(bench.Put(4));
  ASSERT_TRUE(running.ok());
  bench.engine.WaitForBuilds(2);
  auto queued = bench.Build(bench.Put(5));  // for the GPU, but the CPU will do
  ASSERT_TRUE(queued.ok());
  bench.engine.BreakDevice(1);
  bench.engine.Release();
  AwaitEnd(running->job);
  EXPECT_EQ(ReasonOf(running->job->error()), "DEVICE_LOST");
  EXPECT_EQ(running->job->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(bench.scheduler->healthy(), DeviceMask{1});
  EXPECT_EQ(ReasonOf(bench.scheduler->DeviceStatus(1)), "DEVICE_LOST");
  AwaitEnd(queued->job);
  EXPECT_TRUE(queued->job->error().ok()) << queued->job->error();
  const auto result = std::static_pointer_cast<const BuildOutcome>(queued->job->result());
  EXPECT_EQ(result->preconditioner.value->device, "cpu");
  EXPECT_EQ(result->preconditioner.value->choice.placement(),
            "cpu: the GPU failed while the build waited for it");
  EXPECT_EQ(bench.adapter.plan_cache().entries, 1) << "the CPU's, none of the lost device";
  const v1::Preconditioner next = bench.Built(bench.Put(6));
  EXPECT_EQ(next.device(), "cpu");
  EXPECT_EQ(next.choice().placement(), "cpu: gpu:0 has failed");
}

TEST(PlacementTest, WithoutTheCpuQueuedJobsFailWithTheDevice) {
  Bench bench({FakeGpu(0)});
  bench.engine.HoldBuilds();
  auto running = bench.Build(bench.Put(3));
  bench.engine.WaitForBuilds(1);
  auto queued = bench.Build(bench.Put(4));
  auto solve = bench.Solve(bench.Put(5), v1::ENGINE_KIND_NONE);
  ASSERT_TRUE(running.ok() && queued.ok() && solve.ok());
  bench.engine.BreakDevice(0);
  bench.engine.Release();
  for (const auto& job : {running->job, queued->job, solve->job}) {
    AwaitEnd(job);
    EXPECT_EQ(ReasonOf(job->error()), "DEVICE_LOST");
  }
  EXPECT_EQ(bench.scheduler->healthy(), DeviceMask{0});
  EXPECT_EQ(ReasonOf(bench.Build(bench.Put(6)).status()), "DEVICE_LOST");
  EXPECT_EQ(ReasonOf(bench.Solve(bench.Put(6), v1::ENGINE_KIND_NONE).status()), "DEVICE_LOST");
  EXPECT_EQ(bench.engine.solves, 0);
}

TEST(PlacementTest, SeveralGpusShareTheWork) {
  Bench bench({FakeGpu(0), FakeGpu(1)});
  bench.engine.HoldBuilds();
  auto first = bench.Build(bench.Put(3)), second = bench.Build(bench.Put(4));
  ASSERT_TRUE(first.ok() && second.ok());
  bench.engine.WaitForBuilds(2);  // both at once
  EXPECT_EQ(bench.engine.builds_on(0), 1);
  EXPECT_EQ(bench.engine.builds_on(1), 1);
  bench.engine.BreakDevice(0);
  bench.engine.Release();
  AwaitEnd(first->job);
  AwaitEnd(second->job);
  EXPECT_NE(first->job->error().ok(), second->job->error().ok());
  EXPECT_EQ(bench.Built(bench.Put(5)).device(), "gpu:1");
}

TEST(SolvePlacementTest, MatricesAndPreconditionersStayOnTheGpuForTheNextSolve) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  const Stored<Matrix> a = bench.Put(3);
  for (const int solves : {1, 2, 3}) {
    EXPECT_EQ(bench.Solved(a, v1::ENGINE_KIND_NONE).device(), "gpu:0");
    EXPECT_EQ(bench.engine.placements, 1) << solves;
    EXPECT_EQ(bench.engine.solves_on(0), solves);
  }
  EXPECT_EQ(bench.Solved(a, v1::ENGINE_KIND_JACOBI).device(), "gpu:0");
  EXPECT_EQ(bench.engine.placements, 2) << "M";
  EXPECT_TRUE(bench.Solved(a, v1::ENGINE_KIND_JACOBI).timings().reused());
  EXPECT_EQ(bench.engine.placements, 2);
  EXPECT_EQ(bench.engine.placed, 2);
  // A quarter of the memory is theirs: a third one sends the least recently used away.
  bench.Solved(bench.Put(4), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.placements, 3);
  EXPECT_EQ(bench.engine.placed, 2);
}

TEST(SolvePlacementTest, WhatADeletedMatrixLeftGoesWithTheNextOne) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  bench.SolveAndDelete(bench.Put(3));
  bench.Solved(PutDiagonal(bench, 2), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.placements, 2);
  EXPECT_EQ(bench.engine.replaced, 0) << "its pattern is another one";
  EXPECT_EQ(bench.engine.placed, 1);
}

TEST(SolvePlacementTest, TheValuesOfTheNextStepTakeThePlaceOfTheLast) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  for (const int step : {0, 1, 2}) {
    bench.SolveAndDelete(bench.Put(3 + step));
    EXPECT_EQ(bench.engine.placements, 1);
    EXPECT_EQ(bench.engine.replaced, step);
    EXPECT_EQ(bench.engine.placed, 1);
  }
  // A layout that does not serve them goes.
  bench.engine.refuse_to_replace = 1;
  const Stored<Matrix> kept = bench.Put(9);
  bench.Solved(kept, v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.placements, 2);
  EXPECT_EQ(bench.engine.placed, 1);
  // A matrix that is there keeps its layout.
  bench.Solved(bench.Put(10), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.placements, 3);
  bench.Solved(kept, v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.placements, 3);
  EXPECT_EQ(bench.engine.replaced, 2);
}

TEST(SolvePlacementTest, WhatAnotherTenantLeftServesNobody) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  bench.SolveAndDelete(bench.Put(3));
  bench.Solved(bench.Put(4), v1::ENGINE_KIND_NONE, "u");
  EXPECT_EQ(bench.engine.placements, 2);
  EXPECT_EQ(bench.engine.replaced, 0);
}

TEST(SolvePlacementTest, NewValuesAreSolvedWithTheOldM) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  const Stored<Matrix> a = bench.Put(3);
  auto built = bench.Build(a);
  ASSERT_TRUE(built.ok());
  AwaitEnd(built->job);
  const auto m = std::static_pointer_cast<const BuildOutcome>(built->job->result())->preconditioner;
  const auto solve = [&](const Stored<Matrix>& of, kernels::Storage storage) {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = of;
    request.preconditioner = m;
    request.solve.options.m_storage = storage;
    request.b.assign(2, 6.0);
    auto ticket = bench.job_factory->StartSolve(std::move(request));
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    AwaitEnd(ticket->job);
    EXPECT_TRUE(ticket->job->error().ok());
  };
  solve(a, kernels::Storage::kFp64);
  EXPECT_EQ(bench.engine.placements, 2) << "A and M";
  const Stored<Matrix> next = bench.Put(4);
  solve(next, kernels::Storage::kFp64);
  EXPECT_EQ(bench.engine.placements, 3) << "the new A";
  // M in fp32 is another one; it stays, too.
  ASSERT_TRUE(bench.matrices.Delete("t", a.handle).ok());
  solve(next, kernels::Storage::kFp32);
  EXPECT_EQ(bench.engine.placements, 4);
  for (int i = 0; i < 2; ++i) solve(next, kernels::Storage::kFp32);
  EXPECT_EQ(bench.engine.placements, 4);
  EXPECT_EQ(bench.engine.builds, 1);
}

TEST(SolvePlacementTest, TheResponseSaysWhy) {
  Bench bench(CpuAndGpu());
  bench.engine.SolveOnGpus();
  const auto done = bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(done.placement().rfind("cpu: predicted at ", 0), 0u) << done.placement();
  EXPECT_NE(done.placement().find("a GPU pays from 1.5 ms on"), std::string::npos);

  const Stored<Matrix> large = PutDiagonal(bench, 200'000);
  const auto why = [&](kernels::Method method) {
    return bench.adapter.PlaceSolve(*large.value, 0, 1, {.method = method, .restart = 500}, 500)
        .why;
  };
  EXPECT_EQ(why(kernels::Method::kCg), "gpu:0: predicted at 500 ms on the CPU");
  EXPECT_EQ(why(kernels::Method::kMinres), "cpu: MINRES is computed by the host alone");
  EXPECT_EQ(why(kernels::Method::kIdr), "cpu: IDR is computed by the host alone");
  const auto with = [&](kernels::Method method, kernels::MForm form) {
    return bench.adapter.PlaceSolve(*large.value, 0, 1, {.method = method}, 500, form).why;
  };
  const auto scaled = [&](kernels::Method method) {
    return with(method, kernels::MForm::kScaledRows);
  };
  EXPECT_EQ(with(kernels::Method::kBicgstab, kernels::MForm::kParts),
            "gpu:0: predicted at 500 ms on the CPU");
  EXPECT_EQ(scaled(kernels::Method::kCg), "gpu:0: predicted at 500 ms on the CPU");
  EXPECT_EQ(scaled(kernels::Method::kBicgstab),
            "cpu: solves with an M of A with its rows scaled are computed by the host alone");
  EXPECT_EQ(why(kernels::Method::kGmres),
            "cpu: the solve may take 5100 bytes of device memory, over the limit of 1000 "
            "(--device-memory)");
  bench.engine.SolveOnGpus(2000);
  EXPECT_EQ(why(kernels::Method::kCg),
            "cpu: the solve may take 2000 bytes of device memory, over the limit of 1000 "
            "(--device-memory)");
  bench.engine.SolveOnGpus();
  bench.engine.BreakDevice(1);
  EXPECT_FALSE(bench.adapter.Probe(1, 0).ok());
  EXPECT_EQ(why(kernels::Method::kCg), "cpu: gpu:0 has failed");

  Bench alone({FakeCpu()});
  EXPECT_EQ(alone.Solved(alone.Put(3), v1::ENGINE_KIND_STATIC_SPAI).placement(), "");
  Bench both(CpuAndGpu());
  both.engine.predicted_ms = 1000;
  const auto built = both.Solved(both.Put(3), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_EQ(built.placement(), "where its M is built: " + built.choice().placement());
  EXPECT_EQ(built.choice().placement().rfind("gpu:0: ", 0), 0u);
}

TEST(SolvePlacementTest, SeveralRightHandSidesTakeMoreWhereThereIsMore) {
  Bench bench(CpuAndGpu());
  bench.engine.SolveOnGpus();
  const Stored<Matrix> large = PutDiagonal(bench, 200'000);
  const auto bytes = [&](int64_t n_rhs) {
    return bench.adapter.PlaceSolve(*large.value, 0, n_rhs, {}, 500).device_bytes;
  };
  EXPECT_EQ(bytes(1), 100);
  EXPECT_EQ(bytes(8), 107);
  bench.engine.SolveOnGpus(996);  // of 1000
  EXPECT_EQ(bytes(8), 1000);
  bench.engine.SolveOnGpus(1000);
  EXPECT_EQ(bytes(8), 1000) << "in smaller blocks";
  bench.engine.SolveOnGpus(1001);
  EXPECT_EQ(bytes(1), 0) << "the host's";
}

TEST(SolvePlacementTest, ProgressSaysTheDevice) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  auto ticket = bench.Solve(bench.Put(3), v1::ENGINE_KIND_NONE);
  ASSERT_TRUE(ticket.ok());
  AwaitEnd(ticket->job);
  int solving = 0;
  for (const v1::JobEvent& event : ticket->job->Read(1, 100).events) {
    if (event.progress().stage() != v1::STAGE_SOLVE) continue;
    ++solving;
    EXPECT_EQ(event.progress().device(), "gpu:0");
    EXPECT_EQ(event.progress().total(), 1);
  }
  EXPECT_EQ(solving, 2) << "the beginning and the end";
}

TEST(SolvePlacementTest, FiguresHoldTheCopyAgainstTheIterations) {
  kernels::SolveFigures figures;
  figures.place_ms = 7;
  figures.host_to_device_ms = 5;
  figures.iterate_ms = 250;
  figures.check_ms = 4;
  figures.device_to_host_ms = 3;
  figures.iterations = 100;
  figures.bytes = 5e8;
  v1::SolveFigures proto = ToProto(figures, 4e9);
  EXPECT_EQ(proto.place_ms(), 7);
  EXPECT_EQ(proto.trial_ms(), 0);
  EXPECT_EQ(proto.host_to_device_ms(), 5);
  EXPECT_EQ(proto.iterate_ms(), 250);
  EXPECT_EQ(proto.check_ms(), 4);
  EXPECT_EQ(proto.device_to_host_ms(), 3);
  EXPECT_EQ(proto.iterations(), 100);
  EXPECT_EQ(proto.iterations_per_second(), 400);
  EXPECT_EQ(proto.bytes_per_second(), 2e9);
  EXPECT_EQ(proto.copy_bytes_per_second(), 4e9);
  EXPECT_EQ(proto.copy_share(), 0.5);
  EXPECT_EQ(ToProto(figures, 0).copy_share(), 0);
  figures.iterate_ms = 0;
  EXPECT_EQ(ToProto(figures, 4e9).iterations_per_second(), 0);
  EXPECT_EQ(ToProto(figures, 4e9).bytes_per_second(), 0);
}

TEST(SolvePlacementTest, FullMemoryIsEmptiedOnce) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.placed, 1);
  bench.engine.out_of_memory = 1;
  EXPECT_EQ(bench.Solved(bench.Put(4), v1::ENGINE_KIND_NONE).device(), "gpu:0");
  EXPECT_EQ(bench.engine.placed, 1) << "what was kept went";
  bench.engine.out_of_memory = 2;
  auto ticket = bench.Solve(bench.Put(5), v1::ENGINE_KIND_NONE);
  ASSERT_TRUE(ticket.ok());
  AwaitEnd(ticket->job);
  EXPECT_EQ(ReasonOf(ticket->job->error()), "DEVICE_OUT_OF_MEMORY");
}

TEST(SolvePlacementTest, SolvesThatAGpuHasNoMemoryForAreTheHosts) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus(2000);  // its limit is 1000
  bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(bench.engine.solves, 1);
  EXPECT_EQ(bench.engine.solves_on(0), 0);
  EXPECT_EQ(bench.engine.placements, 0);
  EXPECT_EQ(bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE).figures().copy_bytes_per_second(), 4e9)
      << "the host's";
  bench.engine.SolveOnGpus();
  EXPECT_EQ(bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE).figures().copy_bytes_per_second(), 8e9)
      << "the GPU's";
}

// What a copy reaches is found out before any job, once for the host and once for each GPU.
TEST(SolvePlacementTest, NoCopyIsMeasuredAmidAJob) {
  Bench bench({FakeCpu(), FakeGpu(0)});
  bench.engine.SolveOnGpus();
  for (const double d : {3, 4, 5}) {
    const v1::SolveDone done = bench.Solved(bench.Put(d), v1::ENGINE_KIND_NONE);
    EXPECT_EQ(done.figures().copy_bytes_per_second(), done.device() == "cpu" ? 4e9 : 8e9);
  }
  EXPECT_EQ(bench.engine.copies_measured, 2);
}

TEST(SolvePlacementTest, SolvesOfTheHostAloneAreNoGpus) {
  for (const bool with_cpu : {true, false}) {
    std::vector<kernels::DeviceInfo> devices = {FakeGpu(0)};
    if (with_cpu) devices = CpuAndGpu();
    Bench bench(devices);
    bench.engine.SolveOnGpus();
    bench.engine.predicted_ms = 1000;  // of a build: a GPU's
    for (const auto kind : {v1::ENGINE_KIND_NONE, v1::ENGINE_KIND_STATIC_SPAI}) {
      JobFactory::SolveRequest request;
      request.tenant = "t";
      request.matrix = bench.Put(3);
      const auto n = static_cast<size_t>(request.matrix.value->n());
      request.spec.emplace().set_engine(kind);
      request.solve.options.method = kernels::Method::kIdr;
      request.b.assign(n, 6.0);
      auto ticket = bench.job_factory->StartSolve(std::move(request));
      ASSERT_TRUE(ticket.ok()) << ticket.status();
      AwaitEnd(ticket->job);
      ASSERT_TRUE(ticket->job->error().ok()) << ticket->job->error();
      const v1::SolveDone done =
          std::static_pointer_cast<const SolveOutcome>(ticket->job->result())->done;
      const bool built = kind != v1::ENGINE_KIND_NONE;
      EXPECT_EQ(done.device(), with_cpu && !built ? "cpu" : "gpu:0");
      EXPECT_EQ(done.placement(), std::string(built ? "the host of the GPU where its M is built"
                                              : with_cpu ? "cpu"
                                                         : "the host of a GPU") +
                                      ": IDR is computed by the host alone");
    }
    for (size_t d = 0; d < devices.size(); ++d) {
      EXPECT_EQ(bench.engine.solves_on(static_cast<int>(d)), 0);
    }
    EXPECT_EQ(bench.engine.solves, 2);
  }
}

TEST(SolvePlacementTest, TheBasisOfGmresCounts) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus(900);  // its limit is 1000; a column takes 10
  const auto solve = [&](int64_t restart) {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = PutDiagonal(bench, 20);
    request.spec.emplace().set_engine(v1::ENGINE_KIND_NONE);
    request.solve.options.method = kernels::Method::kGmres;
    request.solve.options.restart = restart;
    request.b.assign(20, 6.0);
    auto ticket = bench.job_factory->StartSolve(std::move(request));
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    AwaitEnd(ticket->job);
    EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
  };
  solve(10);
  EXPECT_EQ(bench.engine.solves_on(0), 1);
  solve(11);
  solve(1000);  // 20, as n is
  EXPECT_EQ(bench.engine.solves_on(0), 1) << "no room there";
  EXPECT_EQ(bench.engine.solves, 3) << "done by the host";
}

TEST(SolvePlacementTest, TheEntriesOfBlocksCountForTheGpusMemory) {
  Bench bench({FakeGpu(0)});
  bench.engine.SolveOnGpus();
  const auto a = bench.Put(3);
  auto ticket = bench.Solve(a, v1::ENGINE_KIND_JACOBI, "t", /*block_size=*/32);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  AwaitEnd(ticket->job);
  EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
  EXPECT_EQ(bench.engine.most_nnz_m, 32 * a.value->n());
}

TEST(PlacementTest, LargeFsaiGoesToTheGpuAndItsFactorsCountThere) {
  Bench both(CpuAndGpu());
  both.engine.predicted_ms = 900;
  both.engine.predicted_device_ms = 20;
  const v1::Preconditioner m = both.Built(both.Put(3), v1::ENGINE_KIND_AFSAI);
  EXPECT_EQ(m.device(), "gpu:0");
  EXPECT_EQ(m.choice().placement(), "gpu:0: predicted at 900 ms on the CPU, at 20 ms there");
  EXPECT_EQ(m.build_timings().host_to_device_ms(), 3) << "of the plan and of the build";
  EXPECT_GT(m.device_bytes(), 0) << "a copy stays there";
  both.engine.predicted_ms = 0.9 * kernels::kGpuFsaiWorthMs;
  const v1::Preconditioner small = both.Built(both.Put(4), v1::ENGINE_KIND_FSAI);
  EXPECT_EQ(small.device(), "cpu");
  EXPECT_NE(small.choice().placement().find("a GPU pays from"), std::string::npos)
      << small.choice().placement();
  // Many steps take longer there than on the CPU.
  both.engine.predicted_ms = 900;
  both.engine.predicted_device_ms = 901;
  EXPECT_EQ(both.Built(both.Put(7), v1::ENGINE_KIND_AFSAI).choice().placement(),
            "cpu: predicted at 900 ms there, at 901 ms on a GPU");
  both.engine.predicted_device_ms = 20;
  both.engine.predicted_ms = 0.9 * kernels::kGpuFsaiWorthMs;
  // A solve goes where its build does.
  both.engine.SolveOnGpus();
  EXPECT_EQ(both.Solved(both.Put(5), v1::ENGINE_KIND_AFSAI).device(), "cpu");
  both.engine.predicted_ms = 900;
  const v1::SolveDone done = both.Solved(both.Put(6), v1::ENGINE_KIND_AFSAI);
  EXPECT_EQ(done.device(), "gpu:0");
  EXPECT_EQ(done.placement(), "where its M is built: " + done.choice().placement());

  Bench gpu({FakeGpu(0)});
  gpu.engine.SolveOnGpus();
  const auto a = gpu.Put(3);
  EXPECT_EQ(gpu.Built(a, v1::ENGINE_KIND_FSAI).device(), "gpu:0");
  EXPECT_EQ(gpu.Solved(a, v1::ENGINE_KIND_FSAI).device(), "gpu:0");
  EXPECT_EQ(gpu.engine.most_nnz_m, 2 * a.value->n()) << "the fake's M is diagonal";
}

TEST(PlacementTest, AdaptiveFsaiGoesOverSeveralGpusAndStaticNever) {
  // Each with a daemon of its own, which has not learned how soon these builds end.
  const auto built_on = [](v1::EngineKind engine, double predicted_ms) {
    Bench bench({FakeCpu(), FakeGpu(0), FakeGpu(1)}, /*max_devices=*/2);
    bench.engine.predicted_device_ms = 50;
    bench.engine.predicted_ms = predicted_ms;
    return bench.Built(bench.Put(4), engine).device();
  };
  EXPECT_EQ(built_on(v1::ENGINE_KIND_AFSAI, 0.9 * kernels::kSplitWorthMs), "gpu:0");
  EXPECT_EQ(built_on(v1::ENGINE_KIND_AFSAI, kernels::kSplitWorthMs), "gpu:0, gpu:1");
  EXPECT_EQ(built_on(v1::ENGINE_KIND_FSAI, 1e6), "gpu:0");
}

TEST(PlacementTest, FsaiThatDoesNotFitTheDevice) {
  Bench bench(CpuAndGpu());
  bench.engine.predicted_ms = 900;
  bench.engine.SetDeviceBytes(3000, 1000);
  EXPECT_EQ(bench.Built(bench.Put(3), v1::ENGINE_KIND_AFSAI).choice().placement(),
            "gpu:0: all at once may take 3000 bytes of device memory, over the limit of 1000 "
            "(--device-memory); rows of G are made in waves, as memory allows, and G by columns is "
            "made by the host; predicted at 900 ms on the CPU");
  bench.engine.SetDeviceBytes(3000, 1001);
  const v1::Preconditioner placed = bench.Built(bench.Put(4), v1::ENGINE_KIND_FSAI);
  EXPECT_EQ(placed.device(), "cpu");
  EXPECT_EQ(placed.choice().placement(),
            "cpu: the build may take 1001 bytes of device memory, over the limit of 1000 "
            "(--device-memory), even with its rows made in waves");
  Bench gpu({FakeGpu(0)});
  gpu.engine.SetDeviceBytes(1001);
  const auto refused = gpu.Build(gpu.Put(), v1::ENGINE_KIND_AFSAI);
  EXPECT_EQ(ReasonOf(refused.status()), "BUILD_TOO_LARGE");
  EXPECT_NE(refused.status().message().find("use fewer steps (k_max)"), std::string::npos)
      << refused.status();
}

TEST(PlacementTest, PlansThatGrewAreTheDevices) {
  Bench bench(CpuAndGpu());
  bench.engine.predicted_ms = 900;
  bench.engine.grow_plans = true;
  EXPECT_FALSE(bench.Built(bench.Put(3), v1::ENGINE_KIND_AFSAI).build_timings().rebuild());
  const v1::Preconditioner again = bench.Built(bench.Put(4), v1::ENGINE_KIND_AFSAI);
  EXPECT_TRUE(again.build_timings().rebuild());
  EXPECT_EQ(bench.engine.plans, 1);
  // Not the CPU's.
  bench.engine.predicted_ms = 0.1;
  const v1::Preconditioner small = bench.Built(bench.Put(5), v1::ENGINE_KIND_AFSAI);
  EXPECT_EQ(small.device(), "cpu");
  EXPECT_FALSE(small.build_timings().rebuild());
  EXPECT_EQ(bench.adapter.plan_cache().entries, 2);
  // And bounded by half of its memory.
  Bench full(CpuAndGpu());
  full.engine.predicted_ms = 900;
  full.engine.grow_plans = true;
  full.engine.SetDeviceBytes(501);
  full.Built(full.Put(3), v1::ENGINE_KIND_AFSAI);
  EXPECT_EQ(full.adapter.plan_cache().entries, 0);
}

TEST(SolvePlacementTest, LongSolvesGoToTheGpuShortOnesToTheCpu) {
  Bench bench(CpuAndGpu());
  bench.engine.SolveOnGpus();
  EXPECT_EQ(bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE).device(), "cpu");
  auto ticket = [&] {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = PutDiagonal(bench, 200'000);
    request.spec.emplace().set_engine(v1::ENGINE_KIND_NONE);
    request.b.assign(200'000, 6.0);
    return bench.job_factory->StartSolve(std::move(request));
  }();
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  AwaitEnd(ticket->job);
  const auto result = std::static_pointer_cast<const SolveOutcome>(ticket->job->result());
  ASSERT_NE(result, nullptr) << ticket->job->error();
  EXPECT_EQ(result->done.device(), "gpu:0");
  EXPECT_EQ(bench.engine.solves_on(1), 1);
}

TEST(SolvePlacementTest, WhatAutoLearnedIsBuiltWhereItsSolveRuns) {
  Bench bench(CpuAndGpu());
  bench.engine.SolveOnGpus();
  bench.engine.predicted_ms = 0.25;  // of the build, which alone would be the CPU's
  const Stored<Matrix> large = PutDiagonal(bench, 200'000);
  const auto solve = [&] {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = large;
    request.spec.emplace();
    request.spec->set_engine(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = kernels::Method::kAuto;
    request.b.assign(200'000, 1.0);
    auto ticket = bench.job_factory->StartSolve(std::move(request));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    AwaitEnd(ticket->job);
    EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
    return std::static_pointer_cast<const SolveOutcome>(ticket->job->result())->done;
  };
  bench.engine.break_solves = 1;
  EXPECT_EQ(solve().device(), "gpu:0");
  const v1::SolveDone known = solve();
  EXPECT_EQ(known.choice().engine(), v1::ENGINE_KIND_AFSAI);
  EXPECT_EQ(known.device(), "gpu:0");
  EXPECT_TRUE(known.choice().placement().starts_with("gpu:0: ")) << known.choice().placement();
}

}  // namespace
}  // namespace spaid::server
