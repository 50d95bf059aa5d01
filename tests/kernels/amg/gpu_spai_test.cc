// Static SPAI as a smoother that a CUDA device makes, against the host's. Without a device every
// test is skipped (gpu_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/spai_smoother.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/sparse/cuda/products.h"
#include "tests/kernels/amg/gpu_apply.h"
#include "tests/kernels/amg/gpu_set_up.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

constexpr SmootherKind kSpai = SmootherKind::kStaticSpai;

AmgOptions Deep(SmootherKind kind, Precision precision = Precision::kFp64) {
  AmgOptions options = With(kind, precision);
  options.max_coarse_size = 30;
  return options;
}

CscMatrix Grid(int64_t m, double speed) { return From(gallery::ConvectionDiffusion3d(m, speed)); }

// Entries above the diagonal times 1.1.
CscMatrix Skew(const CscMatrix& a) {
  CscMatrix other = a;
  size_t p = 0;
  ForEntries(a, [&](int64_t i, int64_t j, double v) { other.values[p++] = i > j ? 1.1 * v : v; });
  return other;
}

CscMatrix Mesh(int64_t m) {
  gallery::Matrix mesh = gallery::ConvectionDiffusion3d(m, 0);
  gallery::VaryCoefficients({mesh.col_ptr, mesh.row_idx, mesh.values});
  gallery::PermuteNodes({mesh.col_ptr, mesh.row_idx, mesh.values}, 1, mesh.n);
  return Skew(From(mesh));
}

// Not symmetric, with β over 3.
CscMatrix Skewed(int64_t m) {
  return Skew(From(gallery::Elasticity3d(m, gallery::Rounding::kBenchmarks)));
}

// The last column has entries in so many rows more, and the last row in these columns.
CscMatrix WithHub(const CscMatrix& a, int64_t rows) {
  std::vector<std::vector<std::pair<int32_t, double>>> columns(static_cast<size_t>(a.n_cols));
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    columns[static_cast<size_t>(j)].emplace_back(static_cast<int32_t>(i), v);
  });
  const auto hub = static_cast<int32_t>(a.n_cols - 1);
  for (int32_t i = 0; i < rows; ++i) {
    columns[static_cast<size_t>(i)].emplace_back(hub, -0.01);
    columns[static_cast<size_t>(hub)].emplace_back(i, -0.02);
  }
  CscMatrix with{
      .n_rows = a.n_rows, .n_cols = a.n_cols, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (auto& column : columns) {
    std::sort(column.begin(), column.end());
    for (const auto& [row, value] : column) {
      with.row_idx.push_back(row);
      with.values.push_back(value);
    }
    with.col_ptr.push_back(static_cast<int64_t>(with.row_idx.size()));
  }
  return with;
}

void ExpectAsTheHost(const CscMatrix& a, bool symmetric, const AmgOptions& options) {
  const auto there = There(a, options);
  ASSERT_TRUE(there.has_value());
  const AmgResult here = Build(a, symmetric, options);
  EXPECT_EQ(there->quality.smoother, kSpai);
  ExpectTheHosts(*there, here);
  EXPECT_NEAR(static_cast<double>(Iterations(a, symmetric, *there->hierarchy)),
              static_cast<double>(Iterations(a, symmetric, *here.hierarchy)), 2);
}

TEST(GpuSpai, SmoothsAsTheHosts) {
  for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
    SCOPED_TRACE(precision == Precision::kFp64 ? "fp64" : "fp32");
    const AmgOptions options = Deep(kSpai, precision);
    ExpectAsTheHost(Grid(16, 20), false, options);
    ExpectAsTheHost(Mesh(16), false, options);
    ExpectAsTheHost(From(gallery::Jumps3d(16, 4, 3)), true, options);
    ExpectAsTheHost(From(gallery::Elasticity3d(8)), true, options);
  }
  AmgOptions plain = Deep(kSpai);
  plain.coarsening = Coarsening::kPlainAggregation;
  ExpectAsTheHost(Mesh(14), false, plain);
}

TEST(GpuSpai, IsAutosChoiceThere) { ExpectAsTheHost(Skewed(8), false, Deep(SmootherKind::kAuto)); }

