// Dynamic SPAI between the wire and the kernels: its options, figures, keys, plans and places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "kernels/engine/build_result.h"
#include "kernels/engine/cost.h"
#include "server/engine/convert.h"
#include "server/engine/resolved_build.h"
#include "tests/server/engine/placement_bench.h"

namespace spaid::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::PreconditionerSpec Dynamic() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_DYNAMIC_SPAI);
  return spec;
}

TEST(ParseDynamicSpai, DefaultsAreSaid) {
  v1::PreconditionerSpec spec = Dynamic();
  for (const bool set : {false, true}) {
    if (set) spec.mutable_dynamic_spai();
    const auto parsed = ParseSpec(spec, "spec");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->spec.engine, kernels::EngineKind::kDynamicSpai);
    const kernels::DynamicSpaiOptions& o = parsed->spec.dynamic_spai;
    EXPECT_EQ(o.tol, 0.3);
    EXPECT_EQ(o.max_steps, 10);
    EXPECT_EQ(o.per_step, 5);
    EXPECT_EQ(o.max_column_nnz, 0);
    EXPECT_EQ(o.growth_precision, kernels::Precision::kFp64);
    EXPECT_EQ(o.post_filter, 0);
    EXPECT_EQ(o.local_solver, kernels::LocalSolver::kAuto);
    EXPECT_FALSE(parsed->regrow);
    EXPECT_EQ(parsed->given.handle, "");
  }
}

TEST(ParseDynamicSpai, ReadsEveryOptionAndSaysItAgain) {
  v1::PreconditionerSpec spec = Dynamic();
  auto* o = spec.mutable_dynamic_spai();
  o->set_tol(0);
  o->set_max_steps(0);
  o->set_step_size(4);
  o->set_max_column_nnz(40);
  o->set_growth_precision(v1::GROWTH_PRECISION_FP32);
  o->set_post_filter(0.1);
  o->set_local_solver(v1::LOCAL_SOLVER_QR);
  o->set_pattern_matrix("matrices/7");
  auto parsed = ParseSpec(spec, "spec");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const kernels::DynamicSpaiOptions& k = parsed->spec.dynamic_spai;
  EXPECT_EQ(k.tol, 0) << "set, and no default";
  EXPECT_EQ(k.max_steps, 0);
  EXPECT_EQ(k.per_step, 4);
  EXPECT_EQ(k.max_column_nnz, 40);
  EXPECT_EQ(k.growth_precision, kernels::Precision::kFp32);
  EXPECT_EQ(k.post_filter, 0.1);
  EXPECT_EQ(k.local_solver, kernels::LocalSolver::kQr);
  EXPECT_EQ(parsed->given.handle, "matrices/7");
  EXPECT_EQ(ToProto(parsed->spec, {.handle = "matrices/7"}).SerializeAsString(),
            spec.SerializeAsString());
  EXPECT_FALSE(ToProto(parsed->spec, {}).has_static_spai());
  o->set_regrow(true);
  EXPECT_TRUE(ParseSpec(spec, "spec")->regrow);
}

