// FSAI on a CUDA device: the G of the CPU, where no tie decides, and what must hold of any.
// Skipped, with the reason, where there is no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "kernels/sparse/transpose.h"
#include "tests/kernels/fsai/build_on_device.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A symmetric number in [0, 1) of each pair: no two gradients are alike.
double Chance(int64_t i, int64_t j) {
  uint64_t x = static_cast<uint64_t>(std::min(i, j)) * 0x9e3779b97f4a7c15u +
               static_cast<uint64_t>(std::max(i, j)) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1.0p-53;
}

// Random values on the pattern of `a`; `dominance` times the sums of the rows on the diagonal.
CscMatrix Randomised(CscMatrix a, double dominance = 1.01) {
  std::vector<double> sum(Z(a.n_cols), 0.0);
  const auto each = [&](const auto& use) {
    for (int64_t j = 0; j < a.n_cols; ++j) {
      for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
        use(a.row_idx[Z(p)], j, a.values[Z(p)]);
      }
    }
  };
  each([&](int64_t i, int64_t j, double& value) {
    if (i == j) return;
    value = -(0.2 + Chance(i, j));
    sum[Z(j)] -= value;
  });
  each([&](int64_t i, int64_t j, double& value) {
    if (i == j) value = dominance * std::max(sum[Z(j)], 1e-3);
  });
  return a;
}

// The pattern of A and Aᵀ together.
CscMatrix BothSides(const CscMatrix& a) {
  std::vector<std::set<int32_t>> columns(Z(a.n_cols));
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (const int32_t i : a.pattern().column(j)) {
      columns[Z(j)].insert(i);
      columns[Z(i)].insert(static_cast<int32_t>(j));
    }
  }
  CscMatrix both;
  both.n_rows = both.n_cols = a.n_cols;
  both.col_ptr.push_back(0);
  for (const std::set<int32_t>& column : columns) {
    both.row_idx.insert(both.row_idx.end(), column.begin(), column.end());
    both.col_ptr.push_back(both.nnz());
  }
  both.values.resize(both.row_idx.size());
  return both;
}

// Tridiagonal but for row and column n/2, which are full.
CscMatrix Arrow(int64_t n) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    std::set<int64_t> rows{std::max<int64_t>(j - 1, 0), j, std::min(j + 1, n - 1), n / 2};
    for (int64_t i = 0; j == n / 2 && i < n; ++i) rows.insert(i);
    for (const int64_t i : rows) a.row_idx.push_back(static_cast<int32_t>(i));
    a.values.resize(a.row_idx.size());
    a.col_ptr.push_back(a.nnz());
  }
  return Randomised(std::move(a));
}

// About 2 `half` entries a row, anywhere: each pivot has other neighbours.
CscMatrix Wide(int64_t n, int64_t half) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    std::set<int32_t> rows{static_cast<int32_t>(j)};
    for (int64_t t = 0; t < half; ++t) {
      rows.insert(static_cast<int32_t>(Chance(j, n + t) * static_cast<double>(n)));
    }
    a.row_idx.insert(a.row_idx.end(), rows.begin(), rows.end());
    a.col_ptr.push_back(a.nnz());
  }
  a.values.resize(a.row_idx.size());
  return Randomised(BothSides(a));
}

// Largest |(G A Gᵀ)_ii − 1|, by the definition.
double DiagonalError(const CscView& a, const CscView& g) {
  double worst = 0;
  std::vector<double> row(Z(a.n_cols), 0.0);
  for (int64_t i = 0; i < g.n_cols; ++i) {
    const auto idx = g.column(i);
    const auto values = g.column_values(i);
    for (size_t p = 0; p < idx.size(); ++p) row[Z(idx[p])] = values[p];
    double product = 0;
    for (size_t p = 0; p < idx.size(); ++p) {
      const auto of = a.column(idx[p]);
      const auto with = a.column_values(idx[p]);
      double sum = 0;
      for (size_t q = 0; q < of.size(); ++q) sum += with[q] * row[Z(of[q])];
      product += values[p] * sum;
    }
    worst = std::max(worst, std::abs(product - 1));
    for (const int32_t j : idx) row[Z(j)] = 0;
  }
  return worst;
}

