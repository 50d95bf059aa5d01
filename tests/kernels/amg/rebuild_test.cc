// Hierarchies of other values on the patterns of a plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/sparse/products.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

AmgResult Again(const AmgResult& of, const CscMatrix& a, const NearNullInput& near = {},
                int threads = 2) {
  auto again = RebuildAmg(of.plan, a, near, Threads(threads));
  EXPECT_TRUE(again.ok()) << again.status().message();
  return *std::move(again);
}

CscMatrix Exactly(gallery::Matrix a) {
  gallery::Symmetrize({a.col_ptr, a.row_idx, a.values});
  return From(a);
}

struct Case {
  std::string name;
  CscMatrix a;
  bool symmetric;
  AmgOptions options;
};

// Every way in which a plan's patterns come about.
std::vector<Case> Cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, CscMatrix a, bool symmetric, AmgOptions options = {}) {
    options.max_coarse_size = 60;
    all.push_back({std::move(name), std::move(a), symmetric, options});
  };
  const CscMatrix poisson = From(gallery::ConvectionDiffusion3d(14, 0));
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kJacobi, SmootherKind::kChebyshev,
        SmootherKind::kFsai, SmootherKind::kStaticSpai}) {
    add(std::string(Name(kind)), poisson, true, With(kind));
  }
  add("convection", From(gallery::ConvectionDiffusion3d(14, 20)), false);
  add("convection, static SPAI", From(gallery::ConvectionDiffusion3d(14, 20)), false,
      With(SmootherKind::kStaticSpai));
  add("jumps", From(gallery::Jumps3d(14, 3, 3)), true);
  add("weak couplings", Exactly(gallery::RotatedAnisotropy2d(40, 1e-3, 0.5236)), true);
  add("guarded", From(gallery::Circuit(4000, 6, 200)), false);
  add("hubs", From(gallery::GraphLaplacian(2000)), true);
  add("bad scaling", From(gallery::BadlyScaled2d(40, 8)), true);
  AmgOptions blocks;
  blocks.block_size = 3;
  add("blocks", Exactly(gallery::Elasticity3d(8)), true, blocks);
  AmgOptions plain;
  plain.coarsening = Coarsening::kPlainAggregation;
  add("plain", poisson, true, plain);
  AmgOptions classical;
  classical.coarsening = Coarsening::kClassical;
  add("classical", poisson, true, classical);
  add("classical, not symmetric", From(gallery::ConvectionDiffusion3d(14, 20)), false, classical);
  add("classical, bad scaling", From(gallery::BadlyScaled2d(40, 8)), true, classical);
  classical.block_size = 3;
  add("classical, blocks", Exactly(gallery::Elasticity3d(8)), true, classical);
  AmgOptions two;
  two.max_levels = 2;
  two.max_coarse_size = 60;
  add("two levels", poisson, true, two);
  add("two levels, not symmetric", From(gallery::ConvectionDiffusion3d(14, 20)), false, two);
  return all;
}

TEST(Rebuild, WithTheSameValuesIsTheBuildBitForBit) {
  for (const auto& [name, a, symmetric, options] : Cases()) {
    SCOPED_TRACE(name);
    const AmgResult built = Build(a, symmetric, options);
    const AmgResult again = Again(built, a, {}, 1);
    EXPECT_TRUE(again.quality.reused);
    EXPECT_FALSE(built.quality.reused);
    EXPECT_EQ(again.plan, built.plan);
    EXPECT_EQ(again.hierarchy->nnz(), built.hierarchy->nnz());
    EXPECT_EQ(again.hierarchy->host_bytes(), built.hierarchy->host_bytes());
    const std::vector<double> r = RandomVector(a.n_cols, 9);
    EXPECT_EQ(Applied(*again.hierarchy, r), Applied(*built.hierarchy, r));
    EXPECT_GT(HostBytes(*built.plan), 4 * a.n_cols);
  }
}

