// The daemon's main job on a GPU, through the C++ client. Skipped, with the reason, where there is
// no GPU.
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <spaid/client.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// The values of a time step go to the GPU while they come from the client.
TEST_F(Gpu, ValuesOfLaterStepsAreThereWhenTheBuildBegins) {
  if (std::thread::hardware_concurrency() < 4) GTEST_SKIP() << "nothing is sent ahead on few cores";
  Daemon daemon({"--devices=gpu:0"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address()});
  CscMatrix a = ConvectionDiffusion(520, 420, 0.3);
  const auto bytes = static_cast<double>(8 * a.values.size());
  auto stored = client.Upload(a);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  ASSERT_TRUE(client.Build(stored->name, PreconditionerSpec{}).ok());
  const auto ahead = [&](const std::string& what) {
    httplib::Client http("http://" + daemon.ops_address());
    const auto metrics = http.Get("/metrics");
    if (!metrics) return -1.0;
    const std::string name = "spaid_ahead_bytes_total{what=\"" + what + "\"} ";
    const size_t at = metrics->body.find(name);
    return at == std::string::npos ? 0 : std::stod(metrics->body.substr(at + name.size()));
  };
  EXPECT_EQ(ahead("sent"), 0) << "nobody knew where they would be wanted";
  for (int step = 1; step <= 3; ++step) {
    for (double& value : a.values) value *= 1.25;
    stored = client.UploadValues(stored->name, a);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    const auto built = client.Build(stored->name, PreconditionerSpec{}, true);
    ASSERT_TRUE(built.ok()) << built.error().message;
    EXPECT_TRUE(built->timings.rebuild);
    EXPECT_NEAR(built->preconditioner.quality.residual_frobenius, InverseResidual(a, *built->m),
                1e-9 * InverseResidual(a, *built->m));
    EXPECT_GT(ahead("taken"), 0.5 * step * bytes) << "of " << step * bytes;
    EXPECT_EQ(ahead("wasted"), ahead("sent") - ahead("taken"));
  }
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
    Daemon daemon({devices, limit, "--gpu-lanes=1", "--threads=1"});
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

// Solves run there: A and M go once (to each lane), and what comes out is what the CPU's give.
TEST_F(Gpu, SolvesWithWhatIsThereAlready) {
  const CscMatrix a = ConvectionDiffusion(400, 300, 0.3);
  const std::vector<double> b = SmoothRhs(a);
  // With one thread the CPU is predicted slower, however many cores there are.
  Daemon gpu({"--devices=cpu,gpu:0", "--gpu-lanes=1", "--threads=1"}), cpu({"--devices=cpu"});
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

// AUTO begins with it, and says so: Jacobi takes this system hundreds of iterations.
TEST_F(Gpu, SolvesByMultigridWhereTheMatrixIs) {
  const CscMatrix a = Poisson(700, 700);
  const std::vector<double> b = SmoothRhs(a);
  Daemon gpu({"--devices=cpu,gpu:0", "--gpu-lanes=1", "--threads=1"}), cpu({"--devices=cpu"});
  ASSERT_TRUE(gpu.serving() && cpu.serving()) << gpu.log() << cpu.log();
  Client client({.address = gpu.address()}), host({.address = cpu.address()});
  const auto there = client.Upload(a), here = host.Upload(a);
  ASSERT_TRUE(there.ok() && here.ok());
  const SolveOptions options{.engine = Engine::kAmg, .method = Method::kCg, .rtol = 1e-9};
  const auto expected = host.Solve(here->name, b, options);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const bool again : {false, true}) {
    const auto solved = client.Solve(there->name, b, options);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->device, "gpu:0") << solved->placement;
    EXPECT_EQ(solved->figures.place_ms > 0, !again) << "both are there";
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(RelativeResidual(a, solved->x, b), 1.01e-9);
    EXPECT_NEAR(static_cast<double>(solved->rhs[0].iterations),
                static_cast<double>(expected->rhs[0].iterations), 1);
  }
  const auto by_auto = client.Solve(there->name, b, {.engine = Engine::kAuto, .rtol = 1e-9});
  ASSERT_TRUE(by_auto.ok()) << by_auto.error().message;
  EXPECT_EQ(by_auto->device, "gpu:0") << by_auto->placement;
  EXPECT_TRUE(by_auto->choice_reason.starts_with("multigrid: foretold to end sooner"))
      << by_auto->choice_reason;
  ASSERT_EQ(by_auto->rungs.size(), 1u);
  EXPECT_EQ(by_auto->rungs[0].engine, Engine::kAmg);
  EXPECT_EQ(by_auto->rhs[0].outcome, Outcome::kConverged) << by_auto->rhs[0].detail;
  EXPECT_LE(RelativeResidual(a, by_auto->x, b), 1.01e-9);
}

