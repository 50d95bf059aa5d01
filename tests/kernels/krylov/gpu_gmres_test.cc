// GMRES on a CUDA device: what its basis, its cycles and their segments bring with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/bench/problems.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/solve_on_device.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;

SolveOptions Gmres(double rtol, int64_t restart) {
  return {.method = Method::kGmres, .rtol = rtol, .max_iterations = 5000, .restart = restart};
}

// Both with A alone; iterations within 3 % or 2, histories as long as they are, x honest.
void ExpectTheCpus(const CscMatrix& a, const Vector& b, const SolveOptions& options,
                   const std::string& what) {
  const SolveResult cpu = Solve(CsrOperator::FromColumns(a), nullptr, b, {}, options, {}).value();
  const SolveResult gpu = MustSolve(a, nullptr, b, options);
  EXPECT_EQ(gpu.rhs[0].outcome, cpu.rhs[0].outcome) << what << ": " << gpu.rhs[0].detail;
  const auto count = static_cast<double>(cpu.rhs[0].iterations);
  EXPECT_NEAR(static_cast<double>(gpu.rhs[0].iterations), count, std::max(2.0, 0.03 * count))
      << what;
  EXPECT_EQ(static_cast<int64_t>(gpu.rhs[0].history.size()), gpu.rhs[0].iterations + 1) << what;
  ExpectHonest(a, b, options, gpu, what);
}

TEST(GpuGmres, RestartsOfAnyLengthAreTheCpus) {
  const CscMatrix a = bench::ConvectionDiffusion(18, 100);
  const Vector b = RandomVector(a.n_cols, 21);
  for (const int64_t restart : {1, 2, 3, 10, 33, 50, 127, 128, 129, 300}) {
    ExpectTheCpus(a, b, Gmres(1e-9, restart), "restart " + std::to_string(restart));
  }
}

// Hundreds of columns in one cycle: several segments, and more sums than a warp has at once.
TEST(GpuGmres, CyclesLongerThanASegmentAreTheCpus) {
  Vector d;
  for (int i = 0; i < 1000; ++i) d.push_back(std::pow(10.0, -4.0 * i / 999));
  const CscMatrix a = Diagonal(d);
  const Vector b = RandomVector(a.n_cols, 22);
  for (const int64_t restart : {200, 1000, 5000}) {
    ExpectTheCpus(a, b, Gmres(1e-10, restart), "restart " + std::to_string(restart));
  }
  const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-10, 5000));
  EXPECT_GT(r.rhs[0].iterations, 256);
  EXPECT_LE(r.rhs[0].iterations, 1000) << "restart is not clipped to n";
}

TEST(GpuGmres, AnExactSolutionComesInItsLastStep) {
  for (const int64_t n : {1, 2, 33, 600, 2100}) {  // under and over a block, and its shared memory
    const CscMatrix a = CyclicShift(n);
    Vector b(static_cast<size_t>(n), 0.0);
    b[0] = 1;
    const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-12, 10000));
    ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << n << ": " << r.rhs[0].detail;
    EXPECT_EQ(r.rhs[0].iterations, n);
    EXPECT_NEAR(r.x[static_cast<size_t>(n - 1)], 1, 1e-14) << n;
    ExpectHonest(a, b, Gmres(1e-12, 10000), r, "shift");
  }
  // In a space of three, far from the end of a cycle.
  const CscMatrix a = Diagonal({1, 1, 2, 2, 5, 5, 5, 1});
  const Vector b{1, 2, 3, 4, 5, 6, 7, 8};
  const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-13, 50));
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 3);
  ExpectHonest(a, b, Gmres(1e-13, 50), r, "three eigenvalues");
}

TEST(GpuGmres, AnExhaustedSpaceWithoutASolutionIsABreakdown) {
  Vector d(300, 1.0);
  for (size_t i = 0; i < d.size(); ++i) d[i] = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 4;
  const CscMatrix a = Diagonal(d);
  const Vector b(300, 1.0);
  const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-10, 50));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("the Krylov space is exhausted"));
  EXPECT_NEAR(r.rhs[0].true_residual, 10, 1e-10) << "a hundred rows are out of reach";
  ExpectHonest(a, b, Gmres(1e-10, 50), r, "singular");
}

// A v_k is cancelled to 1e-14 of itself again and again: two passes of Gram-Schmidt with a basis
// that is orthogonal to 1e-10 would leave the vector along it, and lose the basis.
TEST(GpuGmres, ABasisOutlivesCancellationToRounding) {
  const CscMatrix a = oracle::BadlyScaled(17, 148);
  const Vector b = RandomVector(a.n_cols, 11);
  const SolveOptions options = Gmres(1e-8, 17);
  const SolveResult cpu = Solve(CsrOperator::FromColumns(a), nullptr, b, {}, options, {}).value();
  const SolveResult gpu = MustSolve(a, nullptr, b, options);
  for (const SolveResult* r : {&cpu, &gpu}) {
    EXPECT_EQ(r->rhs[0].outcome, Outcome::kBreakdown);
    EXPECT_THAT(r->rhs[0].detail, HasSubstr("the Krylov space is exhausted"));
    ExpectHonest(a, b, options, *r, "badly scaled");
  }
}

