// Builds that several CUDA devices share: what one device makes, bit for bit. Where there is one
// card alone, "devices" are contexts of it.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/base/recording_sink.h"
#include "tests/kernels/engine/gpu_helpers.h"

namespace spaid::kernels::engine_test {
namespace {

constexpr int kDevices = 4;

class GpuSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    // As devices are in the daemon: opened once. Contexts of one card keep out of each other's way.
    static const auto devices = [&] {
      std::vector<std::shared_ptr<CudaDevice>> opened;
      for (int i = 0; i < kDevices; ++i) {
        const DeviceInfo& card = cuda.devices[static_cast<size_t>(i) % cuda.devices.size()];
        auto device = CudaDevice::Open(card, card.memory_bytes / (kDevices + 1));
        EXPECT_TRUE(device.ok()) << device.status().message();
        if (device.ok()) opened.push_back(*device);
      }
      return opened;
    }();
    ASSERT_EQ(devices.size(), static_cast<size_t>(kDevices));
    devices_ = devices;
    engine_ = MakeEngine(true, devices_);
  }

  static Context On(std::vector<int> devices) {
    return {.device = devices.front(), .devices = std::move(devices)};
  }

  static void ExpectSame(const CscMatrix& one, const CscMatrix& several) {
    ASSERT_EQ(one.col_ptr, several.col_ptr);
    ASSERT_EQ(one.row_idx, several.row_idx);
    int64_t other = 0, first = -1;
    for (size_t p = 0; p < one.values.size(); ++p) {
      if (one.values[p] == several.values[p]) continue;
      if (other++ == 0) first = static_cast<int64_t>(p);
    }
    EXPECT_EQ(other, 0) << "values of " << one.values.size() << " differ, the first is " << first;
  }

  // What was shown as finished, whenever that was, is what there is in the end.
  static void ExpectShown(const RecordingSink& sink, const CscMatrix& m, EngineKind kind) {
    EXPECT_EQ(sink.patterns, TraitsOf(kind).for_cg ? 0 : 1);
    if (sink.patterns == 0) return;
    EXPECT_EQ(sink.withdrawals, 0);
    EXPECT_EQ(sink.columns(), m.n_cols);
    EXPECT_EQ(sink.data, m.values.data());
    EXPECT_TRUE(std::ranges::equal(sink.col_ptr, m.col_ptr));
    EXPECT_TRUE(std::ranges::equal(sink.row_idx, m.row_idx));
    EXPECT_TRUE(std::ranges::equal(sink.values, m.values));
  }

  // Each copies from its own columns alone.
  static void ExpectSameGrowth(const DynamicSpaiQuality& one, const DynamicSpaiQuality& several) {
    EXPECT_EQ(several.converged_columns, one.converged_columns);
    EXPECT_EQ(several.nnz_column_max, one.nnz_column_max);
    EXPECT_EQ(several.dependent_columns, one.dependent_columns);
    EXPECT_EQ(several.first_dependent, one.first_dependent);
    EXPECT_EQ(several.gram_nnz, one.gram_nnz);
    ASSERT_EQ(several.residual_by_step.size(), one.residual_by_step.size());
    for (size_t step = 0; step < one.residual_by_step.size(); ++step) {
      EXPECT_NEAR(several.residual_by_step[step], one.residual_by_step[step],
                  1e-12 * one.residual_by_step[step]);
    }
  }

