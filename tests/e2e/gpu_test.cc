// The daemon's main job on a GPU, through the C++ client. Skipped, with the reason, where there is
// no GPU.
#include <gtest/gtest.h>
#include <signal.h>
#include <spaid/client.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

// Why there is no GPU; empty: there is one.
std::string WhyNoGpu() {
  Daemon daemon({"--devices=cpu"});
  const auto info = Client({.address = daemon.address()}).GetServerInfo();
  if (!info.ok()) return info.error().message;
  for (const DeviceInfo& device : info->devices) {
    if (device.name == "gpu:0") return "";
  }
  return info->cuda_status;
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string why = WhyNoGpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(Gpu, BuildsRebuildsAndSolves) {
  Daemon daemon({"--devices=gpu:0", "--device-memory=2GiB", "--drain-grace=0s"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address()});
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  ASSERT_FALSE(info->devices.empty());
  EXPECT_EQ(info->devices[0].name, "gpu:0");
  EXPECT_TRUE(info->devices[0].in_use);
  EXPECT_TRUE(info->devices[0].healthy);
  EXPECT_EQ(info->devices[0].memory_limit_bytes, int64_t{2} << 30);

  CscMatrix a = ConvectionDiffusion(120, 100, 0.3);
  const auto first = client.Build(a, PreconditionerSpec{}, true);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->preconditioner.device, "gpu:0");
  EXPECT_FALSE(first->timings.rebuild);
  EXPECT_GT(first->timings.plan_ms, 0);
  EXPECT_GT(first->timings.build_ms, 0);
  EXPECT_GT(first->timings.assemble_ms, 0);
  EXPECT_GT(first->timings.host_to_device_ms, 0);
  EXPECT_GT(first->timings.device_to_host_ms, 0);
  EXPECT_GE(first->preconditioner.device_bytes, 8 * first->preconditioner.nnz);
  EXPECT_NEAR(first->preconditioner.quality.residual_frobenius, InverseResidual(a, *first->m),
              1e-9 * InverseResidual(a, *first->m));

  for (double& value : a.values) value *= 1.25;
  const auto second = client.Build(a, PreconditionerSpec{}, true);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(second->timings.rebuild);
  EXPECT_EQ(second->timings.plan_ms, 0);
  EXPECT_GT(second->timings.host_to_device_ms, 0);
  EXPECT_NEAR(second->preconditioner.quality.residual_frobenius, InverseResidual(a, *second->m),
              1e-9 * InverseResidual(a, *second->m));

  // The copy of M goes with it.
  const auto used = [&] { return client.GetServerInfo()->devices[0].memory_used_bytes; };
  const int64_t with_both = used();
  ASSERT_FALSE(client.DeletePreconditioner(first->preconditioner.name).has_value());
  EXPECT_EQ(used(), with_both - (8 * first->preconditioner.nnz + 255) / 256 * 256)
      << "the plan stays";

  const std::vector<double> b = SmoothRhs(a);
  const auto solved = client.Solve(second->preconditioner.matrix, b,
                                   {.preconditioner = second->preconditioner.name, .rtol = 1e-9});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_EQ(solved->device, "gpu:0");
  EXPECT_LE(RelativeResidual(a, solved->x, b), 1.01e-9);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.WaitForExit(), 0) << daemon.log();
}

