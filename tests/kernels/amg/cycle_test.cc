// The hierarchy as a whole: what a cycle is, how well it converges, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

using ::testing::Each;
using ::testing::Lt;

// One level: the inverse.
TEST(Cycle, OfASmallMatrixIsItsInverse) {
  for (const Problem& problem : Problems()) {
    if (problem.name == "hubs") continue;
    SCOPED_TRACE(problem.name);
    const CscMatrix a = problem.symmetric ? problem.rows : Transpose(CscView(problem.rows));
    const AmgResult built =
        Build(a, problem.symmetric, With(SmootherKind::kAuto, Precision::kFp64));
    ASSERT_EQ(built.quality.levels.size(), 1u);
    EXPECT_LE(Iterations(a, problem.symmetric, *built.hierarchy), 1);
  }
}

TEST(Cycle, OfANegativeDefiniteMatrixHasItsSign) {
  CscMatrix a = oracle::Laplacian2d(9, 7);
  for (double& v : a.values) v = -v;
  const AmgResult built = Build(a, true);
  const std::vector<double> r = RandomVector(a.n_cols, 4);
  EXPECT_LT(Dot(r, Applied(*built.hierarchy, r)), 0);
  EXPECT_FALSE(built.hierarchy->symmetric());
}

// Each smoother, W and V, several sweeps: M is symmetric positive definite, as CG needs it.
TEST(Cycle, IsSymmetricPositiveDefinite) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(14, 0));
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kJacobi, SmootherKind::kChebyshev,
        SmootherKind::kFsai, SmootherKind::kAfsai, SmootherKind::kStaticSpai}) {
    for (const CycleKind cycle : {CycleKind::kV, CycleKind::kW}) {
      for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
        SCOPED_TRACE(std::string(Name(kind)) + (cycle == CycleKind::kV ? ", V" : ", W"));
        AmgOptions options = With(kind, precision);
        options.cycle = cycle;
        options.pre_sweeps = options.post_sweeps = 2;
        options.max_coarse_size = 40;
        const AmgResult built = Build(a, true, options);
        ASSERT_GE(built.quality.levels.size(), 3u);
        ASSERT_TRUE(built.hierarchy->symmetric());
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          const auto u = RandomVector(a.n_cols, seed), v = RandomVector(a.n_cols, seed + 10);
          const auto mu = Applied(*built.hierarchy, u), mv = Applied(*built.hierarchy, v);
          const double size = std::sqrt(Dot(u, mu) * Dot(v, mv));
          EXPECT_GT(Dot(u, mu), 0);
          EXPECT_NEAR(Dot(u, mv) / size, Dot(v, mu) / size,
                      precision == Precision::kFp64 ? 1e-13 : 1e-6);
        }
      }
    }
  }
}

TEST(Cycle, UnequalSweepsAreNotForCg) {
  AmgOptions options;
  options.post_sweeps = 0;
  options.max_coarse_size = 20;
  EXPECT_FALSE(Build(oracle::Laplacian2d(20, 20), true, options).hierarchy->symmetric());
}

TEST(Cycle, SameBitsForAnyNumberOfThreads) {
  const CscMatrix spd = From(gallery::ConvectionDiffusion3d(20, 0));
  const CscMatrix other = From(gallery::ConvectionDiffusion3d(18, 20));
  for (const auto& [a, symmetric] : {std::pair(&spd, true), std::pair(&other, false)}) {
    const std::vector<double> r = RandomVector(a->n_cols, 7);
    const auto one = Applied(*Build(*a, symmetric, {}, {}, 1).hierarchy, r, 1);
    for (const int threads : {2, 5}) {
      EXPECT_EQ(Applied(*Build(*a, symmetric, {}, {}, threads).hierarchy, r, threads), one);
    }
  }
}

// Large and small right-hand sides in fp32: M (c r) = c M r, for powers of two to the bit.
TEST(Cycle, IsHomogeneousFarBeyondTheRangeOfFp32) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(12, 0));
  const AmgResult built = Build(a, true);
  std::vector<double> r = RandomVector(a.n_cols, 2);
  const auto z = Applied(*built.hierarchy, r);
  for (const int exponent : {-300, -60, 60, 300}) {
    std::vector<double> scaled = r;
    for (double& value : scaled) value = std::ldexp(value, exponent);
    auto got = Applied(*built.hierarchy, scaled);
    for (double& value : got) value = std::ldexp(value, -exponent);
    EXPECT_EQ(got, z) << exponent;
  }
  EXPECT_THAT(Applied(*built.hierarchy, std::vector<double>(r.size(), 0.0)), Each(0.0));
}

TEST(Cycle, ScalingOfAChangesNothing) {
  const CscMatrix a = oracle::Laplacian2d(60, 60);
  const CscMatrix scaled = From(gallery::BadlyScaled2d(60, 8));
  const int64_t plain = Iterations(a, true, *Build(a, true).hierarchy);
  // b differs in its scaling, so that the count may, too.
  EXPECT_LE(Iterations(scaled, true, *Build(scaled, true).hierarchy), plain + 6);
}

