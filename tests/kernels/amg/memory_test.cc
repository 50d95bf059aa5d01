// Memory of multigrid: the estimate is an upper bound, and what is kept is told as it is.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/amg_estimate.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/base/counted_memory.h"

namespace spaid::kernels {
namespace {

struct Case {
  std::string name;
  CscMatrix a;
  bool symmetric;
  AmgOptions options;
  std::vector<double> vectors = {};  // near-null, for six of them
};

std::vector<Case> Cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, CscMatrix a, bool symmetric, AmgOptions options = {}) {
    all.push_back({std::move(name), std::move(a), symmetric, options});
  };
  const CscMatrix poisson = From(gallery::ConvectionDiffusion3d(24, 0));
  const CscMatrix convection = From(gallery::ConvectionDiffusion3d(24, 20));
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev, SmootherKind::kFsai,
        SmootherKind::kAfsai, SmootherKind::kStaticSpai}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp64}) {
      add(std::string(Name(kind)), poisson, true, With(kind, precision));
    }
  }
  add("convection", convection, false);
  add("convection, static SPAI", convection, false, With(SmootherKind::kStaticSpai));
  add("convection, static SPAI in fp64", convection, false,
      With(SmootherKind::kStaticSpai, Precision::kFp64));
  add("27 points", From(gallery::Laplace27(16)), true);
  add("plane", From(gallery::RotatedAnisotropy2d(100, 1e-3, 0.5236)), false);
  add("jumps", From(gallery::Jumps3d(24, 3, 3)), true);
  add("circuit", From(gallery::Circuit(10000, 8, 300)), false);
  add("irregular", From(gallery::RandomIrregular(6000)), false);
  add("graph", From(gallery::GraphLaplacian(10000)), true);
  AmgOptions classical;
  classical.coarsening = Coarsening::kClassical;
  add("classical", poisson, true, classical);
  add("classical, convection", convection, false, classical);
  add("classical, 27 points", From(gallery::Laplace27(16)), true, classical);
  add("classical, circuit", From(gallery::Circuit(10000, 8, 300)), false, classical);
  classical.max_operator_complexity = 10;
  add("classical, graph", From(gallery::GraphLaplacian(10000)), true, classical);
  gallery::Matrix elasticity = gallery::Elasticity3d(10);
  gallery::Symmetrize({elasticity.col_ptr, elasticity.row_idx, elasticity.values});
  AmgOptions blocks;
  blocks.block_size = 3;
  add("elasticity", From(elasticity), true, blocks);
  add("elasticity, six vectors", From(elasticity), true, blocks);
  const int64_t n = elasticity.n;
  for (int64_t i = 0; i < 6 * n; ++i) {
    const int64_t row = i % n, vector = i / n;
    all.back().vectors.push_back(row % 3 == vector % 3 ? (vector < 3 ? 1 : 0.01 * (row % 101))
                                                       : 0.001 * (row % 7));
  }
  return all;
}

NearNullInput Vectors(const Case& of) {
  return {.vectors = of.vectors,
          .count = of.vectors.empty() ? 0 : 6,
          .coordinates = {},
          .dimension = 0};
}

TEST(AmgMemory, TheEstimateBoundsABuild) {
  for (const Case& of : Cases()) {
    SCOPED_TRACE(of.name);
    const AmgCounts estimate = EstimateAmg(of.a.pattern(), of.vectors.empty() ? 0 : 6, of.options);
    const int64_t before = g_live;
    g_peak = before;
    auto built = BuildAmg(of.a, of.symmetric, Vectors(of), of.options, Threads(2));
    ASSERT_TRUE(built.ok()) << built.status().message();
    const int64_t taken = g_peak - before;
    EXPECT_LE(built->hierarchy->nnz(), estimate.nnz);
    EXPECT_LE(taken, estimate.host_bytes);
    EXPECT_LE(built->hierarchy->host_bytes() + HostBytes(*built->plan), estimate.host_bytes);
    // A rebuild takes no more.
    g_peak = before;
    built->hierarchy = nullptr;
    auto again = RebuildAmg(built->plan, of.a, Vectors(of), Threads(2));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_LE(g_peak - before, estimate.host_bytes);
  }
}