// A code that steps through time: new values, the old matrix goes, the old M stays.
TEST_F(Gpu, TheValuesOfTheNextStepTakeThePlaceOfTheLast) {
  CscMatrix a = ConvectionDiffusion(400, 300, 0.3);
  const std::vector<double> b = SmoothRhs(a);
  Daemon daemon({"--devices=gpu:0", "--gpu-lanes=1"});
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

// FSAI is built there, G stays, and new values find the patterns there.
TEST_F(Gpu, BuildsFsaiAndSolvesWithWhatIsThere) {
  const CscMatrix a = Poisson(400, 300);
  CscMatrix next = a;
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int64_t i = a.row_idx[p];
      if (i != j) next.values[p] *= 0.5 + 0.125 * static_cast<double>((i + j + i * j) % 4);
    }
  }
  const std::vector<double> b = SmoothRhs(a), b_next = SmoothRhs(next);
  Daemon gpu({"--devices=cpu,gpu:0", "--threads=1"}), cpu({"--devices=cpu"});
  ASSERT_TRUE(gpu.serving() && cpu.serving()) << gpu.log() << cpu.log();
  Client client({.address = gpu.address()}), host({.address = cpu.address()});
  const auto matrix = client.Upload(a);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  for (const Engine engine : {Engine::kFsai, Engine::kAfsai}) {
    const PreconditionerSpec spec{.engine = engine};
    const auto estimate = client.Estimate(matrix->name, spec);
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;
    EXPECT_GT(estimate->device_bytes, 0);
    EXPECT_EQ(estimate->placement.rfind("gpu:0: predicted at", 0), 0u) << estimate->placement;
    EXPECT_NE(estimate->placement.find(" ms there"), std::string::npos) << estimate->placement;
    const auto built = client.Build(matrix->name, spec, true);
    const auto expected = host.Build(a, spec, true);
    ASSERT_TRUE(built.ok() && expected.ok()) << built.error().message;
    const PreconditionerInfo& m = built->preconditioner;
    EXPECT_EQ(m.device, "gpu:0") << m.placement;
    EXPECT_FALSE(built->timings.rebuild);
    EXPECT_GT(built->timings.host_to_device_ms, 0);
    EXPECT_GT(built->timings.build_ms, 0);
    EXPECT_GT(built->timings.assemble_ms, 0);
    EXPECT_GT(built->timings.device_to_host_ms, 0);
    EXPECT_EQ(m.device_bytes, 12 * m.nnz + 8 * (a.n + 1));
    EXPECT_NEAR(m.quality.fsai->kaporin, expected->preconditioner.quality.fsai->kaporin, 1e-6);
    if (engine == Engine::kFsai) {  // a grid's gradients are equal in places: rounding chooses
      ASSERT_EQ(built->m->row_idx, expected->m->row_idx);
      for (size_t p = 0; p < expected->m->values.size(); ++p) {
        ASSERT_NEAR(built->m->values[p], expected->m->values[p], 1e-11) << p;
      }
    }
    for (const bool again : {false, true}) {
      const auto solved = client.Solve(matrix->name, b, {.preconditioner = m.name, .rtol = 1e-9});
      ASSERT_TRUE(solved.ok()) << solved.error().message;
      EXPECT_EQ(solved->device, "gpu:0") << solved->placement;
      EXPECT_EQ(solved->method, Method::kCg);
      EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
      EXPECT_LE(RelativeResidual(a, solved->x, b), 1.01e-9);
      if (again) {
        EXPECT_EQ(solved->figures.place_ms, 0) << "A and both factors are there";
        EXPECT_EQ(solved->timings.host_to_device_ms, 0);
      }
      std::printf(
          "%s: plan %.2f, build %.2f, there %.2f, back %.2f, assemble %.2f; solve: place "
          "%.3f ms, %lld iterations\n",
          engine == Engine::kFsai ? "fsai" : "afsai", built->timings.plan_ms,
          built->timings.build_ms, built->timings.host_to_device_ms,
          built->timings.device_to_host_ms, built->timings.assemble_ms, solved->figures.place_ms,
          static_cast<long long>(solved->rhs[0].iterations));
    }
    const auto second = client.Build(next, spec, true);
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_EQ(second->preconditioner.device, "gpu:0");
    EXPECT_TRUE(second->timings.rebuild);
    EXPECT_EQ(second->timings.plan_ms, 0);
    EXPECT_GT(second->timings.host_to_device_ms, 0) << "values";
    EXPECT_EQ(second->preconditioner.quality.fsai->pattern_reused, engine == Engine::kAfsai);
    EXPECT_EQ(second->m->row_idx, built->m->row_idx);
    const auto solved =
        client.Solve(next, b_next, {.preconditioner = second->preconditioner.name, .rtol = 1e-9});
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(RelativeResidual(next, solved->x, b_next), 1.01e-9);
    if (engine == Engine::kAfsai) {
      PreconditionerSpec anew = spec;
      anew.regrow = true;
      const auto third = client.Build(next, anew);
      ASSERT_TRUE(third.ok()) << third.error().message;
      EXPECT_FALSE(third->timings.rebuild);
      EXPECT_FALSE(third->preconditioner.quality.fsai->pattern_reused);
    }
  }
  const auto refused = client.Build(ConvectionDiffusion(400, 300, 0.3),
                                    PreconditionerSpec{.engine = Engine::kAfsai});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "NOT_SYMMETRIC");
}

