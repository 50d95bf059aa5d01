// The cycle on a CUDA device against the host's. Without a device every test is skipped, with the
// reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg_cuda.h"
#include "kernels/base/device.h"
#include "kernels/engine/engine.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "tests/kernels/amg/gpu_apply.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/base/on_device.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels {
namespace {

using krylov_test::WithRowsBytes;
using Vector = std::vector<double>;
using There = std::shared_ptr<const CudaOperator>;

const ::testing::Environment* const kOnDevice = ::testing::AddGlobalTestEnvironment(new OnDevice);

// Matrices by rows; with `nodes` by diagonals or by nodes where they can be, as large ones.
const std::shared_ptr<CudaDevice>& Device(bool nodes = false) {
  static const std::shared_ptr<CudaDevice> rows = OpenGpu().value();
  static const std::shared_ptr<CudaDevice> large = OpenGpu(0, WithRowsBytes(0)).value();
  return nodes ? large : rows;
}

There Placed(const AmgHierarchy& m, const CudaOperator* beside = nullptr, bool nodes = false) {
  auto placed = PlaceAmgOnCuda(Device(nodes), m, Context(), beside);
  EXPECT_TRUE(placed.ok()) << placed.status().message();
  return placed.ok() ? *placed : nullptr;
}

double Distance(const Vector& x, const Vector& y) {
  double distance = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double apart = std::fabs(x[i] - y[i]);
    if (!(apart <= distance)) distance = apart;
    largest = std::max(largest, std::fabs(y[i]));
  }
  return distance / largest;
}

// M r and others, as columns that go through M together, have the bits of each alone, `z` of r.
void ExpectColumnsAsAlone(const CudaOperator& m, const Vector& r, const Vector& z) {
  for (const int columns : {2, 4}) {
    Vector all, expected;
    for (int v = 0; v < columns; ++v) {
      const Vector own = v == columns - 2 ? r : RandomVector(m.n(), static_cast<uint64_t>(v) + 50);
      const Vector alone = v == columns - 2 ? z : AppliedThere(m, own);
      all.insert(all.end(), own.begin(), own.end());
      expected.insert(expected.end(), alone.begin(), alone.end());
    }
    EXPECT_EQ(AppliedThere(m, all, columns), expected) << columns << " columns";
  }
}

void ExpectTheHosts(const AmgHierarchy& m, double bound) {
  const Vector r = RandomVector(m.n(), 3);
  const Vector here = Applied(m, r);
  for (const bool nodes : {false, true}) {
    SCOPED_TRACE(nodes ? "by diagonals" : "by rows");
    const There there = Placed(m, nullptr, nodes);
    ASSERT_NE(there, nullptr);
    const Vector z = AppliedThere(*there, r);
    EXPECT_LE(Distance(z, here), bound);
    EXPECT_EQ(AppliedThere(*there, r), z);  // the same bits
    ExpectColumnsAsAlone(*there, r, z);
  }
}

double Bound(Precision precision) { return precision == Precision::kFp64 ? 1e-12 : 1e-5; }

TEST(GpuCycle, IsTheHostsOfAllSmoothersAndCycles) {
  const CscMatrix poisson = From(gallery::ConvectionDiffusion3d(14, 0));
  const CscMatrix convection = From(gallery::ConvectionDiffusion3d(14, 30));
  for (const bool symmetric : {true, false}) {
    for (const SmootherKind kind :
         {SmootherKind::kL1Jacobi, SmootherKind::kJacobi, SmootherKind::kChebyshev,
          SmootherKind::kFsai, SmootherKind::kAfsai, SmootherKind::kStaticSpai}) {
      const bool of_symmetric = kind == SmootherKind::kChebyshev || kind == SmootherKind::kFsai ||
                                kind == SmootherKind::kAfsai;
      if (!symmetric && of_symmetric) continue;
      for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
        for (const auto& [pre, post] : {std::pair{1, 1}, {2, 2}, {0, 1}, {1, 0}, {0, 3}}) {
          AmgOptions options = With(kind, precision);
          options.pre_sweeps = pre;
          options.post_sweeps = post;
          options.cycle = pre == 2 ? CycleKind::kW : CycleKind::kV;
          options.chebyshev_degree = 1 + (pre + post) % 4;
          options.max_coarse_size = 40;
          SCOPED_TRACE(std::string(Name(kind)) + (symmetric ? "" : ", not symmetric") + ", " +
                       std::to_string(pre) + " and " + std::to_string(post));
          const AmgResult built = Build(symmetric ? poisson : convection, symmetric, options);
          ASSERT_GE(built.quality.levels.size(), 3u);
          ExpectTheHosts(*built.hierarchy, Bound(precision));
        }
      }
    }
  }
}

