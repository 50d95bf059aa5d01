// The set-up on a CUDA device against the host's, bit for bit. Without a device every test is
// skipped (gpu_test.cc).
#include "tests/kernels/amg/gpu_set_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/aggregation.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/sparse/cuda/products.h"
#include "kernels/sparse/symmetry.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/base/gpu_context.h"

namespace spaid::kernels {
namespace {

CscMatrix Grid(int64_t m, double speed = 0) {
  return From(gallery::ConvectionDiffusion3d(m, speed));
}

CscMatrix Neumann(int64_t m) {
  return From(gallery::Jumps3d(m, 4, 3, 1, gallery::Boundary::kNeumann));
}

TEST(GpuSetUp, IsTheHostsOnGrids) {
  for (const SmootherKind kind :
       {SmootherKind::kAuto, SmootherKind::kJacobi, SmootherKind::kChebyshev}) {
    for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
      AmgOptions options = With(kind, precision);
      options.max_coarse_size = 40;
      SCOPED_TRACE(std::string(Name(kind)));
      ExpectTheHosts(Grid(24), true, options);
    }
  }
  ExpectTheHosts(From(gallery::RotatedAnisotropy2d(150, 1e-3, std::numbers::pi / 6)), true,
                 InFp64());
  ExpectTheHosts(From(gallery::Laplace27(20)), true, InFp64());
}

// Boxes in all directions, in some, on some of the levels, and none where there nearly are.
TEST(GpuSetUp, IsTheHostsByBoxes) {
  AmgOptions options = InFp64(With(SmootherKind::kL1Jacobi, Precision::kFp64));
  options.max_coarse_size = 20;
  const auto changed = [](const gallery::Matrix& of, const auto& factor) {
    CscMatrix a = From(of);
    for (int64_t j = 0; j < a.n_cols; ++j) {
      for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
           p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
        const int64_t i = a.row_idx[p];
        if (i != j) a.values[p] *= factor(std::min(i, j), std::max(i, j));
      }
    }
    return a;
  };
  const auto expect = [&](const CscMatrix& a, bool symmetric, bool boxes) {
    EXPECT_EQ(Build(a, symmetric, options).quality.levels.front().boxes, boxes);
    ExpectTheHosts(a, symmetric, options);
  };
  const gallery::Matrix cube = gallery::ConvectionDiffusion3d(20, 0);
  for (const int weak : {1, 20, 400}) {
    expect(changed(cube, [=](int64_t i, int64_t j) { return j - i == weak ? 0.01 : 1; }), true,
           true);
    expect(changed(cube, [=](int64_t i, int64_t j) { return j - i != weak ? 0.01 : 1; }), true,
           true);
  }
  // One coupling in a box lacks; a layer of them lacks between boxes.
  expect(changed(cube, [](int64_t i, int64_t j) { return i == 0 && j == 1 ? 0.01 : 1; }), true,
         false);
  expect(
      changed(cube, [](int64_t i, int64_t j) { return j - i == 400 && i / 400 == 5 ? 0.01 : 1; }),
      true, true);
  expect(oracle::Laplacian2d(61, 50), true, true);
  expect(oracle::Laplacian2d(700, 1), true, true);
  expect(Grid(17, 30), false, true);
  gallery::Matrix mixed = gallery::ConvectionDiffusion3d(16, 0);
  gallery::PermuteNodes({mixed.col_ptr, mixed.row_idx, mixed.values}, 1, mixed.n);
  expect(From(mixed), true, false);
}

