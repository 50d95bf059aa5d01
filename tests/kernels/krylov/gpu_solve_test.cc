// Solves on a CUDA device: long ones and CG's with an explicit M against the CPU's (those with
// every preconditioner are in gpu_zoo_test.cc), and what belongs to a device alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/bench/problems.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "kernels/static_spai/static_spai.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/solve_on_device.h"

namespace spaid::kernels::krylov_test {
namespace {

bool SameBits(std::span<const double> x, std::span<const double> y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

void ExpectAlike(const RhsResult& gpu, const RhsResult& cpu) {
  EXPECT_EQ(gpu.outcome, cpu.outcome) << gpu.detail;
  const auto count = static_cast<double>(cpu.iterations);
  EXPECT_NEAR(static_cast<double>(gpu.iterations), count, std::max(2.0, 0.03 * count));
  for (size_t k = 0; k < std::min<size_t>({8, cpu.history.size(), gpu.history.size()}); ++k) {
    EXPECT_NEAR(gpu.history[k].relative_residual, cpu.history[k].relative_residual,
                1e-6 * cpu.history[k].relative_residual)
        << "iteration " << k;
  }
}

// An explicit operator that is symmetric and definite: what CG may have.
TEST(GpuSolve, CgTakesAnExplicitDefiniteM) {
  const CscMatrix a = bench::ConvectionDiffusion(12, 0);
  CscMatrix m = a;  // its pattern, with a dominant diagonal
  for (int64_t k = 0; k < m.n_cols; ++k) {
    for (int64_t p = m.col_ptr[k]; p < m.col_ptr[k + 1]; ++p) {
      m.values[p] = m.row_idx[p] == k ? 1.0 : 0.1;
    }
  }
  const Vector b = RandomVector(a.n_cols, 12);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-9};
  const CsrOperator rows = CsrOperator::FromColumns(m);
  const SolveResult cpu = Solve(CsrOperator::FromColumns(a), &rows, b, {}, options, {}).value();
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context()).value();
  const auto m_there = CudaOperator::OfMatrix(Device(), m, false, Context()).value();
  const SolveResult gpu = SolveCuda(*a_there, m_there.get(), a, b, {}, options, {}).value();
  ASSERT_EQ(cpu.rhs[0].outcome, Outcome::kConverged);
  ExpectAlike(gpu.rhs[0], cpu.rhs[0]);
  ExpectHonest(a, b, options, gpu, "explicit M");
}

TEST(GpuSolve, WhatTheHostAloneHasIsRefused) {
  const CscMatrix a = bench::ConvectionDiffusion(4, 0);
  const Vector b = RandomVector(a.n_cols, 1);
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context()).value();
  for (const SolveOptions& options :
       {SolveOptions{.method = Method::kMinres}, SolveOptions{.method = Method::kIdr},
        SolveOptions{.method = Method::kGmres, .basis_bytes = 1}}) {
    const Status status = SolveCuda(*a_there, nullptr, a, b, {}, options, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.reason(), "HOST_ALONE");
    EXPECT_EQ(status.field(), "method");
  }
}

TEST(GpuSolve, LongRunsAreVerifiedOnTheWayAndEndAlike) {
  // Over a hundred iterations a segment, several of them.
  const CscMatrix a = bench::Anisotropic(250, 1e-3, std::acos(-1.0) / 8);
  const Vector b = RandomVector(a.n_cols, 14);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-9, .max_iterations = 5000};
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / v;
  const DiagonalOperator jacobi(inverse);
  const SolveResult cpu = Solve(CsrOperator::FromColumns(a), &jacobi, b, {}, options, {}).value();
  const SolveResult gpu = MustSolve(a, &jacobi, b, options);
  EXPECT_GT(gpu.rhs[0].iterations, 300);
  ExpectAlike(gpu.rhs[0], cpu.rhs[0]);
  ExpectHonest(a, b, options, gpu, "long");
  const auto& history = gpu.rhs[0].history;
  ASSERT_EQ(static_cast<int64_t>(history.size()), gpu.rhs[0].iterations + 1);
  for (size_t k = 0; k < history.size(); ++k) {
    EXPECT_EQ(history[k].iteration, static_cast<int32_t>(k));
  }
}

// By rows, and so large that its entries are on their way ahead of their sums.
TEST(GpuSolve, EveryOperatorOfALargeMatrixGivesTheSameBits) {
  const CscMatrix a = bench::PermuteNodes(bench::Laplacian27(60), 1, int64_t{1} << 40);
  ASSERT_GT(12 * a.nnz(), 64'000'000);
  const Vector b = RandomVector(a.n_cols, 16), ones(b.size(), 1.0);
  for (const Method method : {Method::kCg, Method::kBicgstab}) {
    const SolveOptions options{.method = method, .rtol = 1e-12, .max_iterations = 20};
    std::vector<SolveResult> all;
    for (int made = 0; made < 3; ++made) {
      const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context()).value();
      const auto m_there = CudaOperator::OfDiagonal(Device(), ones, a_there.get()).value();
      for (int repeat = 0; repeat < 2; ++repeat) {
        all.push_back(SolveCuda(*a_there, m_there.get(), a, b, {}, options, {}).value());
        EXPECT_TRUE(SameBits(all.back().x, all.front().x)) << "operator " << made;
      }
    }
    EXPECT_GT(all.front().rhs[0].iterations, 5);
  }
}