  void ExpectSameBuilds(const PreconditionerSpec& spec, const CscMatrix& a,
                        const PatternView* user = nullptr) {
    const auto build = [&](Context context) {
      RecordingSink sink;
      context.result = &sink;
      auto plan = engine_->MakePlan(spec, a, user, context);
      EXPECT_TRUE(plan.ok()) << plan.status().reason() << ": " << plan.status().message();
      if (!plan.ok()) return BuildResult{};
      auto built = (*plan)->Build(spec, a, context);
      EXPECT_TRUE(built.ok()) << built.status().reason() << ": " << built.status().message();
      if (!built.ok()) return BuildResult{};
      ExpectShown(sink, built->preconditioner->matrix(), spec.engine);
      return *std::move(built);
    };
    const BuildResult one = build({.device = 1});
    ASSERT_NE(one.preconditioner, nullptr);
    for (const std::vector<int>& devices :
         {std::vector{1, 2}, std::vector{2, 3, 1}, std::vector{1, 2, 3, 4}}) {
      SCOPED_TRACE(std::to_string(devices.size()) + " devices");
      const BuildResult several = build(On(devices));
      ASSERT_NE(several.preconditioner, nullptr);
      ExpectSame(one.preconditioner->matrix(), several.preconditioner->matrix());
      EXPECT_EQ(several.quality.residual_frobenius, one.quality.residual_frobenius);
      EXPECT_EQ(several.quality.rescued_columns, one.quality.rescued_columns);
      EXPECT_EQ(several.quality.zero_columns, one.quality.zero_columns);
      EXPECT_EQ(several.timings.host_columns, one.timings.host_columns);
      EXPECT_EQ(several.quality.warnings, one.quality.warnings);
      // G is joined on the first device.
      EXPECT_EQ(several.preconditioner->device_bytes(),
                one.quality.fsai ? one.preconditioner->device_bytes() : 0);
      ASSERT_EQ(several.quality.dynamic_spai.has_value(), one.quality.dynamic_spai.has_value());
      if (one.quality.dynamic_spai) {
        ExpectSameGrowth(*one.quality.dynamic_spai, *several.quality.dynamic_spai);
      }
      ASSERT_EQ(several.quality.fsai.has_value(), one.quality.fsai.has_value());
      if (!one.quality.fsai) continue;
      const FsaiQuality &first = *one.quality.fsai, &second = *several.quality.fsai;
      EXPECT_NEAR(second.kaporin, first.kaporin, 1e-12 * first.kaporin);
      EXPECT_EQ(second.kaporin_by_step.size(), first.kaporin_by_step.size());
      EXPECT_EQ(second.nnz_row_max, first.nnz_row_max);
      EXPECT_EQ(second.not_spd_rows, first.not_spd_rows);
      EXPECT_EQ(second.first_not_spd, first.first_not_spd);
      EXPECT_EQ(second.converged_rows, first.converged_rows);
      EXPECT_EQ(second.steps, first.steps);
    }
  }

  std::vector<std::shared_ptr<CudaDevice>> devices_;
  std::unique_ptr<Engine> engine_;
};

CscMatrix Scaled(CscMatrix a) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> factor(0.9, 1.1);
  for (double& value : a.values) value *= factor(random);
  return a;
}