// By powers of two: DAD has the hierarchy of A, bit for bit, and D⁻¹MD⁻¹ is its cycle. The smoother
// is named, for kAuto's choice is by A as it comes.
TEST(Cycle, TurnsWithTheScalingOfA) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(48, 0));
  CscMatrix scaled = a;
  std::vector<double> d = RandomVector(a.n_cols, 4);
  for (double& value : d) value = std::exp2(std::round(20 * value));
  for (int64_t j = 0, p = 0; j < a.n_cols; ++j) {
    for (; p < a.col_ptr[static_cast<size_t>(j) + 1]; ++p) {
      const auto at = static_cast<size_t>(p);
      scaled.values[at] *= d[static_cast<size_t>(a.row_idx[at])] * d[static_cast<size_t>(j)];
    }
  }
  const AmgOptions options = With(SmootherKind::kL1Jacobi);
  const AmgResult plain = Build(a, true, options), of_scaled = Build(scaled, true, options);
  std::vector<double> r = RandomVector(a.n_cols, 5);
  const std::vector<double> z = Applied(*plain.hierarchy, r);
  for (size_t i = 0; i < r.size(); ++i) r[i] *= d[i];
  std::vector<double> turned = Applied(*of_scaled.hierarchy, r);
  for (size_t i = 0; i < r.size(); ++i) turned[i] *= d[i];
  EXPECT_EQ(turned, z);
  EXPECT_LE(Iterations(a, true, *plain.hierarchy), 17);
}

// The error factor of the cycle alone in the energy norm, forty steps from a random vector.
double ErrorFactor(const CscMatrix& a, bool symmetric, const AmgHierarchy& m) {
  const CsrOperator op = CsrOperator::FromColumns(a);
  std::vector<double> x = RandomVector(a.n_cols, 3), ax(x.size()), step(x.size());
  const auto norm = [&] {
    op.Apply(x, ax, 2);
    return std::sqrt(symmetric ? Dot(x, ax) : Dot(x, x));
  };
  double factor = 1, before = norm();
  for (int k = 0; k < 40; ++k) {
    m.Apply(ax, step, 2);
    for (size_t i = 0; i < x.size(); ++i) x[i] = (x[i] - step[i]) / before;
    factor = norm();
    before = factor;
    if (before == 0) return 0;
  }
  return factor;
}

// Grids go by boxes, and by aggregates of an independent set where nodes have another order.
TEST(Cycle, ErrorFactors) {
  gallery::Matrix grid = gallery::ConvectionDiffusion3d(32, 0);
  const CscMatrix poisson = From(grid);
  EXPECT_LE(ErrorFactor(poisson, true, *Build(poisson, true).hierarchy), 0.82);
  EXPECT_LE(ErrorFactor(poisson, true, *Build(poisson, true, With(SmootherKind::kAfsai)).hierarchy),
            0.60);
  gallery::PermuteNodes({grid.col_ptr, grid.row_idx, grid.values}, 1, grid.n);
  const CscMatrix mixed = From(grid);
  EXPECT_LE(ErrorFactor(mixed, true, *Build(mixed, true).hierarchy), 0.70);
  EXPECT_LE(ErrorFactor(mixed, true, *Build(mixed, true, With(SmootherKind::kAfsai)).hierarchy),
            0.42);
  const CscMatrix jumps = From(gallery::Jumps3d(32, 4, 3));
  EXPECT_LE(ErrorFactor(jumps, true, *Build(jumps, true).hierarchy), 0.78);
  const CscMatrix elasticity = From(gallery::Elasticity3d(16, gallery::Rounding::kBenchmarks));
  AmgOptions blocks;
  blocks.block_size = 3;
  EXPECT_LE(ErrorFactor(elasticity, true,
                        *Build(elasticity, true, blocks, NodesOfElasticity(16).input()).hierarchy),
            0.74);
  gallery::Matrix flow = gallery::ConvectionDiffusion3d(32, 20);
  const CscMatrix convection = From(flow);
  EXPECT_LE(ErrorFactor(convection, false,
                        *Build(convection, false, With(SmootherKind::kStaticSpai)).hierarchy),
            0.62);
  gallery::PermuteNodes({flow.col_ptr, flow.row_idx, flow.values}, 1, flow.n);
  const CscMatrix mixed_flow = From(flow);
  EXPECT_LE(ErrorFactor(mixed_flow, false,
                        *Build(mixed_flow, false, With(SmootherKind::kStaticSpai)).hierarchy),
            0.38);
}

