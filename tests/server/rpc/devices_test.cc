// Devices as clients meet them: which one worked, how they are, and what the loss of one does.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

Harness::Options With(std::vector<kernels::DeviceInfo> devices) {
  return {.backend = Harness::SmallBackend(), .devices = std::move(devices)};
}

v1::GetServerInfoResponse InfoOf(Harness& h) {
  auto context = Context();
  v1::GetServerInfoResponse info;
  const grpc::Status status = h.info->GetServerInfo(context.get(), {}, &info);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return info;
}

// A build to its end.
struct Built {
  grpc::Status status;
  std::string started_on;
  v1::BuildDone done;
};
Built Build(Harness& h, double first) {
  BuildCall call = OpenBuild(h);
  call.Head(BuildOf(h.Store(DiagonalMatrix(4, first)), StaticSpai())).Done();
  std::vector<v1::BuildPreconditionerResponse> events;
  Built built;
  built.status = call.Finish(&events);
  for (const auto& event : events) {
    if (event.has_job() && event.job().has_started()) {
      built.started_on = event.job().started().device();
    }
    if (event.has_done()) built.done = event.done();
  }
  return built;
}

TEST(DevicesOnTheWire, JobsSayWhereTheyRanAndWhatItTook) {
  Harness h(With({FakeCpu(), FakeGpu(0)}));
  const Built first = Build(h, 1);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.started_on, "gpu:0");
  EXPECT_EQ(first.done.preconditioner().device(), "gpu:0");
  EXPECT_EQ(first.done.preconditioner().choice().placement().rfind("gpu:0: ", 0), 0u);
  EXPECT_EQ(first.done.timings().host_to_device_ms(), 3);
  EXPECT_EQ(first.done.timings().device_to_host_ms(), 3);
  EXPECT_EQ(first.done.timings().assemble_ms(), 0.5);
  EXPECT_FALSE(first.done.timings().rebuild());
  const Built second = Build(h, 2);
  EXPECT_TRUE(second.done.timings().rebuild());
  EXPECT_EQ(second.done.timings().plan_ms(), 0);

  SolveCall solve = OpenSolve(h);
  solve.Head(SolveOf(h.Store(DiagonalMatrix(3, 2)), Jacobi()))
      .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12}))
      .Done();
  std::vector<v1::SolveResponse> events;
  ASSERT_TRUE(solve.Finish(&events).ok());
  EXPECT_EQ(events.back().done().device(), "cpu");

  const v1::GetServerInfoResponse info = InfoOf(h);
  ASSERT_EQ(info.devices_size(), 2);
  EXPECT_EQ(info.devices(0).name(), "cpu");
  EXPECT_EQ(info.devices(1).name(), "gpu:0");
  EXPECT_EQ(info.devices(1).kind(), v1::DEVICE_KIND_CUDA);
  EXPECT_TRUE(info.devices(1).in_use());
  EXPECT_TRUE(info.devices(1).healthy());
  EXPECT_EQ(info.devices(1).memory_limit_bytes(), 1000);
}

TEST(DevicesOnTheWire, EstimatesSayWhere) {
  Harness h(With({FakeCpu(), FakeGpu(0)}));
  v1::EstimateBuildRequest request;
  request.set_matrix(h.Store(DiagonalMatrix(4)));
  *request.mutable_spec() = StaticSpai();
  for (const auto& [ms, bytes, where] : {std::tuple{1000.0, 100, "gpu:0"}, {0.5, 0, "cpu"}}) {
    h.engine.predicted_ms = ms;
    auto context = Context();
    v1::EstimateBuildResponse response;
    ASSERT_TRUE(h.preconditioners->EstimateBuild(context.get(), request, &response).ok());
    EXPECT_EQ(response.device_bytes(), bytes);
    EXPECT_EQ(response.device_bytes_min(), bytes);
    EXPECT_EQ(response.choice().placement().rfind(where, 0), 0u) << response.choice().placement();
  }
}

