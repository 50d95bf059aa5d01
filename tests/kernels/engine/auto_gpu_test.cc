// What AUTO chooses for a GPU, and for several right-hand sides: costs are counted, so that no test
// needs a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/engine/engine_costs.h"
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
      const CscMatrix a = Chains(60, 1, skew);
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

// Costs of a matrix of which only the counts are looked at.
class Counted {
 public:
  Counted(int64_t n, int64_t row_entries) {
    a_.n_rows = a_.n_cols = n;
    a_.col_ptr.assign(static_cast<size_t>(n) + 1, 0);
    a_.col_ptr.back() = n * row_entries;
    a_.row_idx.resize(static_cast<size_t>(n * row_entries));
    sample_.entries = 2;
    sample_.local_entries = 25;
  }
  EngineCosts On(Backend backend, int64_t n_rhs, Method method = Method::kCg) const {
    return {a_, sample_, 5, method, n_rhs, backend, 2};
  }
  EngineWork Factored() const {
    return {.kind = EngineKind::kFsai, .entries = 6.0 * static_cast<double>(a_.n_cols)};
  }

 private:
  CscMatrix a_;
  LocalSample sample_;
};

TEST(EngineCosts, OfSeveralRightHandSidesIterationsCountAndTheSetUpOnce) {
  const Counted large(200'000, 27), small(1000, 5);
  const EngineWork jacobi;
  for (const Counted* of : {&large, &small}) {
    for (const EngineWork& work : {jacobi, of->Factored()}) {
      const EngineCosts one = of->On(Backend::kCpu, 1), eight = of->On(Backend::kCpu, 8);
      EXPECT_DOUBLE_EQ(eight.IterationMs(work), 8 * one.IterationMs(work));
      EXPECT_DOUBLE_EQ(eight.SetupMs(work), one.SetupMs(work));
    }
    // There b and x are copied, the build is not done again.
    const double more = of->On(Backend::kCuda, 8).SetupMs(of->Factored()) -
                        of->On(Backend::kCuda, 1).SetupMs(of->Factored());
    EXPECT_NEAR(
        more, of->On(Backend::kCuda, 8).SetupMs(jacobi) - of->On(Backend::kCuda, 1).SetupMs(jacobi),
        1e-9);
  }
  // Blocks of four read A once; on the chip one comes after the other.
  EXPECT_LT(large.On(Backend::kCuda, 4).IterationMs(jacobi),
            3 * large.On(Backend::kCuda, 1).IterationMs(jacobi));
  EXPECT_DOUBLE_EQ(large.On(Backend::kCuda, 7).IterationMs(jacobi),
                   large.On(Backend::kCuda, 4).IterationMs(jacobi) +
                       large.On(Backend::kCuda, 2).IterationMs(jacobi) +
                       large.On(Backend::kCuda, 1).IterationMs(jacobi));
  EXPECT_DOUBLE_EQ(small.On(Backend::kCuda, 4).IterationMs(jacobi),
                   4 * small.On(Backend::kCuda, 1).IterationMs(jacobi));
}

TEST(EngineCosts, AGpuNeedsManyUnknownsToBeAhead) {
  const Counted large(200'000, 27), small(100, 5);
  const EngineWork jacobi;
  EXPECT_LT(large.On(Backend::kCuda, 1).IterationMs(jacobi),
            0.1 * large.On(Backend::kCpu, 1).IterationMs(jacobi));
  EXPECT_GT(small.On(Backend::kCuda, 1).IterationMs(jacobi),
            10 * small.On(Backend::kCpu, 1).IterationMs(jacobi));
  EXPECT_GT(large.On(Backend::kCuda, 1).LookMs(), small.On(Backend::kCuda, 1).LookMs());
  EXPECT_EQ(large.On(Backend::kCpu, 1).LookMs(), 0);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