FsaiOptions Grow(int k_max, int s = 1, Precision precision = Precision::kFp64) {
  FsaiOptions options;
  options.k_max = k_max;
  options.s = s;
  options.precision = precision;
  return options;
}

class GpuFsai : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    static const std::shared_ptr<CudaDevice> device = Open(0);
    ASSERT_NE(device, nullptr);
    device_ = device;
  }

  static std::shared_ptr<CudaDevice> Open(int64_t memory_limit) {
    auto device = OpenGpu(memory_limit);
    EXPECT_TRUE(device.ok()) << device.status().message();
    return device.ok() ? *device : nullptr;
  }

  FsaiResult OnDevice(const CscView& a, const FsaiOptions& options,
                      const PatternView* initial = nullptr) {
    auto result = BuildFsaiCuda(device_, a, initial, options, {});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(result).value() : FsaiResult{};
  }
  static FsaiResult OnHost(const CscView& a, const FsaiOptions& options,
                           const PatternView* initial = nullptr) {
    auto result = BuildFsai(a, initial, options, {});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(result).value() : FsaiResult{};
  }

  static void ExpectEqual(const FsaiResult& gpu, const FsaiResult& cpu, double tolerance,
                          const std::string& what) {
    ASSERT_EQ(gpu.g_rows.col_ptr, cpu.g_rows.col_ptr) << what;
    ASSERT_EQ(gpu.g_rows.row_idx, cpu.g_rows.row_idx) << what;
    for (int64_t i = 0; i < cpu.g_rows.n_cols; ++i) {
      const auto x = CscView(gpu.g_rows).column_values(i), y = CscView(cpu.g_rows).column_values(i);
      double size = 0, error = 0;
      for (size_t p = 0; p < y.size(); ++p) {
        size = std::max(size, std::abs(y[p]));
        error = std::max(error, std::abs(x[p] - y[p]));
      }
      ASSERT_LE(error, tolerance * size) << what << ", row " << i;
      ASSERT_NEAR(gpu.psi_ratio[Z(i)], cpu.psi_ratio[Z(i)], tolerance) << what << ", row " << i;
    }
    const FsaiQuality &ours = gpu.quality, &theirs = cpu.quality;
    EXPECT_NEAR(ours.kaporin, theirs.kaporin, tolerance) << what;
    ASSERT_EQ(ours.kaporin_by_step.size(), theirs.kaporin_by_step.size()) << what;
    for (size_t t = 0; t < theirs.kaporin_by_step.size(); ++t) {
      EXPECT_NEAR(ours.kaporin_by_step[t], theirs.kaporin_by_step[t], tolerance)
          << what << ", step " << t;
    }
    EXPECT_DOUBLE_EQ(ours.density, theirs.density) << what;
    EXPECT_EQ(ours.nnz_row_max, theirs.nnz_row_max) << what;
    EXPECT_EQ(ours.not_spd_rows, theirs.not_spd_rows) << what;
    EXPECT_EQ(ours.first_not_spd, theirs.first_not_spd) << what;
    EXPECT_EQ(ours.converged_rows, theirs.converged_rows) << what;
    EXPECT_EQ(ours.steps, theirs.steps) << what;
  }

  std::shared_ptr<CudaDevice> device_;
};

struct Named {
  const char* name;
  CscMatrix matrix;
};

std::vector<Named> Matrices() {
  std::vector<Named> all;
  all.push_back({"7 points", Randomised(bench::ConvectionDiffusion(9, 0))});
  all.push_back({"27 points", Randomised(bench::Laplacian27(7))});
  all.push_back({"elasticity", Randomised(bench::Elasticity(5))});
  all.push_back({"9 points", Randomised(bench::Anisotropic(25, 1e-3, std::numbers::pi / 8))});
  all.push_back({"circuit", Randomised(BothSides(bench::Circuit(900, 3, 80)))});
  all.push_back({"arrow", Arrow(300)});
  return all;
}

