// Every valid pair of method and engine converges on sample problems, and an approximate inverse
// does what it is for.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

struct Pair {
  EngineKind engine;
  Method method;
};

int64_t Iterations(const Engine& engine, const CscMatrix& a, const PreconditionerSpec& spec,
                   Method method) {
  std::shared_ptr<const Preconditioner> m;
  if (spec.engine != EngineKind::kNone) m = MustBuild(engine, spec, a).preconditioner;
  const auto resolved = ResolveMethod(method, ForCg(spec), Diagnose(a));
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  const Vector b = RowSums(a);
  const auto r = engine.Solve(a, m.get(), b, {}, {.method = *resolved, .rtol = 1e-9}, {});
  EXPECT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged) << r->rhs[0].detail;
  EXPECT_LE(TrueRelative(a, r->x, b), 1.0001e-9);
  EXPECT_GT(r->solve_ms, 0);
  return r->rhs[0].iterations;
}

TEST(Pairs, EveryValidOneConvergesOnAnSpdProblem) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(24, 24);
  for (const Pair pair : {Pair{EngineKind::kNone, Method::kCg},
                          Pair{EngineKind::kNone, Method::kBicgstab},
                          Pair{EngineKind::kNone, Method::kGmres},
                          Pair{EngineKind::kJacobi, Method::kCg},
                          Pair{EngineKind::kJacobi, Method::kBicgstab},
                          Pair{EngineKind::kJacobi, Method::kGmres},
                          Pair{EngineKind::kStaticSpai, Method::kBicgstab},
                          Pair{EngineKind::kStaticSpai, Method::kGmres},
                          Pair{EngineKind::kStaticSpai, Method::kAuto},
                          Pair{EngineKind::kFsai, Method::kCg},
                          Pair{EngineKind::kFsai, Method::kBicgstab},
                          Pair{EngineKind::kFsai, Method::kGmres},
                          Pair{EngineKind::kAfsai, Method::kCg},
                          Pair{EngineKind::kAfsai, Method::kBicgstab},
                          Pair{EngineKind::kAfsai, Method::kGmres},
                          Pair{EngineKind::kAfsai, Method::kAuto},
                          Pair{EngineKind::kDynamicSpai, Method::kBicgstab},
                          Pair{EngineKind::kDynamicSpai, Method::kGmres},
                          Pair{EngineKind::kDynamicSpai, Method::kAuto},
                          Pair{EngineKind::kNone, Method::kMinres},
                          Pair{EngineKind::kJacobi, Method::kMinres},
                          Pair{EngineKind::kFsai, Method::kMinres},
                          Pair{EngineKind::kAfsai, Method::kMinres},
                          Pair{EngineKind::kNone, Method::kIdr},
                          Pair{EngineKind::kStaticSpai, Method::kIdr},
                          Pair{EngineKind::kAfsai, Method::kIdr}}) {
    SCOPED_TRACE(static_cast<int>(pair.engine) * 10 + static_cast<int>(pair.method));
    Iterations(*engine, a, Spec(pair.engine), pair.method);
  }
}

TEST(Pairs, EveryValidOneConvergesOnANonsymmetricProblem) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(24, 24, 1.5);
  for (const EngineKind kind : {EngineKind::kNone, EngineKind::kJacobi, EngineKind::kStaticSpai,
                                EngineKind::kDynamicSpai}) {
    for (const Method method : {Method::kBicgstab, Method::kGmres, Method::kIdr, Method::kAuto}) {
      SCOPED_TRACE(static_cast<int>(kind) * 10 + static_cast<int>(method));
      Iterations(*engine, a, Spec(kind), method);
    }
  }
}

TEST(Pairs, ALargerPatternTakesFewerIterations) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(40, 40, 0.5);
  for (const Method method : {Method::kBicgstab, Method::kGmres, Method::kIdr}) {
    const int64_t none = Iterations(*engine, a, Spec(EngineKind::kNone), method);
    const int64_t one = Iterations(*engine, a, Spai(1), method);
    const int64_t two = Iterations(*engine, a, Spai(2), method);
    EXPECT_LT(one, none);
    EXPECT_LT(two, one);
  }
}

TEST(Pairs, ThreadsDoNotChangeABitOfBuildOrSolve) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(220, 220, 0.5);
  const Vector b = RowSums(a);
  SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-12};
  options.max_iterations = 15;
  Array<double> first;
  for (const int threads : {1, 2, 4}) {
    Context context;
    context.threads = threads;
    const BuildResult built = MustBuild(*engine, Spai(), a, context);
    const auto r = engine->Solve(a, built.preconditioner.get(), b, {}, options, context);
    ASSERT_TRUE(r.ok());
    if (threads == 1) {
      first = r->x;
      continue;
    }
    EXPECT_EQ(std::memcmp(first.data(), r->x.data(), first.size() * sizeof(double)), 0) << threads;
  }
}

TEST(Pairs, SeveralSolvesShareOnePreconditioner) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const BuildResult built = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  Vector b(800, 0.0);
  const Vector one = RowSums(a);
  std::copy(one.begin(), one.end(), b.begin());
  b[400] = 1;
  const auto r = engine->Solve(a, built.preconditioner.get(), b, {}, {.method = Method::kCg}, {});
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r->rhs.size(), 2u);
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r->rhs[1].outcome, Outcome::kConverged);
  EXPECT_NE(r->rhs[0].iterations, 0);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
