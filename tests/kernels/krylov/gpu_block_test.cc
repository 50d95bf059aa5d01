// Several right-hand sides on a CUDA device, solved in blocks, or, where they run within shared
// memory, one after the other: each comes out as if it were alone, bit for bit, whatever becomes of
// the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/bench/problems.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/krylov/gpu_problems.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/solve_on_device.h"

namespace spaid::kernels::krylov_test {
namespace {

// A and, where there is one, M on a device, with what a solve takes.
struct There {
  There(const std::shared_ptr<CudaDevice>& device, const CscMatrix& matrix,
        std::shared_ptr<const CudaOperator> preconditioner)
      : a(&matrix),
        op(CudaOperator::OfMatrix(device, matrix, false, Context()).value()),
        m(std::move(preconditioner)) {}

  Result<SolveResult> Solve(std::span<const double> b, std::span<const double> x0,
                            const SolveOptions& options, const Context& context = {}) const {
    return SolveCuda(*op, m.get(), *a, b, x0, options, context);
  }

  const CscMatrix* a;
  std::shared_ptr<const CudaOperator> op, m;
};

std::shared_ptr<const CudaOperator> Jacobi(const std::shared_ptr<CudaDevice>& device,
                                           const CscView& a) {
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / v;
  return CudaOperator::OfDiagonal(device, inverse).value();
}

// Its pattern, with a dominant diagonal: explicit, and definite where the pattern is symmetric.
CscMatrix ExplicitM(const CscMatrix& a) {
  CscMatrix m = a;
  for (int64_t k = 0; k < m.n_cols; ++k) {
    const auto length = static_cast<double>(m.col_ptr[k + 1] - m.col_ptr[k]);
    for (int64_t p = m.col_ptr[k]; p < m.col_ptr[k + 1]; ++p) {
      m.values[p] = m.row_idx[p] == k ? 1.0 : 0.3 / length;
    }
  }
  return m;
}

bool SameBits(std::span<const double> x, std::span<const double> y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

void ExpectSame(const RhsResult& got, const RhsResult& want, const std::string& what) {
  EXPECT_EQ(got.outcome, want.outcome) << what << ": " << got.detail << " for " << want.detail;
  EXPECT_EQ(got.iterations, want.iterations) << what;
  EXPECT_EQ(got.detail, want.detail) << what;
  EXPECT_EQ(got.true_residual, want.true_residual) << what;
  EXPECT_EQ(got.true_relative_residual, want.true_relative_residual) << what;
  ASSERT_EQ(got.history.size(), want.history.size()) << what;
  for (size_t i = 0; i < got.history.size(); ++i) {
    EXPECT_EQ(got.history[i].iteration, want.history[i].iteration) << what;
    ASSERT_TRUE(
        SameBits({&got.history[i].relative_residual, 1}, {&want.history[i].relative_residual, 1}))
        << what << ", iteration " << i << ": " << got.history[i].relative_residual << " for "
        << want.history[i].relative_residual;
  }
}

// Solves all together, and each alone.
SolveResult ExpectAsAlone(const There& there, const Vector& b, const Vector& x0,
                          const SolveOptions& options, const std::string& what) {
  const auto n = static_cast<size_t>(there.a->n_cols);
  SolveResult all = there.Solve(b, x0, options).value();
  EXPECT_EQ(all.rhs.size(), b.size() / n) << what;
  for (size_t k = 0; k < all.rhs.size(); ++k) {
    const auto part = [&](const auto& v) {
      return v.empty() ? std::span<const double>() : std::span<const double>(v).subspan(k * n, n);
    };
    const SolveResult alone = there.Solve(part(b), part(x0), options).value();
    const std::string label = what + ", rhs " + std::to_string(k);
    ExpectSame(all.rhs[k], alone.rhs[0], label);
    EXPECT_TRUE(SameBits(part(all.x), alone.x)) << label;
    for (const ResidualPoint& point : all.rhs[k].history) {
      EXPECT_EQ(point.rhs, static_cast<int32_t>(k)) << label;
    }
  }
  return all;
}

// And rows in pieces.
std::vector<Problem> ProblemsAndLongRows() {
  std::vector<Problem> problems = Problems();
  problems.push_back({"long rows", bench::Circuit(9000, 3, 5000), false});
  return problems;
}

TEST(GpuBlock, EveryColumnIsAsIfAlone) {
  for (const Problem& problem : ProblemsAndLongRows()) {
    const CscMatrix& a = problem.a;
    const CscMatrix m = ExplicitM(a);
    const std::shared_ptr<const CudaOperator> ms[] = {
        nullptr, Jacobi(Device(), a), CudaOperator::OfMatrix(Device(), m, false, {}).value(),
        CudaOperator::OfMatrix(Device(), m, true, {}).value()};
    for (int kind = 0; kind < 4; ++kind) {
      const There there(Device(), a, ms[kind]);
      for (const Method method : {Method::kCg, Method::kBicgstab}) {
        if (method == Method::kCg && !problem.spd) continue;
        for (const int64_t n_rhs : {3, 7}) {
          if (kind == 3 && n_rhs != 7) continue;
          const Vector b = RandomVector(a.n_cols * n_rhs, 100 + static_cast<uint64_t>(n_rhs));
          const SolveOptions options{.method = method, .rtol = 1e-8, .max_iterations = 400};
          const std::string what = std::string(problem.name) + ", " + Name(method) + ", kind " +
                                   std::to_string(kind) + ", of " + std::to_string(n_rhs);
          const SolveResult all = ExpectAsAlone(there, b, {}, options, what);
          if (n_rhs <= 3) ExpectHonest(a, b, options, all, what);
        }
      }
    }
  }
}

// Of a matrix whose rows are cut into tiles.
TEST(GpuBlock, EveryColumnOfALargeCircuitIsAsIfAlone) {
  const CscMatrix a = bench::Circuit(1'000'000, 12, 700);
  for (const bool fp32 : {false, true}) {
    const auto m = CudaOperator::OfMatrix(Device(), ExplicitM(a), fp32, {}).value();
    const There there(Device(), a, m);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8, .max_iterations = 4};
    ExpectAsAlone(there, RandomVector(a.n_cols * 6, 9), {}, options,
                  fp32 ? "circuit, M in fp32" : "circuit");
  }
}

// A ⊗ (E + 1 1ᵀ): nodes of `node` unknowns.
CscMatrix OfNodes(const CscMatrix& a, int node) {
  CscMatrix made;
  made.n_rows = made.n_cols = a.n_cols * node;
  for (int64_t j = 0; j < made.n_cols; ++j) {
    made.col_ptr.push_back(made.nnz());
    for (int64_t p = a.col_ptr[j / node]; p < a.col_ptr[j / node + 1]; ++p) {
      for (int r = 0; r < node; ++r) {
        made.row_idx.push_back(a.row_idx[p] * node + r);
        made.values.push_back(a.values[p] * (r == j % node ? 2 : 1));
      }
    }
  }
  made.col_ptr.push_back(made.nnz());
  return made;
}

class GpuBlockOfNodes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OfSizes, GpuBlockOfNodes, ::testing::Values(1, 2, 3));

// Tiles of nodes that one to eight warps share, the last of them in part.
TEST_P(GpuBlockOfNodes, EveryColumnIsAsIfAlone) {
  for (const int m : {1, 5, 7}) {
    const int64_t nodes = int64_t{m} * m * m;
    const CscMatrix cases[] = {bench::ConvectionDiffusion(m, 40), bench::Laplacian27(m),
                               bench::PermuteNodes(bench::Laplacian27(m), 1, nodes)};
    for (size_t c = 0; c < std::size(cases); ++c) {
      const CscMatrix a = OfNodes(cases[c], GetParam());
      const There there(Device(), a, nullptr);
      const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8, .max_iterations = 3};
      ExpectAsAlone(there, RandomVector(a.n_cols * 6, 9), {}, options,
                    std::to_string(nodes) + " nodes, case " + std::to_string(c));
    }
  }
}