// A build that does not fit a GPU's memory with all its tables at once.
TEST_F(Gpu, BuildsInWavesWhereMemoryIsShort) {
  const CscMatrix a = Irregular(60000, 12);
  BuildEstimate estimate;
  BuildResult reference;
  {
    Daemon daemon({"--devices=cpu,gpu:0", "--threads=1"});
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    Client client({.address = daemon.address()});
    const auto uploaded = client.Upload(a);
    ASSERT_TRUE(uploaded.ok()) << uploaded.error().message;
    const auto estimated = client.Estimate(uploaded->name, PreconditionerSpec{});
    ASSERT_TRUE(estimated.ok()) << estimated.error().message;
    estimate = *estimated;
    EXPECT_EQ(estimate.placement.rfind("gpu:0: predicted", 0), 0u) << estimate.placement;
  }
  {
    Daemon daemon({"--devices=cpu"});
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    auto built = Client({.address = daemon.address()}).Build(a, PreconditionerSpec{}, true);
    ASSERT_TRUE(built.ok()) << built.error().message;
    reference = *std::move(built);
  }
  ASSERT_GT(estimate.device_bytes_min, 0);
  ASSERT_LT(estimate.device_bytes_min, estimate.device_bytes);
  const std::string limit = "--device-memory=" + std::to_string(estimate.device_bytes_min);
  for (const char* const devices : {"--devices=gpu:0", "--devices=cpu,gpu:0"}) {
    Daemon daemon({devices, limit, "--threads=1"});
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    Client client({.address = daemon.address()});
    CscMatrix values = a;
    for (const bool rebuild : {false, true}) {
      const auto built = client.Build(values, PreconditionerSpec{}, true);
      ASSERT_TRUE(built.ok()) << built.error().message;
      const PreconditionerInfo& info = built->preconditioner;
      EXPECT_EQ(info.device, "gpu:0");
      EXPECT_NE(info.placement.find("made in waves"), std::string::npos) << info.placement;
      ASSERT_FALSE(info.quality.warnings.empty());
      EXPECT_NE(info.quality.warnings.back().find("in waves"), std::string::npos)
          << info.quality.warnings.back();
      EXPECT_EQ(built->timings.rebuild, rebuild) << "a plan without tables is small enough to keep";
      ASSERT_EQ(built->m->col_ptr, reference.m->col_ptr);
      ASSERT_EQ(built->m->row_idx, reference.m->row_idx);
      const double scale = rebuild ? 0.5 : 1;
      for (size_t p = 0; p < reference.m->values.size(); ++p) {
        const double expected = scale * reference.m->values[p];
        ASSERT_NEAR(built->m->values[p], expected, 1e-10 * std::abs(expected) + 1e-13) << p;
      }
      for (double& value : values.values) value *= 2;
    }
  }
  // With less than that it is not tried.
  Daemon small(
      {"--devices=gpu:0", "--device-memory=" + std::to_string(estimate.device_bytes_min - 1)});
  ASSERT_TRUE(small.serving()) << small.log();
  const auto refused = Client({.address = small.address()}).Build(a, PreconditionerSpec{});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "BUILD_TOO_LARGE");
  EXPECT_NE(refused.error().message.find("even with its tables made in waves"), std::string::npos)
      << refused.error().message;
}

// Solves run there: A and M go once, and what comes out is what the CPU's give.
TEST_F(Gpu, SolvesWithWhatIsThereAlready) {
  const CscMatrix a = ConvectionDiffusion(400, 300, 0.3);
  const std::vector<double> b = SmoothRhs(a);
  Daemon gpu({"--devices=cpu,gpu:0"}), cpu({"--devices=cpu"});
  ASSERT_TRUE(gpu.serving() && cpu.serving()) << gpu.log() << cpu.log();
  Client client({.address = gpu.address()}), host({.address = cpu.address()});
  const auto there = client.Upload(a), here = host.Upload(a);
  ASSERT_TRUE(there.ok() && here.ok());
  for (const Engine engine : {Engine::kNone, Engine::kJacobi, Engine::kStaticSpai}) {
    const SolveOptions options{.engine = engine, .rtol = 1e-9};
    const auto expected = host.Solve(here->name, b, options);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    double first_ms = 0;
    for (const bool again : {false, true}) {
      const auto solved = client.Solve(there->name, b, options);
      ASSERT_TRUE(solved.ok()) << solved.error().message;
      EXPECT_EQ(solved->device, "gpu:0");
      EXPECT_NE(solved->placement.find("gpu:0: predicted at"), std::string::npos)
          << solved->placement;
      const SolveFigures& figures = solved->figures;
      EXPECT_EQ(figures.iterations, solved->rhs[0].iterations);
      EXPECT_EQ(figures.place_ms > 0, !again) << "both are there";
      EXPECT_GT(figures.host_to_device_ms, 0) << "b";
      EXPECT_GT(figures.iterate_ms, 0);
      EXPECT_GT(figures.check_ms, 0);
      EXPECT_GT(figures.device_to_host_ms, 0) << "x";
      EXPECT_GT(figures.copy_bytes_per_second, 1e11);
      EXPECT_GT(figures.copy_share, 0);
      EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
      EXPECT_LE(RelativeResidual(a, solved->x, b), 1.01e-9);
      // Without a preconditioner the last bits of a sum move this count by a third.
      const auto count = static_cast<double>(expected->rhs[0].iterations);
      if (engine != Engine::kNone) {
        EXPECT_NEAR(static_cast<double>(solved->rhs[0].iterations), count, 0.25 * count + 2);
      }
      if (again) {
        EXPECT_EQ(solved->timings.host_to_device_ms, 0) << "both are there";
      } else {
        first_ms = solved->timings.host_to_device_ms;
      }
    }
    EXPECT_GT(first_ms, 0);
  }
  const auto by_gmres = client.Solve(
      there->name, b,
      {.engine = Engine::kJacobi, .method = Method::kGmres, .rtol = 1e-6, .max_iterations = 300});
  ASSERT_TRUE(by_gmres.ok()) << by_gmres.error().message;
  EXPECT_EQ(by_gmres->device, "gpu:0");
}

