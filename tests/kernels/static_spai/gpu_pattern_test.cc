// Patterns of M and the post-filter on a CUDA device against the CPU's, and the limits of both.
// Skipped, with the reason, where there is no device.
#include <cstring>

#include "kernels/bench/problems.h"
#include "kernels/sparse/cuda/pattern.h"
#include "kernels/sparse/pattern.h"
#include "kernels/sparse/transpose.h"
#include "tests/kernels/static_spai/gpu_helpers.h"

namespace spaid::kernels {
namespace {

class GpuPattern : public GpuStaticSpai {
 protected:
  // The pattern alone.
  Result<Pattern> OnDevice(const CscView& a, const PatternView* user, const PatternOptions& options,
                           const StopToken& stop = {}) {
    Pattern made;
    const auto lock = device_->Lock();
    const Status status = cuda::Guard(*device_, [&](cuda::Context& context) {
      const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
      Array<int32_t> match;
      if (options.row_match) match = *RowPermutation(a, {});
      const cuda::Caller caller(stop, "the test");
      const cuda::DevicePattern there = cuda::MakePattern(context, matrix, user, /*there=*/nullptr,
                                                          options, match, options.max_nnz, caller);
      made.n_rows = made.n_cols = a.n_cols;
      made.col_ptr.resize(static_cast<size_t>(a.n_cols) + 1);
      made.row_idx.resize(static_cast<size_t>(there.nnz));
      const cuda::PatternRef ref = there.ref();
      context.Download({{made.col_ptr.data(), ref.col_ptr, made.col_ptr.size() * sizeof(int64_t)},
                        {made.row_idx.data(), ref.row_idx, made.row_idx.size() * sizeof(int32_t)}});
    });
    EXPECT_EQ(UsedNow(*device_), 0);
    if (!status.ok()) return status;
    return made;
  }

  void ExpectEqual(const CscView& a, const PatternView* user, const PatternOptions& options,
                   const std::string& what) {
    const auto cpu = BuildPattern(a, user, options, {});
    ASSERT_TRUE(cpu.ok()) << what << ": " << cpu.status().message();
    const auto gpu = OnDevice(a, user, options);
    ASSERT_TRUE(gpu.ok()) << what << ": " << gpu.status().message();
    ASSERT_TRUE(gpu->col_ptr == cpu->col_ptr) << what;
    ASSERT_TRUE(gpu->row_idx == cpu->row_idx) << what;
  }