TEST(ParseDynamicSpai, WhatIsOutOfRangeIsRefusedWithItsField) {
  using Spec = v1::DynamicSpaiSpec;
  const auto refused = [](const std::function<void(Spec&)>& set, const std::string& field,
                          const std::string& why = "BAD_DYNAMIC_OPTION") {
    v1::PreconditionerSpec spec = Dynamic();
    set(*spec.mutable_dynamic_spai());
    const absl::Status status = ParseSpec(spec, "header.spec").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(ReasonOf(status), why) << field;
    EXPECT_EQ(FieldOf(status), "header.spec.dynamic_spai." + field);
    EXPECT_THAT(std::string(status.message()), HasSubstr("give ")) << "the cure";
    for (const auto other : {v1::ENGINE_KIND_STATIC_SPAI, v1::ENGINE_KIND_AUTO}) {
      spec.set_engine(other);
      EXPECT_TRUE(ParseSpec(spec, "header.spec").ok()) << "not read";
    }
  };
  refused([](Spec& s) { s.set_tol(1); }, "tol");
  refused([](Spec& s) { s.set_tol(-1e-9); }, "tol");
  refused([](Spec& s) { s.set_tol(std::numeric_limits<double>::quiet_NaN()); }, "tol");
  refused([](Spec& s) { s.set_max_steps(-1); }, "max_steps");
  refused([](Spec& s) { s.set_max_steps(513); }, "max_steps");
  refused([](Spec& s) { s.set_step_size(-1); }, "step_size");
  refused([](Spec& s) { s.set_step_size(33); }, "step_size");
  refused([](Spec& s) { s.set_max_column_nnz(-1); }, "max_column_nnz");
  refused([](Spec& s) { s.set_post_filter(1.5); }, "post_filter");
  refused([](Spec& s) { s.set_post_filter(std::numeric_limits<double>::infinity()); },
          "post_filter");
  refused([](Spec& s) { s.set_growth_precision(static_cast<v1::GrowthPrecision>(3)); },
          "growth_precision", "UNKNOWN_ENUM");
  refused([](Spec& s) { s.set_local_solver(static_cast<v1::LocalSolver>(9)); }, "local_solver",
          "UNKNOWN_ENUM");
}

TEST(ToProtoTest, GrowthIsToldBesideWhatTheNumbersAre) {
  kernels::Quality quality;
  quality.residual_frobenius = 2.5;
  quality.gram_columns = 11;
  kernels::DynamicSpaiQuality& q = quality.dynamic_spai.emplace();
  q.converged_columns = 1;
  q.residual_by_step = {0.75, 0.5};
  q.nnz_column_max = 2;
  q.copied_columns = 3;
  q.slow_columns = 4;
  q.dependent_columns = 5;
  q.first_dependent = 6;
  q.gram_nnz = 7;
  const v1::BuildQuality proto = ToProto(quality);
  EXPECT_EQ(proto.residual_frobenius(), 2.5);
  EXPECT_EQ(proto.gram_columns(), 11);
  EXPECT_EQ(proto.dynamic_spai().converged_columns(), 1);
  EXPECT_THAT(proto.dynamic_spai().residual_by_step(), ElementsAre(0.75, 0.5));
  EXPECT_EQ(proto.dynamic_spai().nnz_column_max(), 2);
  EXPECT_EQ(proto.dynamic_spai().copied_columns(), 3);
  EXPECT_EQ(proto.dynamic_spai().slow_columns(), 4);
  EXPECT_EQ(proto.dynamic_spai().dependent_columns().count(), 5);
  EXPECT_EQ(proto.dynamic_spai().dependent_columns().first(), 6);
  EXPECT_EQ(proto.dynamic_spai().gram_nnz(), 7);
  EXPECT_FALSE(proto.dynamic_spai().pattern_reused());
  quality.pattern_reused = true;
  EXPECT_TRUE(ToProto(quality).dynamic_spai().pattern_reused());
  quality.dynamic_spai.reset();
  EXPECT_FALSE(ToProto(quality).has_dynamic_spai()) << "static SPAI's";
}

// Over the real engine, on the CPU.
class DynamicSpaiAdapter : public testing::Test {
 protected:
  std::shared_ptr<const Matrix> Prepare(kernels::CscMatrix raw) {
    auto matrix = adapter_.Prepare(std::move(raw), kernels::Layout::kCsc, {});
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return *matrix;
  }
  // One step of one entry, so that values decide which.
  static ParsedSpec Spec(bool regrow = false) {
    ParsedSpec spec;
    spec.spec.engine = kernels::EngineKind::kDynamicSpai;
    spec.spec.dynamic_spai = {.tol = 0, .max_steps = 1, .per_step = 1};
    spec.regrow = regrow;
    return spec;
  }
  static std::shared_ptr<Job> RunningJob() {
    auto job =
        Job::Create({.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}},
                    {}, RealClock());
    job->Start({"cpu"});
    return job;
  }
  absl::StatusOr<BuiltPreconditioner> Build(const ParsedSpec& spec, const Matrix& a,
                                            const std::string& tenant = "t") {
    auto resolved = adapter_.Resolve(spec, a, nullptr);
    if (!resolved.ok()) return resolved.status();
    return adapter_.Build(tenant, *resolved, a, nullptr, {.device = "cpu"}, *RunningJob());
  }

  std::unique_ptr<kernels::Engine> cpu_ = kernels::MakeCpuEngine();
  Metrics metrics_;
  EngineAdapter adapter_{*cpu_, {.threads = 1, .plan_cache_bytes = 1 << 20, .metrics = &metrics_}};
};