// Nodes of three unknowns, with their motions and without; anisotropy; jumps; hubs, whose rows are
// stored apart; classical coarsening.
TEST(GpuCycle, IsTheHostsOfOtherMatrices) {
  const auto expect = [](const CscMatrix& a, bool symmetric, AmgOptions options,
                         const NearNullInput& near = {}) {
    for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
      options.hierarchy_precision = precision;
      ExpectTheHosts(*Build(a, symmetric, options, near).hierarchy, Bound(precision));
    }
  };
  AmgOptions nodes;
  nodes.block_size = 3;
  const CscMatrix elasticity = From(gallery::Elasticity3d(9, gallery::Rounding::kBenchmarks));
  expect(elasticity, true, nodes);
  expect(elasticity, true, nodes, NodesOfElasticity(9).input());
  expect(From(gallery::RotatedAnisotropy2d(60, 1e-3, std::numbers::pi / 6)), true, {});
  expect(From(gallery::Jumps3d(16, 4, 3)), true, {});
  expect(From(gallery::Circuit(20000, 12, 700)), false, {});
  AmgOptions classical;
  classical.coarsening = Coarsening::kClassical;
  expect(From(gallery::Jumps3d(16, 4, 3)), true, classical);
}

TEST(GpuCycle, IsTheHostsOfSmallMatrices) {
  for (const Problem& problem : Problems()) {
    if (problem.name == "hubs") continue;
    SCOPED_TRACE(problem.name);
    const CscMatrix a = problem.symmetric ? problem.rows : Transpose(CscView(problem.rows));
    ExpectTheHosts(
        *Build(a, problem.symmetric, With(SmootherKind::kAuto, Precision::kFp64)).hierarchy, 1e-12);
  }
}

// Rows without a strong coupling are in no aggregate: P has nothing there.
TEST(GpuCycle, IsTheHostsWhereRowsAreIsolated) {
  const CscMatrix grid = From(gallery::ConvectionDiffusion3d(12, 0));
  CscMatrix a = grid;
  for (int i = 0; i < 500; ++i) {
    a.row_idx.push_back(static_cast<int32_t>(a.n_cols++));
    a.values.push_back(6);
    a.col_ptr.push_back(a.nnz());
  }
  a.n_rows = a.n_cols;
  AmgOptions options;
  options.max_coarse_size = 40;
  const AmgResult built = Build(a, true, options);
  ASSERT_GE(built.quality.levels.front().isolated, 500);
  ExpectTheHosts(*built.hierarchy, 1e-5);
}

TEST(GpuCycle, IsTheHostsWhereTheLastLevelIsSmoothed) {
  AmgOptions two;
  two.max_levels = 2;
  two.max_coarse_size = 50;
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev, SmootherKind::kAfsai}) {
    two.smoother = kind;
    const AmgResult built = Build(From(gallery::ConvectionDiffusion3d(16, 0)), true, two);
    ASSERT_FALSE(built.quality.inverted);
    ExpectTheHosts(*built.hierarchy, 1e-5);
  }
}

TEST(GpuCycle, OfANegativeDefiniteMatrixHasItsSign) {
  CscMatrix a = oracle::Laplacian2d(40, 30);
  for (double& v : a.values) v = -v;
  const AmgResult built = Build(a, true);
  const Vector r = RandomVector(a.n_cols, 4);
  EXPECT_LT(Dot(r, AppliedThere(*Placed(*built.hierarchy), r)), 0);
}

// Vectors beyond fp32's range, zero, and what is no number.
TEST(GpuCycle, ScalesItsVectors) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(14, 0));
  const There m = Placed(*Build(a, true).hierarchy);
  const Vector r = RandomVector(a.n_cols, 5), z = AppliedThere(*m, r);
  for (const int exponent : {-600, -140, 140, 600}) {
    Vector scaled = r, expected = z;
    for (double& value : scaled) value = std::ldexp(value, exponent);
    for (double& value : expected) value = std::ldexp(value, exponent);
    EXPECT_EQ(AppliedThere(*m, scaled), expected) << exponent;
  }
  const Vector zero(r.size(), 0.0);
  EXPECT_EQ(AppliedThere(*m, zero), zero);
  Vector bad = r;
  bad[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(AppliedThere(*m, bad)[7]));
  EXPECT_EQ(AppliedThere(*m, r), z);  // nothing stays of it
}

