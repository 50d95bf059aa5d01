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

TEST(Auto, ADiagonalMatrixIsJacobi) {
  const CscMatrix a = Rows({{2, 0, 0}, {0, 3, 0}, {0, 0, 4}});
  for (const Method method : {Method::kAuto, Method::kCg, Method::kBicgstab, Method::kGmres}) {
    const ResolvedSpec r = MustResolve(AutoFor(method), a);
    EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
    EXPECT_EQ(r.spec.method, Method::kAuto) << "equal builds have equal resolved specs";
    EXPECT_THAT(r.reason, HasSubstr("the entries before a diagonal entry explain 0 of it"));
  }
}

TEST(Auto, EasyAndSymmetricIsJacobi) {
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), oracle::Laplacian2d(10, 10));
  EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason,
              AllOf(StartsWith("Jacobi: A is symmetric with a positive diagonal (n = 100)"),
                    HasSubstr("predicted with CG on the CPU at "), HasSubstr(" ms (set-up "),
                    HasSubstr("; second choice: ")));
}

TEST(Auto, HardAndSymmetricIsFsai) {
  const CscMatrix a = Chains(300, 30, 0);
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_TRUE(TraitsOf(r.spec.engine).factored) << r.reason;
  EXPECT_THAT(r.reason, AllOf(HasSubstr("FSAI"), HasSubstr("; second choice: ")));
  MustBuild(*MakeCpuEngine(), r.spec, a);
}

TEST(Auto, HardAndNotSymmetricIsStaticSpai) {
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), Chains(300, 30, 1e-3));
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_EQ(r.spec.static_spai.pattern.power, 1);
  EXPECT_THAT(r.reason, AllOf(StartsWith("static SPAI: A is not symmetric (n = 9000, first at "),
                              HasSubstr("predicted with BiCGSTAB on the CPU at "),
                              HasSubstr("; second choice: Jacobi at ")));
}

TEST(Auto, WithoutSymmetryOrAPositiveDiagonalThereIsNoFsai) {
  CscMatrix negative = Chains(300, 30, 0);
  for (double& v : negative.values) v = -v;
  for (const CscMatrix& a : {negative, Chains(300, 30, 1e-3), Chains(20, 20, 0.5)}) {
    for (const Method method : {Method::kAuto, Method::kCg, Method::kBicgstab, Method::kGmres}) {
      const ResolvedSpec r = MustResolve(AutoFor(method), a);
      EXPECT_FALSE(TraitsOf(r.spec.engine).factored) << r.reason;
      EXPECT_THAT(r.reason, Not(HasSubstr("FSAI")));
    }
  }
  EXPECT_THAT(MustResolve(Spec(EngineKind::kAuto), negative).reason,
              HasSubstr("9000 negative diagonal entries"));
}

TEST(Auto, SymmetricButNotDefiniteIsNotForFsai) {
  // Its entries sum to -2; no principal minor of two is negative.
  const CscMatrix a = Rows({{2, -1.5, -1.5}, {-1.5, 2, -1}, {-1.5, -1, 2}});
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_THAT(r.reason, HasSubstr("not definite"));
  // And here a local pivot says so: 1 - 2² < 0, all entries positive.
  EXPECT_EQ(MustResolve(Spec(EngineKind::kAuto), Rows({{1, 2}, {2, 1}})).spec.engine,
            EngineKind::kStaticSpai);
  EXPECT_EQ(MustResolve(AutoFor(Method::kCg), a).spec.engine, EngineKind::kJacobi);
}

