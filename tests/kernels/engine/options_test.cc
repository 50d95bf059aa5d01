// What Resolve, MakePlan, Build, ResolveMethod and Solve refuse, with the field at fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class Options : public ::testing::Test {
 protected:
  void ExpectRefused(const PreconditionerSpec& spec, const std::string& reason,
                     const std::string& field) {
    const auto resolved = engine_->Resolve(spec, a_, Diagnose(a_), nullptr, {});
    ASSERT_FALSE(resolved.ok()) << reason;
    EXPECT_EQ(resolved.status().code(), StatusCode::kInvalidArgument) << reason;
    EXPECT_EQ(resolved.status().reason(), reason);
    EXPECT_EQ(resolved.status().field(), field);
    const auto estimate = engine_->Estimate(spec, a_, nullptr, {});
    ASSERT_FALSE(estimate.ok()) << reason;
    EXPECT_EQ(estimate.status().reason(), reason);
    if (spec.engine == EngineKind::kAuto) return;
    const auto plan = engine_->MakePlan(spec, a_, nullptr, {});
    ASSERT_FALSE(plan.ok()) << reason;
    EXPECT_EQ(plan.status().reason(), reason);
  }

  std::unique_ptr<Engine> engine_ = MakeCpuEngine();
  CscMatrix a_ = oracle::ConvectionDiffusion(5, 4, 1.0);
};

TEST_F(Options, OutOfRange) {
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kAuto}) {
    for (const int power : {0, -1, 17}) {
      PreconditionerSpec spec = Spec(kind);
      spec.static_spai.pattern.power = power;
      ExpectRefused(spec, "BAD_PATTERN_POWER", "pattern_power");
    }
    for (const double v : {-0.1, 1.1, kNan, kInf}) {
      PreconditionerSpec spec = Spec(kind);
      spec.static_spai.pattern.keep_tau = v;
      ExpectRefused(spec, "BAD_KEEP_TAU", "keep_tau");
      spec = Spec(kind);
      spec.static_spai.post_filter = v;
      ExpectRefused(spec, "BAD_POST_FILTER", "post_filter");
      spec = Spec(kind);
      spec.static_spai.gram_pivot_limit = v;
      ExpectRefused(spec, "BAD_GRAM_PIVOT_LIMIT", "gram_pivot_limit");
    }
    PreconditionerSpec spec = Spec(kind);
    spec.static_spai.gram_pivot_limit = 1;  // a scaled pivot is never over 1: nothing would pass
    ExpectRefused(spec, "BAD_GRAM_PIVOT_LIMIT", "gram_pivot_limit");
    spec = Spec(kind);
    spec.static_spai.pattern.max_nnz = -1;
    ExpectRefused(spec, "BAD_MAX_NNZ", "max_nnz");
    spec = Spec(kind);
    spec.static_spai.local_solver = static_cast<LocalSolver>(9);
    ExpectRefused(spec, "BAD_LOCAL_SOLVER", "local_solver");
    spec = Spec(kind);
    spec.static_spai.thread_strategy = static_cast<ThreadStrategy>(-1);
    ExpectRefused(spec, "BAD_THREAD_STRATEGY", "thread_strategy");
  }
  ExpectRefused(Spec(static_cast<EngineKind>(77)), "BAD_ENGINE", "engine");
  for (const int size : {-1, 0, 33}) {
    PreconditionerSpec spec = Spec(EngineKind::kJacobi);
    spec.block_size = size;
    ExpectRefused(spec, "BAD_BLOCK_SIZE", "block_size");
  }
}

TEST_F(Options, LimitsOfTheRangesAreAllowed) {
  PreconditionerSpec spec = Spai(16);
  for (const double v : {0.0, 1.0}) {
    spec.static_spai.pattern.keep_tau = v;
    spec.static_spai.post_filter = v;
    const auto resolved = engine_->Resolve(spec, a_, Diagnose(a_), nullptr, {});
    ASSERT_TRUE(resolved.ok()) << resolved.status().message();
    EXPECT_EQ(resolved->spec.static_spai.pattern.power, 16);
    EXPECT_EQ(resolved->reason, "") << "nothing was AUTO";
    const auto plan = engine_->MakePlan(resolved->spec, a_, nullptr, {});
    EXPECT_TRUE(plan.ok()) << "what Resolve lets through can be planned: "
                           << plan.status().message();
  }
}

TEST_F(Options, OfEnginesThatDoNotReadThemAreDropped) {
  PreconditionerSpec spec = Spai(5);
  spec.engine = EngineKind::kJacobi;
  const auto resolved = engine_->Resolve(spec, a_, Diagnose(a_), nullptr, {});
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->spec.engine, EngineKind::kJacobi);
  EXPECT_EQ(resolved->spec.static_spai.pattern.power, 1);
}

