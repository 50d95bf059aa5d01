// Solves on a CUDA device against the CPU's, with every kind of preconditioner; and what belongs to
// a device alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bench/problems.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/static_spai/static_spai.h"
#include "tests/kernels/krylov/gpu_problems.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/here_device.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

enum class Kind { kNone, kJacobi, kExplicit };

CscMatrix StaticSpai(const CscView& a) {
  auto plan = PlanStaticSpai(a, nullptr, {}, {});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  auto built = BuildStaticSpai(**plan, a, {}, {});
  EXPECT_TRUE(built.ok()) << built.status().message();
  return std::move(built->m);
}

struct Both {
  SolveResult cpu, gpu;
};

// `fp32`: how the device stores an explicit M.
Both SolveOnBoth(const CscView& a, Kind kind, const Vector& b, const SolveOptions& options,
                 bool fp32 = false) {
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / v;
  const DiagonalOperator jacobi(inverse);
  CscMatrix m;
  std::optional<CsrOperator> rows;
  std::shared_ptr<const CudaOperator> m_there;
  const LinearOperator* m_here = nullptr;
  if (kind == Kind::kJacobi) {
    m_here = &jacobi;
    m_there = CudaOperator::OfDiagonal(Device(), inverse).value();
  } else if (kind == Kind::kExplicit) {
    m = StaticSpai(a);
    rows.emplace(CsrOperator::FromColumns(m));
    m_here = &*rows;
    m_there = CudaOperator::OfMatrix(Device(), m, fp32, Context()).value();
  }
  const auto a_there = CudaOperator::OfMatrix(Device(), a, false, Context()).value();
  Both both;
  both.cpu = Solve(CsrOperator::FromColumns(a), m_here, b, {}, options, {}).value();
  both.gpu = SolveCuda(*a_there, m_there.get(), a, b, {}, options, {}).value();
  return both;
}

// CG's and GMRES's counts agree to a few; BiCGSTAB's scatter by a fifth under rounding (design of
// the tests).
void ExpectAlike(const Both& both, Method method, const std::string& what) {
  const RhsResult &cpu = both.cpu.rhs[0], &gpu = both.gpu.rhs[0];
  EXPECT_EQ(gpu.outcome, cpu.outcome) << what << ": " << gpu.detail;
  const auto count = static_cast<double>(cpu.iterations);
  const double share = method == Method::kBicgstab ? 0.25 : 0.03;
  EXPECT_NEAR(static_cast<double>(gpu.iterations), count, std::max(2.0, share * count)) << what;
  for (size_t k = 0; k < std::min<size_t>({8, cpu.history.size(), gpu.history.size()}); ++k) {
    EXPECT_NEAR(gpu.history[k].relative_residual, cpu.history[k].relative_residual,
                1e-6 * cpu.history[k].relative_residual)
        << what << ", iteration " << k;
  }
}

TEST(GpuSolve, EqualsTheCpuWithEveryPreconditioner) {
  for (const Problem& problem : Problems()) {
    const Vector b = RandomVector(problem.a.n_cols, 11);
    for (const Method method : MethodsHere()) {
      for (const Kind kind : {Kind::kNone, Kind::kJacobi, Kind::kExplicit}) {
        if (method == Method::kCg && (!problem.spd || kind == Kind::kExplicit)) continue;
        const SolveOptions options{.method = method, .rtol = 1e-8, .max_iterations = 2000};
        const Both both = SolveOnBoth(problem.a, kind, b, options);
        const std::string what = std::string(problem.name) + ", " + Name(method) + ", kind " +
                                 std::to_string(static_cast<int>(kind));
        ExpectAlike(both, method, what);
        ExpectHonest(problem.a, b, options, both.gpu, what);
      }
    }
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
  ExpectAlike({cpu, gpu}, Method::kCg, "explicit M");
  ExpectHonest(a, b, options, gpu, "explicit M");
}

TEST(GpuSolve, MInSinglePrecisionConvergesAlike) {
  for (const Problem& problem : Problems()) {
    const Vector b = RandomVector(problem.a.n_cols, 13);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8, .max_iterations = 2000};
    const Both both = SolveOnBoth(problem.a, Kind::kExplicit, b, options, true);
    const RhsResult &cpu = both.cpu.rhs[0], &gpu = both.gpu.rhs[0];
    EXPECT_EQ(gpu.outcome, cpu.outcome) << problem.name << ": " << gpu.detail;
    EXPECT_NEAR(static_cast<double>(gpu.iterations), static_cast<double>(cpu.iterations),
                std::max(2.0, 0.25 * static_cast<double>(cpu.iterations)))
        << problem.name;
    ExpectHonest(problem.a, b, options, both.gpu, problem.name);
  }
}

TEST(GpuSolve, LongRunsAreVerifiedOnTheWayAndEndAlike) {
  // Over a hundred iterations a segment, several of them.
  const CscMatrix a = bench::Anisotropic(250, 1e-3, std::acos(-1.0) / 8);
  const Vector b = RandomVector(a.n_cols, 14);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-9, .max_iterations = 5000};
  const Both both = SolveOnBoth(a, Kind::kJacobi, b, options);
  EXPECT_GT(both.gpu.rhs[0].iterations, 300);
  ExpectAlike(both, Method::kCg, "long");
  ExpectHonest(a, b, options, both.gpu, "long");
  const auto& history = both.gpu.rhs[0].history;
  ASSERT_EQ(static_cast<int64_t>(history.size()), both.gpu.rhs[0].iterations + 1);
  for (size_t k = 0; k < history.size(); ++k) {
    EXPECT_EQ(history[k].iteration, static_cast<int32_t>(k));
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
  const auto device = CudaDevice::Open(ListCudaDevices().devices[0], 8 << 20).value();
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
  const auto small = CudaDevice::Open(ListCudaDevices().devices[0], 800'000).value();
  EXPECT_EQ(CudaOperator::OfMatrix(small, a, false, Context()).status().reason(),
            "DEVICE_OUT_OF_MEMORY");
  EXPECT_EQ(small->used_bytes(), 0);
}

// What is counted for a solve beforehand holds, of any matrix.
TEST(GpuSolve, ADeviceOfTheEstimatedSizeSuffices) {
  for (const Problem& problem : Problems()) {
    const CscMatrix m = StaticSpai(problem.a);
    const Vector b = RandomVector(problem.a.n_cols, 15), ones(b.size(), 1.0);
    const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-6};
    const int64_t bytes = SolveDeviceBytes(problem.a.n_cols, problem.a.nnz(), m.nnz(), 1, options);
    const auto device = CudaDevice::Open(ListCudaDevices().devices[0], bytes).value();
    const auto a_there = CudaOperator::OfMatrix(device, problem.a, false, Context());
    ASSERT_TRUE(a_there.ok()) << problem.name << ": " << a_there.status().message();
    const auto m_there = CudaOperator::OfMatrix(device, m, false, Context());
    ASSERT_TRUE(m_there.ok()) << problem.name << ": " << m_there.status().message();
    const auto r = SolveCuda(**a_there, m_there->get(), problem.a, b, ones, options, Context());
    ASSERT_TRUE(r.ok()) << problem.name << ": " << r.status().message();
    EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged) << problem.name;
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