// Dynamic SPAI grows and is computed there, M stays, and new values find what grew there.
TEST_F(Gpu, BuildsDynamicSpaiAndRebuildsOnWhatGrew) {
  const CscMatrix a = ConvectionDiffusion(400, 300, 0.5), next = OtherValues(a);
  const std::vector<double> b_next = SmoothRhs(next);
  Daemon gpu({"--devices=cpu,gpu:0", "--threads=1"}), cpu({"--devices=cpu"});
  ASSERT_TRUE(gpu.serving() && cpu.serving()) << gpu.log() << cpu.log();
  Client client({.address = gpu.address()}), host({.address = cpu.address()});
  const PreconditionerSpec spec{.engine = Engine::kDynamicSpai, .dynamic_spai = {.tol = 0.2}};
  const auto built = client.Build(a, spec, true);
  const auto expected = host.Build(a, spec, true);
  ASSERT_TRUE(built.ok() && expected.ok()) << built.error().message;
  const PreconditionerInfo& m = built->preconditioner;
  EXPECT_EQ(m.device, "gpu:0") << m.placement;
  EXPECT_GE(m.device_bytes, 8 * m.nnz);
  EXPECT_NEAR(m.quality.residual_frobenius, InverseResidual(a, *built->m),
              1e-9 * m.quality.residual_frobenius);
  // A grid's candidates are equal in places: rounding chooses.
  EXPECT_NEAR(m.quality.residual_frobenius, expected->preconditioner.quality.residual_frobenius,
              0.02 * m.quality.residual_frobenius);
  EXPECT_NEAR(m.quality.dynamic_spai->residual_by_step.back(),
              expected->preconditioner.quality.dynamic_spai->residual_by_step.back(), 0.01);

  const auto second = client.Build(next, spec, true);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->preconditioner.device, "gpu:0");
  EXPECT_TRUE(second->timings.rebuild);
  EXPECT_EQ(second->timings.plan_ms, 0);
  EXPECT_TRUE(second->preconditioner.quality.dynamic_spai->pattern_reused);
  EXPECT_EQ(second->m->row_idx, built->m->row_idx);
  const auto solved =
      client.Solve(next, b_next, {.preconditioner = second->preconditioner.name, .rtol = 1e-9});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->device, "gpu:0") << solved->placement;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_LE(RelativeResidual(next, solved->x, b_next), 1.01e-9);
  PreconditionerSpec anew = spec;
  anew.regrow = true;
  const auto third = client.Build(next, anew);
  ASSERT_TRUE(third.ok()) << third.error().message;
  EXPECT_FALSE(third->timings.rebuild);
  EXPECT_FALSE(third->preconditioner.quality.dynamic_spai->pattern_reused);
}