// Their coefficients jump, so that the near-null vector is not one of ones.
TEST(GpuSetUp, IsTheHostsWhereNearNullVectorsVary) {
  AmgOptions options = InFp64(With(SmootherKind::kL1Jacobi, Precision::kFp64));
  options.max_coarse_size = 60;
  ExpectTheHosts(From(gallery::Jumps3d(24, 4, 3)), true, options);
  ExpectTheHosts(Neumann(16), true, options);
  ExpectTheHosts(From(gallery::BadlyScaled2d(60, 6)), true, options);
  const CscMatrix grid = Grid(16);
  Vector given = RandomVector(grid.n_cols, 5);
  for (double& v : given) v += 2;
  ExpectTheHosts(grid, true, options, One(given));
  for (size_t i = 0; i < given.size(); i += 3) given[i] = 0;
  for (size_t i = 0; i < 900; ++i) given[i] = 0;  // whole aggregates: coarse rows without entries
  ExpectTheHosts(grid, true, options, One(given));
}

TEST(GpuSetUp, IsTheHostsOfMatricesThatAreNotSymmetric) {
  AmgOptions options = InFp64(With(SmootherKind::kL1Jacobi, Precision::kFp64));
  options.max_coarse_size = 60;
  ExpectTheHosts(Grid(20, 20), false, options);
  ExpectTheHosts(From(gallery::Circuit(20000, 12, 700)), false, options);
  ExpectTheHosts(From(gallery::RandomIrregular(4000)), false, options);
}

TEST(GpuSetUp, IsTheHostsOfGraphs) {
  AmgOptions options = InFp64(With(SmootherKind::kL1Jacobi, Precision::kFp64));
  options.max_coarse_size = 60;
  ExpectTheHosts(From(gallery::GraphLaplacian(5000)), true, options);
  gallery::Matrix mesh = gallery::ConvectionDiffusion3d(20, 0);
  gallery::PermuteNodes({mesh.col_ptr, mesh.row_idx, mesh.values}, 1, mesh.n);
  ExpectTheHosts(From(mesh), true, options);
}

TEST(GpuSetUp, IsTheHostsOfSmallMatrices) {
  for (const Problem& problem : Problems()) {
    for (const int64_t coarse : {1, 8}) {
      SCOPED_TRACE(problem.name + ", " + std::to_string(coarse));
      AmgOptions options = InFp64(With(SmootherKind::kL1Jacobi, Precision::kFp64));
      options.max_coarse_size = coarse;
      options.block_size = 1;
      const CscMatrix a = problem.symmetric ? problem.rows : Transpose(CscView(problem.rows));
      const auto here = BuildAmg(a, problem.symmetric, {}, options, Threads(2));
      const auto there = BuildAmgOnCuda(TheDevice(), a, {}, options, Threads(2));
      ASSERT_EQ(there.ok(), here.ok()) << here.status().message() << there.status().message();
      if (here.ok()) {
        ASSERT_TRUE(there->has_value());
        ExpectTheHosts(**there, *here);
      } else {
        EXPECT_EQ(there.status().reason(), here.status().reason());
        EXPECT_EQ(there.status().message(), here.status().message());
      }
    }
  }
}

TEST(GpuSetUp, IsTheHostsWithOtherOptions) {
  AmgOptions plain = InFp64();
  plain.coarsening = Coarsening::kPlainAggregation;
  ExpectTheHosts(Grid(20), true, plain);
  AmgOptions two = InFp64();
  two.max_levels = 2;
  two.max_coarse_size = 50;
  ExpectTheHosts(Grid(20), true, two);
  two.smoother = SmootherKind::kL1Jacobi;
  ExpectTheHosts(Grid(16, 20), false, two);
  AmgOptions guarded = InFp64();
  guarded.max_growth = 0.1;
  const AmgResult here = Build(Grid(20), true, guarded);
  ASSERT_TRUE(here.quality.levels.front().guarded);
  ExpectTheHosts(Grid(20), true, guarded);
  // Room for one coarse level, and not for the second.
  AmgOptions bounded = InFp64();
  bounded.max_coarse_size = 10;
  const auto levels = Build(Grid(20), true, bounded).quality.levels;
  ASSERT_GE(levels.size(), 3u);
  bounded.max_operator_complexity = (static_cast<double>(levels[0].nnz + levels[1].nnz) +
                                     0.5 * static_cast<double>(levels[2].nnz)) /
                                    static_cast<double>(levels[0].nnz);
  ExpectTheHosts(Grid(20), true, bounded);
  CscMatrix negative = Grid(16);
  for (double& v : negative.values) v = -v;
  ExpectTheHosts(negative, true, InFp64());
}

