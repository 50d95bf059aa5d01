// Singular systems with each engine's M, and with AUTO's ladder.
#include "kernels/krylov/null_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "kernels/engine/ladder.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Diffusion on an nx x ny grid without flow through its boundary, and with `wind` along closed
// lines of x: rows and columns sum to zero.
CscMatrix Closed(int64_t nx, int64_t ny, double wind = 0) {
  oracle::Dense a = oracle::Identity(nx * ny);
  for (int64_t i = 0; i < nx * ny; ++i) a(i, i) = 0;
  const auto couple = [&](int64_t i, int64_t j, double v) {
    a(i, j) -= v;
    a(i, i) += v;
  };
  for (int64_t y = 0; y < ny; ++y) {
    for (int64_t x = 0; x < nx; ++x) {
      const int64_t i = y * nx + x;
      if (wind > 0 || x > 0) couple(i, y * nx + (x + nx - 1) % nx, 1 + wind);
      if (wind > 0 || x < nx - 1) couple(i, y * nx + (x + 1) % nx, 1);
      if (y > 0) couple(i, i - nx, 1);
      if (y < ny - 1) couple(i, i + nx, 1);
    }
  }
  return oracle::FromDense(a);
}

Vector Random(size_t n) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Vector v(n);
  for (double& e : v) e = uniform(random);
  return v;
}

double Sum(std::span<const double> v) {
  double sum = 0;
  for (const double e : v) sum += e;
  return sum;
}

TEST(NullSpaceEngine, EveryEnginesMDoes) {
  const auto engine = MakeCpuEngine();
  struct Case {
    CscMatrix a;
    std::vector<EngineKind> engines;
    std::vector<Method> methods;
  };
  const Case cases[] = {
      {Closed(12, 10),
       {EngineKind::kJacobi, EngineKind::kFsai, EngineKind::kAfsai},
       {Method::kCg, Method::kMinres, Method::kBicgstab, Method::kGmres, Method::kIdr}},
      {Closed(12, 10, 0.7),
       {EngineKind::kJacobi, EngineKind::kStaticSpai, EngineKind::kDynamicSpai},
       {Method::kBicgstab, Method::kGmres, Method::kIdr}}};
  for (const Case& c : cases) {
    const Diagnosis d = Diagnose(c.a);
    const auto space = MakeNullSpace(c.a, d, {});
    ASSERT_TRUE(space.ok());
    ASSERT_NE(*space, nullptr);
    Vector b = Random(120);
    for (const EngineKind kind : c.engines) {
      const BuildResult built = MustBuild(*engine, Spec(kind), c.a);
      ASSERT_NE(built.preconditioner, nullptr);
      for (const Method method : c.methods) {
        const std::string what = std::string(TraitsOf(kind).name) + ", method " +
                                 std::to_string(static_cast<int>(method));
        const SolveOptions options{.method = method, .rtol = 1e-9, .null_space = space->get()};
        const auto r = engine->Solve(c.a, built.preconditioner.get(), b, {}, options, {});
        ASSERT_TRUE(r.ok()) << r.status().message();
        EXPECT_EQ(r->rhs[0].outcome, Outcome::kStagnated) << what;
        EXPECT_THAT(r->rhs[0].detail, HasSubstr("the rest is solved to")) << what;
        EXPECT_NEAR(r->rhs[0].true_residual, std::abs(Sum(b)) / std::sqrt(120.0), 1e-8) << what;
        EXPECT_NEAR(Sum(r->x), 0, 1e-11) << what;
        EXPECT_LE(r->rhs[0].iterations, 120) << what;
      }
    }
  }
}

TEST(NullSpaceEngine, AConsistentSystemTakesNoMoreIterations) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Closed(25, 20);
  const auto space = MakeNullSpace(a, Diagnose(a), {});
  ASSERT_TRUE(space.ok());
  Vector b = Random(500);
  const double mean = Sum(b) / 500;
  for (double& v : b) v -= mean;
  const BuildResult built = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  for (const Method method : {Method::kCg, Method::kMinres, Method::kGmres, Method::kBicgstab}) {
    SolveOptions options{.method = method, .rtol = 1e-10};
    const auto before = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
    options.null_space = space->get();
    const auto now = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
    ASSERT_TRUE(before.ok() && now.ok());
    EXPECT_EQ(now->rhs[0].outcome, Outcome::kConverged) << now->rhs[0].detail;
    EXPECT_LE(now->rhs[0].iterations, before->rhs[0].iterations + 5)
        << static_cast<int>(method) << ", without: " << before->rhs[0].detail;
  }
}

TEST(NullSpaceEngine, OfAnotherMatrixIsIgnored) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Closed(6, 5), other = oracle::Laplacian2d(6, 5);
  const auto space = MakeNullSpace(a, Diagnose(a), {});
  ASSERT_TRUE(space.ok());
  const Vector b(30, 1.0);
  const SolveOptions options{.method = Method::kCg, .null_space = space->get()};
  const auto r = engine->Solve(other, nullptr, b, {}, options, {});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r->rhs[0].unreachable, 0);
  EXPECT_GT(Sum(r->x), 1);
}

// Rungs are given what A reaches of b, and the null space by their options.
TEST(NullSpaceEngine, ReachesTheRungsOfTheLadder) {
  class Quiet final : public LadderSink {
   public:
    Status Enter(const std::string&, int64_t, double) override { return {}; }
    void OnRung(const Rung&) override {}
  };
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Closed(12, 10);
  const Diagnosis d = Diagnose(a);
  const auto space = MakeNullSpace(a, d, {});
  ASSERT_TRUE(space.ok());
  krylov::Team team(120, 1);
  const Reach reach = SplitRhs(**space, Random(120), &team);
  const SolveOptions options{.method = Method::kAuto, .null_space = space->get()};
  SolveResult solved;
  solved.x.assign(120, 0.0);
  solved.rhs.emplace_back().outcome = Outcome::kBreakdown;
  Rung first;
  first.engine = EngineKind::kJacobi;
  first.method = Method::kCg;
  Quiet sink;
  const auto climbed = Climb(*engine, {a, d, reach.b, options}, std::move(solved), first, sink, {});
  ASSERT_TRUE(climbed.ok()) << climbed.status().message();
  EXPECT_THAT(climbed->rungs, SizeIs(2));
  EXPECT_EQ(climbed->solved.rhs[0].outcome, Outcome::kConverged);
  EXPECT_NEAR(Sum(climbed->solved.x), 0, 1e-11);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