// Multigrid stays there, levels and aggregates, and new values find those.
TEST_F(Gpu, BuildsMultigridAndRebuildsOnItsAggregates) {
  const CscMatrix a = Poisson(400, 300);
  CscMatrix next = a;
  for (double& value : next.values) value *= 3;
  const std::vector<double> b_next = SmoothRhs(next);
  Daemon gpu({"--devices=cpu,gpu:0", "--threads=1"});
  ASSERT_TRUE(gpu.serving()) << gpu.log();
  Client client({.address = gpu.address()});
  PreconditionerSpec spec{.engine = Engine::kAmg};
  const auto built = client.Build(a, spec);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->preconditioner.device, "gpu:0") << built->preconditioner.placement;
  EXPECT_GT(built->preconditioner.device_bytes, 12 * std::ssize(a.row_idx));
  EXPECT_FALSE(built->preconditioner.quality.amg->pattern_reused);
  const auto second = client.Build(next, spec);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->preconditioner.device, "gpu:0");
  EXPECT_TRUE(second->timings.rebuild);
  EXPECT_TRUE(second->preconditioner.quality.amg->pattern_reused);
  EXPECT_EQ(second->preconditioner.nnz, built->preconditioner.nnz);
  const auto solved =
      client.Solve(next, b_next, {.preconditioner = second->preconditioner.name, .rtol = 1e-9});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->device, "gpu:0") << solved->placement;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_LE(RelativeResidual(next, solved->x, b_next), 1.01e-9);
  spec.regrow = true;
  const auto third = client.Build(next, spec);
  ASSERT_TRUE(third.ok()) << third.error().message;
  EXPECT_FALSE(third->preconditioner.quality.amg->pattern_reused);
}