TEST_F(GpuFsai, OfOneRowIsItsInverseRoot) {
  CscMatrix a;
  a.n_rows = a.n_cols = 1;
  a.col_ptr = {0, 1};
  a.row_idx = {0};
  a.values = {4};
  for (const auto precision : {Precision::kFp64, Precision::kFp32}) {
    const FsaiResult g = OnDevice(a, Grow(30, 1, precision));
    ASSERT_EQ(g.g_rows.nnz(), 1);
    EXPECT_EQ(g.g_rows.values[0], 0.5);
    EXPECT_EQ(g.psi_ratio[0], 1);
    EXPECT_EQ(g.quality.kaporin, 1);
  }
}

// A = [4 2; 2 5]: g̃ = −1/2, ψ = 4.
TEST_F(GpuFsai, OfTwoRowsByHand) {
  CscMatrix a;
  a.n_rows = a.n_cols = 2;
  a.col_ptr = {0, 2, 4};
  a.row_idx = {0, 1, 0, 1};
  a.values = {4, 2, 2, 5};
  const FsaiResult g = OnDevice(a, Grow(1));
  ASSERT_EQ(g.g_rows.row_idx, (Array<int32_t>{0, 0, 1}));
  EXPECT_DOUBLE_EQ(g.g_rows.values[0], 0.5);
  EXPECT_DOUBLE_EQ(g.g_rows.values[1], -0.25);
  EXPECT_DOUBLE_EQ(g.g_rows.values[2], 0.5);
  EXPECT_DOUBLE_EQ(g.psi_ratio[1], 0.8);
}

TEST_F(GpuFsai, GrowsAsTheCpuDoes) {
  std::vector<Named> all = Matrices();
  all.push_back({"wide", Wide(1500, 20)});
  for (const Named& named : all) {
    for (const auto& [k_max, s] :
         {std::pair{0, 1}, {1, 1}, {2, 1}, {7, 1}, {14, 1}, {30, 1}, {45, 1}, {4, 3}, {12, 5}}) {
      const std::string what =
          std::string(named.name) + ", k_max " + std::to_string(k_max) + ", s " + std::to_string(s);
      const FsaiOptions options = Grow(k_max, s);
      const FsaiResult gpu = OnDevice(named.matrix, options);
      ExpectEqual(gpu, OnHost(named.matrix, options), 1e-10, what);
      if (HasFatalFailure()) return;
      EXPECT_LE(DiagonalError(named.matrix, gpu.g_rows), 1e-11) << what;
    }
  }
}

// Up to 1500 candidates a row.
TEST_F(GpuFsai, GrowsAmongManyCandidates) {
  const CscMatrix a = Wide(2500, 300);
  for (const int k_max : {1, 2, 4}) {
    ExpectEqual(OnDevice(a, Grow(k_max)), OnHost(a, Grow(k_max)), 1e-10, std::to_string(k_max));
  }
}

TEST_F(GpuFsai, EndsRowsThatConverge) {
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(8, 0), 1.0001);
  FsaiOptions options = Grow(30);
  options.epsilon = 0.9;
  const FsaiResult gpu = OnDevice(a, options);
  ExpectEqual(gpu, OnHost(a, options), 1e-10, "epsilon 0.9");
  EXPECT_GT(gpu.quality.converged_rows, 100);
}

TEST_F(GpuFsai, EndsRowsThatGainLittle) {
  for (const Named& named : Matrices()) {
    for (const auto& [k_max, s] : {std::pair{30, 1}, {45, 1}, {8, 3}}) {
      FsaiOptions options = Grow(k_max, s);
      const FsaiResult all = OnDevice(named.matrix, options);
      options.min_gain = 0.01;
      const FsaiResult gpu = OnDevice(named.matrix, options);
      ExpectEqual(gpu, OnHost(named.matrix, options), 1e-10, named.name);
      if (HasFatalFailure()) return;
      EXPECT_LT(gpu.g_rows.nnz(), all.g_rows.nnz()) << named.name;
    }
  }
}

