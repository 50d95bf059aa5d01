// What AUTO chooses, and that it says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ResolvedSpec MustResolve(const PreconditionerSpec& spec, const CscView& a,
                         const PatternView* user_pattern = nullptr, int threads = 0) {
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  const auto resolved = MakeCpuEngine()->Resolve(spec, a, Diagnose(a), user_pattern, context);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? *resolved : ResolvedSpec{};
}

PreconditionerSpec AutoFor(Method method) {
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  spec.method = method;
  return spec;
}

TEST(Auto, BeginsWithJacobi) {
  for (const CscMatrix& a : {Rows({{2, 0, 0}, {0, 3, 0}, {0, 0, 4}}), Rows({{1, 2}, {2, 1}}),
                             oracle::Laplacian2d(10, 10), Chains(30, 30, 1e-3)}) {
    for (const Method method : {Method::kAuto, Method::kBicgstab, Method::kGmres}) {
      const ResolvedSpec r = MustResolve(AutoFor(method), a);
      EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
      EXPECT_EQ(r.spec.method, Method::kAuto) << "equal builds have equal resolved specs";
      EXPECT_THAT(r.reason, StartsWith("Jacobi: what costs least"));
    }
  }
}

TEST(Auto, WithoutADiagonalToDivideByItBeginsWithNothing) {
  const CscMatrix a = Rows({{0, 1, 0}, {0, 0, 2}, {3, 0, 0}});
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kNone);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("3 of 3 diagonal entries are zero (first: column 0)"),
                              Not(HasSubstr("structural rank"))));
  // Rows 1 and 2 compete for column 0.
  EXPECT_THAT(MustResolve(Spec(EngineKind::kAuto), Rows({{0, 1, 1}, {1, 0, 0}, {1, 0, 0}})).reason,
              AllOf(HasSubstr("structural rank 2 of 3"), HasSubstr("singular")));
  CscMatrix small = oracle::Laplacian2d(3, 3);
  for (double& v : small.values) v *= 1e-310;  // positive, but 1 / 4e-310 overflows
  EXPECT_THAT(MustResolve(Spec(EngineKind::kAuto), small).reason,
              HasSubstr("9 of 9 diagonal entries are zero or too small to invert"));
}

TEST(Auto, APatternThatCameAlongIsStaticSpais) {
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  spec.static_spai.local_solver = LocalSolver::kQr;
  const CscMatrix a = oracle::Laplacian2d(6, 6);
  const PatternView user = a.pattern();
  const ResolvedSpec r = MustResolve(spec, a, &user);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_EQ(r.spec.static_spai.local_solver, LocalSolver::kQr);
  MustBuild(*MakeCpuEngine(), r.spec, a);
  spec.method = Method::kCg;
  const ResolvedSpec for_cg = MustResolve(spec, a, &user);
  EXPECT_EQ(for_cg.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(for_cg.reason,
              HasSubstr("; not used, as it is for static SPAI alone: pattern_matrix"));
}

TEST(Auto, SaysWhichOptionsItDrops) {
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  const CscMatrix a = oracle::Laplacian2d(6, 6);
  EXPECT_THAT(MustResolve(spec, a).reason, Not(HasSubstr("not used")));
  spec.static_spai.pattern.keep_tau = 0.5;
  spec.static_spai.pattern.row_match = true;
  spec.static_spai.pattern.ensure_row = true;
  spec.static_spai.post_filter = 0.1;
  spec.static_spai.local_solver = LocalSolver::kQr;
  spec.static_spai.thread_strategy = ThreadStrategy::kPaper;
  spec.static_spai.gram_pivot_limit = 1e-8;
  spec.method = Method::kCg;
  EXPECT_THAT(MustResolve(spec, a).reason,
              HasSubstr(": keep_tau, ensure_row, row_match, post_filter, local_solver, "
                        "thread_strategy, gram_pivot_limit"));
}

TEST(Auto, TheEstimateBoundsEveryRung) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const auto bound = engine->Estimate(Spec(EngineKind::kAuto), a, nullptr, {});
  ASSERT_TRUE(bound.ok());
  for (const EngineKind kind : {EngineKind::kJacobi, EngineKind::kFsai, EngineKind::kAfsai,
                                EngineKind::kStaticSpai, EngineKind::kDynamicSpai}) {
    const auto one = engine->Estimate(Spec(kind), a, nullptr, {});
    ASSERT_TRUE(one.ok());
    EXPECT_GE(bound->host_bytes, one->host_bytes);
    EXPECT_GE(bound->nnz_m, one->nnz_m);
  }
}