// With little of its memory rows are made in waves; with less the build is the CPU's, and says so.
TEST_F(Gpu, FsaiThatItHasNoMemoryForIsTheCpus) {
  const CscMatrix a = Poisson(300, 300);
  const PreconditionerSpec spec{.engine = Engine::kAfsai};
  BuildEstimate estimate;
  {
    Daemon daemon({"--devices=gpu:0"});
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    Client client({.address = daemon.address()});
    const auto uploaded = client.Upload(a);
    ASSERT_TRUE(uploaded.ok());
    const auto estimated = client.Estimate(uploaded->name, spec);
    ASSERT_TRUE(estimated.ok()) << estimated.error().message;
    estimate = *estimated;
  }
  ASSERT_LT(estimate.device_bytes_min, estimate.device_bytes);
  const auto limit = [](int64_t bytes) { return "--device-memory=" + std::to_string(bytes); };
  const std::string all = "--gpu-lanes=1";  // a slot has all there is
  Daemon waves({"--devices=gpu:0", all, limit(estimate.device_bytes_min)});
  Daemon less({"--devices=cpu,gpu:0", all, limit(estimate.device_bytes_min - 1)});
  Daemon alone({"--devices=gpu:0", all, limit(estimate.device_bytes_min - 1)});
  ASSERT_TRUE(waves.serving() && less.serving() && alone.serving());
  const auto in_waves = Client({.address = waves.address()}).Build(a, spec);
  ASSERT_TRUE(in_waves.ok()) << in_waves.error().message;
  EXPECT_EQ(in_waves->preconditioner.device, "gpu:0");
  EXPECT_NE(in_waves->preconditioner.placement.find("made in waves"), std::string::npos);
  const auto by_cpu = Client({.address = less.address()}).Build(a, spec);
  ASSERT_TRUE(by_cpu.ok()) << by_cpu.error().message;
  EXPECT_EQ(by_cpu->preconditioner.device, "cpu");
  EXPECT_NE(by_cpu->preconditioner.placement.find("over the limit of"), std::string::npos)
      << by_cpu->preconditioner.placement;
  const auto refused = Client({.address = alone.address()}).Build(a, spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "BUILD_TOO_LARGE");
  EXPECT_NE(refused.error().message.find("k_max"), std::string::npos) << refused.error().message;
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

// A daemon whose GPU the test breaks (device_fault.cu).
class BrokenGpu : public Gpu {
 protected:
  std::unique_ptr<Daemon> Start(std::vector<std::string> flags) {
    const auto fault =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libspaid_device_fault.so";
    if (!std::filesystem::exists(fault)) throw std::runtime_error("there is no " + fault.string());
    setenv("LD_PRELOAD", fault.c_str(), 1);
    setenv("SPAID_FAULT_FILE", fault_.c_str(), 1);
    flags.emplace_back("--drain-grace=0s");
    auto daemon = std::make_unique<Daemon>(flags);
    unsetenv("LD_PRELOAD");
    unsetenv("SPAID_FAULT_FILE");
    return daemon;
  }
  // Returns when it is broken.
  void Break(const char* fault) {
    std::ofstream(fault_.string() + ".new") << fault;
    std::filesystem::rename(fault_.string() + ".new", fault_);
    while (std::filesystem::exists(fault_)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // The daemon was told to use it: it says so to whoever works there, and ends.
  void ExpectEnds(Daemon& daemon, const char* fault) {
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    Client client({.address = daemon.address(), .max_attempts = 1});
    const CscMatrix a = ConvectionDiffusion(120, 100, 0.3);
    const auto built = client.Build(a, PreconditionerSpec{});
    ASSERT_TRUE(built.ok()) << built.error().message;
    EXPECT_EQ(built->preconditioner.device, "gpu:0");
    Break(fault);
    const auto lost = client.Build(ConvectionDiffusion(120, 100, 0.2), PreconditionerSpec{});
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().reason, "DEVICE_LOST") << lost.error().message;
    EXPECT_EQ(daemon.WaitForExit(), 1) << daemon.log();
    EXPECT_NE(daemon.log().find("[DEVICE_LOST]"), std::string::npos) << daemon.log();
  }

 private:
  TempDir folder_;
  const std::filesystem::path fault_ = folder_ / "fault";
};

TEST_F(BrokenGpu, ThatFailsEndsTheDaemonThatWasToldToUseIt) {
  ExpectEnds(*Start({"--devices=gpu:0"}), "trap");
}

TEST_F(BrokenGpu, ThatHangsEndsTheDaemonThatWasToldToUseIt) {
  ExpectEnds(*Start({"--devices=gpu:0", "--hang-limit=1", "--hang-floor=3s"}), "hang");
}

TEST_F(BrokenGpu, IsLeftOutWhereTheDaemonMayGoOnWithout) {
  const auto daemon = Start({"--devices=cpu,gpu:0", "--on-device-loss=degrade", "--threads=1"});
  ASSERT_TRUE(daemon->serving()) << daemon->log();
  Client client({.address = daemon->address(), .max_attempts = 1});
  Break("trap");
  // One job at most finds it out, where no look at the idle GPU did before.
  CscMatrix a = Irregular(60000, 12);
  if (const auto first = client.Build(a, PreconditionerSpec{}); !first.ok()) {
    EXPECT_EQ(first.error().reason, "DEVICE_LOST") << first.error().message;
    const auto second = client.Build(a, PreconditionerSpec{});
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_EQ(second->preconditioner.device, "cpu");
  } else {
    EXPECT_EQ(first->preconditioner.device, "cpu");
  }
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  for (const DeviceInfo& device : info->devices) {
    EXPECT_EQ(device.healthy, device.name == "cpu") << device.name;
  }
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->WaitForExit(), 0) << daemon->log();
}

}  // namespace
}  // namespace spaid::e2e
