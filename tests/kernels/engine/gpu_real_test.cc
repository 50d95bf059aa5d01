// What a CUDA device builds for the real matrices of the folder SPAID_MATRICES preconditions as
// well as what the CPU builds. Skipped without a device, or without the folder.
#include <cstdio>
#include <cstdlib>

#include "tests/kernels/engine/gpu_helpers.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels::engine_test {
namespace {

using GpuEngineReal = GpuEngine;

std::string Shown(int64_t count) { return count == kNever ? "never" : std::to_string(count); }

TEST_F(GpuEngineReal, PreconditionsAsTheCpu) {
  const char* const folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) GTEST_SKIP() << "SPAID_MATRICES names no folder";
  int compared = 0, by_medians = 0;
  for (const std::string& path : oracle::MatrixMarketFiles(folder)) {
    const auto a = oracle::ReadMatrixMarket(path);
    if (!a || a->n_rows != a->n_cols) continue;
    std::string name = path.substr(path.rfind('/') + 1);
    name = name.substr(0, name.find('.'));
    SCOPED_TRACE(name);
    const auto plan = engine_->MakePlan(Spai(), *a, nullptr, {.device = kCpu});
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().reason(), "ZERO_COLUMN") << plan.status().message();
      continue;
    }
    const BuildResult cpu = MustBuild(*engine_, Spai(), *a, {.device = kCpu});
    const BuildResult gpu = MustBuild(*engine_, Spai(), *a, {.device = kGpu});
    ASSERT_TRUE(cpu.preconditioner && gpu.preconditioner);
    EXPECT_NEAR(gpu.quality.residual_frobenius, cpu.quality.residual_frobenius,
                1e-6 * cpu.quality.residual_frobenius + 1e-9);
    const Agreement its = Compare(*a, *cpu.preconditioner, *gpu.preconditioner);
    std::string line =
        "iterations | " + name + " | " + Shown(its.first) + " | " + Shown(its.second) + " |";
    for (const auto* runs : {&its.of_first, &its.of_second}) {
      if (runs->empty()) continue;
      line += " " + Shown(runs->front()) + " to " + Shown(runs->back()) + ", median " +
              Shown((*runs)[10]) + " |";
    }
    std::printf("%s left to the host: %lld\n", line.c_str(),
                static_cast<long long>(gpu.timings.host_columns));
    std::fflush(stdout);
    EXPECT_TRUE(its) << line;
    ++compared;
    by_medians += !its.by_single_runs;
  }
  std::printf("%d compared, %d of them by their medians\n", compared, by_medians);
  EXPECT_GT(compared, 0);
  EXPECT_LE(5 * by_medians, compared);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