TEST_F(GpuFsai, GrowsInFp32) {
  std::vector<Named> all = Matrices();
  all.push_back({"wide", Wide(1500, 20)});
  for (const Named& named : all) {
    const FsaiOptions options = Grow(20, 1, Precision::kFp32);
    const FsaiResult gpu = OnDevice(named.matrix, options), cpu = OnHost(named.matrix, options);
    EXPECT_LE(DiagonalError(named.matrix, gpu.g_rows), 2e-5) << named.name;
    EXPECT_NEAR(gpu.quality.kaporin, cpu.quality.kaporin, 1e-5) << named.name;
    for (const double value : gpu.g_rows.values) {
      ASSERT_EQ(value, static_cast<double>(static_cast<float>(value))) << named.name;
    }
  }
}

TEST_F(GpuFsai, DoesNotMindTheRangeOfFp32) {
  CscMatrix a = Randomised(bench::ConvectionDiffusion(6, 0));
  const FsaiOptions options = Grow(10, 1, Precision::kFp32);
  const FsaiResult plain = OnDevice(a, options);
  for (const double scale : {0x1p180, 0x1p-200}) {
    CscMatrix scaled = a;
    for (double& value : scaled.values) value *= scale;
    const FsaiResult g = OnDevice(scaled, options);
    ASSERT_EQ(g.g_rows.row_idx, plain.g_rows.row_idx);
    for (size_t p = 0; p < plain.g_rows.values.size(); ++p) {
      ASSERT_EQ(g.g_rows.values[p] * std::sqrt(scale), plain.g_rows.values[p]);
    }
  }
}

// Thousands of candidates a row: more than shared memory holds.
TEST_F(GpuFsai, CountsRowsThatOutgrowSharedMemory) {
  const CscMatrix a = Arrow(14000);
  const FsaiOptions options = Grow(5);
  const FsaiResult gpu = OnDevice(a, options);
  EXPECT_GT(gpu.quality.slow_rows, 1000);
  EXPECT_LT(gpu.quality.slow_rows, 14000);
  ExpectEqual(gpu, OnHost(a, options), 1e-10, "arrow");
}

TEST_F(GpuFsai, GrowsFromAPattern) {
  const CscMatrix a = Randomised(bench::Laplacian27(6));
  const FsaiOptions options = Grow(6);
  const PatternView initial = a.pattern();
  ExpectEqual(OnDevice(a, options, &initial), OnHost(a, options, &initial), 1e-10, "from tril(A)");
  const FsaiOptions still = Grow(0);
  ExpectEqual(OnDevice(a, still, &initial), OnHost(a, still, &initial), 1e-10, "no steps");
}

TEST_F(GpuFsai, SolvesOnPatterns) {
  for (const Named& named : Matrices()) {
    for (const int power : {1, 2, 3}) {
      FsaiOptions options;
      options.adaptive = false;
      options.power = power;
      const std::string what = std::string(named.name) + ", power " + std::to_string(power);
      const FsaiResult gpu = OnDevice(named.matrix, options);
      ExpectEqual(gpu, OnHost(named.matrix, options), 1e-10, what);
      if (HasFatalFailure()) return;
      options.post_filter = 0.05;
      ExpectEqual(OnDevice(named.matrix, options), OnHost(named.matrix, options), 1e-10,
                  what + ", filtered");
      if (HasFatalFailure()) return;
    }
  }
}

// All entries of nodes of `node` unknowns that are at most `reach` apart.
CscMatrix BlockBand(int64_t nodes, int64_t node, int64_t reach) {
  CscMatrix a;
  a.n_rows = a.n_cols = nodes * node;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int64_t begin = std::max<int64_t>(j / node - reach, 0) * node;
    const int64_t end = std::min(j / node + reach + 1, nodes) * node;
    for (int64_t i = begin; i < end; ++i) a.row_idx.push_back(static_cast<int32_t>(i));
    a.col_ptr.push_back(a.nnz());
  }
  a.values.resize(a.row_idx.size());
  return Randomised(std::move(a));
}

