// How several devices share a plan and its builds: contexts of one device. Skipped, with the
// reason, where there is none.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "tests/kernels/static_spai/gpu_helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

class SplitStaticSpai : public GpuStaticSpai {
 protected:
  void SetUp() override {
    GpuStaticSpai::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < 4; ++i) {
      devices_.push_back(OpenDevice());
      ASSERT_NE(devices_.back(), nullptr);
    }
  }
  void TearDown() override {
    for (const auto& device : devices_) EXPECT_EQ(device->used_bytes(), 0);
  }

  std::span<const std::shared_ptr<CudaDevice>> First(size_t count) const {
    return std::span(devices_).first(count);
  }

  std::vector<std::shared_ptr<CudaDevice>> devices_;
};

TEST_F(SplitStaticSpai, GathersWhatOneDeviceGives) {
  const CscMatrix a = oracle::RandomIrregular(5000, 9, 3);
  StaticSpaiOptions filtered;
  filtered.post_filter = 0.3;
  for (const StaticSpaiOptions& options : {StaticSpaiOptions(), filtered}) {
    const auto build = [&](size_t count) {
      StaticSpaiCudaTimings timings;
      const auto plan = PlanStaticSpaiCuda(First(count), a, nullptr, options, {}, &timings);
      EXPECT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_GE((*plan)->device_bytes, 12 * a.nnz());
      std::shared_ptr<const BuiltOnDevice> kept;
      auto built = BuildStaticSpaiCuda(**plan, a, options, {}, &timings, &kept);
      EXPECT_TRUE(built.ok()) << built.status().message();
      EXPECT_EQ(kept != nullptr, count == 1);
      // With other values, on the same plan.
      CscMatrix scaled = a;
      for (double& value : scaled.values) value *= 2;
      EXPECT_TRUE(BuildStaticSpaiCuda(**plan, scaled, options, {}).ok());
      return *std::move(built);
    };
    const StaticSpaiResult one = build(1);
    for (const size_t count : {size_t{2}, size_t{3}, size_t{4}}) {
      const StaticSpaiResult several = build(count);
      EXPECT_EQ(several.m.col_ptr, one.m.col_ptr);
      EXPECT_EQ(several.m.row_idx, one.m.row_idx);
      EXPECT_EQ(several.m.values, one.m.values);
      EXPECT_EQ(several.residual_norms, one.residual_norms);
      EXPECT_EQ(several.min_scaled_pivots, one.min_scaled_pivots);
      EXPECT_EQ(several.quality.residual_frobenius, one.quality.residual_frobenius);
    }
  }
}

// A small one, and one whose pattern the host copies while the devices compute.
TEST_F(SplitStaticSpai, ThePatternOfAIsTheHosts) {
  for (const int64_t n : {500, 40000}) {
    const CscMatrix a = oracle::RandomIrregular(n, 9, 3);
    EXPECT_EQ(a.nnz() > 1 << 18, n == 40000);
    const PatternView own = a.pattern();
    for (const size_t count : {size_t{1}, size_t{3}}) {
      auto plan = PlanStaticSpaiCuda(First(count), a, &own, {}, {});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto expected = BuildStaticSpaiCuda(**plan, a, {}, {});
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      const int64_t bytes = (*plan)->host_bytes;

      plan = PlanStaticSpaiCuda(First(count), a, nullptr, {}, {});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ((*plan)->host_bytes, bytes - 4 * a.nnz() - 8 * (n + 1));
      const auto built = BuildStaticSpaiCuda(**plan, a, {}, {});
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_EQ(built->m.col_ptr, a.col_ptr);
      EXPECT_EQ(built->m.row_idx, a.row_idx);
      EXPECT_EQ(built->m.values, expected->m.values);
      EXPECT_EQ(built->quality.residual_frobenius, expected->quality.residual_frobenius);
    }
  }
}

// Another one of as many entries: the devices have begun when it shows.
TEST_F(SplitStaticSpai, APlanOfAnotherPatternIsRefused) {
  for (const int64_t n : {500, 40000}) {
    const CscMatrix a = oracle::RandomIrregular(n, 9, 3);
    const auto plan = PlanStaticSpaiCuda(First(3), a, nullptr, {}, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    CscMatrix other = a;
    // A row is another one, in a column that keeps its order.
    for (int64_t k = 0; k < n; ++k) {
      const int64_t last = other.col_ptr[static_cast<size_t>(k) + 1] - 1;
      int32_t& row = other.row_idx[static_cast<size_t>(last)];
      if (row + 1 < n) {
        ++row;
        break;
      }
    }
    ASSERT_NE(other.row_idx, a.row_idx);
    EXPECT_EQ(BuildStaticSpaiCuda(**plan, other, {}, {}).status().reason(), "PLAN_MISMATCH");
    const CscMatrix larger = oracle::RandomIrregular(n + 1, 9, 3);
    EXPECT_EQ(BuildStaticSpaiCuda(**plan, larger, {}, {}).status().reason(), "PLAN_MISMATCH");
  }
}

TEST_F(SplitStaticSpai, FewerColumnsThanDevices) {
  const CscMatrix a = oracle::Arrow(3);
  const auto plan = PlanStaticSpaiCuda(First(4), a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto built = BuildStaticSpaiCuda(**plan, a, {}, {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_EQ(built->m.col_ptr, a.col_ptr);
}

TEST_F(SplitStaticSpai, OneFullDeviceEndsItAfterAllHaveReturned) {
  const CscMatrix a = oracle::RandomIrregular(5000, 9, 3);
  devices_[1] = OpenDevice(256 << 10);
  const auto plan = PlanStaticSpaiCuda(First(3), a, nullptr, {}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().reason(), "DEVICE_OUT_OF_MEMORY");
}

}  // namespace
}  // namespace spaid::kernels