TEST_F(GpuSplit, StaticSpaiIsThatOfOneDevice) {
  struct Case {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec = Spai();
  };
  PreconditionerSpec thin = Spai(2), rows = Spai(), matched = Spai(), filtered = Spai(),
                     qr = Spai(), constant = Spai(), picky = Spai();
  thin.static_spai.pattern.keep_tau = 0.5;
  rows.static_spai.pattern.ensure_row = true;
  matched.static_spai.pattern.row_match = true;
  filtered.static_spai.post_filter = 0.1;
  qr.static_spai.local_solver = constant.static_spai.local_solver = LocalSolver::kQr;
  qr.static_spai.thread_strategy = ThreadStrategy::kVariable;
  constant.static_spai.thread_strategy = ThreadStrategy::kConstant;
  // Some columns go by QR.
  picky.static_spai.gram_pivot_limit = 0.05;
  const Case cases[] = {
      {"tiny", Rows({{2, 1}, {0, 4}})},
      {"P7_20", bench::ConvectionDiffusion(20, 0)},
      {"convdiff_20, power 2", bench::ConvectionDiffusion(20, 400), Spai(2)},
      {"P27_16", bench::Laplacian27(16)},
      {"P27_16, rescue", bench::Laplacian27(16), picky},
      {"aniso_60", bench::Anisotropic(60, 1e-3, std::numbers::pi / 8)},
      {"elasticity_9", bench::Elasticity(9)},
      {"elasticity_9, rescue", bench::Elasticity(9), picky},
      {"elasticity_9, permuted", bench::PermuteNodes(bench::Elasticity(9), 3, 64)},
      {"elasticity_9, filtered", bench::Elasticity(9), filtered},
      {"circuit_8k", bench::Circuit(8000, 12, 300)},
      {"circuit_8k, rescue", bench::Circuit(8000, 12, 300), picky},
      {"circuit_8k, threshold", bench::Circuit(8000, 12, 300), thin},
      {"circuit_8k, filtered", bench::Circuit(8000, 12, 300), filtered},
      {"circuit_8k, by QR", bench::Circuit(8000, 12, 300), qr},
      {"periodic", bench::Periodic(20000, 6)},
      {"irregular", oracle::RandomIrregular(3000, 12, 5), Spai(2)},
      {"irregular, rows", oracle::RandomIrregular(3000, 12, 5), rows},
      {"irregular, by QR, constant", oracle::RandomIrregular(3000, 12, 5), constant},
      {"dense", oracle::RandomIrregular(300, 200, 5)},
      {"blocks", oracle::BlockTriangular(400, 7, 5)},
      {"arrow", oracle::Arrow(500)},
      {"dense row and column", oracle::DenseRowAndColumn(3000, 5)},
      {"singular", oracle::Singular(400, 5)},
      {"badly scaled", oracle::BadlyScaled(1000, 5)},
      {"zero diagonal", oracle::ZeroDiagonal(400, 5), matched},
      {"rows permuted", oracle::RowPermuted(400, 5), matched},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ExpectSameBuilds(c.spec, c.a);
  }
}

TEST_F(GpuSplit, StaticSpaiOnAPatternOfTheUser) {
  const CscMatrix a = bench::Circuit(5000, 4, 60);
  auto pattern = BuildPattern(a, nullptr, {.power = 2}, {});
  ASSERT_TRUE(pattern.ok());
  const PatternView user = *pattern;
  ExpectSameBuilds(Spai(), a, &user);
}

// A positive diagonal, but pivots that are not, in two places far from each other.
CscMatrix NotPositive(int64_t n) {
  CscMatrix a = oracle::RandomSpd(n, 12, 5);
  for (int64_t j = 0; j < n; ++j) {
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      if (a.row_idx[p] == j && (j == n / 5 || j == n - 7)) a.values[p] *= 1e-3;
    }
  }
  return a;
}

TEST_F(GpuSplit, FsaiIsThatOfOneDevice) {
  struct Case {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
  };
  PreconditionerSpec grown = Spec(EngineKind::kAfsai), fast = grown, some = grown, filtered = grown;
  fast.fsai.precision = Precision::kFp32;
  some.fsai.s = 3;
  some.fsai.k_max = 5;
  filtered.fsai.post_filter = 0.02;
  PreconditionerSpec fixed = Spec(EngineKind::kFsai), squared = fixed, thin = fixed;
  squared.fsai.power = 2;
  thin.fsai.post_filter = 0.05;
  const CscMatrix e9 = bench::Symmetrized(bench::Elasticity(9));
  const CscMatrix varying = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(20, 0));
  const Case cases[] = {
      {"tiny", Rows({{2, 1}, {1, 4}}), grown},
      {"P7_20, copied rows", bench::ConvectionDiffusion(20, 0), grown},
      {"P7_20, varying", varying, grown},
      {"P7_20, varying, fp32", varying, fast},
      {"P7_20, varying, three at once", varying, some},
      {"P27_16", bench::Laplacian27(16), grown},
      {"elasticity_9", e9, grown},
      {"elasticity_9, fp32", e9, fast},
      {"elasticity_9, filtered", e9, filtered},
      {"random", oracle::RandomSpd(3000, 12, 5), grown},
      {"arrow", bench::Symmetrized(oracle::Arrow(500)), grown},
      {"P7_20, on A", varying, fixed},
      {"elasticity_9, on A", e9, fixed},
      {"elasticity_9, on A, filtered", e9, thin},
      {"random, on A squared", oracle::RandomSpd(2000, 8, 5), squared},
      {"random, more rows than a turn", oracle::RandomSpd(40000, 6, 5), grown},
      {"a row of the host", bench::Symmetrized(oracle::Arrow(2500)), fixed},
      {"nodes in random order", bench::PermuteNodes(e9, 3, e9.n_cols), fast},
      {"a pivot that is not positive", NotPositive(3000), grown},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ExpectSameBuilds(c.spec, c.a);
  }
}