TEST(GpuSetUp, TakesRowsWithoutStrongCouplings) {
  CscMatrix a = Grid(12);
  for (int i = 0; i < 500; ++i) {
    a.row_idx.push_back(static_cast<int32_t>(a.n_cols++));
    a.values.push_back(6);
    a.col_ptr.push_back(a.nnz());
  }
  a.n_rows = a.n_cols;
  AmgOptions options = InFp64();
  options.max_coarse_size = 40;
  ExpectTheHosts(a, true, options);
}

// A is taken for symmetric as the host takes it: but for rounding, whatever is stored.
TEST(GpuSetUp, TakesRoundingForSymmetry) {
  CscMatrix a = Grid(12);
  a.values[1] *= 1 + 1e-14;
  ExpectTheHosts(a, true, InFp64());
  a.values[1] *= 1 + 1e-6;
  ASSERT_FALSE(CompareMirrors(a, 1).numerically_symmetric);
  ExpectTheHosts(a, false, InFp64());
}

// Graph and aggregates, each by itself.
TEST(GpuSetUp, AggregatesAreTheHosts) {
  const auto expect = [](const CscMatrix& a, bool symmetric, double theta) {
    const CscMatrix rows = symmetric ? a : Transpose(CscView(a));
    const auto couplings = Couplings(rows, symmetric, 1, Threads(2));
    const StrongGraph here = FindStrong(*couplings, theta, Threads(2)).value();
    const auto lock = TheDevice()->Lock();
    const Status status = cuda::Guard(*TheDevice(), [&](cuda::Context& on) {
      const cuda::RowMatrix there = cuda::UploadRows(on, rows, rows.values.data());
      cuda::RowMatrix mirror;
      if (!symmetric) mirror = cuda::UploadRows(on, a, a.values.data());
      const cuda::StrongGraph graph =
          cuda::FindStrong(on, there, symmetric ? nullptr : &mirror, theta);
      const auto n = static_cast<size_t>(here.n);
      std::vector<int64_t> ptr(n + 1);
      std::vector<int32_t> neighbours(here.neighbours.size()), leader(n), of_node(n);
      std::vector<double> weights(neighbours.size());
      on.Download({graph.ptr.To(ptr.data(), here.n + 1), graph.leader.To(leader.data(), here.n)});
      ASSERT_TRUE(std::equal(ptr.begin(), ptr.end(), here.ptr.begin()));
      const auto entries = static_cast<int64_t>(neighbours.size());
      on.Download({graph.neighbours.To(neighbours.data(), entries),
                   graph.weights.To(weights.data(), entries)});
      EXPECT_TRUE(std::equal(neighbours.begin(), neighbours.end(), here.neighbours.begin()));
      EXPECT_TRUE(std::equal(weights.begin(), weights.end(), here.weights.begin()));
      EXPECT_TRUE(std::equal(leader.begin(), leader.end(), here.leader.begin()));
      for (const int level : {0, 3}) {
        const Aggregates truth = Aggregate(here, level, Threads(2)).value();
        const cuda::Aggregates found = cuda::Aggregate(on, graph, level);
        on.Download({found.of_node.To(of_node.data(), here.n)});
        EXPECT_EQ(found.count, truth.count);
        EXPECT_EQ(found.isolated, truth.isolated);
        EXPECT_TRUE(std::equal(of_node.begin(), of_node.end(), truth.of_node.begin()));
      }
    });
    EXPECT_TRUE(status.ok()) << status.message();
  };
  expect(Grid(30), true, 0.15);
  expect(From(gallery::RotatedAnisotropy2d(200, 1e-3, 0.5)), true, 0.15);
  expect(From(gallery::GraphLaplacian(20000)), true, 0);  // hubs: rows of thousands
  expect(From(gallery::GraphLaplacian(20000)), true, 0.15);
  expect(From(gallery::Circuit(30000, 12, 700)), false, 0.15);
  expect(From(gallery::Circuit(30000, 12, 7000)), false, 0);
  expect(From(gallery::RandomIrregular(5000)), false, 0.05);
  // A star of stars: hubs whose neighbours are in no aggregate of theirs.
  for (uint64_t seed = 1; seed <= 5; ++seed) expect(oracle::RandomSpd(3000, 6, seed), true, 0.1);
}