// Systems of all sizes, alone and sharing a factor, up to those that rows make by themselves.
TEST_F(GpuFsai, SolvesOnPatternsOfAnyLength) {
  for (const int64_t node : {1, 2, 3, 5}) {
    for (const int64_t entries : {1, 2, 4, 5, 8, 9, 16, 17, 31, 32, 33, 64, 65, 95, 96, 97, 130}) {
      if (entries % node != 0 && entries > node) continue;
      const CscMatrix a = BlockBand(200, node, std::max<int64_t>(entries / node - 1, 0));
      for (const auto precision : {Precision::kFp64, Precision::kFp32}) {
        FsaiOptions options;
        options.adaptive = false;
        options.precision = precision;
        const bool fp64 = precision == Precision::kFp64;
        const FsaiResult gpu = OnDevice(a, options);
        ExpectEqual(gpu, OnHost(a, options), fp64 ? 1e-10 : 1e-4,
                    std::to_string(node) + " x " + std::to_string(entries / node));
        if (HasFatalFailure()) return;
        EXPECT_LE(DiagonalError(a, gpu.g_rows), fp64 ? 1e-11 : 1e-4);
      }
    }
  }
}

TEST_F(GpuFsai, FiltersWhatHasGrown) {
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(8, 0));
  for (const int k_max : {20, 40}) {
    FsaiOptions options = Grow(k_max);
    options.post_filter = 0.02;
    const FsaiResult gpu = OnDevice(a, options);
    ExpectEqual(gpu, OnHost(a, options), 1e-10, "filtered");
    EXPECT_LE(DiagonalError(a, gpu.g_rows), 1e-11);
  }
}

TEST_F(GpuFsai, RebuildsOnAGrownPattern) {
  const CscMatrix a = Randomised(bench::Anisotropic(30, 1e-3, 0.3));
  for (const int k_max : {12, 50}) {
    const FsaiResult grown = OnDevice(a, Grow(k_max));
    const auto again = BuildFsaiOnCuda(device_, grown.g_rows.pattern(), a, Grow(k_max), {});
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_EQ(again->g_rows.row_idx, grown.g_rows.row_idx);
    for (size_t p = 0; p < grown.g_rows.values.size(); ++p) {
      ASSERT_NEAR(again->g_rows.values[p], grown.g_rows.values[p],
                  1e-10 * std::abs(grown.g_rows.values.back()) + 1e-10);
    }
  }
}

TEST_F(GpuFsai, SaysWhatIsNotDefinite) {
  CscMatrix a = Randomised(bench::ConvectionDiffusion(7, 0), 0.4);  // indefinite in places
  ExpectEqual(OnDevice(a, Grow(10)), OnHost(a, Grow(10)), 1e-8, "grown");
  FsaiOptions on_pattern;
  on_pattern.adaptive = false;
  on_pattern.power = 3;
  const FsaiResult gpu = OnDevice(a, on_pattern);
  ExpectEqual(gpu, OnHost(a, on_pattern), 1e-8, "on a pattern");
  EXPECT_GT(gpu.quality.not_spd_rows, 0);
}

// Which of two mirrored entries is used, is not defined.
TEST_F(GpuFsai, TakesWhatIsAlmostSymmetric) {
  CscMatrix a = Randomised(bench::Laplacian27(5));
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
      if (a.row_idx[Z(p)] < j) a.values[Z(p)] *= 1 + 1e-8;
    }
  }
  FsaiOptions options = Grow(10);
  options.symmetry_tolerance = 1e-6;
  ExpectEqual(OnDevice(a, options), OnHost(a, options), 1e-5, "almost symmetric");
  // Without a mirror, of no size.
  CscMatrix b;
  b.n_rows = b.n_cols = 3;
  b.col_ptr = {0, 3, 4, 6};
  b.row_idx = {0, 1, 2, 1, 1, 2};
  b.values = {2, 1e-12, 1e-12, 3, 1e-12, 4};
  const FsaiResult g = OnDevice(b, Grow(2));
  ASSERT_EQ(g.g_rows.n_cols, 3);
  EXPECT_LE(DiagonalError(b, g.g_rows), 1e-10);
}