TEST(GpuBlock, EqualsTheCpu) {
  const CscMatrix a = bench::Anisotropic(60, 1e-2, 0.4);
  const There there(Device(), a, Jacobi(Device(), a));
  const Vector b = RandomVector(a.n_cols * 7, 3), x0 = RandomVector(a.n_cols * 7, 4);
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / v;
  const DiagonalOperator m(inverse);
  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    const SolveOptions options{.method = method, .rtol = 1e-8, .max_iterations = 2000};
    const SolveResult gpu = there.Solve(b, x0, options).value();
    const SolveResult cpu = Solve(CsrOperator::FromColumns(a), &m, b, x0, options, {}).value();
    for (size_t k = 0; k < cpu.rhs.size(); ++k) {
      EXPECT_EQ(gpu.rhs[k].outcome, cpu.rhs[k].outcome) << Name(method) << " " << k;
      const auto count = static_cast<double>(cpu.rhs[k].iterations);
      EXPECT_NEAR(static_cast<double>(gpu.rhs[k].iterations), count,
                  std::max(2.0, (method == Method::kCg ? 0.03 : 0.25) * count))
          << Name(method) << " " << k;
      for (size_t i = 0; i < 8; ++i) {
        const double want = cpu.rhs[k].history[i].relative_residual;
        EXPECT_NEAR(gpu.rhs[k].history[i].relative_residual, want, 1e-6 * want)
            << Name(method) << " " << k << ", iteration " << i;
      }
    }
  }
}