  // Powers 1 to `power` with every other option.
  void ExpectAllEqual(const CscView& a, int power, const std::string& name) {
    const Pattern own = Transpose(static_cast<const PatternView&>(a));
    for (int p = 1; p <= power; ++p) {
      for (const bool rows : {false, true}) {
        for (const bool match : {false, true}) {
          PatternOptions options;
          options.power = p;
          options.ensure_row = rows;
          options.row_match = match;
          const std::string what = name + ", power " + std::to_string(p) +
                                   (rows ? ", ensure_row" : "") + (match ? ", row_match" : "");
          ExpectEqual(a, nullptr, options, what);
          const PatternView user = own;
          ExpectEqual(a, &user, options, what + ", user");
          options.keep_tau = 0.4;
          ExpectEqual(a, nullptr, options, what + ", tau");
        }
      }
    }
  }
};

// Tridiagonal; column `dense` is full; `reached`: columns that have an entry in row `dense`
// besides its neighbours.
CscMatrix OneDenseColumn(int64_t n, int64_t dense, std::initializer_list<int64_t> reached) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    const bool reaches = std::find(reached.begin(), reached.end(), j) != reached.end();
    for (int64_t i = j == dense ? 0 : std::max<int64_t>(0, std::min(j - 1, reaches ? dense : j));
         i < n && (j == dense || i <= std::max(j + 1, reaches ? dense : j)); ++i) {
      const bool near = i >= j - 1 && i <= j + 1;
      if (!near && j != dense && !(reaches && i == dense)) continue;
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 4 : near ? -1 : 1.0 / static_cast<double>(n));
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

// n = blocks * size; dense blocks on the diagonal.
CscMatrix DenseBlocks(int64_t blocks, int64_t size) {
  CscMatrix a;
  a.n_rows = a.n_cols = blocks * size;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < blocks * size; ++j) {
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = j / size * size + i;
      a.row_idx.push_back(static_cast<int32_t>(row));
      a.values.push_back(row == j ? 2.0 * static_cast<double>(size) : 1);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

TEST_F(GpuPattern, EqualsTheCpuOnTheZoo) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(1)) ExpectAllEqual(entry.a, 3, entry.name);
}

TEST_F(GpuPattern, EqualsTheCpuOnTheGallery) {
  ExpectAllEqual(bench::ConvectionDiffusion(14, 300), 3, "P7_14");
  ExpectAllEqual(bench::Laplacian27(9), 3, "P27_9");
  ExpectAllEqual(bench::Elasticity(5), 3, "elasticity_5");
  ExpectAllEqual(bench::Circuit(1500, 4, 60), 3, "circuit");
}

TEST_F(GpuPattern, EqualsTheCpuOnIrregularMatrices) {
  ExpectAllEqual(FromRows({{3}}), 3, "one");
  ExpectAllEqual(FromRows({{1, 0, 0}, {0, 2, 0}, {0, 0, 3}}), 3, "diagonal");
  ExpectAllEqual(FromRows({{0, 1}, {1, 0}}), 3, "no diagonal");
  ExpectAllEqual(oracle::RandomIrregular(1000, 6, 7), 3, "irregular");
  ExpectAllEqual(oracle::ZeroDiagonal(500, 3), 3, "zero diagonal");
  ExpectAllEqual(oracle::Arrow(700), 2, "arrow");
  ExpectAllEqual(oracle::DenseRowAndColumn(600, 2), 2, "dense row and column");
}

// Columns of every kind of collector: warps, blocks, bitmaps; with lists that a whole block walks,
// and with more of those than it remembers.
TEST_F(GpuPattern, LargeColumns) {
  PatternOptions options;
  for (const int power : {2, 3, 4, 5}) {
    options.power = power;
    ExpectEqual(bench::Laplacian27(14), nullptr, options, "P27, " + std::to_string(power));
    ExpectEqual(OneDenseColumn(9000, 4000, {3, 8000}), nullptr, options,
                "dense column, " + std::to_string(power));
  }
  options.power = 2;
  ExpectEqual(oracle::Arrow(6500), nullptr, options, "all is full");
  options.ensure_row = true;
  ExpectEqual(OneDenseColumn(40000, 20000, {5}), nullptr, options, "rows");
  options.ensure_row = false;
  ExpectEqual(oracle::RandomIrregular(3000, 700, 1), nullptr, options, "long lists");
}

TEST_F(GpuPattern, APowerThatGrowsNoMore) {
  PatternOptions options;
  options.power = kMaxPatternPower;
  ExpectEqual(oracle::Laplacian2d(9, 7), nullptr, options, "grid");
  ExpectEqual(oracle::BlockTriangular(60, 7, 1), nullptr, options, "reducible");
  options.ensure_row = true;
  ExpectEqual(oracle::BlockTriangular(60, 7, 1), nullptr, options, "reducible, rows");
  options.row_match = true;
  ExpectEqual(oracle::RowPermuted(60, 1), nullptr, options, "matching, rows");
}

// Over 2^31 elements in the lists of one product.
TEST_F(GpuPattern, MoreProductsThan32BitsCount) {
  constexpr int64_t kSize = 128;
  const CscMatrix a = DenseBlocks((int64_t{1} << 31) / (kSize * kSize * kSize) + 2, kSize);
  ASSERT_GT(kSize * a.nnz(), int64_t{1} << 31);
  PatternOptions options;
  options.power = 2;
  const auto gpu = OnDevice(a, nullptr, options);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  EXPECT_TRUE(gpu->col_ptr == a.col_ptr);  // a projection: the pattern is its own square
  EXPECT_TRUE(gpu->row_idx == a.row_idx);
}

TEST_F(GpuPattern, TheLimitOfEntriesIsHeld) {
  const CscMatrix a = bench::Laplacian27(8);
  for (const int power : {1, 2, 3}) {
    StaticSpaiOptions options = With(LocalSolver::kGram, power);
    const int64_t nnz = BuildPattern(a, nullptr, options.pattern, {})->nnz();
    options.pattern.max_nnz = nnz;
    EXPECT_TRUE(PlanStaticSpaiCuda(device_, a, nullptr, options, {}).ok()) << power;
    options.pattern.max_nnz = nnz - 1;
    const auto plan = PlanStaticSpaiCuda(device_, a, nullptr, options, {});
    ASSERT_FALSE(plan.ok()) << power;
    EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(plan.status().reason(), "PATTERN_TOO_LARGE");
    EXPECT_EQ(device_->used_bytes(), 0);
  }
}

TEST_F(GpuPattern, AStopIsHonoured) {
  PatternOptions options;
  options.power = 2;
  StopSource source;
  source.Request(StopReason::kCancelled);
  const auto made = OnDevice(OneDenseColumn(9000, 4000, {}), nullptr, options, source.token());
  EXPECT_EQ(made.status().code(), StatusCode::kCancelled);
}

TEST_F(GpuPattern, TheMemoryLimitIsHeld) {
  const CscMatrix a = bench::Laplacian27(16);
  for (const int64_t limit : {2 << 20, 4 << 20, 8 << 20, 12 << 20}) {
    const auto small = OpenDevice(limit);
    ASSERT_NE(small, nullptr);
    const auto plan = PlanStaticSpaiCuda(small, a, nullptr, With(LocalSolver::kGram, 4), {});
    ASSERT_FALSE(plan.ok()) << limit;
    EXPECT_EQ(plan.status().reason(), "DEVICE_OUT_OF_MEMORY");
    EXPECT_EQ(small->used_bytes(), 0);
    EXPECT_TRUE(small->Probe().ok());
  }
}

TEST_F(GpuPattern, AnArenaOfTheEstimatedSizeSuffices) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"one", FromRows({{-4}}), 2},
      {"P7_20", bench::ConvectionDiffusion(20, 0), 3},
      {"P27_12", bench::Laplacian27(12), 2},
      {"elasticity_5", bench::Elasticity(5), 2},
      {"circuit", bench::Circuit(3000, 4, 60), 2},
      {"irregular", oracle::RandomIrregular(1000, 6, 1), 3},
      {"diagonal blocks", DenseBlocks(900, 3), 3},
      {"arrow", oracle::Arrow(1000), 2},
      {"dense column", OneDenseColumn(9000, 4000, {3}), 2},
      {"zero diagonal", oracle::ZeroDiagonal(400, 1), 2},
  };
  for (const Case& c : cases) {
    const Pattern transposed = Transpose(c.a.pattern());
    const PatternView user = transposed;
    for (int variant = 0; variant < 6; ++variant) {
      StaticSpaiOptions options = With(LocalSolver::kGram, variant == 5 ? 1 : c.power);
      options.pattern.ensure_row = variant == 1;
      options.pattern.row_match = variant == 2;
      if (variant == 3) options.pattern.keep_tau = 0.5;
      if (variant == 4) options.post_filter = 1e-12;
      const PatternView* base = variant >= 4 ? &user : nullptr;
      const std::string what = std::string(c.name) + ", variant " + std::to_string(variant);
      const auto counts = EstimateStaticSpai(c.a, base, options, {});
      ASSERT_TRUE(counts.ok()) << what;
      for (const int64_t bytes : {counts->device_bytes, counts->device_bytes_min}) {
        const auto exact = OpenDevice(bytes);
        ASSERT_NE(exact, nullptr);
        StaticSpaiCudaTimings timings;
        auto plan = PlanStaticSpaiCuda(exact, c.a, base, options, {}, &timings);
        ASSERT_TRUE(plan.ok()) << what << ": " << plan.status().message();
        auto built = BuildStaticSpaiCuda(**plan, c.a, options, {}, &timings);
        ASSERT_TRUE(built.ok()) << what << ": " << built.status().message();
        EXPECT_LE(timings.device_bytes, bytes) << what;
        EXPECT_TRUE(!timings.tables_in_waves || bytes < counts->device_bytes) << what;
      }
    }
  }
}