// The last level is not inverted, and smoothed.
TEST(GpuSpai, SmoothsTheLastLevel) {
  for (const bool symmetric : {false, true}) {
    AmgOptions options = Deep(kSpai);
    options.max_levels = 2;
    ExpectAsTheHost(Grid(16, symmetric ? 0 : 20), symmetric, options);
  }
}

TEST(GpuSpai, OtherValuesAreTheHosts) {
  const std::pair<CscMatrix, bool> cases[] = {
      {Grid(12, 20), false}, {Mesh(14), false}, {From(gallery::Jumps3d(12, 4, 3)), true}};
  for (const auto& [a, symmetric] : cases) {
    const auto there = There(a, Deep(kSpai));
    ASSERT_TRUE(there.has_value() && there->there != nullptr);
    EXPECT_LE(there->there->device_bytes(), MostPlanBytes(a.n_cols, a.nnz()));
    const AmgResult here = Build(a, symmetric, Deep(kSpai));
    for (const CscMatrix& other : {Stiffer(a), a}) {
      const auto again = RebuildAmgOnCuda(TheDevice(), there->there, other, {}, Threads(2));
      ASSERT_TRUE(again.ok() && *again) << again.status().message();
      EXPECT_TRUE((*again)->quality.reused);
      const auto truth = RebuildAmg(here.plan, other, {}, Threads(2));
      ASSERT_TRUE(truth.ok()) << truth.status().message();
      ExpectTheHosts(**again, *truth);
    }
  }
}

// Also in A's order.
TEST(GpuSpai, CyclesAreThoseOfTheDownload) {
  for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
    ExpectCyclesOfTheDownload(Mesh(14), Deep(kSpai, precision), nullptr);
    ExpectCyclesOfTheDownload(From(gallery::Jumps3d(12, 4, 3)), Deep(kSpai, precision), nullptr);
  }
  const CscMatrix large = Mesh(72);
  const auto a_there = CudaOperator::OfMatrix(TheDevice(), large, false, Context());
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  ASSERT_NE((*a_there)->order(), nullptr);
  ExpectCyclesOfTheDownload(large, With(kSpai), a_there->get());
}

// A column of 300 entries is a problem that takes what memory there is: the host's, but by AUTO.
TEST(GpuSpai, IsADiagonalWhereTheDeviceLeavesColumns) {
  const CscMatrix a = WithHub(Skewed(8), 300);
  EXPECT_FALSE(There(a, Deep(kSpai)).has_value());
  const auto there = There(a, Deep(SmootherKind::kAuto));
  ASSERT_TRUE(there.has_value());
  EXPECT_EQ(there->quality.smoother, SmootherKind::kL1Jacobi);
  const AmgResult here = Build(a, false, Deep(SmootherKind::kL1Jacobi));
  ExpectTheHosts(*there, here);
  ASSERT_NE(there->there, nullptr);
  const auto again = RebuildAmgOnCuda(TheDevice(), there->there, a, {}, Threads(2));
  ASSERT_TRUE(again.ok() && *again) << again.status().message();
  EXPECT_EQ((*again)->quality.smoother, SmootherKind::kL1Jacobi);
}

// AUTO's set-up finds room wherever l1-Jacobi's does.
TEST(GpuSpai, IsADiagonalWhereThereIsNoRoom) {
  int diagonals = 0;
  for (const CscMatrix& a : {Skewed(16), Skewed(20)}) {
    int64_t least = 0;
    AmgCudaTimings taken;
    const AmgOptions l1 = Deep(SmootherKind::kL1Jacobi);
    ASSERT_TRUE(BuildAmgOnCuda(TheDevice(), a, {}, l1, Threads(2), &taken)->has_value());
    for (int percent = 50; percent <= 150; percent += 2) {
      const Device device = OpenGpu(taken.device_bytes * percent / 100).value();
      if (least == 0 && !BuildAmgOnCuda(device, a, {}, l1, Threads(2)).ok()) continue;
      if (least == 0) least = percent;
      const auto built = BuildAmgOnCuda(device, a, {}, Deep(SmootherKind::kAuto), Threads(2));
      ASSERT_TRUE(built.ok()) << percent << ": " << built.status().message();
      ASSERT_TRUE(built->has_value());
      if ((*built)->quality.smoother != kSpai) {
        ++diagonals;
        EXPECT_EQ((*built)->quality.smoother, SmootherKind::kL1Jacobi);
      }
    }
    EXPECT_GT(least, 0);
  }
  std::printf("%d times a diagonal, for want of room\n", diagonals);
  EXPECT_GT(diagonals, 0);
}

