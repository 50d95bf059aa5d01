// Dynamic SPAI's patterns grown on a CUDA device, against the definition. Skipped, with the reason,
// where there is no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "kernels/dynamic_spai/cuda/normal_rows.h"
#include "tests/kernels/dynamic_spai/gpu_helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

CscMatrix FromDense(int64_t n, const std::vector<double>& by_rows) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      if (by_rows[Z(i * n + j)] == 0) continue;
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(by_rows[Z(i * n + j)]);
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

std::vector<int32_t> Column(const PatternView& m, int64_t k) {
  const auto column = m.column(k);
  return {column.begin(), column.end()};
}

// About `length` entries a column, anywhere: each index that joins brings new candidates.
CscMatrix Scattered(int64_t n, int64_t length, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    std::set<int32_t> rows{static_cast<int32_t>(j)};
    for (int64_t t = 1; t < length; ++t) rows.insert(static_cast<int32_t>(random.Below(n)));
    for (const int32_t i : rows) {
      a.row_idx.push_back(i);
      a.values.push_back(random.Uniform(-1, 1) + (i == j ? 3 : 0));
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

// Every value by a number of its own: no two candidates are alike.
CscMatrix Perturbed(CscMatrix a) {
  oracle::Random random(77);
  for (double& value : a.values) value *= random.Uniform(0.8, 1.2);
  return a;
}

TEST_F(DynamicSpaiGpu, HandCheckedColumn) {
  const CscMatrix a = FromDense(4, {10, 10, 0, 14, 0, 10, 2, 0, 13, 0, 0, 1, 0, 5, 0, 0});
  for (const bool fp32 : {false, true}) {
    const DynamicSpaiPattern grown = Grow(a, GpuSteps(3, 1, 0.01, fp32));
    EXPECT_EQ(Column(grown.m, 0), (std::vector<int32_t>{0, 3}));
    EXPECT_EQ(Column(Grow(a, GpuSteps(0, 1, 0.01, fp32)).m, 0), std::vector<int32_t>{0});
    ExpectGreedy(a, nullptr, GpuSteps(3, 1, 0.01, fp32), grown.m);
    // ‖r‖² of column 0: 169/269 before its step.
    ASSERT_EQ(grown.quality.residual_by_step.size(), 4u);
    EXPECT_GT(grown.quality.converged_columns, 0);
  }
}

// Of one column alone: the geometric mean is what is told of it.
TEST_F(DynamicSpaiGpu, ResidualsByStep) {
  const CscMatrix a = FromDense(2, {2, 1, 0, 1});
  const DynamicSpaiPattern grown = Grow(a, GpuSteps(1));
  // Column 0: J = {0}, r = 0. Column 1: J = {1}, ‖r‖² = 1/2; then {0, 1}, r = 0, told as what
  // rounding leaves of it, 16 u.
  ASSERT_EQ(grown.quality.residual_by_step.size(), 2u);
  const double nothing = std::sqrt(16 * 0x1p-53);
  EXPECT_NEAR(grown.quality.residual_by_step[0], std::sqrt(nothing * std::sqrt(0.5)), 1e-9);
  EXPECT_NEAR(grown.quality.residual_by_step[1], nothing, 1e-2 * nothing);
  EXPECT_EQ(grown.quality.converged_columns, 2);
  EXPECT_EQ(Column(grown.m, 0), std::vector<int32_t>{0});
  EXPECT_EQ(Column(grown.m, 1), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(grown.quality.gram_nnz, 4);
  EXPECT_EQ(grown.quality.nnz_column_max, 2);
}

struct Way {
  int max_steps, per_step;
  double tol;
  int max_nnz;
};
// By the kernel of few candidates and the general ones; to where nothing is left.
constexpr Way kWays[] = {{6, 1, 0, 0},   {29, 1, 0.3, 0}, {29, 1, 0, 9},   {3, 2, 0, 0},
                         {4, 5, 0.2, 0}, {5, 3, 0, 7},    {40, 1, 0.1, 0}, {0, 1, 0, 0}};

TEST_F(DynamicSpaiGpu, IrregularMatrices) {
  for (const oracle::NamedMatrix& named : oracle::Zoo(3)) {
    for (const Way& way : kWays) {
      for (const bool fp32 : {false, true}) {
        // What fp32 keeps of normal equations with entries of 24 orders of magnitude is not asked.
        if (fp32 && (!named.regular || named.name.starts_with("badly"))) continue;
        SCOPED_TRACE(named.name + ", " + std::to_string(way.max_steps) + " x " +
                     std::to_string(way.per_step) + (fp32 ? ", fp32" : ""));
        DynamicSpaiOptions options = GpuSteps(way.max_steps, way.per_step, way.tol, fp32);
        options.max_column_nnz = way.max_nnz;
        // A singular one has two columns that are one.
        const CscMatrix a = named.regular ? Perturbed(named.a) : named.a;
        const DynamicSpaiPattern grown = Grow(a, options);
        ExpectGreedy(a, nullptr, options, grown.m, a.n_cols > 60 ? 3 : 1);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(DynamicSpaiGpu, Grids) {
  const CscMatrix matrices[] = {Perturbed(bench::ConvectionDiffusion(7, 30)),
                                Perturbed(bench::Laplacian27(6)), Perturbed(bench::Elasticity(4)),
                                Perturbed(bench::Anisotropic(17, 1e-3, std::numbers::pi / 8))};
  for (const CscMatrix& a : matrices) {
    for (const Way& way : {Way{9, 1, 0, 0}, Way{29, 1, 0.2, 0}, Way{4, 3, 0, 0}}) {
      for (const bool fp32 : {false, true}) {
        const DynamicSpaiOptions options = GpuSteps(way.max_steps, way.per_step, way.tol, fp32);
        const DynamicSpaiPattern grown = Grow(a, options);
        ExpectGreedy(a, nullptr, options, grown.m, 13);
        if (HasFailure()) return;
      }
    }
  }
}

// The patterns of the CPU, to the last entry, where no two candidates are alike; its figures.
TEST_F(DynamicSpaiGpu, AsOnTheCpu) {
  const CscMatrix matrices[] = {Perturbed(bench::ConvectionDiffusion(12, 30)),
                                Perturbed(bench::Laplacian27(9)), Scattered(800, 7, 12),
                                Perturbed(oracle::DenseRowAndColumn(150, 2)),
                                oracle::ZeroDiagonal(200, 6)};
  for (const CscMatrix& a : matrices) {
    for (const Way& way : kWays) {
      DynamicSpaiOptions options = GpuSteps(way.max_steps, way.per_step, way.tol);
      options.max_column_nnz = way.max_nnz;
      SCOPED_TRACE("n = " + std::to_string(a.n_cols) + ", " + std::to_string(way.max_steps) +
                   " x " + std::to_string(way.per_step));
      const DynamicSpaiPattern there = Grow(a, options);
      const auto here = GrowDynamicSpai(a, nullptr, options, {});
      ASSERT_TRUE(here.ok()) << here.status().message();
      const DynamicSpaiQuality &x = there.quality, &y = here->quality;
      // What no candidate lowers any more ends by rounding.
      if (y.converged_columns == 0 || way.tol > 0) {
        EXPECT_EQ(there.m.col_ptr, here->m.col_ptr);
        EXPECT_EQ(there.m.row_idx, here->m.row_idx);
        EXPECT_EQ(x.converged_columns, y.converged_columns);
        EXPECT_EQ(x.nnz_column_max, y.nnz_column_max);
      }
      EXPECT_EQ(x.gram_nnz, y.gram_nnz);
      EXPECT_EQ(x.dependent_columns, y.dependent_columns);
      EXPECT_EQ(x.first_dependent, y.first_dependent);
      ASSERT_EQ(x.residual_by_step.size(), y.residual_by_step.size());
      for (size_t step = 0; step < x.residual_by_step.size(); ++step) {
        // ψ is 1 less what it has lost: what is left of it has no more digits than that.
        const double of_y = y.residual_by_step[step];
        EXPECT_NEAR(x.residual_by_step[step], of_y, (of_y > 1e-2 ? 1e-6 : 0.1) * of_y);
      }
    }
  }
}

// More candidates than shared memory holds: in the device's own.
TEST_F(DynamicSpaiGpu, ManyCandidates) {
  const CscMatrix a = Scattered(1500, 30, 5);
  const struct {
    Way way;
    bool slow;
  } cases[] = {{{4, 1, 0, 0}, false}, {{29, 1, 0, 0}, true}, {{8, 8, 0, 0}, true}};
  for (const auto& [way, slow] : cases) {
    const DynamicSpaiOptions options = GpuSteps(way.max_steps, way.per_step, way.tol);
    const DynamicSpaiPattern grown = Grow(a, options);
    EXPECT_EQ(grown.quality.slow_columns > 0, slow);
    ExpectGreedy(a, nullptr, options, grown.m, 211);
    if (HasFailure()) return;
  }
}

// A row and a column with all entries: AᵀA is full, and one of its columns a block's work.
TEST_F(DynamicSpaiGpu, DenseRowAndColumn) {
  const CscMatrix a = oracle::DenseRowAndColumn(1200, 4);
  for (const bool fp32 : {false, true}) {
    const DynamicSpaiOptions options = GpuSteps(5, 1, 0, fp32);
    const DynamicSpaiPattern grown = Grow(a, options);
    EXPECT_EQ(grown.quality.gram_nnz, a.n_cols * a.n_cols);
    ExpectGreedy(a, nullptr, options, grown.m, 119);
  }
}

// Of two equal columns one is enough: the other's gradient is noise once it is there; chosen in one
// step with it, it is refused.
TEST_F(DynamicSpaiGpu, RepeatedColumns) {
  // Row by row; columns 1 and 2 are one.
  const CscMatrix a = FromDense(4, {4, 1, 1, 0, 1, 3, 3, 1, 0, 1, 1, 0, 1, 0, 0, 2});
  for (const int per_step : {1, 2}) {
    const DynamicSpaiOptions options = GpuSteps(3, per_step);
    const DynamicSpaiPattern grown = Grow(a, options);
    ExpectGreedy(a, nullptr, options, grown.m);
    for (int64_t k : {0, 3}) {
      const std::vector<int32_t> column = Column(grown.m, k);
      EXPECT_FALSE(std::count(column.begin(), column.end(), 1) > 0 &&
                   std::count(column.begin(), column.end(), 2) > 0);
    }
    if (per_step == 2) {
      EXPECT_GT(grown.quality.dependent_columns, 0);
      EXPECT_GE(grown.quality.first_dependent, 0);
    }
  }
}

TEST_F(DynamicSpaiGpu, EmptyRowsAndStoredZeros) {
  // Row 1 is empty, and A(2, 2) a stored zero.
  CscMatrix a;
  a.n_rows = a.n_cols = 3;
  a.col_ptr = {0, 2, 3, 5};
  a.row_idx = {0, 2, 2, 0, 2};
  a.values = {2, 1, 3, 1, 0};
  const DynamicSpaiPattern grown = Grow(a, GpuSteps(2));
  EXPECT_EQ(Column(grown.m, 1), std::vector<int32_t>{1});
  ExpectGreedy(a, nullptr, GpuSteps(2), grown.m);
}

TEST_F(DynamicSpaiGpu, InitialPattern) {
  const CscMatrix a = oracle::RandomIrregular(90, 6, 11);
  Pattern initial;
  initial.n_rows = initial.n_cols = a.n_cols;
  initial.col_ptr.push_back(0);
  for (int64_t k = 0; k < a.n_cols; ++k) {
    // Some of A's own, and of column 5 none.
    for (const int32_t i : a.pattern().column(k)) {
      if (k != 5 && (i + k) % 3 != 0) initial.row_idx.push_back(i);
    }
    initial.col_ptr.push_back(initial.nnz());
  }
  const PatternView view = initial;
  for (const Way& way : {Way{4, 1, 0, 0}, Way{3, 2, 0.1, 0}, Way{6, 2, 0, 4}, Way{0, 1, 0, 0}}) {
    for (const bool fp32 : {false, true}) {
      DynamicSpaiOptions options = GpuSteps(way.max_steps, way.per_step, way.tol, fp32);
      options.max_column_nnz = way.max_nnz;
      const DynamicSpaiPattern grown = Grow(a, options, &view);
      ExpectGreedy(a, &view, options, grown.m);
    }
  }
}

TEST_F(DynamicSpaiGpu, RepeatsAreCopied) {
  const CscMatrix matrices[] = {bench::ConvectionDiffusion(20, 0),
                                bench::ConvectionDiffusion(20, 30),
                                bench::Anisotropic(70, 1e-3, std::numbers::pi / 8)};
  for (const CscMatrix& a : matrices) {
    for (const Way& way : {Way{8, 1, 0, 0}, Way{4, 2, 0.2, 0}, Way{29, 1, 0, 12}}) {
      DynamicSpaiOptions options = GpuSteps(way.max_steps, way.per_step, way.tol);
      options.max_column_nnz = way.max_nnz;
      const DynamicSpaiPattern copied = Grow(a, options);
      options.repeat_hash_bits = 0;
      const DynamicSpaiPattern all = Grow(a, options);
      EXPECT_EQ(all.quality.copied_columns, 0);
      EXPECT_EQ(copied.m.col_ptr, all.m.col_ptr);
      EXPECT_EQ(copied.m.row_idx, all.m.row_idx);
      EXPECT_EQ(copied.quality.converged_columns, all.quality.converged_columns);
      EXPECT_EQ(copied.quality.residual_by_step, all.quality.residual_by_step);
      EXPECT_NEAR(copied.quality.flops, all.quality.flops, 1e-3 * all.quality.flops);
      // Few bits of a hash: other pairs are looked at, no other is copied.
      options.repeat_hash_bits = 3;
      EXPECT_EQ(Grow(a, options).m.row_idx, all.m.row_idx);
    }
  }
  EXPECT_GT(Grow(matrices[0], GpuSteps(8)).quality.copied_columns, matrices[0].n_cols / 4);
}

TEST_F(DynamicSpaiGpu, SameEachTime) {
  const CscMatrix a = Scattered(2000, 12, 9);
  for (const DynamicSpaiOptions& options : {GpuSteps(20, 1, 0.1), GpuSteps(5, 4)}) {
    const DynamicSpaiPattern once = Grow(a, options), again = Grow(a, options);
    EXPECT_EQ(once.m.col_ptr, again.m.col_ptr);
    EXPECT_EQ(once.m.row_idx, again.m.row_idx);
    EXPECT_EQ(once.quality.residual_by_step, again.quality.residual_by_step);
  }
}

// Columns are the same whatever range they are asked for in.
TEST_F(DynamicSpaiGpu, RangesAreTheWhole) {
  const CscMatrix matrices[] = {Scattered(900, 9, 2), bench::ConvectionDiffusion(12, 20)};
  const StopToken never;
  const cuda::Caller caller(never, "the test");
  for (const CscMatrix& a : matrices) {
    for (const DynamicSpaiOptions& options : {GpuSteps(12), GpuSteps(4, 3, 0.2)}) {
      const DynamicSpaiPattern whole = Grow(a, options);
      FsaiOptions rows;  // as they grow
      rows.k_max = options.max_steps;
      rows.s = options.per_step;
      rows.epsilon = options.tol * options.tol;
      const auto lock = device_->Lock();
      cuda::Context& context = ContextOf(*device_);
      const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
      int64_t nnz = 0, converged = 0;
      const int64_t cuts[] = {0, 1, a.n_cols / 3, a.n_cols};
      for (int part = 0; part < 3; ++part) {
        const IndexRange range{cuts[part], cuts[part + 1]};
        cuda::GramInfo gram;
        cuda::FsaiFigures figures;
        const auto grown = cuda::fsai::GrowColumns<double>(
            context, cuda::MakeNormalRows<double>(context, matrix, caller, gram), nullptr, rows,
            a.n_cols, range, caller, figures);
        std::vector<int64_t> col_ptr(Z(range.size()) + 1);
        std::vector<int32_t> row_idx(Z(grown.row_idx.size()));
        context.Download({grown.col_ptr.To(col_ptr.data(), range.size() + 1),
                          grown.row_idx.To(row_idx.data(), grown.row_idx.size())});
        EXPECT_EQ(col_ptr[0], 0);
        for (int64_t k = range.begin; k < range.end; ++k) {
          ASSERT_EQ(col_ptr[Z(k - range.begin)] + nnz, whole.m.col_ptr[Z(k)]);
        }
        EXPECT_TRUE(std::equal(row_idx.begin(), row_idx.end(), whole.m.row_idx.begin() + nnz));
        nnz += grown.row_idx.size();
        converged += figures.quality.converged_rows;
      }
      EXPECT_EQ(nnz, whole.m.nnz());
      EXPECT_EQ(converged, whole.quality.converged_columns);
    }
  }
}

// By several devices: contexts of one.
TEST_F(DynamicSpaiGpu, SharedByDevices) {
  std::vector<std::shared_ptr<CudaDevice>> devices{device_};
  for (int more = 0; more < 2; ++more) {
    auto opened = OpenGpu();
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    devices.push_back(*std::move(opened));
  }
  const CscMatrix a = Scattered(900, 9, 2);
  const PatternView from_a = a.pattern();
  for (const PatternView* initial : {static_cast<const PatternView*>(nullptr), &from_a}) {
    const DynamicSpaiOptions options = GpuSteps(6, 2, 0.1);
    const DynamicSpaiPattern whole = Grow(a, options, initial);
    std::shared_ptr<SpaiOnDevice> there;
    const auto shared = GrowDynamicSpaiCuda(devices, a, initial, options, {}, nullptr, &there);
    ASSERT_TRUE(shared.ok()) << shared.status().message();
    EXPECT_EQ(there, nullptr);
    EXPECT_EQ(shared->m.col_ptr, whole.m.col_ptr);
    EXPECT_EQ(shared->m.row_idx, whole.m.row_idx);
    const DynamicSpaiQuality &x = shared->quality, &y = whole.quality;
    EXPECT_EQ(x.converged_columns, y.converged_columns);
    EXPECT_EQ(x.nnz_column_max, y.nnz_column_max);
    EXPECT_EQ(x.dependent_columns, y.dependent_columns);
    EXPECT_EQ(x.gram_nnz, y.gram_nnz);
    for (size_t step = 0; step < y.residual_by_step.size(); ++step) {
      EXPECT_NEAR(x.residual_by_step[step], y.residual_by_step[step], 1e-12);
    }
  }
  for (const auto& device : devices) EXPECT_EQ(device->used_bytes(), 0);
}

TEST_F(DynamicSpaiGpu, LittleMemory) {
  const CscMatrix a = bench::ConvectionDiffusion(24, 20);
  const DynamicSpaiOptions options = GpuSteps(60);
  const DynamicSpaiPattern whole = Grow(a, options);
  const int64_t enough = timings_.device_bytes;
  bool waved = false, refused = false, full = false;
  for (int64_t bytes = enough; bytes > enough / 12; bytes = bytes * 9 / 10) {
    Limit(bytes);
    const auto grown = TryGrow(a, options);
    if (grown.ok()) {
      waved = waved || timings_.waves > 1;
      EXPECT_EQ(grown->m.col_ptr, whole.m.col_ptr);
      EXPECT_EQ(grown->m.row_idx, whole.m.row_idx);
      EXPECT_LE(timings_.device_bytes, bytes);
    } else {
      EXPECT_EQ(grown.status().code(), StatusCode::kResourceExhausted);
      refused = refused || grown.status().reason() == "GRAM_TOO_LARGE";
      full = full || grown.status().reason() == "DEVICE_OUT_OF_MEMORY";
    }
    EXPECT_EQ(device_->used_bytes(), 0);
    timings_ = {};
  }
  EXPECT_TRUE(waved);
  EXPECT_TRUE(refused);
  EXPECT_TRUE(full);
}

// The cause in words, and both numbers; at once, though AᵀA has 10^10 entries.
TEST_F(DynamicSpaiGpu, GramTooLarge) {
  CscMatrix a;
  const int64_t n = 100'000;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    if (j > 0) a.row_idx.push_back(0);
    a.row_idx.push_back(static_cast<int32_t>(j));
    a.col_ptr.push_back(a.nnz());
  }
  a.values.assign(a.row_idx.size(), 1.0);
  const auto grown = TryGrow(a, GpuSteps(2));
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.status().reason(), "GRAM_TOO_LARGE");
  EXPECT_NE(grown.status().message().find(std::to_string(n * n)), std::string::npos)
      << grown.status().message();
  EXPECT_EQ(device_->used_bytes(), 0);
}

class StopAtOnce : public ProgressSink {
 public:
  explicit StopAtOnce(StopSource& source) : source_(source) {}
  void OnProgress(Stage, int64_t, int64_t) override { source_.Request(StopReason::kCancelled); }
  void OnResidual(const ResidualPoint&) override {}

 private:
  StopSource& source_;
};

TEST_F(DynamicSpaiGpu, Stops) {
  const CscMatrix a = bench::ConvectionDiffusion(24, 20);
  StopSource source;
  StopAtOnce sink(source);
  const auto grown =
      TryGrow(a, GpuSteps(20), nullptr, {.stop = source.token(), .progress = &sink, .threads = 1});
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(device_->used_bytes(), 0);
}

TEST_F(DynamicSpaiGpu, RefusesColumnsOfZeros) {
  const CscMatrix a = FromDense(2, {1, 0, 1, 0});
  const auto grown = TryGrow(a, GpuSteps(1));
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.status().reason(), "ZERO_COLUMN");
}

// M on a grown pattern, which was not sent there again, is M on that pattern.
TEST_F(DynamicSpaiGpu, NumbersOnThePatternThatIsThere) {
  const CscMatrix matrices[] = {oracle::RandomIrregular(300, 5, 8),
                                bench::ConvectionDiffusion(12, 20), oracle::ZeroDiagonal(70, 3)};
  for (const CscMatrix& a : matrices) {
    const DynamicSpaiOptions options = GpuSteps(8);
    const StaticSpaiOptions numbers = NumbersOf(options);
    std::shared_ptr<SpaiOnDevice> there;
    const auto grown = TryGrow(a, options, nullptr, {}, &there);
    ASSERT_TRUE(grown.ok());
    ASSERT_NE(there, nullptr);
    const PatternView of_m = grown->m;
    const auto sent = PlanStaticSpaiCuda({&device_, 1}, a, &of_m, numbers, {});
    const auto found = PlanStaticSpaiCuda(std::span(&device_, 1), a, &of_m, numbers, {}, nullptr,
                                          std::move(there));
    ASSERT_TRUE(sent.ok());
    ASSERT_TRUE(found.ok()) << found.status().message();
    const auto m = BuildStaticSpaiCuda(**sent, a, numbers, {});
    const auto same = BuildStaticSpaiCuda(**found, a, numbers, {});
    ASSERT_TRUE(m.ok());
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(m->m.col_ptr, same->m.col_ptr);
    EXPECT_EQ(m->m.row_idx, same->m.row_idx);
    EXPECT_EQ(m->m.values, same->m.values);
    // ‖r‖ of the numbers is what growth stopped at, on average.
    double sum = 0;
    for (const double norm : m->residual_norms) {
      sum += std::log(std::max(norm, std::sqrt(16 * 0x1p-53)));
    }
    const double mean = std::exp(sum / static_cast<double>(a.n_cols));
    EXPECT_NEAR(mean, grown->quality.residual_by_step.back(), 2e-2 * mean + 1e-6);
  }
}

}  // namespace
}  // namespace spaid::kernels