TEST(GpuGmres, RunsDoNotChangeABitWithAnyPreconditioner) {
  const CscMatrix a = bench::ConvectionDiffusion(40, 100);
  const Vector b = RandomVector(a.n_cols, 23);
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / v;
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context()).value();
  const auto jacobi = CudaOperator::OfDiagonal(Device(), inverse).value();
  const SolveOptions options{.method = Method::kGmres, .rtol = 1e-12, .max_iterations = 120};
  for (const CudaOperator* m : {static_cast<const CudaOperator*>(nullptr), &*jacobi, &*a_there}) {
    const auto one = SolveCuda(*a_there, m, a, b, {}, options, {}).value();
    const auto two = SolveCuda(*a_there, m, a, b, {}, options, {}).value();
    EXPECT_EQ(std::memcmp(one.x.data(), two.x.data(), one.x.size() * sizeof(double)), 0);
    ASSERT_EQ(one.rhs[0].history.size(), two.rhs[0].history.size());
    for (size_t k = 0; k < one.rhs[0].history.size(); ++k) {
      EXPECT_EQ(one.rhs[0].history[k].relative_residual, two.rhs[0].history[k].relative_residual);
    }
  }
}

TEST(GpuGmres, AStopInACycleLosesNoneOfItsIterations) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  const Vector b = RandomVector(a.n_cols, 24);
  Vector inverse = DiagonalOf(a);
  for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = (1 + 0.1 * (i % 3)) / inverse[i];
  const DiagonalOperator jacobi(inverse);
  for (const LinearOperator* m :
       {static_cast<const LinearOperator*>(nullptr), static_cast<const LinearOperator*>(&jacobi)}) {
    StopSource source;
    RecordingSink sink;
    sink.on_residual = [&](const ResidualPoint& p) {
      if (p.iteration == 25) source.Request(StopReason::kCancelled);
    };
    const SolveOptions options = Gmres(1e-14, 400);
    const SolveResult r =
        MustSolve(a, m, b, options, {}, Context{.stop = source.token(), .progress = &sink});
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kCancelled);
    EXPECT_GE(r.rhs[0].iterations, 25);
    EXPECT_LE(r.rhs[0].iterations, 25 + IterationsAfterStop());
    const double last = r.rhs[0].history.back().relative_residual;
    EXPECT_LT(last, 1e-2);
    EXPECT_NEAR(r.rhs[0].true_relative_residual, last, 1e-6 * last);
    ExpectHonest(a, b, options, r, "stopped");
  }
}

TEST(GpuGmres, ABasisWithoutRoomIsSaidAndLeavesNothing) {
  const CscMatrix a = bench::ConvectionDiffusion(20, 0);
  const Vector b = RandomVector(a.n_cols, 1);
  const auto device = OpenGpu(16 << 20).value();
  const auto a_there = CudaOperator::OfMatrix(device, a, false, Context()).value();
  const int64_t before = device->used_bytes();
  const auto solve = [&](int64_t restart) {
    return SolveCuda(*a_there, nullptr, a, b, {}, Gmres(1e-6, restart), Context());
  };
  // A column has 64 kB.
  const auto too_large = solve(5000);
  EXPECT_EQ(too_large.status().reason(), "BASIS_TOO_LARGE");
  EXPECT_EQ(too_large.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(too_large.status().field(), "restart");
  const auto no_room = solve(250);
  EXPECT_EQ(no_room.status().reason(), "DEVICE_OUT_OF_MEMORY") << no_room.status().message();
  EXPECT_EQ(device->used_bytes(), before);
  EXPECT_TRUE(solve(100).ok());
  EXPECT_EQ(device->used_bytes(), before);
}

TEST(GpuGmres, ADeviceOfTheEstimatedSizeSuffices) {
  const CscMatrix a = bench::Circuit(4000, 3, 300);
  const Vector b = RandomVector(a.n_cols, 15), ones(b.size(), 1.0);
  for (const int64_t restart : {1, 30, 1000}) {
    const SolveOptions options = Gmres(1e-6, restart);
    const int64_t bytes = SolveDeviceBytes(a.n_cols, a.nnz(), a.nnz(), 1, options);
    const auto device = OpenGpu(bytes).value();
    const auto a_there = CudaOperator::OfMatrix(device, a, false, Context()).value();
    const auto m_there = CudaOperator::OfMatrix(device, a, false, Context()).value();
    const auto r = SolveCuda(*a_there, m_there.get(), a, b, ones, options, Context());
    EXPECT_TRUE(r.ok()) << restart << ": " << r.status().message();
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