TEST_F(GpuFsai, RefusesAsTheCpuDoes) {
  const auto expect = [&](const CscMatrix& a, const FsaiOptions& options) {
    const auto gpu = BuildFsaiCuda(device_, a, nullptr, options, {});
    const auto cpu = BuildFsai(a, nullptr, options, {});
    ASSERT_FALSE(cpu.ok());
    ASSERT_FALSE(gpu.ok());
    EXPECT_EQ(gpu.status().reason(), cpu.status().reason());
    EXPECT_EQ(gpu.status().message(), cpu.status().message());
    EXPECT_EQ(gpu.status().index(), cpu.status().index());
  };
  const CscMatrix good = Randomised(bench::ConvectionDiffusion(5, 0));
  CscMatrix bad = good;
  bad.values[Z(bad.col_ptr[40] + 1)] *= 1.5;
  expect(bad, {});
  bad = good;
  for (int64_t p = bad.col_ptr[70]; p < bad.col_ptr[71]; ++p) {
    if (bad.row_idx[Z(p)] == 70) bad.values[Z(p)] = -1;
  }
  expect(bad, {});
  FsaiOptions wrong;
  wrong.k_max = -1;
  expect(good, wrong);
}

TEST_F(GpuFsai, GivesTheSameInWavesAndTwice) {
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(24, 0));
  FsaiCudaTimings timings;
  const auto whole = BuildFsaiCuda(device_, a, nullptr, Grow(30), {}, &timings);
  ASSERT_TRUE(whole.ok());
  const FsaiResult twice = OnDevice(a, Grow(30));
  EXPECT_EQ(twice.g_rows.values, whole->g_rows.values);
  EXPECT_EQ(twice.quality.kaporin_by_step, whole->quality.kaporin_by_step);
  const auto small = Open(timings.device_bytes * 92 / 100);
  ASSERT_NE(small, nullptr);
  FsaiCudaTimings in_less;
  const auto waves = BuildFsaiCuda(small, a, nullptr, Grow(30), {}, &in_less);
  ASSERT_TRUE(waves.ok()) << waves.status().message();
  EXPECT_LT(in_less.device_bytes, timings.device_bytes);
  EXPECT_EQ(timings.waves, 1);
  EXPECT_GT(in_less.waves, 1);
  EXPECT_EQ(waves->g_rows.col_ptr, whole->g_rows.col_ptr);
  EXPECT_EQ(waves->g_rows.row_idx, whole->g_rows.row_idx);
  EXPECT_EQ(waves->g_rows.values, whole->g_rows.values);
  EXPECT_EQ(waves->quality.kaporin_by_step, whole->quality.kaporin_by_step);
}

// The whole way with a plan: what stays on the device serves new values.
TEST_F(GpuFsai, APlanKeepsPatternsThere) {
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(11, 0));
  CscMatrix next = a;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
      const int64_t i = a.row_idx[Z(p)];
      if (i != j) next.values[Z(p)] *= 0.3 + 0.1 * static_cast<double>((i + j + i * j) % 8);
    }
  }
  for (const double filter : {0.0, 0.02}) {
    FsaiOptions options = Grow(12);
    options.post_filter = filter;
    const auto plan = PlanFsaiCuda({&device_, 1}, a, nullptr, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    FsaiCudaOutputs first, second;
    const auto grown = GrowFsaiCuda(**plan, nullptr, a, options, {}, nullptr, &first);
    ASSERT_TRUE(grown.ok()) << grown.status().message();
    ExpectEqual(*grown, OnHost(a, options), 1e-10, "grown");
    const CscMatrix columns = *Transpose(grown->g_rows, {});
    EXPECT_EQ(first.g_columns.col_ptr, columns.col_ptr);
    EXPECT_EQ(first.g_columns.row_idx, columns.row_idx);
    EXPECT_EQ(first.g_columns.values, columns.values);
    ASSERT_TRUE(first.g && first.plan);
    EXPECT_EQ(first.g->device_bytes, 12 * columns.nnz() + 8 * (a.n_cols + 1));
    const PatternView rows = grown->g_rows.pattern();
    options.post_filter = 0;
    const auto again = BuildFsaiOnCuda(*first.plan, rows, next, options, {}, nullptr, &second);
    ASSERT_TRUE(again.ok()) << again.status().message();
    const auto cpu = BuildFsaiOn(rows, next, options, {});
    ASSERT_TRUE(cpu.ok());
    ASSERT_EQ(again->g_rows.row_idx, cpu->g_rows.row_idx);
    for (size_t p = 0; p < cpu->g_rows.values.size(); ++p) {
      ASSERT_NEAR(again->g_rows.values[p], cpu->g_rows.values[p], 1e-10);
    }
    EXPECT_EQ(second.g_columns.values, Transpose(again->g_rows, {})->values);
    // Another pattern of as many entries.
    CscMatrix other = a;
    for (int64_t j = 0; j + 1 < a.n_cols; ++j) {
      if (a.col_ptr[Z(j) + 1] - a.col_ptr[Z(j)] < 3) continue;
      int32_t& last = other.row_idx[Z(a.col_ptr[Z(j) + 1] - 1)];
      if (last + 1 < a.n_cols) ++last;
      break;
    }
    EXPECT_EQ(BuildFsaiOnCuda(*first.plan, rows, other, options, {}).status().reason(),
              "PLAN_MISMATCH");
  }
}

