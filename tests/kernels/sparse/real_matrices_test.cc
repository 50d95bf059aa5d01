// Scaling, matching and order of every real matrix of the folder SPAID_MATRICES; skipped where
// there is none.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/product_matching.h"
#include "kernels/sparse/reorder.h"
#include "kernels/sparse/scaling.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels {
namespace {

TEST(RealMatrices, ScalingsHoldWhatTheyPromise) {
  const char* const folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) GTEST_SKIP() << "SPAID_MATRICES names no folder";
  for (const std::string& path : oracle::MatrixMarketFiles(folder)) {
    const auto a = oracle::ReadMatrixMarket(path);
    if (!a || a->n_rows != a->n_cols) continue;
    SCOPED_TRACE(path);
    const Diagnosis d = Diagnose(*a);
    const auto m = MaximumProductMatching(*a, {}, {});
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ(m->size, d.structural_rank);
    ForEntries(*a, [&](int64_t i, int64_t j, double v) {
      if (v == 0) return;
      const auto row = static_cast<size_t>(i), column = static_cast<size_t>(j);
      const double scaled = std::log2(std::abs(v)) + m->row_log2[row] + m->column_log2[column];
      ASSERT_LE(scaled, 1e-11) << i << ' ' << j;
      if (m->row_of_column[column] == i) {
        ASSERT_GE(scaled, -1e-11) << i << ' ' << j;
      }
    });
    const auto even = ChooseScaling(*a, d, ScalingMode::kEquilibrate, {});
    ASSERT_TRUE(even.ok());
    EXPECT_LE(even->norms.row_spread(), 3.5);
    EXPECT_LE(even->norms.column_spread(), 3.5);
    const auto s = ChooseScaling(*a, d, ScalingMode::kAuto, {});
    ASSERT_TRUE(s.ok());
    EXPECT_TRUE(*StillScales(*a, *s, {}));
    const auto b = ScaledMatrix(*a, *s, {});
    ASSERT_TRUE(b.ok());
    const auto back = ReverseCuthillMcKee(a->pattern(), {});
    ASSERT_TRUE(back.ok());
    const auto permuted = PermuteSymmetric(*a, *back, {});
    const char* const kinds[] = {"none", "equilibrate", "matching"};
    std::printf(
        "%-40s %-11s spread %4.0f %4.0f, then %4.1f %4.1f; weak %ld of %ld; distance %.0f, then "
        "%.0f\n",
        path.substr(path.rfind('/') + 1).c_str(), kinds[static_cast<int>(s->kind)],
        ChooseScaling(*a, d, ScalingMode::kNone, {})->norms.row_spread(),
        ChooseScaling(*a, d, ScalingMode::kNone, {})->norms.column_spread(), s->norms.row_spread(),
        s->norms.column_spread(), static_cast<long>(s->norms.weak_diagonals),
        static_cast<long>(d.n), LookAtLocality(a->pattern()).mean_distance,
        LookAtLocality(permuted->pattern()).mean_distance);
  }
}

}  // namespace
}  // namespace spaid::kernels
