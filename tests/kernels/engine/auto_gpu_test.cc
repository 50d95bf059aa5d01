// What AUTO chooses for a GPU, and for several right-hand sides: costs are counted, so that no test
// needs a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

PreconditionerSpec AutoOn(Backend backend, int64_t n_rhs = 1, Method method = Method::kAuto) {
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  spec.backend = backend;
  spec.n_rhs = n_rhs;
  spec.method = method;
  return spec;
}

ResolvedSpec MustResolve(const PreconditionerSpec& spec, const CscView& a, int threads = 2) {
  const auto resolved = MakeCpuEngine()->Resolve(
      spec, a, Diagnose(a), nullptr, {.stop = {}, .progress = nullptr, .threads = threads});
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? *resolved : ResolvedSpec{};
}

TEST(AutoOnGpu, WhatTakesMillisecondsThereAnywayIsJacobi) {
  // 16 cores make up for the set-up of FSAI in its iterations; a GPU does those in 2 ms, and needs
  // 1 for the set-up.
  const CscMatrix small = Chains(30, 10, 0);
  EXPECT_EQ(MustResolve(AutoOn(Backend::kCpu), small, 16).spec.engine, EngineKind::kAfsai);
  const ResolvedSpec there = MustResolve(AutoOn(Backend::kCuda), small, 16);
  EXPECT_EQ(there.spec.engine, EngineKind::kJacobi);
  EXPECT_THAT(there.reason, AllOf(StartsWith("Jacobi: A is symmetric"),
                                  HasSubstr("predicted with CG on a GPU at "),
                                  HasSubstr(" ms (set-up "), HasSubstr("; second choice: ")));
  EXPECT_THAT(MustResolve(AutoOn(Backend::kCuda), Chains(100, 10, 1e-3)).reason,
              HasSubstr("predicted with BiCGSTAB on a GPU at "));
}

TEST(AutoOnGpu, ThirtyStepsOfOneAreAChoiceThereAlone) {
  const CscMatrix a = Chains(300, 30, 0);
  const ResolvedSpec there = MustResolve(AutoOn(Backend::kCuda), a);
  EXPECT_EQ(there.spec.engine, EngineKind::kAfsai);
  EXPECT_EQ(there.spec.fsai.k_max, 30);
  EXPECT_EQ(there.spec.fsai.s, 1);
  EXPECT_THAT(there.reason, StartsWith("aFSAI of thirty steps of one: "));
  for (const int64_t n_rhs : {1, 8}) {
    const ResolvedSpec here = MustResolve(AutoOn(Backend::kCpu, n_rhs), a);
    EXPECT_EQ(here.spec.fsai.k_max, 3) << here.reason;
    EXPECT_THAT(here.reason, Not(HasSubstr("thirty")));
  }
  MustBuild(*MakeCpuEngine(), there.spec, a);
}

TEST(AutoOnGpu, SeveralRightHandSidesPayForASetUp) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    for (const double skew : {0.0, 1e-3}) {
      const CscMatrix a = Chains(200, 1, skew);
      EXPECT_EQ(MustResolve(AutoOn(backend, 1), a).spec.engine, EngineKind::kJacobi);
      const ResolvedSpec several = MustResolve(AutoOn(backend, 8), a);
      EXPECT_EQ(several.spec.engine, skew == 0 ? EngineKind::kAfsai : EngineKind::kStaticSpai);
      EXPECT_THAT(several.reason, HasSubstr(" of 8 right-hand sides on "));
    }
  }
}

TEST(AutoOnGpu, EqualBuildsHaveEqualSpecs) {
  const CscMatrix a = Chains(100, 1, 1e-3);
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    const PreconditionerSpec spec = MustResolve(AutoOn(backend, 8), a).spec;
    EXPECT_EQ(spec.engine, EngineKind::kStaticSpai);
    EXPECT_EQ(spec.backend, Backend::kCpu);
    EXPECT_EQ(spec.n_rhs, 1);
    EXPECT_EQ(spec.method, Method::kAuto);
  }
}

TEST(AutoOnGpu, ChoosesTheSameEachTimeOnAnyHost) {
  for (const CscMatrix& a :
       {Chains(300, 30, 0), Chains(300, 30, 1e-3), oracle::Laplacian2d(60, 60)}) {
    const ResolvedSpec first = MustResolve(AutoOn(Backend::kCuda, 4), a, 1);
    for (const int threads : {1, 3, 16}) {
      const ResolvedSpec again = MustResolve(AutoOn(Backend::kCuda, 4), a, threads);
      EXPECT_EQ(again.spec.engine, first.spec.engine);
      EXPECT_EQ(again.reason, first.reason) << "figures, too";
    }
  }
}

TEST(AutoOnGpu, HoldsToTheRulesOfTheCpu) {
  CscMatrix negative = Chains(300, 30, 0);
  for (double& v : negative.values) v = -v;
  for (const Method method : {Method::kAuto, Method::kCg, Method::kBicgstab, Method::kGmres}) {
    for (const CscMatrix& a : {negative, Chains(300, 30, 1e-3)}) {
      const ResolvedSpec r = MustResolve(AutoOn(Backend::kCuda, 8, method), a);
      EXPECT_FALSE(TraitsOf(r.spec.engine).factored) << r.reason;
      EXPECT_THAT(r.reason, Not(HasSubstr("FSAI")));
    }
  }
  for (const oracle::NamedMatrix& named : oracle::Zoo(1)) {
    SCOPED_TRACE(named.name);
    const ResolvedSpec for_cg = MustResolve(AutoOn(Backend::kCuda, 8, Method::kCg), named.a);
    EXPECT_NE(for_cg.spec.engine, EngineKind::kStaticSpai);
    const ResolvedSpec r = MustResolve(AutoOn(Backend::kCuda, 8), named.a);
    EXPECT_NE(r.spec.engine, EngineKind::kAuto);
    MustBuild(*MakeCpuEngine(), r.spec, named.a);
  }
}

TEST(AutoOnGpu, TheEstimateBoundsWhateverItChooses) {
  const auto engine = MakeCpuEngine();
  for (const CscMatrix& a : {Chains(300, 30, 0), Chains(300, 30, 1e-3)}) {
    const PreconditionerSpec spec = AutoOn(Backend::kCuda, 8);
    const auto bound = engine->Estimate(spec, a, nullptr, {});
    ASSERT_TRUE(bound.ok());
    const ResolvedSpec chosen = MustResolve(spec, a);
    const auto of_it = engine->Estimate(chosen.spec, a, nullptr, {});
    ASSERT_TRUE(of_it.ok());
    EXPECT_GE(bound->nnz_m, of_it->nnz_m);
    EXPECT_GE(bound->host_bytes, of_it->host_bytes);
    EXPECT_GE(bound->nnz_m, MustBuild(*engine, chosen.spec, a).preconditioner->matrix().nnz());
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
