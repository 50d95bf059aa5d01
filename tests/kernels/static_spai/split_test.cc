// How several devices share a plan and its builds, with devices that are fakes: each knows the
// pattern of A and gives every entry of M a value of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/dynamic_spai/cuda_growth.h"
#include "kernels/fsai/cuda_fsai.h"
#include "kernels/krylov/cuda_layout.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/static_spai_cuda.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kLeft = 37;                    // a column that the fakes leave to the host
std::atomic<int> objects, full_device, planned;  // -1: none is full
std::atomic<int> of_a, patterns;  // whether plans say that M has A's pattern; those downloaded

class FakeMatrix;

class FakeM final : public CudaSpaiM {
 public:
  FakeM(const FakeMatrix& a, const IndexRange& columns) : a_(a), own_(columns) {
    ++objects;
    figures.rescued_groups = 1;
  }
  ~FakeM() override { --objects; }
  Status Download(double* values, double* norms, double* pivots, uint8_t* flags) const override;
  Status DownloadPattern(int64_t*, int32_t*) const override { return {}; }
  void Trim() override {}
  Result<std::unique_ptr<CudaLayout>> LayOut(bool) const override { return Nothing(); }

 private:
  static Status Nothing() { return Status(StatusCode::kInternal, "FAKE", ""); }

  const FakeMatrix& a_;
  const IndexRange own_;
};

class FakePlan final : public CudaSpaiPlan {
 public:
  FakePlan(const FakeMatrix& a, const IndexRange& columns, int ordinal);
  ~FakePlan() override { --objects; }
  Status DownloadPattern(int64_t* col_ptr, int32_t* row_idx) const override;
  Result<std::unique_ptr<CudaSpaiM>> Build(const CudaMatrix&, const StaticSpaiOptions&,
                                           const Context& context) override {
    for (int wave = 1; wave <= 4; ++wave) {
      context.progress->OnProgress(Stage::kBuild, wave * own_.size() / 4, own_.size());
      if (context.stop.stop_requested()) {
        return StopStatus(context.stop.Poll(), "build of static SPAI");
      }
    }
    return std::unique_ptr<CudaSpaiM>(std::make_unique<FakeM>(a_, own_));
  }

 private:
  const FakeMatrix& a_;
  const IndexRange own_;
};

class FakeMatrix final : public CudaMatrix {
 public:
  FakeMatrix(const DeviceInfo& gpu, const PatternView& a)
      : col_ptr(a.col_ptr.begin(), a.col_ptr.end()),
        row_idx(a.row_idx.begin(), a.row_idx.end()),
        gpu_(gpu) {
    ++objects;
  }
  ~FakeMatrix() override { --objects; }

  Status UploadValues(std::span<const double> of) override {
    values.assign(of.begin(), of.end());
    return {};
  }
  Result<std::unique_ptr<CudaSpaiPlan>> PlanStaticSpai(const CudaPatternRequest&, LocalSolver,
                                                       std::optional<IndexRange> columns,
                                                       const Context&) override {
    ++planned;
    if (gpu_.index == full_device) return CudaFailure(CudaFault::kOutOfMemory, gpu_, "full");
    const IndexRange all{0, static_cast<int64_t>(col_ptr.size()) - 1};
    return std::unique_ptr<CudaSpaiPlan>(
        std::make_unique<FakePlan>(*this, columns.value_or(all), gpu_.index));
  }
  Result<CudaGrowth> GrowDynamicSpai(const PatternView*, const DynamicSpaiOptions&,
                                     std::optional<IndexRange>, const Context&) const override {
    return Nothing();
  }
  Result<CudaFsaiBuild> BuildFsai(const CudaFsaiRequest&, const Context&) const override {
    return Nothing();
  }
  Result<std::unique_ptr<CudaLayout>> LayOut(bool, bool) const override { return Nothing(); }

  const std::vector<int64_t> col_ptr;
  const std::vector<int32_t> row_idx;
  std::vector<double> values;

 private:
  static Status Nothing() { return Status(StatusCode::kInternal, "FAKE", ""); }

  const DeviceInfo gpu_;
};

FakePlan::FakePlan(const FakeMatrix& a, const IndexRange& columns, int ordinal)
    : a_(a), own_(columns) {
  ++objects;
  figures.nnz_m = a.col_ptr.back();
  figures.first_entry = a.col_ptr[static_cast<size_t>(own_.begin)];
  figures.entries = a.col_ptr[static_cast<size_t>(own_.end)] - figures.first_entry;
  figures.ms = static_cast<double>(own_.size());
  figures.device_bytes = 100 * (ordinal + 1);
  figures.of_a = of_a != 0;
}

Status FakePlan::DownloadPattern(int64_t* col_ptr, int32_t* row_idx) const {
  ++patterns;
  const std::vector<int64_t>& ptr = a_.col_ptr;
  const auto begin = ptr.begin() + own_.begin, end = ptr.begin() + own_.end;
  std::copy(begin, end + (end + 1 == ptr.end() ? 1 : 0), col_ptr);
  std::copy(a_.row_idx.begin() + *begin, a_.row_idx.begin() + *end, row_idx);
  return {};
}