// Each column by an exponent of its own, whatever is beside it.
TEST(GpuCycle, ScalesColumnByColumn) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(14, 0));
  const There m = Placed(*Build(a, true).hierarchy);
  const Vector r = RandomVector(a.n_cols, 5), z = AppliedThere(*m, r);
  const auto n = static_cast<size_t>(a.n_cols);
  Vector columns(4 * n, 0.0);  // the third stays zero
  for (size_t i = 0; i < n; ++i) {
    columns[i] = std::ldexp(r[i], 600);
    columns[n + i] = r[i];
    columns[3 * n + i] = std::ldexp(r[i], -600);
  }
  columns[n + 7] = std::numeric_limits<double>::quiet_NaN();
  const Vector found = AppliedThere(*m, columns, 4);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(found[i], std::ldexp(z[i], 600)) << i;
    ASSERT_EQ(found[2 * n + i], 0) << i;
    ASSERT_EQ(found[3 * n + i], std::ldexp(z[i], -600)) << i;
  }
  EXPECT_TRUE(std::isnan(found[n + 7]));
}

// The bytes that a solve was promised suffice for it, and, of four right-hand sides, for a block of
// them.
TEST(GpuAmg, StaysWithinItsBytes) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(40, 0));
  const auto engine = MakeCpuEngine();
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev, SmootherKind::kAfsai}) {
    for (const auto& [precision, n_rhs] : {std::pair{Precision::kFp64, 1},
                                           {Precision::kFp32, 1},
                                           {Precision::kFp64, 4},
                                           {Precision::kFp32, 4}}) {
      SCOPED_TRACE(n_rhs);
      const AmgResult built = Build(a, true, With(kind, precision));
      const SolveOptions options{.method = Method::kCg, .rtol = 1e-7};
      const int64_t bytes = engine->SolveDeviceBytes(a.n_cols, a.nnz(), built.hierarchy->nnz(),
                                                     n_rhs, options, MForm::kParts);
      const auto device = OpenGpu(bytes).value();
      const auto a_there = CudaOperator::OfMatrix(device, a, false, Context());
      ASSERT_TRUE(a_there.ok()) << a_there.status().message();
      const auto m = PlaceAmgOnCuda(device, *built.hierarchy, Context(), a_there->get());
      ASSERT_TRUE(m.ok()) << m.status().message();
      EXPECT_GT((*m)->device_bytes(), 8 * built.hierarchy->nnz());
      cuda::Arena& arena = *ContextOf(*device).arena;
      const int64_t before = arena.used();
      arena.ResetPeak();
      const auto solved = SolveCuda(**a_there, m->get(), a, RandomVector(a.n_cols * n_rhs, 1), {},
                                    options, Threads(2));
      ASSERT_TRUE(solved.ok()) << solved.status().message();
      for (const RhsResult& rhs : solved->rhs) EXPECT_EQ(rhs.outcome, Outcome::kConverged);
      // CG's vectors, and, for several, four of the cycle's first level.
      const int64_t of_cycle = n_rhs == 1 ? 0 : 4 * (precision == Precision::kFp64 ? 8 : 4);
      EXPECT_GE(arena.peak() - before, (8 * 8 + of_cycle) * n_rhs * a.n_cols);
    }
  }
}

TEST(GpuAmg, WithoutRoomIsRefusedAndLeavesNothing) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(40, 0));
  const AmgResult built = Build(a, true);
  for (const int64_t bytes : {100'000, 1'000'000, 5'000'000}) {
    const auto device = OpenGpu(bytes).value();
    const auto m = PlaceAmgOnCuda(device, *built.hierarchy, Context(), nullptr);
    ASSERT_FALSE(m.ok());
    EXPECT_EQ(m.status().reason(), "DEVICE_OUT_OF_MEMORY");
    EXPECT_EQ(UsedNow(*device), 0);
  }
}