// The seven-point Laplacian, and blocks of their own: skew, negative, of products that overflow.
constexpr int64_t kSide = 11, kGrid = kSide * kSide * kSide, kAll = kGrid + 5;

CscMatrix WithTroubles() {
  CscMatrix a = bench::ConvectionDiffusion(kSide, 0);
  constexpr double kHuge = 1.5e308;
  const double blocks[5][5] = {{0, -1, 0, 0, 0},
                               {1, 0, 0, 0, 0},
                               {0, 0, -1, 0, 0},
                               {0, 0, 0, kHuge, kHuge},
                               {0, 0, 0, kHuge, kHuge}};
  a.n_rows = a.n_cols = kAll;
  for (int j = 0; j < 5; ++j) {
    for (int i = 0; i < 5; ++i) {
      if (blocks[i][j] == 0) continue;
      a.row_idx.push_back(static_cast<int32_t>(kGrid + i));
      a.values.push_back(blocks[i][j]);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

TEST(GpuBlock, WhatBecomesOfOneDoesNotTouchTheOthers) {
  const CscMatrix a = WithTroubles();
  const There there(Device(), a, nullptr);
  const double pi = std::acos(-1.0);
  enum { kRandom, kZero, kSkew, kEigen, kNegative, kOverflow, kLarge, kTiny, kSolved, kLate, kEnd };
  Vector b(kEnd * kAll, 0.0), x0 = b;
  const Vector random = RandomVector(kGrid, 21), late = RandomVector(kGrid, 22);
  for (int64_t i = 0; i < kGrid; ++i) {
    const auto wave = [&](int64_t at) {
      return std::sin(pi * static_cast<double>(at + 1) / (kSide + 1));
    };
    b[kRandom * kAll + i] = random[i];
    b[kEigen * kAll + i] = wave(i % kSide) * wave(i / kSide % kSide) * wave(i / kSide / kSide);
    b[kLarge * kAll + i] = 1e200 * random[i];
    b[kTiny * kAll + i] = 1e-200 * random[i];
    x0[kSolved * kAll + i] = random[i];
    b[kLate * kAll + i] = late[i];
    x0[kLate * kAll + i] = 1e3 * random[i];
  }
  b[kSkew * kAll + kGrid] = 1;
  b[kNegative * kAll + kGrid + 2] = 1;
  b[kOverflow * kAll + kGrid + 3] = b[kOverflow * kAll + kGrid + 4] = 1;
  const Vector solved = Product(a, std::span(x0).subspan(kSolved * kAll, kAll));
  std::copy(solved.begin(), solved.end(), b.begin() + kSolved * kAll);

  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    for (const int64_t most : {12, 1000}) {
      const SolveOptions options{.method = method, .rtol = 1e-9, .max_iterations = most};
      const std::string what = Name(method) + ", most " + std::to_string(most);
      const SolveResult all = ExpectAsAlone(there, b, x0, options, what);
      const bool cg = method == Method::kCg;
      const Outcome in_time = most == 12 ? Outcome::kMaxIterations : Outcome::kConverged;
      EXPECT_EQ(all.rhs[kRandom].outcome, in_time) << what;
      EXPECT_EQ(all.rhs[kZero].outcome, Outcome::kConverged) << what;
      EXPECT_EQ(all.rhs[kSkew].outcome, cg ? Outcome::kIndefinite : Outcome::kBreakdown) << what;
      EXPECT_EQ(all.rhs[kEigen].outcome, Outcome::kConverged) << what;
      EXPECT_LE(all.rhs[kEigen].iterations, 2) << what;
      EXPECT_EQ(all.rhs[kNegative].outcome, cg ? Outcome::kIndefinite : Outcome::kConverged)
          << what;
      EXPECT_EQ(all.rhs[kOverflow].outcome, Outcome::kNonFinite) << what;
      EXPECT_EQ(all.rhs[kLarge].outcome, in_time) << what;
      EXPECT_EQ(all.rhs[kTiny].outcome, in_time) << what;
      EXPECT_EQ(all.rhs[kSolved].outcome, Outcome::kConverged) << what;
      EXPECT_EQ(all.rhs[kSolved].iterations, 0) << what;
      EXPECT_EQ(all.rhs[kLate].outcome, in_time) << what;
      if (most == 1000) {
        EXPECT_GT(all.rhs[kLate].iterations, 20) << what;
        // The factors are no powers of two: these are b to within rounding.
        EXPECT_NEAR(all.rhs[kLarge].iterations, all.rhs[kRandom].iterations, 3) << what;
        EXPECT_NEAR(all.rhs[kTiny].iterations, all.rhs[kRandom].iterations, 3) << what;
      }
      EXPECT_TRUE(SameBits(there.Solve(b, x0, options)->x, all.x)) << what << ": another run";
    }
  }
}

// Breakdowns that a new shadow residual cures, of some columns only.
TEST(GpuBlock, OneColumnStartsAfreshAlone) {
  CscMatrix a = bench::ConvectionDiffusion(9, 40);
  const int64_t n = a.n_cols;
  // (0 1; 1 0): rᵀA r = 0 for r = e_1.
  for (const int64_t i : {n + 1, n}) {
    a.row_idx.push_back(static_cast<int32_t>(i));
    a.values.push_back(1);
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  a.n_rows = a.n_cols = n + 2;
  const There there(Device(), a, nullptr);
  Vector b(static_cast<size_t>(4 * (n + 2)), 0.0);
  for (int64_t k = 0; k < 4; ++k) {
    const Vector random = RandomVector(n, 30 + static_cast<uint64_t>(k));
    if (k % 2 == 0) std::copy(random.begin(), random.end(), b.begin() + k * (n + 2));
    if (k % 2 == 1) b[k * (n + 2) + n] = 1;
  }
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-9};
  const SolveResult all = ExpectAsAlone(there, b, {}, options, "permutation");
  for (const RhsResult& rhs : all.rhs) EXPECT_EQ(rhs.outcome, Outcome::kConverged) << rhs.detail;
  ExpectHonest(a, b, options, all, "permutation");
}

TEST(GpuBlock, LongRunsAreVerifiedColumnByColumn) {
  const CscMatrix a = bench::Anisotropic(150, 1e-3, std::acos(-1.0) / 8);
  const There there(Device(), a, Jacobi(Device(), a));
  Vector b = RandomVector(a.n_cols * 4, 14), x0(b.size(), 0.0);
  // The second is nearly there: it is done in the first segment, the others in later ones.
  const Vector near = RandomVector(a.n_cols, 15);
  const Vector product = Product(a, near);
  std::copy(product.begin(), product.end(), b.begin() + a.n_cols);
  for (int64_t i = 0; i < a.n_cols; ++i) x0[a.n_cols + i] = near[i] * (1 + 1e-7);
  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    const SolveOptions options{.method = method, .rtol = 1e-9, .max_iterations = 5000};
    const SolveResult all = ExpectAsAlone(there, b, x0, options, "long");
    EXPECT_GT(all.rhs[0].iterations, 100);
    EXPECT_LT(all.rhs[1].iterations, all.rhs[0].iterations);
    // The limit of fp64 is met: drift, restarts, STAGNATED.
    const SolveOptions too_much{.method = method, .rtol = 1e-16, .max_iterations = 5000};
    ExpectAsAlone(there, b, x0, too_much, "over the limit of fp64");
  }
}

TEST(GpuBlock, AStopEndsAllOfABlockWithTheirBestIterates) {
  const CscMatrix a = bench::Anisotropic(120, 1e-3, 0.4);
  const There there(Device(), a, nullptr);
  const Vector b = RandomVector(a.n_cols * 7, 16);
  const auto last = static_cast<int32_t>(std::min<int64_t>(ColumnsAtOnce(), 3) - 1);
  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    const SolveOptions options{.method = method, .rtol = 1e-12, .max_iterations = 5000};
    StopSource source;
    RecordingSink sink;
    sink.on_residual = [&](const ResidualPoint& point) {
      if (point.rhs == last && point.iteration == 40) source.Request(StopReason::kCancelled);
    };
    const SolveResult all =
        there.Solve(b, {}, options, {.stop = source.token(), .progress = &sink}).value();
    for (size_t k = 0; k < all.rhs.size(); ++k) {
      EXPECT_EQ(all.rhs[k].outcome, Outcome::kCancelled) << k;
      const bool begun = static_cast<int64_t>(k) < ColumnsAtOnce();
      EXPECT_GE(all.rhs[k].iterations, begun ? 40 : 0) << k;
      EXPECT_LE(all.rhs[k].iterations, begun ? 40 + IterationsAfterStop() : 0) << k;
    }
    ExpectHonest(a, b, options, all, "cancelled, " + Name(method));
    // Every event has its right-hand side, and each of those its iterations in order.
    std::vector<int32_t> next(all.rhs.size(), 0);
    for (const ResidualPoint& point : sink.points) {
      ASSERT_EQ(point.iteration, next[static_cast<size_t>(point.rhs)]++);
    }
    for (size_t k = 0; k < next.size(); ++k) EXPECT_EQ(next[k], all.rhs[k].iterations + 1) << k;
  }
}