TEST(GpuSetUp, TwoBuildsHaveTheSameBits) {
  const CscMatrix a = From(gallery::Jumps3d(24, 4, 3));
  const auto first = There(a, InFp64()), second = There(a, InFp64());
  ASSERT_TRUE(first && second);
  for (const AmgPart& part : first->hierarchy->parts()) {
    ExpectEqual(*second->hierarchy->Part(part.level, part.kind),
                *first->hierarchy->Part(part.level, part.kind));
  }
}

// Laid out from where they are, levels do what those of the host do, bit for bit; and after they
// were dropped there, too.
TEST(GpuSetUp, CyclesAreThoseOfTheHostsLevels) {
  for (const bool symmetric : {true, false}) {
    for (const SmootherKind kind : {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev}) {
      for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
        AmgOptions options = With(kind, precision);
        options.max_coarse_size = 40;
        if (!symmetric && kind == SmootherKind::kChebyshev) options.max_levels = 2;
        const CscMatrix a = Grid(18, symmetric ? 0 : 20);
        const AmgResult here = Build(a, symmetric, options);
        const auto there = There(a, options);
        ASSERT_TRUE(there.has_value());
        const auto placed = PlaceAmgOnCuda(TheDevice(), *there->hierarchy, Context(), nullptr);
        const auto from_host = PlaceAmgOnCuda(TheDevice(), *here.hierarchy, Context(), nullptr);
        ASSERT_TRUE(placed.ok() && from_host.ok()) << placed.status().message();
        const Vector r = RandomVector(a.n_cols, 3), z = AppliedThere(**from_host, r);
        EXPECT_EQ(AppliedThere(**placed, r), z);
        there->hierarchy->DropDeviceCopy();
        EXPECT_EQ(there->hierarchy->device_bytes(), 0);
        const auto again = PlaceAmgOnCuda(TheDevice(), *there->hierarchy, Context(), nullptr);
        ASSERT_TRUE(again.ok());
        EXPECT_EQ(AppliedThere(**again, r), z);
        EXPECT_EQ(Applied(*there->hierarchy, r), Applied(*here.hierarchy, r));
      }
    }
  }
}

// A whose unknowns are scattered lies in another order; the levels go by it.
TEST(GpuSetUp, CyclesGoByTheOrderOfA) {
  for (const bool symmetric : {true, false}) {
    gallery::Matrix mesh = gallery::ConvectionDiffusion3d(72, symmetric ? 0 : 20);
    gallery::PermuteNodes({mesh.col_ptr, mesh.row_idx, mesh.values}, 1, mesh.n);
    const CscMatrix a = From(mesh);
    const auto a_there = CudaOperator::OfMatrix(TheDevice(), a, false, Context());
    ASSERT_TRUE(a_there.ok()) << a_there.status().message();
    ASSERT_NE((*a_there)->order(), nullptr);
    const AmgResult here = Build(a, symmetric);
    const auto there = There(a, {});
    ASSERT_TRUE(there.has_value());
    const auto placed = PlaceAmgOnCuda(TheDevice(), *there->hierarchy, Context(), a_there->get());
    const auto truth = PlaceAmgOnCuda(TheDevice(), *here.hierarchy, Context(), a_there->get());
    ASSERT_TRUE(placed.ok() && truth.ok()) << placed.status().message();
    EXPECT_GT(there->hierarchy->device_bytes(), 0);
    const Vector r = RandomVector(a.n_cols, 3);
    EXPECT_EQ(AppliedThere(**placed, r), AppliedThere(**truth, r));
  }
}