// Plans of all devices serve new values; grown patterns too.
TEST_F(GpuSplit, PlansServeNewValues) {
  struct Case {
    const char* name;
    CscMatrix a, again;
    PreconditionerSpec spec;
  };
  const CscMatrix p7 = bench::ConvectionDiffusion(16, 0);
  const Case cases[] = {
      {"static SPAI, by diagonals", bench::Elasticity(7), Scaled(bench::Elasticity(7)), Spai()},
      {"static SPAI, by groups", bench::Circuit(5000, 4, 60), Scaled(bench::Circuit(5000, 4, 60)),
       Spai()},
      {"FSAI", p7, bench::WithVaryingCoefficients(p7), Spec(EngineKind::kFsai)},
      {"adaptive FSAI", p7, bench::WithVaryingCoefficients(p7), Spec(EngineKind::kAfsai)},
      {"dynamic SPAI", p7, bench::WithVaryingCoefficients(p7), Spec(EngineKind::kDynamicSpai)},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto twice = [&](const Context& context) {
      auto plan = engine_->MakePlan(c.spec, c.a, nullptr, context);
      EXPECT_TRUE(plan.ok()) << plan.status().message();
      auto first = (*plan)->Build(c.spec, c.a, context);
      EXPECT_TRUE(first.ok()) << first.status().message();
      const Plan& then = first->grown != nullptr ? *first->grown : **plan;
      EXPECT_TRUE(then.serves_new_values());
      EXPECT_EQ(then.devices().size(), std::max<size_t>(1, context.devices.size()));
      EXPECT_GT(then.device_bytes(), 0);
      auto second = then.Build(c.spec, c.again, context);
      EXPECT_TRUE(second.ok()) << second.status().message();
      return second.ok() ? second->preconditioner->matrix() : CscMatrix{};
    };
    ExpectSame(twice({.device = 1}), twice(On({1, 2})));
  }
}

TEST_F(GpuSplit, DynamicSpaiIsThatOfOneDevice) {
  const PreconditionerSpec usual = Spec(EngineKind::kDynamicSpai);
  PreconditionerSpec one_by_one = usual, fp32 = usual, capped = usual;
  one_by_one.dynamic_spai.per_step = 1;
  one_by_one.dynamic_spai.tol = 0;
  fp32.dynamic_spai.growth_precision = Precision::kFp32;
  capped.dynamic_spai.max_column_nnz = 7;
  struct Case {
    const char* name;
    CscMatrix a;
    PreconditionerSpec spec;
  };
  const CscMatrix varying = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(14, 400));
  const Case cases[] = {
      {"columns that repeat", bench::ConvectionDiffusion(18, 400), usual},
      {"none like another", varying, usual},
      {"one entry a step", varying, one_by_one},
      {"growth in fp32", varying, fp32},
      {"capped", varying, capped},
      {"elasticity", bench::Elasticity(7), usual},
      {"circuit", bench::Circuit(4000, 4, 60), usual},
      {"a dense row and column", oracle::DenseRowAndColumn(1500, 1), capped},
      {"fewer columns than devices", oracle::Arrow(2), usual},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ExpectSameBuilds(c.spec, c.a);
  }
  const PatternView from = varying.pattern();
  ExpectSameBuilds(capped, varying, &from);
}