TEST_F(DynamicSpaiAdapter, WhatGrewServesTheNextValuesUntilItIsGrownAnew) {
  const auto a = Prepare(Banded(50)), next = Prepare(Banded(50, 1));
  auto first = Build(Spec(), *a);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->rebuild);
  EXPECT_FALSE(first->kernel->is_factor());
  EXPECT_LE(first->kernel->matrix().nnz(), 2 * 50) << "the diagonal, and one each";
  ASSERT_TRUE(first->quality.has_dynamic_spai());
  EXPECT_EQ(first->quality.dynamic_spai().residual_by_step_size(), 2);
  EXPECT_GT(first->quality.residual_frobenius(), 0);
  EXPECT_EQ(adapter_.plan_cache().entries, 1);
  EXPECT_GE(adapter_.plan_cache().bytes, 4 * first->kernel->matrix().nnz()) << "the pattern counts";

  auto again = Build(Spec(), *next);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->rebuild);
  EXPECT_TRUE(again->quality.dynamic_spai().pattern_reused());
  EXPECT_EQ(again->plan_ms, 0);
  EXPECT_EQ(again->kernel->matrix().row_idx, first->kernel->matrix().row_idx);
  EXPECT_NE(again->kernel->matrix().values, first->kernel->matrix().values);

  auto anew = Build(Spec(/*regrow=*/true), *next);
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_FALSE(anew->rebuild);
  EXPECT_FALSE(anew->quality.dynamic_spai().pattern_reused());
  EXPECT_NE(anew->kernel->matrix().row_idx, first->kernel->matrix().row_idx);
  EXPECT_LE(anew->quality.residual_frobenius(), again->quality.residual_frobenius());
  // That pattern is the one that follows.
  auto last = Build(Spec(), *a);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->rebuild);
  EXPECT_EQ(last->kernel->matrix().row_idx, anew->kernel->matrix().row_idx);
  EXPECT_EQ(adapter_.plan_cache().entries, 1);
  EXPECT_FALSE(Build(Spec(), *next, "u")->rebuild) << "another tenant's is its own";
}

TEST_F(DynamicSpaiAdapter, ProgressRisesThroughGrowthPlanAndNumbers) {
  class Sink : public kernels::ProgressSink {
   public:
    void OnProgress(kernels::Stage stage, int64_t done, int64_t total) override {
      EXPECT_EQ(total, 3000);
      told.emplace_back(stage, done);
    }
    void OnResidual(const kernels::ResidualPoint&) override {}
    std::vector<std::pair<kernels::Stage, int64_t>> told;
  } sink;
  const kernels::CscMatrix a = Banded(3000, 1);
  const kernels::Context context{.progress = &sink, .threads = 1};
  auto plan = cpu_->MakePlan(Spec().spec, a, nullptr, context);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE((*plan)->Build(Spec().spec, a, context).ok());
  EXPECT_TRUE(std::is_sorted(sink.told.begin(), sink.told.end()));
  EXPECT_THAT(sink.told, testing::Contains(std::pair(kernels::Stage::kBuild, int64_t{3000})));
}