Status FakeM::Download(double* values, double* norms, double* pivots, uint8_t* flags) const {
  const int64_t first = a_.col_ptr[static_cast<size_t>(own_.begin)];
  for (int64_t k = own_.begin; k < own_.end; ++k) {
    for (auto p = a_.col_ptr[static_cast<size_t>(k)]; p < a_.col_ptr[static_cast<size_t>(k) + 1];
         ++p) {
      values[p - first] = 3 * a_.values[static_cast<size_t>(p)] + static_cast<double>(p);
    }
    norms[k - own_.begin] = 1.0 / static_cast<double>(k + 2);
    pivots[k - own_.begin] = 0.5;
    flags[k - own_.begin] = k == kLeft ? 0 : kColumnGram;
  }
  return {};
}

class FakeContext final : public CudaContext {
 public:
  explicit FakeContext(const DeviceInfo& gpu) : gpu_(gpu) {}

  int64_t used_bytes() const override { return 0; }
  bool lost() const override { return false; }
  Status Probe() override { return {}; }
  Result<double> TimeCopy(int64_t) override { return Nothing(); }
  Result<std::unique_ptr<CudaMatrix>> UploadMatrix(const PatternView& a,
                                                   std::span<const double>) override {
    return std::unique_ptr<CudaMatrix>(std::make_unique<FakeMatrix>(gpu_, a));
  }
  Result<std::unique_ptr<CudaPattern>> UploadPattern(const PatternView&) override {
    return Nothing();
  }
  Result<std::unique_ptr<CudaLayout>> LayOutDiagonal(std::span<const double>) override {
    return Nothing();
  }

 private:
  static Status Nothing() { return Status(StatusCode::kInternal, "FAKE", ""); }

  const DeviceInfo gpu_;
};

class FakeBackend final : public CudaBackend {
 public:
  CudaListing ListDevices() override { return {}; }
  Result<std::unique_ptr<CudaContext>> OpenContext(const DeviceInfo& gpu, int64_t, CudaOnThreads,
                                                   const CudaVariants*) override {
    return std::unique_ptr<CudaContext>(std::make_unique<FakeContext>(gpu));
  }
};

class SplitStaticSpai : public ::testing::Test {
 protected:
  void SetUp() override {
    objects = planned = patterns = of_a = 0;
    full_device = -1;
    for (int i = 0; i < 4; ++i) {
      DeviceInfo info;
      info.index = i;
      info.memory_bytes = int64_t{1} << 30;
      auto device = CudaDevice::Open(info, 0, backend_);
      ASSERT_TRUE(device.ok());
      devices_.push_back(*device);
    }
  }
  void TearDown() override { EXPECT_EQ(objects, 0) << "objects of devices that nobody freed"; }

  std::span<const std::shared_ptr<CudaDevice>> First(size_t count) const {
    return std::span(devices_).first(count);
  }

  FakeBackend backend_;
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
      EXPECT_GE(DeviceBytes(**plan), 100 * static_cast<int64_t>(count));
      EXPECT_LT(timings.device_plan_ms, 5001.0 / static_cast<double>(count) * 1.3);
      std::shared_ptr<const StaticSpaiCudaM> kept;
      auto built = BuildStaticSpaiCuda(**plan, a, options, {}, &timings, &kept);
      EXPECT_TRUE(built.ok()) << built.status().message();
      EXPECT_EQ(timings.host_columns, 1);
      EXPECT_EQ(timings.rescued_groups, static_cast<int64_t>(count));
      EXPECT_EQ(kept, nullptr);
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
    for (const size_t count : {size_t{1}, size_t{3}}) {
      of_a = 0;
      auto plan = PlanStaticSpaiCuda(First(count), a, nullptr, {}, {});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto expected = BuildStaticSpaiCuda(**plan, a, {}, {});
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      EXPECT_EQ(patterns, static_cast<int>(count));
      const int64_t bytes = HostBytes(**plan);

      of_a = 1;
      patterns = 0;
      plan = PlanStaticSpaiCuda(First(count), a, nullptr, {}, {});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ(HostBytes(**plan), bytes - 4 * a.nnz() - 8 * (n + 1));
      const auto built = BuildStaticSpaiCuda(**plan, a, {}, {});
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_EQ(patterns, 0);
      EXPECT_EQ(built->m.col_ptr, a.col_ptr);
      EXPECT_EQ(built->m.row_idx, a.row_idx);
      EXPECT_EQ(built->m.values, expected->m.values);
      EXPECT_EQ(built->quality.residual_frobenius, expected->quality.residual_frobenius);
      patterns = 0;
    }
  }
}

// Of as many entries: the devices have begun when it shows.
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
  EXPECT_EQ(planned, 3);
  const auto built = BuildStaticSpaiCuda(**plan, a, {}, {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_EQ(built->m.col_ptr, a.col_ptr);
}

TEST_F(SplitStaticSpai, OneFullDeviceEndsItAfterAllHaveReturned) {
  const CscMatrix a = oracle::RandomIrregular(500, 9, 3);
  full_device = 1;
  const auto plan = PlanStaticSpaiCuda(First(3), a, nullptr, {}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(planned, 3);
  EXPECT_EQ(objects, 0);
}

class StopAtHalf final : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t done, int64_t total) override {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    if (2 * done >= total) source.Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}
  StopSource source;
  int64_t last = 0;
};

TEST_F(SplitStaticSpai, ProgressIsTheSumAndAStopReachesAll) {
  const CscMatrix a = oracle::RandomIrregular(500, 9, 3);
  const auto plan = PlanStaticSpaiCuda(First(4), a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  StopAtHalf sink;
  const auto built =
      BuildStaticSpaiCuda(**plan, a, {}, {.stop = sink.source.token(), .progress = &sink});
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
  EXPECT_GE(sink.last, 250);
}

}  // namespace
}  // namespace spaid::kernels