TEST(GpuSpai, StaysWithinItsBytes) {
  const auto expect = [](const CscMatrix& a, const AmgOptions& options) {
    const int block = DetectBlockSize(a);
    const int64_t bytes = SetUpDeviceBytes(a.n_cols, a.nnz(), block, block, options);
    const Device device = OpenGpu().value();
    AmgCudaTimings timings, again;
    const auto built = BuildAmgOnCuda(device, a, {}, options, Threads(2), &timings);
    ASSERT_TRUE(built.ok()) << built.status().message();
    ASSERT_TRUE(built->has_value());
    EXPECT_EQ((*built)->quality.smoother, kSpai);
    EXPECT_LE(timings.device_bytes, bytes);
    EXPECT_GE(12 * timings.device_bytes + (32 << 20), bytes) << "a bound of no use";
    if ((*built)->there == nullptr) return;
    ASSERT_TRUE(RebuildAmgOnCuda(device, (*built)->there, a, {}, Threads(2), &again)->has_value());
    EXPECT_LE(again.device_bytes + (*built)->there->device_bytes(), bytes);
  };
  expect(Grid(40, 20), Deep(kSpai));
  expect(Mesh(48), Deep(kSpai));
  expect(From(gallery::Jumps3d(40, 4, 3)), Deep(kSpai));
  expect(From(gallery::RandomIrregular(6000)), Deep(kSpai));
  expect(Skewed(20), Deep(SmootherKind::kAuto));
  expect(From(gallery::Elasticity3d(20)), Deep(kSpai));
}

TEST(GpuSpai, StopsWhileItSmooths) {
  StopAt stop(3);
  Context context;
  context.stop = stop.source.token();
  context.progress = &stop;
  const auto built = BuildAmgOnCuda(TheDevice(), Mesh(24), {}, Deep(kSpai), context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(UsedNow(*TheDevice()), 0);
}

TEST(GpuSpai, LeavesEmptyColumnsToTheHost) {
  const CscMatrix grid = Grid(6, 20);
  CscMatrix hollow{
      .n_rows = grid.n_rows, .n_cols = grid.n_cols, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t j = 0; j < grid.n_cols; ++j) {
    for (size_t p = 0; p < CscView(grid).column(j).size() && j != 40; ++p) {
      hollow.row_idx.push_back(CscView(grid).column(j)[p]);
      hollow.values.push_back(CscView(grid).column_values(j)[p]);
    }
    hollow.col_ptr.push_back(static_cast<int64_t>(hollow.row_idx.size()));
  }
  const auto lock = TheDevice()->Lock();
  cuda::Context& context = ContextOf(*TheDevice());
  const StopToken never;
  const cuda::Caller caller(never, "a test");
  const auto made = [&](const CscMatrix& a) {
    const cuda::RowMatrix rows = cuda::UploadRows(context, a, a.values.data());
    return cuda::MakeSpai(context, rows, /*symmetric=*/true, /*finest=*/true, /*keeps=*/false,
                          caller)
        .has_value();
  };
  EXPECT_TRUE(made(grid));
  EXPECT_FALSE(made(hollow));
}

TEST(GpuSpai, TwoBuildsHaveTheSameBits) {
  const CscMatrix a = Mesh(16);
  const auto first = There(a, Deep(kSpai)), second = There(a, Deep(kSpai));
  ASSERT_TRUE(first && second);
  for (const AmgPart& part : first->hierarchy->parts()) {
    ExpectEqual(*second->hierarchy->Part(part.level, part.kind),
                *first->hierarchy->Part(part.level, part.kind));
  }
}

// Small enough for compute-sanitizer's slower tools.
TEST(GpuSpai, SmallSystems) {
  ExpectAsTheHost(Grid(7, 20), false, Deep(kSpai));
  ExpectAsTheHost(Mesh(7), false, Deep(kSpai));
  ExpectAsTheHost(From(gallery::Jumps3d(8, 4, 3)), true, Deep(kSpai));
}

}  // namespace
}  // namespace spaid::kernels
