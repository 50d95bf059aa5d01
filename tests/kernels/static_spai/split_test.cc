// How several devices share a plan and its builds, with devices that are fakes: each knows the
// pattern of A and gives every entry of M a value of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/static_spai_cuda.h"
#include "tests/oracle/generators.h"

struct SpaidCudaContext {
  int ordinal;
};
struct SpaidCudaMatrix {
  SpaidCudaContext* context;
  std::vector<int64_t> col_ptr;
  std::vector<int32_t> row_idx;
  std::vector<double> values;
};
struct SpaidCudaPlan {
  const SpaidCudaMatrix* matrix;
  SpaidCudaRange columns;
};
struct SpaidCudaM {
  const SpaidCudaPlan* plan;
};

namespace spaid::kernels {
namespace {

constexpr int64_t kLeft = 37;                    // a column that the fakes leave to the host
std::atomic<int> objects, full_device, planned;  // -1: none is full

int32_t Full(char* message, size_t size) {
  std::snprintf(message, size, "full");
  return kSpaidCudaOutOfMemory;
}

SpaidCudaInterface Fake() {
  SpaidCudaInterface api{};
  api.open_context = [](int32_t ordinal, int64_t, SpaidCudaOnThreads, const SpaidCudaVariants*,
                        SpaidCudaContext** context, char*, size_t) -> int32_t {
    *context = new SpaidCudaContext{ordinal};
    return kSpaidCudaOk;
  };
  api.close_context = [](SpaidCudaContext* context) { delete context; };
  api.upload_matrix = [](SpaidCudaContext* context, const SpaidCudaCsc* a, SpaidCudaMatrix** matrix,
                         char*, size_t) -> int32_t {
    ++objects;
    *matrix = new SpaidCudaMatrix{
        context, {a->col_ptr, a->col_ptr + a->n + 1}, {a->row_idx, a->row_idx + a->nnz}, {}};
    return kSpaidCudaOk;
  };
  api.free_matrix = [](SpaidCudaMatrix* matrix) { --objects, delete matrix; };
  api.upload_values = [](SpaidCudaMatrix* matrix, const double* values, char*, size_t) -> int32_t {
    matrix->values.assign(values, values + matrix->row_idx.size());
    return kSpaidCudaOk;
  };
  api.plan_static_spai = [](SpaidCudaMatrix* matrix, const SpaidCudaCsc*, const SpaidCudaPattern*,
                            const SpaidCudaPatternOptions*, int32_t, const SpaidCudaRange* columns,
                            SpaidCudaPlan** plan, SpaidCudaPlanInfo* info, char* message,
                            size_t size) -> int32_t {
    ++planned;
    if (matrix->context->ordinal == full_device) return Full(message, size);
    const SpaidCudaRange all{0, static_cast<int64_t>(matrix->col_ptr.size()) - 1};
    const SpaidCudaRange own = columns != nullptr ? *columns : all;
    ++objects;
    *plan = new SpaidCudaPlan{matrix, own};
    info->nnz_m = matrix->col_ptr.back();
    info->first_entry = matrix->col_ptr[static_cast<size_t>(own.begin)];
    info->entries = matrix->col_ptr[static_cast<size_t>(own.end)] - info->first_entry;
    info->ms = static_cast<double>(own.end - own.begin);
    info->device_bytes = 100 * (matrix->context->ordinal + 1);
    return kSpaidCudaOk;
  };
  api.free_plan = [](SpaidCudaPlan* plan) { --objects, delete plan; };
  api.download_pattern = [](const SpaidCudaPlan* plan, int64_t* col_ptr, int32_t* row_idx, char*,
                            size_t) -> int32_t {
    const std::vector<int64_t>& ptr = plan->matrix->col_ptr;
    const auto begin = ptr.begin() + plan->columns.begin, end = ptr.begin() + plan->columns.end;
    std::copy(begin, end + (end + 1 == ptr.end() ? 1 : 0), col_ptr);
    std::copy(plan->matrix->row_idx.begin() + *begin, plan->matrix->row_idx.begin() + *end,
              row_idx);
    return kSpaidCudaOk;
  };
  api.build_static_spai = [](SpaidCudaPlan* plan, const SpaidCudaMatrix*,
                             const SpaidCudaBuildOptions* options, SpaidCudaM** m,
                             SpaidCudaBuildInfo* info, char*, size_t) -> int32_t {
    const int64_t columns = plan->columns.end - plan->columns.begin;
    for (int wave = 1; wave <= 4; ++wave) {
      if (options->progress(options->caller, wave * columns / 4, columns) != 0) {
        return kSpaidCudaStopped;
      }
    }
    ++objects;
    *m = new SpaidCudaM{plan};
    *info = {};
    info->rescued_groups = 1;
    return kSpaidCudaOk;
  };
  api.free_m = [](SpaidCudaM* m) { --objects, delete m; };
  api.download_m = [](const SpaidCudaM* m, double* values, double* norms, double* pivots,
                      uint8_t* flags, char*, size_t) -> int32_t {
    const SpaidCudaMatrix& a = *m->plan->matrix;
    const SpaidCudaRange own = m->plan->columns;
    const int64_t first = a.col_ptr[static_cast<size_t>(own.begin)];
    for (int64_t k = own.begin; k < own.end; ++k) {
      for (auto p = a.col_ptr[static_cast<size_t>(k)]; p < a.col_ptr[static_cast<size_t>(k) + 1];
           ++p) {
        values[p - first] = 3 * a.values[static_cast<size_t>(p)] + static_cast<double>(p);
      }
      norms[k - own.begin] = 1.0 / static_cast<double>(k + 2);
      pivots[k - own.begin] = 0.5;
      flags[k - own.begin] = k == kLeft ? 0 : kColumnGram;
    }
    return kSpaidCudaOk;
  };
  api.trim_m = [](SpaidCudaM*) {};
  return api;
}

class SplitStaticSpai : public ::testing::Test {
 protected:
  void SetUp() override {
    objects = planned = 0;
    full_device = -1;
    for (int i = 0; i < 4; ++i) {
      DeviceInfo info;
      info.index = i;
      info.memory_bytes = int64_t{1} << 30;
      auto device = CudaDevice::Open(info, 0, api_);
      ASSERT_TRUE(device.ok());
      devices_.push_back(*device);
    }
  }
  void TearDown() override { EXPECT_EQ(objects, 0) << "objects of devices that nobody freed"; }

  std::span<const std::shared_ptr<CudaDevice>> First(size_t count) const {
    return std::span(devices_).first(count);
  }

  const SpaidCudaInterface api_ = Fake();
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