// --- The post-filter ---

StaticSpaiResult BuildOn(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                         const StaticSpaiOptions& options, StaticSpaiCudaTimings* timings) {
  auto plan = PlanStaticSpaiCuda(device, a, nullptr, options, {}, timings);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return {};
  auto result = BuildStaticSpaiCuda(**plan, a, options, {}, timings);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(result).value() : StaticSpaiResult{};
}

bool SameBits(const Array<double>& x, const Array<double>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
}

// Filtered on the device: what the host makes of the unfiltered M of the device.
TEST_F(GpuPattern, ThePostFilterIsTheHosts) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
    bool host_columns;
  };
  const Case cases[] = {
      {"P7_14", bench::ConvectionDiffusion(14, 200), 2, false},
      {"P27_10", bench::Laplacian27(10), 1, false},
      {"elasticity_5", bench::Elasticity(5), 2, false},
      {"circuit", bench::Circuit(2000, 4, 60), 1, false},
      {"irregular", oracle::RandomIrregular(900, 7, 3), 2, false},
      {"dense column", OneDenseColumn(6000, 2500, {7}), 1, true},
  };
  for (const Case& c : cases) {
    StaticSpaiCudaTimings timings;
    StaticSpaiOptions whole = With(LocalSolver::kGram, c.power);
    BuildOn(device_, c.a, whole, &timings);
    const int64_t needed = timings.device_bytes;
    // What a filter that drops zeros alone keeps: columns of few diagonals spare their residual
    // without any filter, and differ in the last bits.
    whole.post_filter = 1e-300;
    // In room for both Ms, then, for the small filters, in room for one: the host's turn.
    for (const auto& device : {device_, OpenDevice(needed)}) {
      const StaticSpaiResult m = BuildOn(device, c.a, whole, &timings);
      for (const double delta : {1e-300, 1e-3, 0.1, 1.0}) {
        StaticSpaiOptions options = whole;
        options.post_filter = delta;
        const CscMatrix expected = PostFilter(m.m, delta);
        StaticSpaiCudaTimings own;
        const StaticSpaiResult gpu = BuildOn(device, c.a, options, &own);
        const std::string what = std::string(c.name) + ", delta " + std::to_string(delta);
        EXPECT_EQ(own.host_columns > 0, c.host_columns) << what;
        ASSERT_TRUE(gpu.m.col_ptr == expected.col_ptr) << what;
        ASSERT_TRUE(gpu.m.row_idx == expected.row_idx) << what;
        EXPECT_TRUE(SameBits(gpu.m.values, expected.values)) << what;
        const std::vector<double> residuals = ExplicitResiduals(c.a, gpu.m);
        const std::vector<double> rounding = RoundingOfResiduals(c.a, gpu.m);
        for (size_t k = 0; k < residuals.size(); ++k) {
          ASSERT_NEAR(gpu.residual_norms[k], residuals[k], 1e-9 * (1 + residuals[k]) + rounding[k])
              << what << ", column " << k;
        }
      }
    }
  }
}