TEST(GpuAmg, StopsWhileItIsLaidOut) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  Context context;
  context.stop = source.token();
  const AmgResult built = Build(From(gallery::ConvectionDiffusion3d(14, 0)), true);
  const auto m = PlaceAmgOnCuda(Device(), *built.hierarchy, context, nullptr);
  ASSERT_FALSE(m.ok());
  EXPECT_EQ(m.status().code(), StatusCode::kCancelled);
}

void ExpectEachAsAlone(const CudaOperator& a_there, const CudaOperator& m, const CscMatrix& a,
                       const Vector& b, const Vector& x0, const SolveOptions& options,
                       const SolveResult& together) {
  const auto n = static_cast<size_t>(a.n_cols);
  for (size_t v = 0; v < together.rhs.size(); ++v) {
    SCOPED_TRACE("column " + std::to_string(v));
    const auto own = [&](const auto& of) {
      return of.empty() ? std::span<const double>() : std::span(of).subspan(v * n, n);
    };
    const auto alone = SolveCuda(a_there, &m, a, own(b), own(x0), options, Threads(2));
    ASSERT_TRUE(alone.ok()) << alone.status().message();
    EXPECT_EQ(alone->rhs[0].outcome, together.rhs[v].outcome);
    EXPECT_EQ(alone->rhs[0].iterations, together.rhs[v].iterations);
    EXPECT_TRUE(std::equal(alone->x.begin(), alone->x.end(), own(together.x).begin()));
  }
}

// Solves with it: the host's outcome and nearly its iterations, for each method, of one and of
// seven right-hand sides, in blocks of four, two and one, and the same bits in two runs, and of
// each alone.
void ExpectSolves(const CscMatrix& a, bool symmetric, const AmgOptions& amg, bool nodes) {
  const AmgResult built = Build(a, symmetric, amg);
  const CsrOperator op = CsrOperator::FromColumns(a);
  const auto a_there = CudaOperator::OfMatrix(Device(nodes), a, false, Context());
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  const There m = Placed(*built.hierarchy, a_there->get(), nodes);
  ASSERT_NE(m, nullptr);
  for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
    if (!symmetric && method == Method::kCg) continue;
    for (const int n_rhs : {1, 7}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(method)) + ", " + std::to_string(n_rhs));
      Vector b;
      for (int v = 0; v < n_rhs; ++v) {
        Vector one(static_cast<size_t>(a.n_cols));
        op.Apply(RandomVector(a.n_cols, static_cast<uint64_t>(v) + 1), one, 2);
        b.insert(b.end(), one.begin(), one.end());
      }
      const SolveOptions options{.method = method, .rtol = 1e-9, .max_iterations = 300};
      const auto here = Solve(op, built.hierarchy.get(), b, {}, options, Threads(2));
      const auto there = SolveCuda(**a_there, m.get(), a, b, {}, options, Threads(2));
      ASSERT_TRUE(there.ok()) << there.status().message();
      for (size_t v = 0; v < static_cast<size_t>(n_rhs); ++v) {
        EXPECT_EQ(there->rhs[v].outcome, Outcome::kConverged) << there->rhs[v].detail;
        EXPECT_NEAR(static_cast<double>(there->rhs[v].iterations),
                    static_cast<double>(here->rhs[v].iterations), 2.0);
      }
      const auto again = SolveCuda(**a_there, m.get(), a, b, {}, options, Threads(2));
      EXPECT_EQ(again->x, there->x);
      ExpectEachAsAlone(**a_there, *m, a, b, {}, options, *there);
    }
  }
}

TEST(GpuAmg, SolvesAsTheHostDoes) {
  for (const bool nodes : {false, true}) {
    SCOPED_TRACE(nodes ? "by diagonals" : "by rows");
    const CscMatrix poisson = From(gallery::ConvectionDiffusion3d(24, 0));
    ExpectSolves(poisson, true, {}, nodes);
    ExpectSolves(poisson, true, With(SmootherKind::kChebyshev), nodes);
    ExpectSolves(poisson, true, With(SmootherKind::kAfsai, Precision::kFp64), nodes);
    ExpectSolves(From(gallery::ConvectionDiffusion3d(24, 20)), false, {}, nodes);
    AmgOptions blocks = With(SmootherKind::kAfsai);
    blocks.block_size = 3;
    ExpectSolves(From(gallery::Elasticity3d(9, gallery::Rounding::kBenchmarks)), true, blocks,
                 nodes);
  }
}