TEST(DevicesOnTheWire, ALostDeviceIsMarkedAndTheCpuServesOn) {
  Harness h(With({FakeCpu(), FakeGpu(0)}));
  ASSERT_EQ(Build(h, 1).started_on, "gpu:0");
  h.engine.BreakDevice(1);
  const Built lost = Build(h, 2);
  EXPECT_RPC_ERROR(lost.status, UNAVAILABLE, "DEVICE_LOST", "send the request");
  // What the client that met it sees next.
  const v1::GetServerInfoResponse info = InfoOf(h);
  EXPECT_TRUE(info.devices(0).healthy());
  EXPECT_FALSE(info.devices(1).healthy());
  EXPECT_NE(info.devices(1).unhealthy_reason().find("the fake device is broken"),
            std::string::npos);
  EXPECT_TRUE(h.backend->ready());
  h.backend->SetGauges();
  const std::string metrics = h.metrics.Serialize();
  EXPECT_NE(metrics.find("spaid_device_healthy{device=\"gpu:0\"} 0"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("spaid_device_healthy{device=\"cpu\"} 1"), std::string::npos);
  EXPECT_NE(metrics.find("spaid_device_memory_limit_bytes{device=\"gpu:0\"} 1000"),
            std::string::npos);
  const Built next = Build(h, 2);
  ASSERT_TRUE(next.status.ok()) << next.status.error_message();
  EXPECT_EQ(next.started_on, "cpu");
  EXPECT_EQ(next.done.preconditioner().choice().placement(), "cpu: gpu:0 has failed");
  h.ExpectLives();
}

TEST(DevicesOnTheWire, AnIdleDeviceThatDiesIsFound) {
  Harness::Options options = With({FakeCpu(), FakeGpu(0)});
  options.backend.probe_every = std::chrono::milliseconds(5);
  Harness h(options);
  h.engine.WaitForProbes(1, 2);
  EXPECT_TRUE(InfoOf(h).devices(1).healthy());
  h.engine.BreakDevice(1);
  while (h.backend->scheduler().DeviceStatus(1).ok()) std::this_thread::yield();
  EXPECT_FALSE(InfoOf(h).devices(1).healthy());
  h.ExpectLives();
}

TEST(DevicesOnTheWire, TheServerIsReadyOnceItsDevicesAreMeasured) {
  FakeEngine engine({FakeCpu(), FakeGpu(0)});
  engine.hold_copies = true;
  Metrics metrics;
  Backend backend(Harness::SmallBackend(), engine, Authenticator(), &metrics);
  std::promise<void> told;
  int calls = 0;
  backend.OnReadiness([&] {
    if (++calls == 2) told.set_value();
  });
  EXPECT_FALSE(backend.ready());
  EXPECT_TRUE(backend.usable());
  engine.Release();
  told.get_future().wait();
  EXPECT_TRUE(backend.ready());
  backend.OnReadiness(nullptr);
}

TEST(DevicesOnTheWire, AnUnknownErrorOfADeadGpuIsItsLoss) {
  Harness h(With({FakeCpu(), FakeGpu(0)}));
  const kernels::Status unknown(kernels::StatusCode::kInternal, "CUDA_ERROR", "cudaErrorUnknown");
  h.engine.FailBuilds(unknown);
  EXPECT_RPC_ERROR(Build(h, 1).status, INTERNAL, "CUDA_ERROR", "cudaErrorUnknown");
  EXPECT_TRUE(InfoOf(h).devices(1).healthy()) << "it answered";
  h.engine.FailBuilds(unknown, /*deadly=*/true);
  EXPECT_RPC_ERROR(Build(h, 2).status, UNAVAILABLE, "DEVICE_LOST", "broken");
  EXPECT_FALSE(InfoOf(h).devices(1).healthy());
  h.engine.FailBuilds({});
  EXPECT_EQ(Build(h, 3).started_on, "cpu");
}

TEST(DevicesOnTheWire, WithoutAnyDeviceTheServerIsNotReady) {
  Harness h(With({FakeGpu(0)}));
  h.ExpectLives();  // host work on the GPU's worker
  h.engine.BreakDevice(0);
  EXPECT_RPC_ERROR(Build(h, 7).status, UNAVAILABLE, "DEVICE_LOST", "broken");
  EXPECT_FALSE(h.backend->ready());
  EXPECT_FALSE(h.backend->draining());
  EXPECT_RPC_ERROR(Build(h, 8).status, UNAVAILABLE, "DEVICE_LOST", "no other device");
}

}  // namespace
}  // namespace spaid::server