// --- Waves ---

// Irregular matrices, whose tables are nearly all that a plan holds, in less and less memory.
TEST_F(GpuPattern, TablesWithoutRoomAreMadeInWaves) {
  struct Case {
    const char* name;
    CscMatrix a;
    int power;
  };
  const Case cases[] = {
      {"irregular", oracle::RandomIrregular(20000, 12, 1), 1},
      {"irregular, power 2", oracle::RandomIrregular(8000, 6, 2), 2},
      {"large problems", oracle::RandomIrregular(4000, 40, 3), 1},
  };
  for (const Case& c : cases) {
    const StaticSpaiOptions options = With(LocalSolver::kGram, c.power);
    StaticSpaiCudaTimings whole;
    const StaticSpaiResult m = BuildOn(device_, c.a, options, &whole);
    EXPECT_FALSE(whole.tables_in_waves) << c.name;
    int in_waves = 0;
    for (const int percent : {90, 60, 40, 20, 10}) {
      const std::string what = std::string(c.name) + ", " + std::to_string(percent) + " %";
      const int64_t limit = whole.device_bytes * percent / 100;
      const auto device = OpenDevice(limit);
      StaticSpaiCudaTimings timings;
      auto plan = PlanStaticSpaiCuda(device, c.a, nullptr, options, {}, &timings);
      auto gpu = plan.ok() ? BuildStaticSpaiCuda(**plan, c.a, options, {}, &timings)
                           : Result<StaticSpaiResult>(plan.status());
      if (!gpu.ok()) {
        EXPECT_EQ(gpu.status().reason(), "DEVICE_OUT_OF_MEMORY") << what;
        EXPECT_NE(gpu.status().message().find("--device-memory"), std::string::npos) << what;
        EXPECT_TRUE(device->Probe().ok()) << what;
        continue;
      }
      EXPECT_LE(timings.device_bytes, limit) << what;
      in_waves += timings.tables_in_waves ? 1 : 0;
      ASSERT_TRUE(gpu->m.col_ptr == m.m.col_ptr) << what;
      ASSERT_TRUE(gpu->m.row_idx == m.m.row_idx) << what;
      EXPECT_GE(timings.host_columns, whole.host_columns) << what;  // the host rescues, too
      for (size_t p = 0; p < m.m.values.size(); ++p) {
        ASSERT_NEAR(gpu->m.values[p], m.m.values[p], 1e-10 * std::abs(m.m.values[p]) + 1e-13)
            << what << ", entry " << p;
      }
      if (!timings.tables_in_waves) continue;
      // The plan stays what it was.
      auto again = BuildStaticSpaiCuda(**plan, c.a, options, {}, &timings);
      ASSERT_TRUE(again.ok()) << what << ": " << again.status().message();
      EXPECT_TRUE(SameBits(again->m.values, gpu->m.values)) << what;
      // QR follows other orders of the groups.
      auto by_qr = BuildStaticSpaiCuda(**plan, c.a, With(LocalSolver::kQr), {});
      if (by_qr.ok()) {
        const std::vector<double> residuals = ExplicitResiduals(c.a, by_qr->m);
        for (size_t k = 0; k < residuals.size(); ++k) {
          ASSERT_LE(residuals[k], (1 + 1e-6) * m.residual_norms[k] + 1e-10) << what << ", " << k;
        }
      } else {
        EXPECT_EQ(by_qr.status().reason(), "DEVICE_OUT_OF_MEMORY") << what;
      }
      StopSource source;
      source.Request(StopReason::kCancelled);
      auto stopped = BuildStaticSpaiCuda(**plan, c.a, options, {.stop = source.token()});
      ASSERT_FALSE(stopped.ok()) << what;
      EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled) << what;
    }
    EXPECT_GE(in_waves, 1) << c.name;
  }
}