// Bytes in use while iterations are under way.
struct Peak {
  explicit Peak(CudaDevice& device) {
    sink.on_residual = [this, &device](const ResidualPoint&) {
      bytes = std::max(bytes, UsedNow(device));
    };
  }
  RecordingSink sink;
  int64_t bytes = 0;
};

TEST(GpuBlock, ADeviceOfTheEstimatedSizeTakesWholeBlocks) {
  for (const Problem& problem : ProblemsAndLongRows()) {
    const CscMatrix& a = problem.a;
    const CscMatrix m = ExplicitM(a);
    for (const int64_t n_rhs : {2, 4, 7}) {
      const auto device = OpenGpu(SolveDeviceBytes(a.n_cols, a.nnz(), m.nnz(), n_rhs, {})).value();
      const There there(device, a, CudaOperator::OfMatrix(device, m, false, {}).value());
      const int64_t before = device->used_bytes();
      const Vector b = RandomVector(a.n_cols * n_rhs, 5), x0 = RandomVector(a.n_cols * n_rhs, 6);
      Peak peak(*device);
      const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-6, .max_iterations = 20};
      const auto r = there.Solve(b, x0, options, {.progress = &peak.sink});
      ASSERT_TRUE(r.ok()) << problem.name << ": " << r.status().message();
      // Twelve vectors of every column.
      const int64_t columns = std::min<int64_t>(n_rhs, 4);
      EXPECT_GE(peak.bytes - before, 12 * 8 * columns * a.n_cols) << problem.name << " " << n_rhs;
      EXPECT_EQ(device->used_bytes(), before);
    }
  }
}