TEST_F(DynamicSpaiAdapter, DependentColumnsAreCounted) {
  // Columns 1 and 2 are the same, and column 0 of M asks for both in one step.
  kernels::CscMatrix a;
  a.n_rows = a.n_cols = 4;
  a.col_ptr.assign({0, 2, 4, 6, 7});
  a.row_idx.assign({0, 1, 1, 2, 1, 2, 3});
  a.values.assign({1, 1, 1, 1, 1, 1, 1});
  ParsedSpec spec = Spec();
  spec.spec.dynamic_spai = {.tol = 0, .max_steps = 3, .per_step = 3};
  auto built = Build(spec, *Prepare(a));
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_TRUE(built->quality.has_dynamic_spai());
  const int64_t dependent = built->quality.dynamic_spai().dependent_columns().count();
  EXPECT_GT(dependent, 0);
  EXPECT_EQ(built->quality.dynamic_spai().dependent_columns().first(), 0);
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("spaid_build_columns_total{what=\"dependent\"} " +
                                              std::to_string(dependent)));
}

TEST_F(DynamicSpaiAdapter, KeysFollowWhatTheyStandFor) {
  const auto a = Prepare(Banded(9)), pattern = Prepare(Diagonal(9));
  const auto key = [&](const ParsedSpec& spec, const Matrix* base = nullptr) {
    return *adapter_.Resolve(spec, *a, base);
  };
  EXPECT_EQ(key(Spec()).plan_key, key(Spec(true)).plan_key) << "it grows for the others";
  EXPECT_NE(key(Spec()).content_key, key(Spec(true)).content_key);
  EXPECT_EQ(key(Spec(true)).content_key, key(Spec(true)).content_key);
  EXPECT_TRUE(key(Spec(true)).proto.dynamic_spai().regrow());
  EXPECT_NE(key(Spec()).plan_key, key(Spec(), pattern.get()).plan_key);
  for (const auto& change : std::vector<std::function<void(kernels::DynamicSpaiOptions&)>>{
           [](auto& o) { o.tol = 0.1; }, [](auto& o) { o.max_steps = 2; },
           [](auto& o) { o.per_step = 2; }, [](auto& o) { o.max_column_nnz = 3; },
           [](auto& o) { o.growth_precision = kernels::Precision::kFp32; },
           [](auto& o) { o.post_filter = 0.1; },
           [](auto& o) { o.local_solver = kernels::LocalSolver::kQr; }}) {
    ParsedSpec other = Spec();
    change(other.spec.dynamic_spai);
    EXPECT_NE(key(Spec()).plan_key, key(other).plan_key);
    EXPECT_NE(key(Spec()).content_key, key(other).content_key);
  }
  ParsedSpec of_others = Spec();
  of_others.spec.static_spai.pattern.power = 3;
  of_others.spec.fsai.k_max = 3;
  EXPECT_EQ(key(of_others).content_key, key(Spec()).content_key) << "not read";
  const auto refused = adapter_.Resolve(Spec(), *a, Prepare(Diagonal(8)).get());
  EXPECT_EQ(ReasonOf(refused.status()), "PATTERN_SIZE_MISMATCH");
  EXPECT_EQ(FieldOf(refused.status()), "dynamic_spai.pattern_matrix");
}

TEST_F(DynamicSpaiAdapter, WhatItCannotBuildOrServeIsRefused) {
  kernels::CscMatrix zero = Diagonal(3);
  zero.values[1] = 0;
  const auto built = Build(Spec(), *Prepare(zero));
  EXPECT_EQ(built.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(built.status()), "ZERO_COLUMN");
  EXPECT_EQ(MetaOf(built.status(), "index"), "1");
  const auto a = Prepare(Banded(9));
  const auto method = [&](kernels::Method asked) {
    return adapter_.ResolveMethod(asked, /*for_cg=*/false, *a);
  };
  EXPECT_EQ(ReasonOf(method(kernels::Method::kCg).status()), "PRECONDITIONER_NOT_SPD");
  EXPECT_EQ(*method(kernels::Method::kAuto), kernels::Method::kBicgstab);
  EXPECT_EQ(StoredEntries(kernels::EngineKind::kDynamicSpai, 5, 9), 9);
}