// A plan serves any number of times, in any order.
TEST(Rebuild, OfOtherValuesLeavesThePlanAsItWas) {
  for (const auto& [name, a, symmetric, options] : Cases()) {
    SCOPED_TRACE(name);
    const AmgResult built = Build(a, symmetric, options);
    const int64_t bytes = HostBytes(*built.plan);
    CscMatrix other = a;
    for (double& value : other.values) value *= 4;  // whose root is exact, too
    const std::vector<double> r = RandomVector(a.n_cols, 9);
    const std::vector<double> z = Applied(*built.hierarchy, r);
    std::vector<double> quarter = Applied(*Again(built, other).hierarchy, r);
    for (double& value : quarter) value *= 4;
    EXPECT_EQ(quarter, z);
    EXPECT_EQ(Applied(*Again(built, a).hierarchy, r), z);
    EXPECT_EQ(HostBytes(*built.plan), bytes);
  }
}

TEST(Rebuild, OnAGrownPatternIsTheBuildButForRounding) {
  const CscMatrix a = From(gallery::Elasticity3d(8, gallery::Rounding::kBenchmarks));
  AmgOptions options = With(SmootherKind::kAfsai, Precision::kFp64);
  options.block_size = 3;
  options.max_coarse_size = 100;
  const AmgResult built = Build(a, true, options);
  const std::vector<double> r = RandomVector(a.n_cols, 9);
  const auto first = Applied(*built.hierarchy, r), second = Applied(*Again(built, a).hierarchy, r);
  double size = 0;
  for (const double value : first) size = std::max(size, std::fabs(value));
  for (size_t i = 0; i < r.size(); ++i) ASSERT_NEAR(first[i], second[i], 1e-10 * size);
}

// D A D with a smooth D, and a stronger diagonal.
CscMatrix Changed(const CscMatrix& a) {
  CscMatrix other = a;
  size_t p = 0;
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    const auto d = [](int64_t k) { return 1 + 0.5 * std::sin(0.001 * static_cast<double>(k)); };
    other.values[p++] = v * d(i) * d(j) * (i == j ? 1.001 : 1);
  });
  return other;
}

TEST(Rebuild, ServesOtherValues) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(24, 0));
  const CscMatrix other = Changed(a);
  const AmgResult again = Again(Build(a, true), other);
  const int64_t fresh = Iterations(other, true, *Build(other, true).hierarchy);
  EXPECT_LE(Iterations(other, true, *again.hierarchy), 2 * fresh);
}

// All coefficients anew at random: the worst case.
TEST(Rebuild, ServesOtherJumps) {
  const AmgResult built = Build(From(gallery::Jumps3d(24, 3, 3, 1)), true);
  const CscMatrix other = From(gallery::Jumps3d(24, 3, 3, 2));
  const int64_t fresh = Iterations(other, true, *Build(other, true).hierarchy);
  EXPECT_LE(2 * Iterations(other, true, *Again(built, other).hierarchy), 5 * fresh);
}

// A_c = R A P on every level.
TEST(Rebuild, KeepsGalerkinsIdentity) {
  for (auto& [name, a, symmetric, options] : Cases()) {
    SCOPED_TRACE(name);
    options.hierarchy_precision = Precision::kFp64;
    options.max_levels = std::max(options.max_levels, 3);
    options.max_coarse_size = 1;  // no level is inverted: all are there
    const CscMatrix other = Changed(a);
    const AmgResult built = Again(Build(a, symmetric, options), other);
    const auto part = [&](size_t level, AmgPartKind kind) {
      auto made = built.hierarchy->Part(static_cast<int>(level), kind);
      EXPECT_TRUE(made.ok()) << made.status().message();
      return *std::move(made);
    };
    ASSERT_GE(built.quality.levels.size(), 2u);
    for (size_t l = 0; l + 1 < built.quality.levels.size(); ++l) {
      if (built.quality.levels[l + 1].rows <= options.max_coarse_size) break;
      // By columns A B is Multiply(B, A).
      const CscMatrix ap =
          *Multiply(part(l, AmgPartKind::kP), part(l, AmgPartKind::kA), Threads(1));
      const CscMatrix rap = *Multiply(ap, part(l, AmgPartKind::kR), Threads(1));
      const CscMatrix coarse = part(l + 1, AmgPartKind::kA);
      ASSERT_EQ(Copy(rap.row_idx), Copy(coarse.row_idx)) << l;
      double largest = 0, off = 0;
      for (size_t p = 0; p < rap.values.size(); ++p) {
        largest = std::max(largest, std::fabs(coarse.values[p]));
        off = std::max(off, std::fabs(coarse.values[p] - rap.values[p]));
      }
      EXPECT_LE(off, 1e-13 * largest) << l;
    }
  }
}