TEST(GpuBlock, WhereMemoryIsShortBlocksAreSmallerAndResultsTheSame) {
  if (ColumnsAtOnce() == 1) GTEST_SKIP() << "small systems by a diagonal M are solved one by one";
  const CscMatrix a = bench::ConvectionDiffusion(40, 0);
  const Vector b = RandomVector(a.n_cols * 4, 7);
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8};
  const There roomy(Device(), a, Jacobi(Device(), a));
  const SolveResult want = roomy.Solve(b, {}, options).value();
  const int64_t vector = 8 * a.n_cols;
  for (const int64_t columns : {1, 2}) {
    const auto device = OpenSo(64 << 20);
    const There there(device, a, Jacobi(device, a));
    // Room for so many columns, of eleven vectors each, and a half.
    const int64_t room = 11 * vector * columns * 3 / 2 + (1 << 20);
    const int64_t left = device->memory_limit() - device->used_bytes();
    const Vector filler(static_cast<size_t>((left - room) / 8), 1.0);
    const auto filled = CudaOperator::OfDiagonal(device, filler).value();
    const int64_t before = device->used_bytes();
    Peak peak(*device);
    const auto got = there.Solve(b, {}, options, {.progress = &peak.sink});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_GE(peak.bytes - before, 11 * vector * columns) << columns;
    EXPECT_LT(peak.bytes - before, 11 * vector * 2 * columns) << columns;
    EXPECT_TRUE(SameBits(got->x, want.x)) << columns;
    for (size_t k = 0; k < 4; ++k) ExpectSame(got->rhs[k], want.rhs[k], "short of memory");
    EXPECT_EQ(device->used_bytes(), before);
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
