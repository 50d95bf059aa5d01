// Refusals of Resolve, MakePlan, Build, ResolveMethod and Solve, with the field at fault, beside
// what all engines do (conformance_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::HasSubstr;

class Options : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> engine_ = MakeCpuEngine();
  CscMatrix a_ = oracle::ConvectionDiffusion(5, 4, 1.0);
};

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

TEST_F(Options, CgOnANonsymmetricMatrixIsRefused) {
  const CscMatrix a = Rows({{2, 1, 0}, {1, 2, 1}, {0, 0.5, 2}});
  for (const EngineKind kind : {EngineKind::kNone, EngineKind::kJacobi}) {
    const auto status = ResolveMethod(Method::kCg, TraitsOf(kind).for_cg, Diagnose(a)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.reason(), "NOT_SYMMETRIC");
    EXPECT_EQ(status.index(), Diagnose(a).asymmetry_column);
    EXPECT_GE(status.index(), 1);
  }
}

TEST_F(Options, MethodAutoIsCgOnlyWhereThatIsSound) {
  const auto choose = [&](const CscMatrix& a, EngineKind kind) {
    const auto method = ResolveMethod(Method::kAuto, TraitsOf(kind).for_cg, Diagnose(a));
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
    const auto same =
        ResolveMethod(method, TraitsOf(EngineKind::kStaticSpai).for_cg, Diagnose(spd));
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(*same, method);
  }
}

TEST_F(Options, UnknownMethodsAreRefused) {
  const Diagnosis d = Diagnose(a_);
  EXPECT_EQ(ResolveMethod(static_cast<Method>(42), true, d).status().reason(), "BAD_METHOD");
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