TEST(GpuSetUp, LeavesToTheHostWhatIsItsOwn) {
  const CscMatrix grid = Grid(10), convection = Grid(10, 20);
  for (const SmootherKind kind : {SmootherKind::kFsai, SmootherKind::kAfsai}) {
    EXPECT_FALSE(There(convection, With(kind)).has_value());
  }
  AmgOptions classical;
  classical.coarsening = Coarsening::kClassical;
  EXPECT_FALSE(There(grid, classical).has_value());
  AmgOptions uneven;
  uneven.block_size = 3;
  EXPECT_FALSE(There(grid, uneven).has_value());
  // Without a diagonal, or with one of both signs, the host says what is wrong.
  CscMatrix zero = grid;
  for (int64_t j = 0; j < 2; ++j) {
    for (int64_t p = zero.col_ptr[500]; p < zero.col_ptr[501]; ++p) {
      if (zero.row_idx[static_cast<size_t>(p)] == 500)
        zero.values[static_cast<size_t>(p)] = -double(j);
    }
    EXPECT_FALSE(There(zero, With(SmootherKind::kL1Jacobi)).has_value());
  }
}

TEST(GpuSetUp, RefusesAsTheHostDoes) {
  const CscMatrix grid = Grid(20);
  const auto refused = [&](const CscMatrix& a, const AmgOptions& options,
                           const NearNullInput& near = {}) {
    const auto there = BuildAmgOnCuda(TheDevice(), a, near, options, Threads(2));
    EXPECT_FALSE(there.ok());
    const auto here = BuildAmg(a, true, near, options, Threads(2));
    EXPECT_EQ(there.status().message(), here.status().message());
    EXPECT_EQ(UsedNow(*TheDevice()), 0);
    return there.status().reason();
  };
  AmgOptions small;
  small.max_operator_complexity = 1;
  small.max_growth = 10;
  EXPECT_EQ(refused(grid, small), "NO_COARSE_LEVEL");
  CscMatrix diagonal{.n_rows = 2000, .n_cols = 2000, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int32_t i = 0; i < 2000; ++i) {
    diagonal.row_idx.push_back(i);
    diagonal.values.push_back(2);
    diagonal.col_ptr.push_back(i + 1);
  }
  EXPECT_EQ(refused(diagonal, {}), "NO_COARSE_LEVEL");
  Vector zeros(static_cast<size_t>(grid.n_cols), 0.0);
  EXPECT_EQ(refused(grid, {}, One(zeros)), "RANK_DEFICIENT");
}