// --- Long columns ---

// |I| over 2^15: QR would take n x n, so the CPU's own answer is the measure.
TEST_F(GpuPattern, MoreThan32768Rows) {
  const CscMatrix a = OneDenseColumn(40000, 20000, {5, 39000});
  StaticSpaiCudaTimings timings;
  const StaticSpaiOptions options = With(LocalSolver::kAuto);
  const StaticSpaiResult gpu = BuildOn(device_, a, options, &timings);
  const StaticSpaiResult cpu = Build(a, nullptr, options);
  ASSERT_TRUE(gpu.m.col_ptr == cpu.m.col_ptr);
  ASSERT_TRUE(gpu.m.row_idx == cpu.m.row_idx);
  EXPECT_EQ(timings.host_columns, 1);  // that with n entries in J
  const std::vector<double> of_gpu = ExplicitResiduals(a, gpu.m);
  const std::vector<double> of_cpu = ExplicitResiduals(a, cpu.m);
  const std::vector<double> rounding = RoundingOfResiduals(a, gpu.m);
  for (size_t k = 0; k < of_gpu.size(); ++k) {
    ASSERT_LE(of_gpu[k], (1 + 1e-6) * of_cpu[k] + 1e-10 + rounding[k]) << k;
    ASSERT_NEAR(gpu.residual_norms[k], of_gpu[k], 1e-9 * (1 + of_gpu[k]) + rounding[k]) << k;
  }
}

}  // namespace
}  // namespace spaid::kernels
