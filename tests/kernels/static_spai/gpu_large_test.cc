// Static SPAI on a CUDA device, of large local problems and of many: hubs that clusters of blocks
// solve, and tables in which positions do not fit 32 bits.
#include <atomic>
#include <thread>

#include "kernels/bench/problems.h"
#include "tests/kernels/static_spai/gpu_helpers.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// Columns with the diagonal and `off` other rows each, every one of them drawn from a stretch of
// its own: ascending as they are made. O(nnz), where oracle::RandomIrregular sorts what it draws.
CscMatrix Stretches(int64_t n, int64_t off, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.reserve(static_cast<size_t>(n) + 1);
  a.row_idx.reserve(static_cast<size_t>(n * (off + 1)));
  a.values.reserve(static_cast<size_t>(n * (off + 1)));
  a.col_ptr.push_back(0);
  const int64_t stretch = n / off;
  const double scale = 1.0 / static_cast<double>(off);
  for (int64_t j = 0; j < n; ++j) {
    bool before = true;
    const auto diagonal = [&] {
      before = false;
      a.row_idx.push_back(static_cast<int32_t>(j));
      a.values.push_back(1);
    };
    for (int64_t t = 0; t < off; ++t) {
      const uint64_t word = random.Next();
      const auto at = static_cast<int64_t>((word >> 32) * static_cast<uint64_t>(stretch) >> 32);
      const int64_t row = t * stretch + at;
      if (row == j) continue;
      if (before && row > j) diagonal();
      a.row_idx.push_back(static_cast<int32_t>(row));
      a.values.push_back((static_cast<double>(word & 0xffffffff) * 0x1p-31 - 1) * scale * 2);
    }
    if (before) diagonal();
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

// Those columns of `from` alone.
CscMatrix Keep(const CscView& from, const std::vector<int64_t>& columns) {
  CscMatrix kept;
  kept.n_rows = from.n_rows;
  kept.n_cols = static_cast<int64_t>(columns.size());
  kept.col_ptr.push_back(0);
  for (const int64_t k : columns) {
    const auto rows = from.column(k);
    const auto values = from.column_values(k);
    kept.row_idx.insert(kept.row_idx.end(), rows.begin(), rows.end());
    kept.values.insert(kept.values.end(), values.begin(), values.end());
    kept.col_ptr.push_back(kept.nnz());
  }
  return kept;
}

// ‖A m − e_k‖ and what the terms lose in rounding, of column `at` of `m`.
std::pair<double, double> ResidualOf(const CscView& a, const CscView& m, int64_t at, int64_t k,
                                     std::vector<double>& sums, std::vector<double>& sizes) {
  std::vector<int32_t> touched{static_cast<int32_t>(k)};
  sums[static_cast<size_t>(k)] = -1;
  sizes[static_cast<size_t>(k)] = 1;
  const auto columns = m.column(at);
  const auto values = m.column_values(at);
  for (size_t p = 0; p < columns.size(); ++p) {
    const auto rows = a.column(columns[p]);
    const auto entries = a.column_values(columns[p]);
    for (size_t q = 0; q < rows.size(); ++q) {
      const auto i = static_cast<size_t>(rows[q]);
      if (sizes[i] == 0) touched.push_back(rows[q]);
      sums[i] += entries[q] * values[p];
      sizes[i] += std::abs(entries[q] * values[p]) + std::numeric_limits<double>::min();
    }
  }
  double squared = 0, size = 0;
  for (const int32_t row : touched) {
    const auto i = static_cast<size_t>(row);
    squared += sums[i] * sums[i];
    size += sizes[i] * sizes[i];
    sums[i] = sizes[i] = 0;
  }
  return {std::sqrt(squared), 4 * std::numeric_limits<double>::epsilon() * std::sqrt(size)};
}

TEST_F(GpuStaticSpai, HubsEqualTheCpuAndRepeatBitForBit) {
  struct Case {
    const char* name;
    CscMatrix a;
    double post_filter;
  };
  // Of |J| up to 300; up to 1300; as many that a cluster has fewer blocks; filtered.
  const Case cases[] = {
      {"12 hubs", bench::Circuit(8000, 12, 300), 0},
      {"2 large hubs", bench::Circuit(5000, 2, 1300), 0},
      {"40 hubs", bench::Circuit(20000, 40, 400), 0},
      {"12 hubs, filtered", bench::Circuit(8000, 12, 300), 0.02},
  };
  for (const Case& c : cases) {
    StaticSpaiOptions options = With(LocalSolver::kGram);
    options.post_filter = c.post_filter;
    ExpectEqual(c.a, nullptr, options, c.name);
    EXPECT_EQ(timings_.host_columns, 0) << c.name;
    auto plan = PlanStaticSpaiCuda(device_, c.a, nullptr, options, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    auto first = BuildStaticSpaiCuda(**plan, c.a, options, {});
    ASSERT_TRUE(first.ok()) << first.status().message();
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto again = BuildStaticSpaiCuda(**plan, c.a, options, {});
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_EQ(again->m.values, first->m.values) << c.name;
      EXPECT_EQ(again->residual_norms, first->residual_norms) << c.name;
    }
  }
}

TEST_F(GpuStaticSpai, HubsOfAnyScale) {
  // Columns near the ends of the range of numbers: their scales are clamped there.
  for (const double size : {1e-300, 1e-150, 1e150, 1e300}) {
    CscMatrix a = bench::Circuit(2000, 2, 300);
    for (double& v : a.values) v *= size;
    const StaticSpaiResult m = BuildOnDevice(a, nullptr, With(LocalSolver::kGram));
    const StaticSpaiResult same = Build(a, nullptr, With(LocalSolver::kGram));
    for (size_t k = 0; k < m.residual_norms.size(); ++k) {
      ASSERT_NEAR(m.residual_norms[k], same.residual_norms[k], 1e-9) << size << ", column " << k;
    }
  }
}

TEST_F(GpuStaticSpai, TablesOfMoreWordsThan32BitsCount) {
  constexpr int64_t kColumns = 600000, kOff = 60, kSampled = 200;
  const auto memory = static_cast<int64_t>(ListCudaDevices().devices[0].memory_bytes);
  if (memory < 40 * kGiB) GTEST_SKIP() << "the device has " << memory << " bytes of memory";
  const int64_t host = CpuDevice().memory_bytes;
  if (host < 16 * kGiB) GTEST_SKIP() << "the host has " << host << " bytes of memory";

  const CscMatrix a = Stretches(kColumns, kOff, 7);
  const CscView view = a;
  int64_t entries = 0;
  for (const int32_t j : a.row_idx) entries += static_cast<int64_t>(view.column(j).size());
  ASSERT_GT(entries, int64_t{1} << 31);

  const StaticSpaiOptions options = With(LocalSolver::kGram);
  const auto counts = EstimateStaticSpai(a, nullptr, options, {});
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  const StaticSpaiResult gpu = BuildOnDevice(a, nullptr, options);
  ASSERT_EQ(gpu.m.row_idx, a.row_idx);
  EXPECT_EQ(timings_.host_columns, 0);
  EXPECT_FALSE(timings_.tables_in_waves);
  EXPECT_GT(timings_.device_bytes, 4 * entries);
  EXPECT_LE(timings_.device_bytes, counts->device_bytes);

  // Residuals as reported are those of M.
  const CscView m = gpu.m;
  std::atomic<int64_t> wrong = 0, a_wrong_one = -1;
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> workers;
  for (int64_t worker = 0; worker < threads; ++worker) {
    workers.emplace_back([&, worker] {
      std::vector<double> sums(static_cast<size_t>(kColumns), 0), sizes(sums);
      for (int64_t k = worker; k < kColumns; k += threads) {
        const auto [residual, rounding] = ResidualOf(a, m, k, k, sums, sizes);
        const double reported = gpu.residual_norms[static_cast<size_t>(k)];
        if (std::abs(reported - residual) <= 1e-9 * (1 + residual) + rounding) continue;
        ++wrong;
        a_wrong_one = k;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  ASSERT_EQ(wrong, 0) << "column " << a_wrong_one;

  // Against QR: of the other columns a pattern with the diagonal alone is asked.
  oracle::Random random(11);
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < kSampled; ++i) {
    const int64_t part = kColumns / kSampled;
    sample.push_back(i * part + random.Below(part));
  }
  sample.back() = kColumns - 1;
  Pattern pattern;
  pattern.n_rows = pattern.n_cols = kColumns;
  pattern.col_ptr.push_back(0);
  for (int64_t k = 0, next = 0; k < kColumns; ++k) {
    if (next < kSampled && sample[static_cast<size_t>(next)] == k) {
      const auto rows = view.column(k);
      pattern.row_idx.insert(pattern.row_idx.end(), rows.begin(), rows.end());
      ++next;
    } else {
      pattern.row_idx.push_back(static_cast<int32_t>(k));
    }
    pattern.col_ptr.push_back(pattern.nnz());
  }
  const StaticSpaiResult qr = Build(a, pattern, With(LocalSolver::kQr));
  ASSERT_EQ(static_cast<int64_t>(qr.residual_norms.size()), kColumns);
  const CscMatrix of_qr = Keep(qr.m, sample);
  std::vector<double> sums(static_cast<size_t>(kColumns), 0), sizes(sums);
  for (int64_t i = 0; i < kSampled; ++i) {
    const int64_t k = sample[static_cast<size_t>(i)];
    const auto [residual, rounding] = ResidualOf(a, m, k, k, sums, sizes);
    const auto [least, least_rounding] = ResidualOf(a, of_qr, i, k, sums, sizes);
    ASSERT_LE(residual, (1 + 1e-6) * least + 1e-10 + rounding + least_rounding) << k;
    EXPECT_NEAR(residual, least, 1e-6 * least + 1e-10) << k;
  }
}

}  // namespace
}  // namespace spaid::kernels