// A row of thousands of entries, which no block's room holds, nor the device's.
TEST_F(GpuFsai, LeavesToTheHostWhatIsTooLarge) {
  const CscMatrix a = Arrow(6400);
  FsaiOptions options;
  options.adaptive = false;
  const Pattern rows = *FsaiPattern(a, nullptr, options, {});
  FsaiCudaTimings timings;
  FsaiCudaOutputs outputs;
  const PatternView pattern = rows;
  const auto with_rows = PlanFsaiCuda({&device_, 1}, a, &pattern, {});
  ASSERT_TRUE(with_rows.ok());
  const auto gpu = BuildFsaiOnCuda(**with_rows, pattern, a, options, {}, &timings, &outputs);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  EXPECT_EQ(timings.host_rows, 1);
  EXPECT_EQ(outputs.g, nullptr) << "the device's G lacks a row";
  EXPECT_EQ(outputs.g_columns.n_cols, 0);
  ExpectEqual(*gpu, OnHost(a, options), 1e-8, "arrow");
}

TEST_F(GpuFsai, StopsBetweenLaunches) {
  class StopAtFirst final : public ProgressSink {
   public:
    void OnProgress(Stage, int64_t done, int64_t total) override {
      done_ = done;
      total_ = total;
      source.Request(StopReason::kCancelled);
    }
    void OnResidual(const ResidualPoint&) override {}
    StopSource source;
    int64_t done_ = 0, total_ = 0;
  } sink;
  // 64,000 rows of 200 steps, none like another: work for more than one launch.
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(40, 0));
  FsaiOptions options = Grow(200);
  options.epsilon = 0;
  const auto g =
      BuildFsaiCuda(device_, a, nullptr, options, {.stop = sink.source.token(), .progress = &sink});
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().reason(), "CANCELLED");
  EXPECT_GT(sink.done_, 0);
  EXPECT_LT(sink.done_, sink.total_);
}

TEST_F(GpuFsai, SaysWhereMemoryIsTooSmall) {
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(24, 0));
  const auto small = Open(int64_t{1} << 20);
  ASSERT_NE(small, nullptr);
  const auto g = BuildFsaiCuda(small, a, nullptr, Grow(30), {});
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().reason(), "DEVICE_OUT_OF_MEMORY");
}

TEST_F(GpuFsai, KeepsToATimeBudget) {
  const CscMatrix a = Randomised(bench::Laplacian27(20));
  FsaiOptions options = Grow(300);
  options.time_budget_ms = 5;
  const FsaiResult g = OnDevice(a, options);
  EXPECT_TRUE(g.quality.out_of_time);
  EXPECT_LT(g.quality.steps, 300);
  const FsaiResult same = OnDevice(a, Grow(g.quality.steps));
  EXPECT_EQ(g.g_rows.row_idx, same.g_rows.row_idx);
  EXPECT_EQ(g.g_rows.values, same.g_rows.values);
}

TEST_F(GpuFsai, Stops) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  const CscMatrix a = Randomised(bench::ConvectionDiffusion(8, 0));
  const auto g = BuildFsaiCuda(device_, a, nullptr, Grow(5), {.stop = source.token()});
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().reason(), "CANCELLED");
}

}  // namespace
}  // namespace spaid::kernels
