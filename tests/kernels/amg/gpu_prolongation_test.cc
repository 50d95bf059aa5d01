// The prolongation and the coarse matrix on a CUDA device against the host's, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/cuda/prolongation.h"
#include "kernels/amg/scaling.h"
#include "kernels/amg/strength.h"
#include "kernels/sparse/products.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

const std::shared_ptr<CudaDevice>& Gpu() {
  static const std::shared_ptr<CudaDevice> device = OpenGpu().value();
  return device;
}

template <class Work>
void There(const Work& work) {
  const auto lock = Gpu()->Lock();
  const Status status = cuda::Guard(*Gpu(), work);
  ASSERT_TRUE(status.ok()) << status.message();
}

template <class Element>
cuda::Buffer<Element> Send(cuda::Context& context, const Array<Element>& from) {
  cuda::Buffer<Element> to(context, static_cast<int64_t>(from.size()));
  to.CopyIn(from.data(), to.size());
  context.Synchronize();
  return to;
}
cuda::RowMatrix Send(cuda::Context& context, const CscView& rows) {
  return cuda::UploadRows(context, rows, rows.values.data());
}

void ExpectEqual(const cuda::Context& context, const cuda::RowMatrix& there, const CscView& here) {
  const CscMatrix got = cuda::DownloadRows(context, there);
  EXPECT_EQ(got.n_rows, here.n_rows);
  ASSERT_TRUE(std::ranges::equal(got.col_ptr, here.col_ptr));
  ASSERT_TRUE(std::ranges::equal(got.row_idx, here.row_idx));
  EXPECT_TRUE(std::ranges::equal(got.values, here.values));
}

// All steps of a level on both. `near`: empty, ones. `prune`: strength threshold.
void ExpectTheHosts(const CscView& rows, bool symmetric, const Array<double>& near, double theta) {
  const Context context = Threads(2);
  const NearNull near_null{.n = rows.n_cols, .count = 1, .values = near};
  const StrongGraph graph = *FindStrong(*Couplings(rows, symmetric, 1, context), theta, context);
  const Aggregates aggregates = *Aggregate(graph, 0, context);
  const Tentative tentative = *MakeTentative(aggregates, near_null, 1, context);
  const CscMatrix filtered = *FilterWeak(rows, graph, aggregates, near_null, 1, 0.1, context);
  const Smoothed smoothed = *SmoothProlongation(filtered, tentative, context);
  const CscMatrix r = Transpose(CscView(smoothed.p));
  const CscMatrix ap = *Multiply(rows, smoothed.p, context);
  KeptFilling kept;
  const SharedMatrix coarse = FillEmptyRows(Share(*Multiply(r, ap, context)), kept);
  There([&](cuda::Context& there) {
    const cuda::RowMatrix a = Send(there, rows), p0 = Send(there, tentative.p);
    const auto ptr = Send(there, graph.ptr);
    const auto neighbours = Send(there, graph.neighbours), leader = Send(there, graph.leader),
               of_node = Send(there, aggregates.of_node);
    const auto fine = Send(there, near), below = Send(there, tentative.coarse.values);
    cuda::RowMatrix f = cuda::FilterWeak(there, a, {ptr.get(), neighbours.get(), leader.get()},
                                         of_node.get(), fine.get(), 0.1);
    ExpectEqual(there, f, filtered);
    f.values.Fill(0);
    cuda::FilterWeakOn(there, a, fine.get(), 0.1, f);
    ExpectEqual(there, f, filtered);
    EXPECT_EQ(cuda::SpectralBound(there, f.pattern(), f.values.get(), 0, 12),
              SpectralBound(filtered, 0, 12, context));
    const auto p = cuda::SmoothProlongation(there, std::move(f), p0, below.get());
    EXPECT_EQ(p.rho, smoothed.rho);
    ExpectEqual(there, p.p, smoothed.p);
    const cuda::RowMatrix turned = cuda::Transpose(there, p.p);
    ExpectEqual(there, turned, r);
    const auto made = cuda::Galerkin(there, coarse.nnz(), turned, a, p.p);
    ASSERT_TRUE(made.has_value());
    ExpectEqual(there, *made, coarse);
    // In waves: some, and one for each row.
    for (const int64_t most : {ap.nnz() / 3, int64_t{1}}) {
      if (most == 1 && turned.n > 500) continue;
      cuda::KeptGalerkin kept_there;
      const auto waves = cuda::Galerkin(there, coarse.nnz(), turned, a, p.p, most, &kept_there);
      ASSERT_TRUE(waves.has_value());
      ExpectEqual(there, *waves, coarse);
      EXPECT_EQ(kept_there.ap.n, ap.nnz() > most ? 0 : a.n);
      ExpectEqual(there, cuda::GalerkinOn(there, turned, a, p.p, kept_there, *waves, most), coarse);
    }
    if (coarse.nnz() > 0) {
      const int64_t products = Multiply(r, ap, context)->nnz();
      EXPECT_FALSE(cuda::Galerkin(there, products - 1, turned, a, p.p).has_value());
      EXPECT_FALSE(cuda::Galerkin(there, products - 1, turned, a, p.p, ap.nnz() / 3).has_value());
    }
    for (const bool l1 : {false, true}) {
      const auto inverse = cuda::InverseDiagonal(there, a, l1, l1 ? 1.6 : 1);
      Array<double> got(static_cast<size_t>(a.n));
      inverse.CopyOut(got.data(), a.n);
      there.Synchronize();
      const auto smoother = MakeSmoother(l1 ? SmootherKind::kL1Jacobi : SmootherKind::kChebyshev,
                                         rows, symmetric, {}, context);
      ASSERT_TRUE(smoother.ok());
      EXPECT_EQ(Copy(got), Copy(smoother->diagonal));
      if (!l1) {
        EXPECT_EQ(cuda::SmootherRho(there, a, inverse), smoother->rho);
      }
    }
  });
}