// By what SetUpDeviceBytes bounds levels that are set up on a device; gpu_set_up_test has the
// bytes.
TEST(AmgMemory, LevelsAreAsABoundOnADeviceHasThem) {
  for (Case& of : Cases()) {
    const AmgCounts counts = EstimateAmg(of.a, of.vectors.empty() ? 0 : 6, of.options);
    if (!MaySetUpOnDevice(of.a.n_cols, Vectors(of), of.options) || counts.vectors > 1) continue;
    SCOPED_TRACE(of.name);
    of.options.smoother = SmootherKind::kL1Jacobi;
    of.options.max_coarse_size = 20;
    const AmgResult built = Build(of.a, of.symmetric, of.options);
    const auto& levels = built.quality.levels;
    for (size_t l = 0; l + 1 < levels.size(); ++l) {
      EXPECT_LE(2 * levels[l + 1].rows, levels[l].rows);
      EXPECT_LE(levels[l].nnz_p, levels[l].nnz);
      EXPECT_LE(levels[l].nnz_p, 12 * levels[l].rows);
      const double growth = levels[l].guarded ? 1 : of.options.max_growth;
      EXPECT_LE(static_cast<double>(levels[l + 1].nnz),
                growth * static_cast<double>(levels[l].nnz));
    }
    const int64_t n = of.a.n_cols, nnz = of.a.nnz();
    const int64_t bytes = SetUpDeviceBytes(n, nnz, 1, 1, of.options);
    EXPECT_LE(LeastSetUpDeviceBytes(n, nnz, 1, 1, of.options), bytes);
    EXPECT_GT(SetUpDeviceBytes(n, 2 * nnz, 1, 1, of.options), bytes);
    of.options.max_operator_complexity = 1.5;
    EXPECT_LT(SetUpDeviceBytes(n, nnz, 1, 1, of.options), bytes);
  }
}

constexpr int64_t kSmallPieces = 20'000;

TEST(AmgMemory, WhatIsKeptIsTold) {
  for (const Case& of : Cases()) {
    SCOPED_TRACE(of.name);
    const std::vector<double> r = RandomVector(of.a.n_cols, 1);
    const int64_t before = g_live;
    auto built = BuildAmg(of.a, of.symmetric, Vectors(of), of.options, Threads(2));
    ASSERT_TRUE(built.ok());
    std::shared_ptr<const AmgHierarchy> hierarchy = built->hierarchy;
    std::shared_ptr<const AmgPlan> plan = built->plan;
    built = Status(StatusCode::kInternal, "NOTHING", "");
    const int64_t both = g_live - before;
    EXPECT_LE(both, hierarchy->host_bytes() + HostBytes(*plan) + kSmallPieces);
    {
      const auto z = Applied(*hierarchy, r, 1);  // takes the spare vectors
    }
    const auto kept = plan;
    plan = nullptr;
    hierarchy = nullptr;
    const int64_t told = HostBytes(*kept), live = g_live - before;
    EXPECT_LE(live, told + kSmallPieces);
    // Plans of static SPAI tell an upper bound.
    const int64_t off = of.options.smoother == SmootherKind::kStaticSpai ? told / 4 : told / 20;
    EXPECT_GE(live, told - off - kSmallPieces);
  }
}

TEST(AmgMemory, AHierarchyTellsWhatItHolds) {
  for (const Case& of : Cases()) {
    SCOPED_TRACE(of.name);
    const std::vector<double> r = RandomVector(of.a.n_cols, 1);
    const int64_t before = g_live;
    std::shared_ptr<const AmgHierarchy> hierarchy;
    {
      auto built = BuildAmg(of.a, of.symmetric, Vectors(of), of.options, Threads(2));
      ASSERT_TRUE(built.ok());
      hierarchy = built->hierarchy;
    }
    { const auto z = Applied(*hierarchy, r, 1); }
    const int64_t told = hierarchy->host_bytes(), live = g_live - before;
    EXPECT_LE(live, told + told / 20 + kSmallPieces);
    EXPECT_GE(live, told - told / 20 - kSmallPieces);
  }
}

TEST(AmgMemory, ABuildWithoutEnoughOfItSaysSo) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(24, 0));
  const int64_t before = g_live;
  g_peak = before;
  { const AmgResult built = Build(a, true, {}, {}, 1); }
  const int64_t taken = g_peak - before;
  for (int tenth = 1; tenth < 10; ++tenth) {
    g_limit = before + taken * tenth / 10;
    const auto built = BuildAmg(a, true, {}, {}, Threads(1));
    g_limit = INT64_MAX;
    ASSERT_FALSE(built.ok()) << tenth;
    EXPECT_EQ(built.status().reason(), "OUT_OF_MEMORY");
  }
  EXPECT_LE(g_live, before + kSmallPieces);
}

}  // namespace
}  // namespace spaid::kernels