TEST(Auto, MinresGetsNoPreconditionerThatIsIndefinite) {
  const CscMatrix negative = Rows({{2, 1, 0}, {1, -3, 1}, {0, 1, 4}});
  const ResolvedSpec none = MustResolve(AutoFor(Method::kMinres), negative);
  EXPECT_EQ(none.spec.engine, EngineKind::kNone);
  EXPECT_THAT(none.reason, HasSubstr("1 of 3 diagonal entries are negative (first: column 1)"));
  const CscMatrix zero = Rows({{2, 1, 0}, {1, 0, 1}, {0, 1, 4}});
  const ResolvedSpec also = MustResolve(AutoFor(Method::kMinres), zero);
  EXPECT_EQ(also.spec.engine, EngineKind::kNone);
  EXPECT_THAT(also.reason, AllOf(HasSubstr("MINRES takes no static SPAI"), Not(HasSubstr("CG"))));
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

TEST(Auto, SemidefiniteButForRoundingIsNotIndefinite) {
  // A complete graph: rows sum to zero but for rounding, and the last local pivot vanishes.
  CscMatrix a;
  a.n_rows = a.n_cols = 12;
  a.col_ptr.push_back(0);
  for (int32_t j = 0; j < 12; ++j) {
    for (int32_t i = 0; i < 12; ++i) {
      a.row_idx.push_back(i);
      a.values.push_back(i == j ? 1.1 : -0.1);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_NE(r.spec.engine, EngineKind::kStaticSpai) << r.reason;
  EXPECT_THAT(r.reason, Not(HasSubstr("not definite")));
}

TEST(Auto, CgNeverGetsStaticSpai) {
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
  EXPECT_THAT(none.reason, AllOf(StartsWith("none: 1 of 3 diagonal entries cannot be inverted"),
                                 HasSubstr("CG takes no static SPAI")));
}

TEST(Auto, BicgstabOfAnSpdMatrixWeighsStaticSpaiToo) {
  const ResolvedSpec r = MustResolve(AutoFor(Method::kBicgstab), Chains(300, 30, 0));
  EXPECT_NE(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason, HasSubstr("predicted with BiCGSTAB on the CPU at "));
}

TEST(Auto, ADiagonalThatEliminationOutgrowsIsNotForJacobi) {
  // Eliminating the entry before it turns each second diagonal entry from 0.01 into 1.01.
  CscMatrix a;
  a.n_rows = a.n_cols = 200;
  a.col_ptr.push_back(0);
  for (int32_t j = 0; j < 200; ++j) {
    const bool first = j % 2 == 0;
    a.row_idx.insert(a.row_idx.end(), {first ? j : j - 1, first ? j + 1 : j});
    a.values.insert(a.values.end(), {first ? 1.0 : -1.0, first ? 1.0 : 0.01});
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("its diagonal says little of its inverse"),
                              HasSubstr("; second choice: Jacobi at ")));
}

TEST(Auto, ChoosesTheSameEachTime) {
  for (const CscMatrix& a :
       {Chains(300, 30, 0), Chains(300, 30, 1e-3), oracle::Laplacian2d(40, 40)}) {
    const ResolvedSpec first = MustResolve(Spec(EngineKind::kAuto), a, nullptr, 2);
    for (int i = 0; i < 5; ++i) {
      const ResolvedSpec again = MustResolve(Spec(EngineKind::kAuto), a, nullptr, 2);
      EXPECT_EQ(again.spec.engine, first.spec.engine);
      EXPECT_EQ(again.reason, first.reason) << "figures, too: they come from counts";
    }
  }
}

TEST(Auto, AZeroDiagonalEnsuresRows) {
  const CscMatrix a = Rows({{0, 1, 0}, {0, 0, 2}, {3, 0, 0}});
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_TRUE(r.spec.static_spai.pattern.ensure_row);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("3 of 3 diagonal entries are zero (first: column 0)"),
                              HasSubstr("ensure_row"), Not(HasSubstr("structural rank"))));
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, r.spec, a);
  EXPECT_EQ(built.quality.zero_columns, 0);
  EXPECT_LT(built.quality.residual_frobenius, 1e-14) << "M is the inverse permutation, scaled";
}

TEST(Auto, SaysWhereAIsStructurallySingular) {
  const CscMatrix a = Rows({{0, 1, 1}, {1, 0, 0}, {1, 0, 0}});  // rows 1 and 2 compete for column 0
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_TRUE(r.spec.static_spai.pattern.ensure_row);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("structural rank 2 of 3"), HasSubstr("singular")));
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
  // A column of stored zeros is one that static SPAI can plan with.
  CscMatrix zeros = Rows({{1, 1, 2}, {0, 0, 3}, {4, 0, 5}});
  zeros.values[2] = 0;
  const ResolvedSpec built = MustResolve(Spec(EngineKind::kAuto), zeros);
  EXPECT_EQ(built.spec.engine, EngineKind::kStaticSpai);
  MustBuild(*engine, built.spec, zeros);
}

TEST(Auto, ADiagonalTooSmallToInvertIsNotForJacobi) {
  CscMatrix a = oracle::Laplacian2d(3, 3);
  for (double& v : a.values) v *= 1e-310;  // symmetric and positive, but 1 / 4e-310 overflows
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a);
  EXPECT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_THAT(r.reason, HasSubstr("9 of 9 diagonal entries are zero or too small to invert "
                                  "(first: column 0)"));
  MustBuild(*MakeCpuEngine(), r.spec, a);
}