TEST(GpuProlongation, IsTheHosts) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    const CscView rows = problem.rows;
    if (rows.n_cols < 10) continue;  // nothing to aggregate
    oracle::Random random(3);
    Array<double> near(static_cast<size_t>(rows.n_cols));
    for (double& value : near) value = random.Uniform(0.5, 1.5);
    for (const double theta : {0.0625, 0.25}) {
      ExpectTheHosts(rows, problem.symmetric, {}, theta);
      ExpectTheHosts(rows, problem.symmetric, near, theta);
    }
    // Unknowns without a near-null vector: rows of zeros in P0, and coarse rows that stand for
    // nothing.
    for (size_t i = 0; i < near.size() / 2; ++i) near[i] = 0;
    ExpectTheHosts(rows, problem.symmetric, near, 0.0625);
  }
}

TEST(GpuProlongation, IsTheHostsOfLargeMatrices) {
  ExpectTheHosts(From(gallery::ConvectionDiffusion3d(30, 0)), true, {}, 0.25);
  const CscMatrix convection = Transpose(CscView(From(gallery::ConvectionDiffusion3d(24, 20))));
  ExpectTheHosts(convection, false, {}, 0.0625);
  ExpectTheHosts(From(gallery::RotatedAnisotropy2d(120, 1e-3, 0.5236)), true, {}, 0.25);
}

// Rows of P that many aggregates meet in lose all but the largest.
TEST(GpuProlongation, CutsRowsOfManyAggregates) {
  const CscMatrix laplacian = From(gallery::GraphLaplacian(3000));
  CscMatrix dominant = laplacian;
  for (int64_t j = 0; j < dominant.n_cols; ++j) {
    for (auto p = static_cast<size_t>(dominant.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(dominant.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      if (dominant.row_idx[p] == j) dominant.values[p] += 1;
    }
  }
  oracle::Random random(4);
  Array<double> near(static_cast<size_t>(dominant.n_cols));
  for (double& value : near) value = random.Uniform(0.5, 1.5);
  ExpectTheHosts(dominant, true, {}, 0.0);
  ExpectTheHosts(dominant, true, near, 0.0);
}

}  // namespace
}  // namespace spaid::kernels
