// spaid::eigen on the real matrices of the folder SPAID_MATRICES; skipped where there is none.
#include <spaid/eigen.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/e2e/eigen_matrices.h"
#include "tests/e2e/one_daemon.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::e2e {
namespace {

constexpr int64_t kMostUnknowns = 5000;  // of a test, which is no benchmark

using RealMatrices = OneDaemon;
using Plain = Eigen::SparseMatrix<double, Eigen::RowMajor>;

// Solved systems are solved, and others have a reason.
TEST_F(RealMatrices, AreSolvedOrHaveAReason) {
  const char* const folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) GTEST_SKIP() << "SPAID_MATRICES names no folder";
  Client client({.address = daemon_->address()});
  eigen::Solver<Plain> solver;
  solver.setClient(client);
  int all = 0, solved = 0;
  for (const std::string& path : oracle::MatrixMarketFiles(folder)) {
    const auto from = oracle::ReadMatrixMarket(path);
    if (!from || from->n_rows != from->n_cols || from->n_rows > kMostUnknowns) continue;
    SCOPED_TRACE(path);
    const auto a = EigenMatrix<Plain>(*from);
    const Eigen::MatrixXd b = SmoothColumns(a, 2);
    const Eigen::MatrixXd x = solver.compute(a).solve(b);
    ++all;
    if (solver.info() != Eigen::Success) {
      EXPECT_FALSE(solver.lastErrorMessage().empty());
      continue;
    }
    ++solved;
    for (int k = 0; k < 2; ++k) {
      EXPECT_TRUE(Solves(a, x.col(k), b.col(k), 1e-8)) << solver.error();
    }
  }
  ASSERT_GT(all, 0);
  EXPECT_GT(solved, all / 2);
  std::printf("%d of %d solved\n", solved, all);
}

}  // namespace
}  // namespace spaid::e2e
