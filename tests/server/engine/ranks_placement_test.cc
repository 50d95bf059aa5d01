// Which builds and solves go to several processes, and which stay.
#include <gtest/gtest.h>

#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/engine/resolved_build.h"
#include "tests/server/engine/placement_bench.h"

namespace spaid::server {
namespace {

TEST(RanksPlacementTest, BuildsGoWhereTheyArePredictedToEndFirst) {
  Bench bench({FakeCpu(), FakeRanks(4, 16)});
  EXPECT_EQ(bench.adapter.device_names()[1], "mpi:4");
  bench.engine.predicted_ms = 1000;
  const v1::Preconditioner large = bench.Built(bench.Put(3));
  EXPECT_EQ(large.device(), "mpi:4");
  EXPECT_EQ(large.choice().placement(), "mpi:4: predicted at 170 ms there, at 1e+03 ms on the CPU");
  bench.engine.predicted_ms = 10;
  const v1::Preconditioner small = bench.Built(bench.Put(4));
  EXPECT_EQ(small.device(), "cpu");
  EXPECT_EQ(small.choice().placement(),
            "cpu: predicted at 10 ms there, no sooner by several processes");
  // A solve that builds is where the build is; any other is the CPU's.
  bench.engine.predicted_ms = 1000;
  EXPECT_EQ(bench.Solved(bench.Put(5), v1::ENGINE_KIND_STATIC_SPAI).device(), "mpi:4");
  const v1::SolveDone jacobi = bench.Solved(bench.Put(6), v1::ENGINE_KIND_JACOBI);
  EXPECT_EQ(jacobi.device(), "cpu");
  EXPECT_EQ(jacobi.placement(), "cpu: ranks solve where they have built M");
}

TEST(RanksPlacementTest, AloneTheyDoAllThatTheyCan) {
  Bench bench({FakeCpu(), FakeRanks(2, 2)}, {.ranks_first = true});
  bench.engine.predicted_ms = 0.25;
  const v1::Preconditioner built = bench.Built(bench.Put(3));
  EXPECT_EQ(built.device(), "mpi:2");
  EXPECT_EQ(built.choice().placement(), "mpi:2: ranks compute what they can (--devices=mpi)");
  EXPECT_EQ(bench.Solved(bench.Put(3), v1::ENGINE_KIND_NONE).device(), "mpi:2");
  // The CPU does the rest.
  EXPECT_EQ(bench.Built(bench.Put(4), v1::ENGINE_KIND_FSAI).device(), "mpi:2");
  EXPECT_EQ(bench.Built(bench.Put(6), v1::ENGINE_KIND_AFSAI).device(), "mpi:2");
  const v1::Preconditioner amg = bench.Built(bench.Put(7), v1::ENGINE_KIND_AMG);
  EXPECT_EQ(amg.device(), "cpu");
  EXPECT_EQ(amg.choice().placement(), "cpu: several processes do not build amg");
  const Stored<Matrix> a = bench.Put(5);
  const auto why = [&](kernels::SolveOptions options,
                       kernels::MForm form = kernels::MForm::kMatrix) {
    return bench.adapter.PlaceSolve(*a.value, 0, 1, options, 500, form).why;
  };
  EXPECT_EQ(why({.method = kernels::Method::kGmres}),
            "mpi:2: ranks compute what they can (--devices=mpi)");
  EXPECT_EQ(why({.method = kernels::Method::kMinres}),
            "cpu: several processes solve by CG, BiCGSTAB and GMRES alone");
  EXPECT_EQ(why({.method = kernels::Method::kCg}, kernels::MForm::kParts),
            "cpu: several processes do not solve with multigrid of ours");
  EXPECT_EQ(why({.method = kernels::Method::kBicgstab}, kernels::MForm::kScaledRows),
            "cpu: solves with an M of A with its rows scaled are computed by the host alone");
  EXPECT_EQ(why({.method = kernels::Method::kCg, .m_storage = kernels::Storage::kFp32}),
            "cpu: several processes store M in fp64 alone");
  const Stored<Matrix> large = PutDiagonal(bench, 2'000'000);
  EXPECT_EQ(bench.adapter.PlaceSolve(*large.value, 0, 1, {}, 500).why,
            "cpu: the solve may take 416000000 bytes over all ranks, which have 100000000");
}

TEST(RanksPlacementTest, ABuildThatIsTooLargeForOneProcessGoesToSeveral) {
  Bench bench({FakeCpu(), FakeRanks(4, 16)}, {.max_build_bytes = 900});
  ResolvedBuild build;
  build.spec.engine = kernels::EngineKind::kStaticSpai;
  kernels::BuildEstimate estimate;
  estimate.predicted_ms = 0.25;
  estimate.host_bytes = 1000;
  estimate.download_bytes = 100;
  const auto placed = bench.adapter.Place(build, estimate);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_TRUE(placed->over_ranks);
  EXPECT_EQ(placed->why,
            "mpi:4: the build may take 1000 bytes here, over the limit of 900 "
            "(--max-build-bytes)");
  EXPECT_EQ(placed->host_bytes, 700) << "M, twice while it comes, and a part of all else";
  EXPECT_EQ(placed->device_bytes, 2000);
  estimate.rank_bytes = 400;
  estimate.halo_bytes = 30;
  EXPECT_EQ(bench.adapter.Place(build, estimate)->why,
            "mpi:4: the build may take 1000 bytes here, over the limit of 900 "
            "(--max-build-bytes); a rank takes at most 400 bytes, 30 of them columns of other "
            "ranks");
  estimate.host_bytes = 800;
  EXPECT_FALSE(bench.adapter.Place(build, estimate)->over_ranks);
}

TEST(RanksPlacementTest, WhatTheyAloneBuildIsTheirsHoweverSmall) {
  Bench bench({FakeCpu(), FakeRanks(4, 16)});
  ResolvedBuild build;
  build.spec.engine = kernels::EngineKind::kGamg;
  kernels::BuildEstimate estimate;
  estimate.predicted_ms = 0.01;
  estimate.host_bytes = 1000;
  const auto placed = bench.adapter.Place(build, estimate);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_TRUE(placed->over_ranks);
  EXPECT_EQ(placed->why, "mpi:4: none else builds it");
  // If they have no room for it, nobody has.
  estimate.host_bytes = 60'000'000;
  const absl::Status refused = bench.adapter.Place(build, estimate).status();
  EXPECT_EQ(ReasonOf(refused), reason::kBuildTooLarge);
  EXPECT_EQ(refused.message(),
            "the build may take 120000000 bytes over all ranks, which have 100000000; take more "
            "hosts, or another engine");
  // An M that lies there takes its solves there, whoever comes first.
  const Stored<Matrix> a = bench.Put(3);
  EXPECT_EQ(bench.adapter
                .PlaceSolve(*a.value, 0, 1, {.method = kernels::Method::kCg}, 0.01,
                            kernels::MForm::kOverRanks)
                .why,
            "mpi:4: the preconditioner lies there alone");
}

TEST(RanksPlacementTest, AGpuBesideThemIsNoRank) {
  Bench bench({FakeCpu(), FakeGpu(0), FakeRanks(4, 4)});
  bench.engine.predicted_ms = 1000;  // over ranks 620
  bench.engine.predicted_device_ms = 5;
  EXPECT_EQ(bench.Built(bench.Put(3)).device(), "gpu:0");
  EXPECT_EQ(bench.Built(bench.Put(4), v1::ENGINE_KIND_FSAI).device(), "gpu:0");
}

}  // namespace
}  // namespace spaid::server