// Columns that are over early, at once, or with none of their own: they touch no other.
TEST(GpuAmg, WhatBecomesOfOneColumnDoesNotTouchTheOthers) {
  const CscMatrix a = From(gallery::ConvectionDiffusion3d(14, 0));
  const CsrOperator op = CsrOperator::FromColumns(a);
  const auto n = static_cast<size_t>(a.n_cols);
  const Vector random = RandomVector(a.n_cols, 21);
  Vector b(8 * n, 0.0), x0(b.size(), 0.0);  // the second stays zero
  const auto column = [&](size_t v, double factor) {
    for (size_t i = 0; i < n; ++i) b[v * n + i] = factor * random[i];
  };
  for (const auto& [v, factor] :
       {std::pair{0, 1.0}, {2, 1e200}, {3, 1e-200}, {5, -3.0}, {6, 7.0}}) {
    column(static_cast<size_t>(v), factor);
  }
  // The fifth is solved already, the last nearly.
  Vector product(n);
  op.Apply(random, product, 2);
  for (const size_t v : {4, 7}) {
    std::copy(product.begin(), product.end(), b.begin() + static_cast<std::ptrdiff_t>(v * n));
    for (size_t i = 0; i < n; ++i) x0[v * n + i] = random[i] * (v == 7 ? 1 + 1e-6 : 1);
  }
  const auto a_there = CudaOperator::OfMatrix(Device(true), a, false, Context());
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  AmgOptions levels;
  levels.max_coarse_size = 40;
  const There m = Placed(*Build(a, true, levels).hierarchy, a_there->get(), true);
  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    SCOPED_TRACE(method == Method::kCg ? "CG" : "BiCGSTAB");
    const SolveOptions options{.method = method, .rtol = 1e-9, .max_iterations = 100};
    const auto together = SolveCuda(**a_there, m.get(), a, b, x0, options, Threads(2));
    ASSERT_TRUE(together.ok()) << together.status().message();
    for (const RhsResult& rhs : together->rhs) EXPECT_EQ(rhs.outcome, Outcome::kConverged);
    EXPECT_EQ(together->rhs[1].iterations, 0);
    EXPECT_EQ(together->rhs[4].iterations, 0);
    EXPECT_LT(together->rhs[7].iterations, together->rhs[0].iterations);
    ExpectEachAsAlone(**a_there, *m, a, b, x0, options, *together);
  }
}

// Small enough for compute-sanitizer's slower tools.
TEST(GpuAmg, SolvesSmallSystems) {
  AmgOptions levels;
  levels.max_coarse_size = 40;
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev, SmootherKind::kAfsai}) {
    levels.smoother = kind;
    ExpectSolves(From(gallery::ConvectionDiffusion3d(9, 0)), true, levels, true);
  }
}

// A whose unknowns are scattered lies in another order; M goes by it.
TEST(GpuAmg, SolvesInTheOrderOfA) {
  const CscMatrix grid = From(gallery::ConvectionDiffusion3d(72, 0));
  std::vector<int32_t> to(static_cast<size_t>(grid.n_cols));
  std::iota(to.begin(), to.end(), 0);
  std::shuffle(to.begin(), to.end(), std::mt19937_64(7));
  std::vector<std::vector<std::pair<int32_t, double>>> columns(to.size());
  for (size_t j = 0; j < to.size(); ++j) {
    for (int64_t p = grid.col_ptr[j]; p < grid.col_ptr[j + 1]; ++p) {
      const auto at = static_cast<size_t>(p);
      columns[static_cast<size_t>(to[j])].emplace_back(to[static_cast<size_t>(grid.row_idx[at])],
                                                       grid.values[at]);
    }
  }
  CscMatrix a{
      .n_rows = grid.n_rows, .n_cols = grid.n_cols, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (auto& column : columns) {
    std::sort(column.begin(), column.end());
    for (const auto& [row, value] : column) {
      a.row_idx.push_back(row);
      a.values.push_back(value);
    }
    a.col_ptr.push_back(a.nnz());
  }
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context());
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  ASSERT_NE((*a_there)->order(), nullptr);
  ExpectSolves(a, true, {}, false);
}

}  // namespace
}  // namespace spaid::kernels
