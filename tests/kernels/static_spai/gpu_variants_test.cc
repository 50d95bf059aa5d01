// Each variant of a kernel on a CUDA device, forced where measured tables would take another one:
// the same pattern and the same M. Skipped, with the reason, where there is no device.
#include <limits>
#include <tuple>

#include "kernels/bench/problems.h"
#include "kernels/sparse/pattern.h"
#include "tests/kernels/static_spai/gpu_helpers.h"

namespace spaid::kernels {
namespace {

constexpr int32_t kAll = std::numeric_limits<int32_t>::max();

struct Forced {
  const char* name;
  cuda::Variants sizes;
};

constexpr Forced kVariants[] = {
    {"the first of each that fits", {kAll, 0, kAll, kAll, kAll, 0}},
    {"unions by blocks, tables in shared memory of warps", {0, 0, 0, kAll, kAll, 0}},
    {"unions by blocks and bitmaps, tables by blocks, no threads", {0, kAll, 0, 0, 0, 0}},
    {"in the middle of each", {40, 1, 20, 300, 4, 0}},
};

class GpuVariants : public GpuStaticSpai {
 protected:
  void Force(const cuda::Variants& sizes) {
    auto device = OpenGpu(0, sizes);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
  }
};

TEST_F(GpuVariants, AllGiveTheValuesOfTheCpu) {
  const CscMatrix circuit = bench::Circuit(1500, 4, 60);
  // Of the sizes that threads could take.
  const CscMatrix small = bench::Periodic(6000, 3), larger = bench::Periodic(6000, 7);
  for (const Forced& variants : kVariants) {
    Force(variants.sizes);
    if (HasFatalFailure()) return;
    const std::string what = variants.name;
    ExpectEqual(circuit, nullptr, With(LocalSolver::kGram, 1), what + ", circuit");
    ExpectEqual(circuit, nullptr, With(LocalSolver::kGram, 2), what + ", circuit squared");
    ExpectEqual(small, nullptr, With(LocalSolver::kGram, 1), what + ", three a column");
    ExpectEqual(larger, nullptr, With(LocalSolver::kGram, 1), what + ", seven a column");
  }
}

// By variant and rows: the fewer are for compute-sanitizer, which is slow.
class GpuVariantPatterns : public GpuVariants,
                           public ::testing::WithParamInterface<std::tuple<Forced, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Each, GpuVariantPatterns,
                         ::testing::Combine(::testing::ValuesIn(kVariants),
                                            ::testing::Values(200, 1000)));

TEST_P(GpuVariantPatterns, AreThoseOfTheCpu) {
  const auto& [variants, n] = GetParam();
  const CscMatrix hubs = bench::Circuit(n, 3, n * 3 / 10);  // most rows in a column of the cube
  StaticSpaiOptions options;
  options.pattern.power = 3;
  const auto expected = BuildPattern(hubs, nullptr, options.pattern, {});
  ASSERT_TRUE(expected.ok());
  Force(variants.sizes);
  if (HasFatalFailure()) return;
  auto plan = PlanStaticSpaiCuda(device_, hubs, nullptr, options, {});
  ASSERT_TRUE(plan.ok()) << variants.name << ": " << plan.status().message();
  const auto built = BuildStaticSpaiCuda(**plan, hubs, options, {});
  ASSERT_TRUE(built.ok()) << variants.name << ": " << built.status().message();
  EXPECT_EQ(built->m.col_ptr, expected->col_ptr) << variants.name;
  EXPECT_EQ(built->m.row_idx, expected->row_idx) << variants.name;
}

}  // namespace
}  // namespace spaid::kernels