TEST_F(GpuSplit, ItsPreconditionersServeSolvesOnADevice) {
  const CscMatrix a = bench::Elasticity(9);
  const BuildResult one = MustBuild(*engine_, Spai(), a, {.device = 1});
  const BuildResult two = MustBuild(*engine_, Spai(), a, On({1, 2}));
  ASSERT_TRUE(one.preconditioner && two.preconditioner);
  const auto a_there = engine_->Place(CscView(a), {.device = 1});
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  std::vector<int32_t> iterations;
  for (const Preconditioner* m : {one.preconditioner.get(), two.preconditioner.get()}) {
    const auto solved = engine_->SolveOnDevice(
        a, **a_there, m,
        [&](Storage storage) { return engine_->Place(*m, storage, {.device = 1}); }, SmoothRhs(a),
        {}, {.method = Method::kBicgstab, .rtol = 1e-8}, {.device = 1});
    ASSERT_TRUE(solved.ok()) << solved.status().message();
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
    iterations.push_back(static_cast<int32_t>(solved->rhs[0].iterations));
  }
  EXPECT_EQ(iterations[0], iterations[1]);
}

// A solve finds one device's G there, with nothing to bring from the host.
TEST_F(GpuSplit, AJoinedGServesSolvesWhereItLies) {
  CountUploads();
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(24, 0));
  const PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  const BuildResult one = MustBuild(*engine_, spec, a, {.device = 2});
  const BuildResult two = MustBuild(*engine_, spec, a, On({2, 1}));
  ASSERT_TRUE(one.preconditioner && two.preconditioner);
  const auto a_there = engine_->Place(CscView(a), {.device = 2});
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  const int before = uploads;
  std::vector<double> x[2];
  for (const BuildResult* built : {&one, &two}) {
    const SolveResult solved =
        MustSolveThere(*engine_, a, **a_there, *built->preconditioner, SmoothRhs(a),
                       {.method = Method::kCg, .rtol = 1e-8}, {.device = 2});
    ASSERT_FALSE(solved.rhs.empty());
    EXPECT_EQ(solved.rhs[0].outcome, Outcome::kConverged);
    x[built == &two ? 1 : 0].assign(solved.x.begin(), solved.x.end());
  }
  EXPECT_EQ(uploads, before);
  EXPECT_EQ(x[0], x[1]);
}

TEST_F(GpuSplit, RefusesDevicesThatCannotShare) {
  const CscMatrix a = oracle::Arrow(50);
  for (const auto& [device, devices] : std::vector<std::pair<int, std::vector<int>>>{
           {1, {1, 1}}, {1, {2, 1}}, {0, {0, 1}}, {1, {1, 0}}}) {
    const auto plan = engine_->MakePlan(Spai(), a, nullptr, {.device = device, .devices = devices});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().reason(), "NO_SUCH_DEVICE");
  }
  const auto plan = engine_->MakePlan(Spai(), a, nullptr, On({1, 2}));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ((*plan)->device(), 1);
  EXPECT_EQ((*plan)->devices(), (std::vector{1, 2}));
  for (const Context& other : {Context{.device = 1}, On({1, 3}), On({1, 2, 3})}) {
    const auto built = (*plan)->Build(Spai(), a, other);
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.status().reason(), "PLAN_MISMATCH");
  }
  EXPECT_TRUE(engine_->MakePlan(Spec(EngineKind::kJacobi), a, nullptr, On({1, 2})).ok());
}

TEST_F(GpuSplit, SaysWhichDeviceIsTooSmallAndKeepsNothing) {
  auto small = CudaDevice::Open(devices_[1]->info(), int64_t{1} << 20);
  ASSERT_TRUE(small.ok()) << small.status().message();
  const auto engine = MakeEngine(true, {devices_[0], *small});
  const int64_t before = engine->State(1).used_bytes;
  const CscMatrix a = bench::ConvectionDiffusion(32, 0);
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kAfsai}) {
    PreconditionerSpec spec = Spec(kind);
    // Of FSAI the matrix has room there, or not: either way the build has none.
    const auto plan = engine->MakePlan(spec, a, nullptr, On({1, 2}));
    const Status status = plan.ok() ? (*plan)->Build(spec, a, On({1, 2})).status() : plan.status();
    EXPECT_EQ(status.reason(), "DEVICE_OUT_OF_MEMORY");
  }
  EXPECT_EQ(engine->State(1).used_bytes, before);
  EXPECT_EQ(engine->State(2).used_bytes, 0);
  // Without it, the same device serves.
  EXPECT_NE(MustBuild(*engine, Spai(), a, {.device = 1}).preconditioner, nullptr);
}