TEST(Auto, SaysWhichOptionsItDrops) {
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  const CscMatrix a = oracle::Laplacian2d(6, 6);
  EXPECT_THAT(MustResolve(spec, a).reason, Not(HasSubstr("not used")));
  const PatternView user = a.pattern();
  EXPECT_THAT(MustResolve(spec, a, &user).reason,
              HasSubstr("; not used, as it is for static SPAI alone: pattern_matrix"));
  spec.static_spai.pattern.keep_tau = 0.5;
  spec.static_spai.pattern.row_match = true;
  spec.static_spai.pattern.ensure_row = true;
  spec.static_spai.post_filter = 0.1;
  spec.static_spai.local_solver = LocalSolver::kQr;
  spec.static_spai.thread_strategy = ThreadStrategy::kPaper;
  spec.static_spai.gram_pivot_limit = 1e-8;
  const ResolvedSpec r = MustResolve(spec, a);
  EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason, HasSubstr(": keep_tau, ensure_row, row_match, post_filter, local_solver, "
                                  "thread_strategy, gram_pivot_limit"));
}

// 1600 local problems of some 200 columns, against iterations that stay in the caches: on one
// thread the build takes as long as thousands of them.
PreconditionerSpec CostlyAuto() {
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  spec.static_spai.pattern.power = 10;
  return spec;
}

TEST(Auto, ABuildThatCostsMoreThanItSavesIsLeftOut) {
  const CscMatrix a = oracle::ConvectionDiffusion(40, 40, 1.0);
  const ResolvedSpec r = MustResolve(CostlyAuto(), a, nullptr, 1);
  EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason, AllOf(HasSubstr("; second choice: static SPAI at "),
                              HasSubstr("not used, as it is for static SPAI alone: "
                                        "pattern_power")));
}

TEST(Auto, CostsAreThoseOfTheThreadsOfTheContext) {
  // Local problems share nothing and scale; iterations wait for memory and do not: the second
  // choice here, most of which is set-up, comes nearer with threads.
  const CscMatrix a = Chains(100, 30, 1e-3);
  PreconditionerSpec spec = CostlyAuto();
  spec.static_spai.pattern.power = 6;
  EXPECT_EQ(MustResolve(spec, a, nullptr, 1).spec.engine, EngineKind::kJacobi);
  EXPECT_EQ(MustResolve(spec, a, nullptr, 256).spec.engine, EngineKind::kStaticSpai);
}

TEST(Auto, CostsAreThoseOfTheGivenPattern) {
  // Its own pattern is worth a build here, a power of the diagonal is no better than Jacobi.
  const CscMatrix a = Chains(300, 30, 1e-3);
  Pattern diagonal;
  diagonal.n_rows = diagonal.n_cols = a.n_cols;
  for (int64_t k = 0; k <= a.n_cols; ++k) diagonal.col_ptr.push_back(k);
  for (int32_t k = 0; k < a.n_cols; ++k) diagonal.row_idx.push_back(k);
  const PatternView user = diagonal;
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  EXPECT_EQ(MustResolve(spec, a, &user).spec.engine, EngineKind::kJacobi);
  const PatternView own = a;
  EXPECT_EQ(MustResolve(spec, a, &own).spec.engine, EngineKind::kStaticSpai);
}

TEST(Auto, AGivenPatternIsNotForFsai) {
  const CscMatrix a = Chains(300, 30, 0);
  const PatternView own = a;
  const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), a, &own);
  EXPECT_EQ(r.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(r.reason, HasSubstr("not used, as it is for static SPAI alone: pattern_matrix"));
}

TEST(Auto, AStopReachesTheCount) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const CscMatrix a = oracle::ConvectionDiffusion(40, 40, 1.0);
  const auto stopped = MakeCpuEngine()->Resolve(CostlyAuto(), a, Diagnose(a), nullptr,
                                                {.stop = cancel.token(), .progress = nullptr});
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
}

TEST(Auto, KeepsTheOptionsOfWhatItChooses) {
  PreconditionerSpec spec = Spai(2);
  spec.engine = EngineKind::kAuto;
  spec.static_spai.local_solver = LocalSolver::kQr;
  const ResolvedSpec r = MustResolve(spec, Chains(300, 30, 1e-3));
  ASSERT_EQ(r.spec.engine, EngineKind::kStaticSpai);
  EXPECT_EQ(r.spec.static_spai.pattern.power, 2);
  EXPECT_EQ(r.spec.static_spai.local_solver, LocalSolver::kQr);
}

TEST(Auto, WhateverItChoosesCanBeBuilt) {
  const auto engine = MakeCpuEngine();
  for (const uint64_t seed : {1, 2}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed)) {
      SCOPED_TRACE(named.name + ", n = " + std::to_string(named.a.n_cols));
      const ResolvedSpec r = MustResolve(Spec(EngineKind::kAuto), named.a);
      EXPECT_NE(r.spec.engine, EngineKind::kAuto);
      EXPECT_FALSE(r.reason.empty());
      MustBuild(*engine, r.spec, named.a);
    }
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