TEST(GpuSetUp, StopsBetweenLevels) {
  StopAt stop(2);
  Context context;
  context.stop = stop.source.token();
  context.progress = &stop;
  AmgOptions options;
  options.max_coarse_size = 10;
  const auto built = BuildAmgOnCuda(TheDevice(), Grid(24), {}, options, context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(stop.reports, 2);
  EXPECT_EQ(UsedNow(*TheDevice()), 0);
}

// The whole memory is there: it takes no more than its bound all the same.
TEST(GpuSetUp, StaysWithinItsBytes) {
  const auto expect = [](const CscMatrix& a, const AmgOptions& options) {
    const int64_t bytes = SetUpDeviceBytes(a.n_cols, a.nnz(), 1, 1, options);
    const Device device = OpenGpu().value();
    AmgCudaTimings timings, again;
    const auto built = BuildAmgOnCuda(device, a, {}, options, Threads(2), &timings);
    ASSERT_TRUE(built.ok()) << built.status().message();
    ASSERT_TRUE(built->has_value());
    EXPECT_LE(timings.device_bytes, bytes);
    // AUTO may take static SPAI, where A is not symmetric.
    const int64_t times = options.smoother == SmootherKind::kAuto ? 16 : 8;
    EXPECT_GE(times * timings.device_bytes + (8 << 20), bytes) << "a bound of no use";
    EXPECT_EQ((*built)->hierarchy->device_bytes() + (*built)->there->device_bytes(),
              UsedNow(*device));
    ASSERT_TRUE(RebuildAmgOnCuda(device, (*built)->there, a, {}, Threads(2), &again)->has_value());
    EXPECT_LE(again.device_bytes + (*built)->there->device_bytes(), bytes);
  };
  const AmgOptions l1 = With(SmootherKind::kL1Jacobi, Precision::kFp64);
  expect(Grid(48), {});
  expect(Grid(48), With(SmootherKind::kChebyshev));
  expect(Grid(40, 20), l1);
  expect(From(gallery::Jumps3d(40, 4, 3)), {});
  expect(From(gallery::Laplace27(32)), {});
  expect(From(gallery::RotatedAnisotropy2d(300, 1e-3, 0.5)), {});
  expect(From(gallery::Circuit(100000, 12, 700)), l1);
  expect(From(gallery::Circuit(30000, 12, 7000)), l1);
  expect(From(gallery::GraphLaplacian(20000)), l1);
  expect(From(gallery::RandomIrregular(6000)), l1);
  expect(From(gallery::BadlyScaled2d(200, 6)), l1);
  AmgOptions scalar = l1;
  scalar.block_size = 1;
  expect(From(gallery::Elasticity3d(16)), scalar);
  AmgOptions plain = l1;
  plain.coarsening = Coarsening::kPlainAggregation;
  expect(Grid(40), plain);
}

// A P, at which the most is taken, is made in waves then.
TEST(GpuSetUp, TakesLessWhereThereIsLess) {
  const CscMatrix a = Grid(48);
  const AmgOptions options = With(SmootherKind::kL1Jacobi, Precision::kFp64);
  AmgCudaTimings timings;
  ASSERT_TRUE(BuildAmgOnCuda(TheDevice(), a, {}, options, Threads(2), &timings)->has_value());
  const AmgResult here = Build(a, true, options);
  int fewest = 100;
  for (const int percent : {98, 95, 92, 89, 86, 83}) {
    const Device device = OpenGpu(timings.device_bytes * percent / 100).value();
    const auto built = BuildAmgOnCuda(device, a, {}, options, Threads(2));
    if (!built.ok()) {
      EXPECT_EQ(built.status().reason(), "DEVICE_OUT_OF_MEMORY");
      continue;
    }
    fewest = percent;
    ASSERT_TRUE(built->has_value());
    ExpectTheHosts(**built, here);
    const auto again = RebuildAmgOnCuda(device, (*built)->there, a, {}, Threads(2));
    if (again.ok()) ExpectTheHosts(**again, here);
  }
  RecordProperty("percent", fewest);
  std::printf("a set-up within %d %% of what it takes\n", fewest);
  EXPECT_LE(fewest, 95);
}

TEST(GpuSetUp, WithoutRoomIsRefusedAndLeavesNothing) {
  const CscMatrix a = Grid(40);
  for (const int64_t bytes : {1'000'000, 8'000'000, 20'000'000}) {
    const Device device = OpenGpu(bytes).value();
    const auto built = BuildAmgOnCuda(device, a, {}, {}, Threads(2));
    ASSERT_FALSE(built.ok()) << bytes;
    EXPECT_EQ(built.status().reason(), "DEVICE_OUT_OF_MEMORY");
    EXPECT_EQ(UsedNow(*device), 0);
  }
}

// Small enough for compute-sanitizer's slower tools.
TEST(GpuSetUp, SmallSystems) {
  AmgOptions options = With(SmootherKind::kL1Jacobi, Precision::kFp64);
  options.max_coarse_size = 20;
  ExpectTheHosts(Grid(9), true, options);
  ExpectTheHosts(Grid(9, 20), false, options);
  ExpectTheHosts(From(gallery::Jumps3d(8, 4, 3)), true, options);
  options.smoother = SmootherKind::kChebyshev;
  ExpectTheHosts(From(gallery::GraphLaplacian(400)), true, options);
}

}  // namespace
}  // namespace spaid::kernels