TEST(Cycle, IterationsDoNotGrowWithTheGrid) {
  for (const int64_t m : {32, 64, 128}) {
    const CscMatrix a = From(gallery::ConvectionDiffusion3d(m, 0));
    const AmgResult built = Build(a, true);
    EXPECT_EQ(built.quality.smoother, SmootherKind::kL1Jacobi);
    EXPECT_LE(Iterations(a, true, *built.hierarchy), 17) << m;
    EXPECT_LT(built.quality.operator_complexity, 1.16);
  }
  for (const auto& [m, most] : {std::pair<int64_t, int64_t>{200, 38}, {400, 45}}) {
    const CscMatrix a = From(gallery::RotatedAnisotropy2d(m, 1e-3, 0.5235987755982988));
    EXPECT_LE(Iterations(a, true, *Build(a, true).hierarchy), most) << m;
  }
  const CscMatrix convection = From(gallery::ConvectionDiffusion3d(32, 20));
  EXPECT_LE(Iterations(convection, false, *Build(convection, false).hierarchy), 13);
  for (const int64_t m : {32, 64}) {
    const CscMatrix a = From(gallery::ConvectionDiffusion3d(m, 20));
    EXPECT_LE(Iterations(a, false, *Build(a, false, With(SmootherKind::kStaticSpai)).hierarchy), 8)
        << m;
  }
}

TEST(Cycle, ElasticityWithAndWithoutItsMotions) {
  for (const int64_t m : {12, 20}) {
    const CscMatrix a = From(gallery::Elasticity3d(m, gallery::Rounding::kBenchmarks));
    AmgOptions options = With(SmootherKind::kAfsai);
    options.block_size = 3;
    const AmgResult motions = Build(a, true, options, NodesOfElasticity(m).input());
    EXPECT_LE(Iterations(a, true, *motions.hierarchy), 13) << m;
    EXPECT_LE(Iterations(a, true, *Build(a, true, options).hierarchy), 22) << m;
  }
}

// Hubs would fill the coarse levels.
TEST(Cycle, GuardsAgainstGrowth) {
  const CscMatrix a = From(gallery::Circuit(20000, 12, 700));
  const AmgResult built = Build(a, false);
  EXPECT_LE(built.quality.operator_complexity, 3);
  EXPECT_TRUE(std::any_of(built.quality.levels.begin(), built.quality.levels.end(),
                          [](const AmgLevelQuality& level) { return level.guarded; }));
  EXPECT_LE(Iterations(a, false, *built.hierarchy), 18);
}

TEST(Cycle, LimitsOfLevelsAndComplexityLeaveASmoothedLevel) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(20, 0));
  AmgOptions two;
  two.max_levels = 2;
  two.max_coarse_size = 200;
  const AmgResult shallow = Build(a, true, two);
  EXPECT_EQ(shallow.quality.levels.size(), 2u);
  EXPECT_FALSE(shallow.quality.inverted);
  EXPECT_TRUE(shallow.hierarchy->symmetric());
  EXPECT_LE(Iterations(a, true, *shallow.hierarchy), 60);
  AmgOptions small;
  small.max_coarse_size = 5;
  const AmgResult whole = Build(a, true, small);
  ASSERT_EQ(whole.quality.levels.size(), 4u);
  small.max_operator_complexity = whole.quality.operator_complexity - 1e-4;
  const AmgResult capped = Build(a, true, small);
  EXPECT_FALSE(capped.quality.inverted);
  EXPECT_LE(capped.quality.operator_complexity, small.max_operator_complexity);
}

TEST(Cycle, RefusesWhatHasNoCoarseLevel) {
  CscMatrix diagonal{.n_rows = 600, .n_cols = 600, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int32_t i = 0; i < 600; ++i) {
    diagonal.row_idx.push_back(i), diagonal.values.push_back(i + 1),
        diagonal.col_ptr.push_back(i + 1);
  }
  const auto built = BuildAmg(diagonal, true, {}, {}, Threads(2));
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().reason(), "NO_COARSE_LEVEL");
}

TEST(Cycle, StopsAtEachLevel) {
  struct StopAfter : ProgressSink {
    StopSource source;
    int64_t levels = 0, left = 0;
    void OnProgress(Stage, int64_t done, int64_t) override {
      levels = std::max(levels, done);
      if (left-- == 0) source.Request(StopReason::kCancelled);
    }
    void OnResidual(const ResidualPoint&) override {}
  };
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(24, 0));
  for (int64_t after = 0; after < 3; ++after) {
    StopAfter sink;
    sink.left = after;
    Context context = Threads(2);
    context.progress = &sink;
    context.stop = sink.source.token();
    AmgOptions options;
    options.max_coarse_size = 50;
    const auto built = BuildAmg(a, true, {}, options, context);
    ASSERT_FALSE(built.ok()) << after;
    EXPECT_EQ(built.status().reason(), "CANCELLED");
    EXPECT_EQ(sink.levels, after);
  }
}

}  // namespace
}  // namespace spaid::kernels