// A code that steps through time: new values, the old matrix goes, the old M stays.
TEST_F(Gpu, TheValuesOfTheNextStepTakeThePlaceOfTheLast) {
  CscMatrix a = ConvectionDiffusion(400, 300, 0.3);
  const std::vector<double> b = SmoothRhs(a);
  Daemon daemon({"--devices=gpu:0"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address()});
  std::string matrix, m;
  const auto used = [&] { return client.GetServerInfo()->devices[0].memory_used_bytes; };
  int64_t used_before = 0;
  for (int step = 0; step < 4; ++step) {
    // Another wind a step: neither a multiple of the matrix nor symmetric.
    for (size_t p = 0; p < a.values.size(); ++p)
      a.values[p] *= 1 + 1e-3 * static_cast<double>(p % 7);
    const auto uploaded = client.Upload(a);
    ASSERT_TRUE(uploaded.ok()) << uploaded.error().message;
    if (step == 0) {
      const auto built = client.Build(uploaded->name, PreconditionerSpec{});
      ASSERT_TRUE(built.ok()) << built.error().message;
      m = built->preconditioner.name;
    } else {
      ASSERT_FALSE(client.DeleteMatrix(matrix).has_value());
    }
    matrix = uploaded->name;
    const auto solved = client.Solve(
        matrix, b, {.preconditioner = m, .rtol = 1e-9, .m_precision = Precision::kFp32});
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->device, "gpu:0");
    EXPECT_EQ(solved->m_precision, Precision::kFp32);
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(RelativeResidual(a, solved->x, b), 1.01e-9);
    std::printf("step %d: layout of A and M %.3f ms\n", step, solved->figures.place_ms);
    if (step > 0) {
      EXPECT_EQ(used(), used_before) << "one layout of A";
    }
    used_before = used();
  }
}

TEST_F(Gpu, SmallBuildsStayOnTheCpu) {
  Daemon daemon({"--threads=1"});  // --devices=auto; predictions are for its threads
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address()});
  const auto small = client.Build(ConvectionDiffusion(8, 8, 0.3), PreconditionerSpec{});
  ASSERT_TRUE(small.ok()) << small.error().message;
  EXPECT_EQ(small->preconditioner.device, "cpu");
  EXPECT_EQ(small->preconditioner.placement.rfind("cpu: ", 0), 0u);
  const auto large = client.Build(ConvectionDiffusion(600, 600, 0.3), PreconditionerSpec{});
  ASSERT_TRUE(large.ok()) << large.error().message;
  EXPECT_EQ(large->preconditioner.device, "gpu:0") << large->preconditioner.placement;
}

}  // namespace
}  // namespace spaid::e2e