TEST(DynamicSpaiPlacement, LargeBuildsGoToTheGpuAndOverSeveral) {
  Bench bench({FakeCpu(), FakeGpu(0), FakeGpu(1)}, /*max_devices=*/2);
  bench.engine.predicted_device_ms = 0.1;
  bench.engine.predicted_ms = 0.9 * kernels::kGpuWorthMs;
  const v1::Preconditioner small = bench.Built(bench.Put(3), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_EQ(small.device(), "cpu");
  EXPECT_THAT(small.choice().placement(), HasSubstr("a GPU pays from"));
  bench.engine.predicted_ms = 0.9 * kernels::kSplitWorthMs;
  EXPECT_EQ(bench.Built(bench.Put(4), v1::ENGINE_KIND_DYNAMIC_SPAI).device(), "gpu:0");
  EXPECT_THAT(bench.engine.plan_devices(), testing::IsEmpty());
  Bench both({FakeCpu(), FakeGpu(0), FakeGpu(1)}, /*max_devices=*/2);
  both.engine.predicted_ms = kernels::kSplitWorthMs;
  EXPECT_EQ(both.Built(both.Put(5), v1::ENGINE_KIND_DYNAMIC_SPAI).device(), "gpu:0, gpu:1");
  EXPECT_THAT(both.engine.plan_devices(), ElementsAre(1, 2));
  // A solve goes where its build does.
  bench.engine.SolveOnGpus();
  const v1::SolveDone done = bench.Solved(bench.Put(6), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_THAT(done.device(), HasSubstr("gpu:"));
  EXPECT_EQ(done.placement(), "where its M is built: " + done.choice().placement());
  bench.engine.predicted_ms = 0.9 * kernels::kGpuWorthMs;
  EXPECT_EQ(bench.Solved(bench.Put(7), v1::ENGINE_KIND_DYNAMIC_SPAI).device(), "cpu");
}

TEST(DynamicSpaiPlacement, WhatDoesNotFitTheDevice) {
  Bench bench(CpuAndGpu());
  bench.engine.predicted_ms = 90;
  bench.engine.SetDeviceBytes(3000, 1000);
  const v1::Preconditioner waves = bench.Built(bench.Put(3), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_EQ(waves.device(), "gpu:0");
  EXPECT_THAT(waves.choice().placement(), HasSubstr("columns grow in waves"));
  bench.engine.SetDeviceBytes(3000, 1001);
  const v1::Preconditioner placed = bench.Built(bench.Put(4), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_EQ(placed.device(), "cpu");
  EXPECT_THAT(placed.choice().placement(), HasSubstr("(--device-memory), even in waves"));
  Bench gpu({FakeGpu(0)});
  gpu.engine.SetDeviceBytes(1001);
  const auto refused = gpu.Build(gpu.Put(), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_EQ(ReasonOf(refused.status()), "BUILD_TOO_LARGE");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("use fewer steps (max_steps)"));
}

TEST(DynamicSpaiPlacement, PlansThatGrewAreTheDevices) {
  Bench bench(CpuAndGpu());
  bench.engine.predicted_ms = 90;
  bench.engine.grow_plans = true;
  EXPECT_FALSE(bench.Built(bench.Put(3), v1::ENGINE_KIND_DYNAMIC_SPAI).build_timings().rebuild());
  const v1::Preconditioner again = bench.Built(bench.Put(4), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_TRUE(again.build_timings().rebuild());
  EXPECT_EQ(bench.engine.plans, 1);
  bench.engine.predicted_ms = 0.1;
  const v1::Preconditioner small = bench.Built(bench.Put(5), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_EQ(small.device(), "cpu");
  EXPECT_FALSE(small.build_timings().rebuild()) << "not the CPU's";
}

}  // namespace
}  // namespace spaid::server