// By rows in the order of their lengths, and streaming, so that warps change places among slices.
TEST(GpuSolve, AColumnOfAMatrixThatStreamsIsTheSameBitsAlone) {
  const CscMatrix a = bench::Circuit(700'000, 12, 700);
  ASSERT_GT(12 * a.nnz(), 32'000'000);
  const auto n = static_cast<size_t>(a.n_cols);
  const Vector b = RandomVector(4 * a.n_cols, 17), ones(n, 1.0);
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context()).value();
  const auto m_there = CudaOperator::OfDiagonal(Device(), ones, a_there.get()).value();
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-12, .max_iterations = 6};
  const SolveResult all = SolveCuda(*a_there, m_there.get(), a, b, {}, options, {}).value();
  for (const size_t v : {0, 3}) {
    const Vector own(b.begin() + static_cast<int64_t>(v * n),
                     b.begin() + static_cast<int64_t>((v + 1) * n));
    const SolveResult one = SolveCuda(*a_there, m_there.get(), a, own, {}, options, {}).value();
    EXPECT_TRUE(SameBits(one.x, std::span(all.x).subspan(v * n, n))) << "column " << v;
  }
}

TEST(GpuSolve, ADiagonalInPlaceOfAIsRefused) {
  const auto there = CudaOperator::OfDiagonal(Device(), Vector{1, 2}).value();
  const auto r = SolveCuda(*there, nullptr, Diagonal({1, 2}), Vector{1, 1}, {},
                           {.method = Method::kCg}, Context());
  EXPECT_EQ(r.status().reason(), "CUDA_ERROR");
  EXPECT_THAT(r.status().message(), ::testing::HasSubstr("by a diagonal"));
}

TEST(GpuSolve, TooLittleMemoryIsSaidAndLeavesNothing) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  const Vector b = RandomVector(a.n_cols, 1), ones(b.size(), 1.0);
  const auto device = OpenGpu(8 << 20).value();
  const auto a_there = CudaOperator::OfMatrix(device, a, false, Context()).value();
  const auto m_there = CudaOperator::OfDiagonal(device, ones).value();
  EXPECT_EQ(device->used_bytes(), a_there->device_bytes() + m_there->device_bytes());
  EXPECT_LE(device->used_bytes(), SolveDeviceBytes(a.n_cols, a.nnz(), a.n_cols, 1, {}));
  // 400 kB are left, for more than ten vectors of 64 kB.
  const int64_t left = device->memory_limit() - device->used_bytes();
  const Vector filler(static_cast<size_t>((left - 400'000) / 8), 1.0);
  const auto filled = CudaOperator::OfDiagonal(device, filler).value();
  const int64_t before = device->used_bytes();
  const auto r =
      SolveCuda(*a_there, m_there.get(), a, b, ones, {.method = Method::kBicgstab}, Context());
  EXPECT_EQ(r.status().reason(), "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(device->used_bytes(), before);
  // A takes 700 kB as it comes, and its layout 250.
  const auto small = OpenGpu(800'000).value();
  EXPECT_EQ(CudaOperator::OfMatrix(small, a, false, Context()).status().reason(),
            "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(small->used_bytes(), 0);
}

// What is counted for a solve beforehand holds, of any matrix.
TEST(GpuSolve, ADeviceOfTheEstimatedSizeSuffices) {
  for (const auto& [name, a] : {std::pair{"P7", bench::ConvectionDiffusion(20, 0)},
                                {"P27", bench::Laplacian27(14)},
                                {"anisotropic", bench::Anisotropic(60, 1e-2, 0.4)},
                                {"elasticity", bench::Elasticity(6)},
                                {"convection-diffusion", bench::ConvectionDiffusion(18, 100)},
                                {"circuit", bench::Circuit(4000, 3, 300)}}) {
    const auto plan = PlanStaticSpai(a, nullptr, {}, {}).value();
    const CscMatrix m = BuildStaticSpai(*plan, a, {}, {}).value().m;
    const Vector b = RandomVector(a.n_cols, 15), ones(b.size(), 1.0);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-6};
    const int64_t bytes = SolveDeviceBytes(a.n_cols, a.nnz(), m.nnz(), 1, options);
    const auto device = OpenGpu(bytes).value();
    const auto a_there = CudaOperator::OfMatrix(device, a, false, Context());
    ASSERT_TRUE(a_there.ok()) << name << ": " << a_there.status().message();
    const auto m_there = CudaOperator::OfMatrix(device, m, false, Context());
    ASSERT_TRUE(m_there.ok()) << name << ": " << m_there.status().message();
    const auto r = SolveCuda(**a_there, m_there->get(), a, b, ones, options, Context());
    ASSERT_TRUE(r.ok()) << name << ": " << r.status().message();
    EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged) << name;
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