TEST_F(Options, TheBlockSizeIsJacobisAlone) {
  PreconditionerSpec spec = Spai();
  for (const auto& [kind, size] :
       {std::pair{EngineKind::kJacobi, 5}, {EngineKind::kNone, 1}, {EngineKind::kStaticSpai, 1}}) {
    spec.engine = kind;
    spec.block_size = 5;
    const auto resolved = engine_->Resolve(spec, a_, Diagnose(a_), nullptr, {});
    ASSERT_TRUE(resolved.ok());
    EXPECT_EQ(resolved->spec.block_size, size);
    EXPECT_EQ(resolved->reason, "");
  }
  spec.engine = EngineKind::kAuto;
  const auto resolved = engine_->Resolve(spec, a_, Diagnose(a_), nullptr, {});
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->spec.block_size, 1);
  EXPECT_THAT(resolved->reason, HasSubstr("block_size is not used: name engine JACOBI"));
}

TEST_F(Options, PlansWantResolvedSpecs) {
  auto status = engine_->MakePlan(Spec(EngineKind::kAuto), a_, nullptr, {}).status();
  EXPECT_EQ(status.reason(), "ENGINE_NOT_RESOLVED");
  status = engine_->MakePlan(Spec(EngineKind::kNone), a_, nullptr, {}).status();
  EXPECT_EQ(status.reason(), "NOTHING_TO_BUILD");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST_F(Options, APlanServesItsOwnKindAndSizeOnly) {
  const auto jacobi = engine_->MakePlan(Spec(EngineKind::kJacobi), a_, nullptr, {});
  ASSERT_TRUE(jacobi.ok());
  auto status = (*jacobi)->Build(Spai(), a_, {}).status();
  EXPECT_EQ(status.reason(), "PLAN_MISMATCH");
  EXPECT_EQ(status.field(), "plan");
  const CscMatrix other = oracle::Laplacian2d(3, 3);
  status = (*jacobi)->Build(Spec(EngineKind::kJacobi), other, {}).status();
  EXPECT_EQ(status.reason(), "PLAN_MISMATCH");
  EXPECT_THAT(status.message(), HasSubstr("n = 20"));
}

TEST_F(Options, APlanServesItsOwnDeviceOnly) {
  const Context nowhere{.device = 3};
  auto status = engine_->MakePlan(Spai(), a_, nullptr, nowhere).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.reason(), "NO_SUCH_DEVICE");
  const auto plan = engine_->MakePlan(Spai(), a_, nullptr, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->device(), 0);
  EXPECT_EQ((*plan)->device_bytes(), 0);
  status = (*plan)->Build(Spai(), a_, nowhere).status();
  EXPECT_EQ(status.reason(), "PLAN_MISMATCH");
  EXPECT_THAT(status.message(), HasSubstr("device 0, not 3"));
  EXPECT_EQ(engine_->Estimate(Spai(), a_, nullptr, {})->device_bytes, 0)
      << "no device, no bytes of it";
}

TEST_F(Options, TheCpuSharesNoBuild) {
  EXPECT_TRUE(engine_->MakePlan(Spai(), a_, nullptr, {.devices = {0}}).ok());
  for (const std::vector<int>& devices : {std::vector{0, 0}, std::vector{0, 1}, std::vector{1}}) {
    const auto status = engine_->MakePlan(Spai(), a_, nullptr, {.devices = devices}).status();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.reason(), "NO_SUCH_DEVICE");
  }
}

TEST_F(Options, APlanServesItsOwnPatternOptionsOnly) {
  const auto plan = engine_->MakePlan(Spai(2), a_, nullptr, {});
  ASSERT_TRUE(plan.ok());
  const auto mismatch = [&](const PreconditionerSpec& spec, const char* what) {
    const Status status = (*plan)->Build(spec, a_, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << what;
    EXPECT_EQ(status.reason(), "PLAN_MISMATCH") << what;
    EXPECT_THAT(status.message(), HasSubstr(what));
  };
  mismatch(Spai(1), "pattern_power 2 (not 1)");
  PreconditionerSpec spec = Spai(2);
  spec.static_spai.pattern.keep_tau = 0.5;
  mismatch(spec, "keep_tau");
  spec = Spai(2);
  spec.static_spai.pattern.ensure_row = true;
  mismatch(spec, "ensure_row");
  spec = Spai(2);
  spec.static_spai.pattern.row_match = true;
  mismatch(spec, "row_match");
  // What the plan does not depend on may change.
  spec = Spai(2);
  spec.static_spai.post_filter = 0.1;
  spec.static_spai.local_solver = LocalSolver::kQr;
  spec.static_spai.pattern.max_nnz = 1 << 20;
  EXPECT_TRUE((*plan)->Build(spec, a_, {}).ok());
  // Another matrix of this size and count of entries.
  CscMatrix other = a_;
  std::swap(other.row_idx[0], other.row_idx[1]);  // not canonical, but it must not get that far
  EXPECT_EQ((*plan)->Build(Spai(2), other, {}).status().reason(), "PLAN_MISMATCH");
}

TEST_F(Options, APatternAloneCannotBeBuiltSolvedOrJudged) {
  CscView pattern = a_;
  pattern.values = {};
  const auto spec = Spec(EngineKind::kJacobi);
  const auto plan = engine_->MakePlan(spec, pattern, nullptr, {});
  ASSERT_TRUE(plan.ok());
  auto status = (*plan)->Build(spec, pattern, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "VALUES_NEEDED");
  status = engine_->Solve(pattern, nullptr, Ones(20), {}, {}, {}).status();
  EXPECT_EQ(status.reason(), "VALUES_NEEDED");
  status = engine_->Resolve(Spec(EngineKind::kAuto), pattern, Diagnosis{}, nullptr, {}).status();
  EXPECT_EQ(status.reason(), "VALUES_NEEDED");
}

TEST_F(Options, CgWithAnExplicitMIsRefusedTwice) {
  const Diagnosis spd = Diagnose(oracle::Laplacian2d(4, 4));
  auto status = ResolveMethod(Method::kCg, EngineKind::kStaticSpai, spd).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "PRECONDITIONER_NOT_SPD");
  EXPECT_EQ(status.field(), "method");

  const CscMatrix a = oracle::Laplacian2d(4, 4);
  const BuildResult built = MustBuild(*engine_, Spai(), a);
  status = engine_->Solve(a, built.preconditioner.get(), Ones(16), {}, {.method = Method::kCg}, {})
               .status();
  EXPECT_EQ(status.reason(), "PRECONDITIONER_NOT_SPD");
}