TEST(Auto, WhateverItBeginsWithCanBeBuilt) {
  const auto engine = MakeCpuEngine();
  for (const uint64_t seed : {1, 2}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed)) {
      SCOPED_TRACE(named.name + ", n = " + std::to_string(named.a.n_cols));
      const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), named.a);
      EXPECT_FALSE(r.reason.empty());
      if (r.spec.engine != EngineKind::kNone) MustBuild(*engine, r.spec, named.a);
    }
  }
}

TEST(Auto, MinresGetsNoPreconditionerThatIsIndefinite) {
  const CscMatrix negative = Rows({{2, 1, 0}, {1, -3, 1}, {0, 1, 4}});
  const ResolvedSpec none = MustResolve(AutoFor(Method::kMinres), negative);
  EXPECT_EQ(none.spec.engine, EngineKind::kNone);
  EXPECT_THAT(none.reason, HasSubstr("1 of 3 diagonal entries are negative (first: column 1)"));
  const CscMatrix zero = Rows({{2, 1, 0}, {1, 0, 1}, {0, 1, 4}});
  const ResolvedSpec also = MustResolve(AutoFor(Method::kMinres), zero);
  EXPECT_EQ(also.spec.engine, EngineKind::kNone);
  EXPECT_THAT(also.reason,
              AllOf(HasSubstr("1 of 3 diagonal entries are zero"), Not(HasSubstr("CG"))));
  const CscMatrix positive = Rows({{1, 2}, {2, 1}});
  EXPECT_EQ(MustResolve(AutoFor(Method::kMinres), positive).spec.engine, EngineKind::kJacobi);
  for (const CscMatrix& a : {negative, zero, positive}) {
    const Vector b = SmoothRhs(a);
    const auto engine = MakeCpuEngine();
    const ResolvedSpec r = MustResolve(AutoFor(Method::kMinres), a);
    std::shared_ptr<const Preconditioner> m;
    if (r.spec.engine != EngineKind::kNone) m = MustBuild(*engine, r.spec, a).preconditioner;
    const auto solved =
        engine->Solve(a, m.get(), b, {}, {.method = Method::kMinres, .rtol = 1e-10}, {});
    ASSERT_TRUE(solved.ok()) << solved.status().message();
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  }
}

TEST(Auto, CgNeverBeginsWithStaticSpai) {
  for (const uint64_t seed : {1, 2}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed)) {
      const ResolvedSpec r = MustResolve(AutoFor(Method::kCg), named.a);
      EXPECT_NE(r.spec.engine, EngineKind::kStaticSpai) << named.name;
    }
  }
  EXPECT_NE(MustResolve(AutoFor(Method::kCg), Chains(300, 30, 1e-3)).spec.engine,
            EngineKind::kStaticSpai);
  const ResolvedSpec none =
      MustResolve(AutoFor(Method::kCg), Rows({{0, 1, 0}, {1, 2, 1}, {0, 1, 2}}));
  EXPECT_EQ(none.spec.engine, EngineKind::kNone);
  EXPECT_THAT(none.reason, AllOf(StartsWith("none: 1 of 3 diagonal entries are zero"),
                                 HasSubstr("CG may well find that")));
}

TEST(Auto, AColumnThatStoresNothingLeavesNothingToBuild) {
  const CscMatrix a = Rows({{1, 0, 2}, {0, 0, 3}, {4, 0, 5}});  // column 1 is empty
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  spec.static_spai.pattern.power = 2;
  const ResolvedSpec r = MustResolve(spec, a);
  EXPECT_EQ(r.spec.engine, EngineKind::kNone);
  EXPECT_EQ(r.spec.static_spai.pattern.power, 1) << "options of engines not chosen are reset";
  EXPECT_THAT(r.reason, AllOf(StartsWith("none: column 1 of A stores no entry"),
                              HasSubstr("singular"), HasSubstr("pattern_power")));
  const auto engine = MakeCpuEngine();
  const auto estimate = engine->Estimate(spec, a, nullptr, {});
  ASSERT_TRUE(estimate.ok()) << estimate.status().message();
  EXPECT_EQ(estimate->nnz_m, 0);
  EXPECT_EQ(estimate->host_bytes, 0);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