// Room for A alone, and what the estimate says is enough.
TEST_F(GpuSplit, FsaiOnASecondDeviceOfLittleMemory) {
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(24, 0));
  const PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  const BuildResult whole = MustBuild(*engine_, spec, a, {.device = 1});
  ASSERT_NE(whole.preconditioner, nullptr);
  const auto open = [&](int64_t bytes) {
    auto device = CudaDevice::Open(devices_[1]->info(), bytes);
    EXPECT_TRUE(device.ok()) << device.status().message();
    return device.ok() ? *device : nullptr;
  };
  const auto too_small = MakeEngine(true, {devices_[0], open(CscView(a).nnz() * 14)});
  const auto plan = too_small->MakePlan(spec, a, nullptr, On({1, 2}));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const int64_t first = too_small->State(1).used_bytes, second = too_small->State(2).used_bytes;
  EXPECT_EQ((*plan)->Build(spec, a, On({1, 2})).status().reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(too_small->State(1).used_bytes, first);
  EXPECT_EQ(too_small->State(2).used_bytes, second);

  const auto estimate = engine_->Estimate(spec, a, nullptr, {});
  ASSERT_TRUE(estimate.ok());
  ASSERT_LT(estimate->device_bytes_min, estimate->device_bytes);
  const auto least =
      MakeEngine(true, {open(estimate->device_bytes_min), open(estimate->device_bytes_min)});
  const BuildResult in_little = MustBuild(*least, spec, a, On({1, 2}));
  ASSERT_NE(in_little.preconditioner, nullptr);
  ExpectSame(whole.preconditioner->matrix(), in_little.preconditioner->matrix());
}

class StopAtFirst final : public ProgressSink {
 public:
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (stage != Stage::kBuild || done == 0) return;
    EXPECT_LT(done, total);
    EXPECT_GE(done, last_);
    last_ = done;
    source.Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}
  StopSource source;
  int64_t last_ = 0;
};

TEST_F(GpuSplit, StopsAllDevices) {
  // 64,000 rows of 200 steps, none like another: more than one launch for each of two devices.
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(40, 0));
  PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  spec.fsai.k_max = 200;
  spec.fsai.epsilon = 0;
  const auto plan = engine_->MakePlan(spec, a, nullptr, On({1, 2}));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  StopAtFirst sink;
  Context context = On({1, 2});
  context.stop = sink.source.token();
  context.progress = &sink;
  const auto built = (*plan)->Build(spec, a, context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().reason(), "CANCELLED");
  EXPECT_GT(sink.last_, 0);
  // Before anything began.
  const auto none = engine_->MakePlan(Spai(), a, nullptr, context);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kCancelled);
}

TEST_F(GpuSplit, KeepsToATimeBudget) {
  const CscMatrix a = bench::WithVaryingCoefficients(bench::ConvectionDiffusion(30, 0));
  PreconditionerSpec spec = Spec(EngineKind::kAfsai);
  spec.fsai.k_max = 300;
  spec.fsai.time_budget_ms = 5;
  const BuildResult cut = MustBuild(*engine_, spec, a, On({1, 2}));
  ASSERT_TRUE(cut.quality.fsai);
  EXPECT_TRUE(cut.quality.fsai->out_of_time);
  EXPECT_LT(cut.quality.fsai->steps, 300);
  spec.fsai.k_max = cut.quality.fsai->steps;
  spec.fsai.time_budget_ms = 0;
  const BuildResult whole = MustBuild(*engine_, spec, a, {.device = 1});
  ASSERT_TRUE(cut.preconditioner && whole.preconditioner);
  ExpectSame(whole.preconditioner->matrix(), cut.preconditioner->matrix());
}

}  // namespace
}  // namespace spaid::kernels::engine_test
