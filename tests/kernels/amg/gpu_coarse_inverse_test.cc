// The inverse of a coarse matrix on a CUDA device against the host's, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/amg/coarse_inverse.h"
#include "kernels/amg/cuda/coarse_inverse.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/base/gpu_context.h"

namespace spaid::kernels {
namespace {

// Nothing: it is the host's.
std::optional<CoarseInverse> There(const CscMatrix& rows, bool symmetric) {
  static const std::shared_ptr<CudaDevice> device = OpenGpu().value();
  std::optional<CoarseInverse> made;
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& on) {
    const auto there =
        cuda::InvertCoarse(on, cuda::UploadRows(on, rows, rows.values.data()), symmetric);
    if (!there) return;
    made = CoarseInverse{.n = there->n,
                         .rows = Array<double>(static_cast<size_t>(there->n * there->n)),
                         .singular_pivots = there->singular_pivots};
    on.Download({there->rows.To(made->rows.data(), there->n * there->n)});
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return made;
}

void ExpectTheHosts(const CscMatrix& rows, bool symmetric) {
  const auto here = InvertCoarse(rows, symmetric, Threads(2));
  const auto there = There(rows, symmetric);
  ASSERT_TRUE(here.ok() && there.has_value());
  EXPECT_EQ(there->n, here->n);
  EXPECT_EQ(there->singular_pivots, here->singular_pivots);
  EXPECT_TRUE(std::ranges::equal(there->rows, here->rows));
}

CscMatrix ByRows(const CscMatrix& a) { return Transpose(CscView(a)); }

TEST(GpuCoarseInverse, HasTheHostsBits) {
  ExpectTheHosts(oracle::FromRows({{4}}), true);
  ExpectTheHosts(oracle::FromRows({{4, 1}, {2, 3}}), false);
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    ExpectTheHosts(problem.rows, problem.symmetric);
    if (problem.symmetric) ExpectTheHosts(problem.rows, false);
  }
}

TEST(GpuCoarseInverse, ExchangesRowsAsTheHostDoes) {
  ExpectTheHosts(ByRows(oracle::FromRows({{0, 2, 0}, {0, 0, 4}, {8, 0, 0}})), false);
  // Rows in another order: each pivot is off the diagonal.
  CscMatrix a = From(gallery::ConvectionDiffusion3d(7, 20));
  for (int32_t& row : a.row_idx) row = (row + 100) % static_cast<int32_t>(a.n_cols);
  ExpectTheHosts(ByRows(ByRows(ByRows(a))), false);
  // A column without a pivot: its unknown is left out.
  ExpectTheHosts(oracle::FromRows({{0, 1, 2}, {0, 3, 1}, {0, 2, 5}}), false);
}

TEST(GpuCoarseInverse, LeavesOutWhatIsSingular) {
  ExpectTheHosts(From(gallery::GraphLaplacian(400)), true);
  ExpectTheHosts(oracle::FromRows({{1, 0.5, 0}, {0.5, 1, 0}, {0, 0, 1e-16}}), true);
}

// A block has a few rows, or many.
TEST(GpuCoarseInverse, OfManyRows) {
  ExpectTheHosts(oracle::Laplacian2d(22, 22), true);
  ExpectTheHosts(From(gallery::ConvectionDiffusion3d(8, 20)), false);
  ExpectTheHosts(oracle::Laplacian2d(37, 37), true);
}

TEST(GpuCoarseInverse, LeavesToTheHostWhatIsItsOwn) {
  CscMatrix a = oracle::Laplacian2d(3, 3);
  a.values[4] = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(There(a, true).has_value());
  // No room in the shared memory of any device of today.
  EXPECT_FALSE(There(oracle::Laplacian2d(80, 80), true).has_value());
}

}  // namespace
}  // namespace spaid::kernels