TEST_F(Options, CgOnANonsymmetricMatrixIsRefused) {
  const CscMatrix a = Rows({{2, 1, 0}, {1, 2, 1}, {0, 0.5, 2}});
  for (const EngineKind kind : {EngineKind::kNone, EngineKind::kJacobi}) {
    const auto status = ResolveMethod(Method::kCg, kind, Diagnose(a)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.reason(), "NOT_SYMMETRIC");
    EXPECT_EQ(status.index(), Diagnose(a).asymmetry_column);
    EXPECT_GE(status.index(), 1);
  }
}

TEST_F(Options, MethodAutoIsCgOnlyWhereThatIsSound) {
  const auto choose = [&](const CscMatrix& a, EngineKind kind) {
    const auto method = ResolveMethod(Method::kAuto, kind, Diagnose(a));
    EXPECT_TRUE(method.ok());
    return method.ok() ? *method : Method::kAuto;
  };
  const CscMatrix spd = oracle::Laplacian2d(4, 4);
  EXPECT_EQ(choose(spd, EngineKind::kNone), Method::kCg);
  EXPECT_EQ(choose(spd, EngineKind::kJacobi), Method::kCg);
  EXPECT_EQ(choose(spd, EngineKind::kStaticSpai), Method::kBicgstab);
  EXPECT_EQ(choose(a_, EngineKind::kJacobi), Method::kBicgstab);
  EXPECT_EQ(choose(Rows({{1, 1}, {1, -1}}), EngineKind::kNone), Method::kBicgstab);
  EXPECT_EQ(choose(Rows({{1, 1}, {1, 0}}), EngineKind::kNone), Method::kBicgstab);
  for (const Method method : {Method::kBicgstab, Method::kGmres}) {
    const auto same = ResolveMethod(method, EngineKind::kStaticSpai, Diagnose(spd));
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(*same, method);
  }
}

TEST_F(Options, UnknownMethodsAndUnresolvedEnginesAreRefused) {
  const Diagnosis d = Diagnose(a_);
  EXPECT_EQ(ResolveMethod(static_cast<Method>(42), EngineKind::kNone, d).status().reason(),
            "BAD_METHOD");
  EXPECT_EQ(ResolveMethod(Method::kCg, EngineKind::kAuto, d).status().reason(),
            "ENGINE_NOT_RESOLVED");
}

TEST_F(Options, AForeignPreconditionerIsRefused) {
  struct Foreign : Preconditioner {
    EngineKind kind() const override { return EngineKind::kJacobi; }
    const CscMatrix& matrix() const override { return m; }
    int64_t host_bytes() const override { return 0; }
    CscMatrix m;
  };
  const auto status =
      engine_->Solve(a_, std::make_unique<Foreign>().get(), Ones(20), {}, {}, {}).status();
  EXPECT_EQ(status.reason(), "PRECONDITIONER_MISMATCH");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST_F(Options, APreconditionerOfAnotherSizeIsRefused) {
  const BuildResult built =
      MustBuild(*engine_, Spec(EngineKind::kJacobi), oracle::Laplacian2d(3, 3));
  const auto status = engine_->Solve(a_, built.preconditioner.get(), Ones(20), {}, {}, {}).status();
  EXPECT_EQ(status.reason(), "PRECONDITIONER_SIZE_MISMATCH");
}

TEST_F(Options, TheCpuIsADevice) {
  const auto devices = engine_->Devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].backend, Backend::kCpu);
  EXPECT_GE(devices[0].threads, 1);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