// Near-null vectors that vanish elsewhere give P another pattern: what follows is made anew.
TEST(Rebuild, TakesVectorsWithOtherZeros) {
  const CscMatrix a = Exactly(gallery::Elasticity3d(8));
  AmgOptions options;
  options.block_size = 3;
  options.max_coarse_size = 20;
  for (const auto& [kind, coarsening] :
       {std::pair(SmootherKind::kChebyshev, Coarsening::kSmoothedAggregation),
        {SmootherKind::kChebyshev, Coarsening::kPlainAggregation},
        {SmootherKind::kFsai, Coarsening::kPlainAggregation},
        {SmootherKind::kStaticSpai, Coarsening::kPlainAggregation}}) {
    SCOPED_TRACE(Name(kind));
    options.smoother = kind;
    options.coarsening = coarsening;
    const AmgResult built = Build(a, true, options);
    ASSERT_GE(built.quality.levels.size(), 3u);
    std::vector<double> mixed(static_cast<size_t>(3 * a.n_cols), 0.0);
    for (int64_t i = 0; i < a.n_cols; ++i) {
      for (int64_t k = 0; k <= i % 3; ++k) mixed[static_cast<size_t>(k * a.n_cols + i)] = 1;
    }
    const NearNullInput near{.vectors = mixed, .count = 3, .coordinates = {}, .dimension = 0};
    const AmgResult fresh = Build(a, true, options, near), again = Again(built, a, near);
    if (coarsening == Coarsening::kPlainAggregation) {
      EXPECT_GT(again.hierarchy->nnz(), built.hierarchy->nnz());
    }
    EXPECT_LE(Iterations(a, true, *again.hierarchy), Iterations(a, true, *fresh.hierarchy) + 4);
    // And the plan still serves the vectors of before.
    const std::vector<double> r = RandomVector(a.n_cols, 3);
    EXPECT_EQ(Applied(*Again(built, a).hierarchy, r), Applied(*built.hierarchy, r));
  }
}

TEST(Rebuild, RefusesAnotherPattern) {
  const auto refused = [](const AmgResult& built, const CscMatrix& a) {
    const auto other = RebuildAmg(built.plan, a, {}, Threads(1));
    EXPECT_FALSE(other.ok());
    return other.status().reason();
  };
  const AmgResult grid = Build(oracle::Laplacian2d(30, 30), true);
  EXPECT_EQ(refused(grid, oracle::Laplacian2d(30, 31)), "PLAN_MISMATCH");
  // As many entries in as many columns.
  EXPECT_EQ(refused(Build(oracle::Laplacian2d(20, 40), true), oracle::Laplacian2d(40, 20)),
            "PLAN_MISMATCH");
  EXPECT_EQ(refused(Build(oracle::ConvectionDiffusion(20, 40, 1), false),
                    oracle::ConvectionDiffusion(40, 20, 1)),
            "PLAN_MISMATCH");
}

TEST(Rebuild, Stops) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(14, 0));
  const AmgResult built = Build(a, true);
  StopSource source;
  source.Request(StopReason::kCancelled);
  Context context = Threads(2);
  context.stop = source.token();
  const auto again = RebuildAmg(built.plan, a, {}, context);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().reason(), "CANCELLED");
}

}  // namespace
}  // namespace spaid::kernels
