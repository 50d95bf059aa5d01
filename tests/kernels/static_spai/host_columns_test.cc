// What a device leaves to the host, without a device.
#include "kernels/static_spai/host_columns.h"

#include "kernels/static_spai/column_flags.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

// A result whose columns with k % every == 0 are yet to be solved; their values are NaN.
struct Left {
  StaticSpaiResult result;
  Array<uint8_t> flags;
};
Left Leave(const StaticSpaiResult& whole, int64_t every) {
  Left left{whole, {}};
  left.flags.assign(static_cast<size_t>(whole.m.n_cols), kColumnGram);
  for (int64_t k = 0; k < whole.m.n_cols; k += every) {
    const auto i = static_cast<size_t>(k);
    left.flags[i] = 0;
    left.result.residual_norms[i] = std::numeric_limits<double>::quiet_NaN();
    std::fill(left.result.m.values.begin() + whole.m.col_ptr[i],
              left.result.m.values.begin() + whole.m.col_ptr[i + 1],
              std::numeric_limits<double>::quiet_NaN());
  }
  return left;
}

TEST(LeftColumns, AreSolvedAsAccuratelyAsTheOthers) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(4)) {
    for (const int64_t every : {1, 3}) {
      const StaticSpaiOptions options = With(LocalSolver::kGram, 2);
      const StaticSpaiResult whole = Build(entry.a, nullptr, options);
      const StaticSpaiResult qr = Build(entry.a, nullptr, With(LocalSolver::kQr, 2));
      Left left = Leave(whole, every);
      ASSERT_EQ(SolveLeftColumns(entry.a, options, {.threads = 2}, left.result, left.flags),
                StopReason::kNone);
      ExpectGramAccuracy(entry.a, left.result, qr, entry.name);
      for (size_t k = 0; k < left.flags.size(); ++k) {
        ASSERT_NE(left.flags[k], 0) << entry.name << " column " << k;
        ASSERT_NEAR(left.result.residual_norms[k], whole.residual_norms[k],
                    1e-6 * (1 + whole.residual_norms[k]))
            << entry.name << " column " << k;
      }
    }
  }
}

TEST(LeftColumns, AStopIsHonoured) {
  const CscMatrix a = oracle::Arrow(40);
  Left left = Leave(Build(a, nullptr, With(LocalSolver::kGram)), 1);
  StopSource source;
  source.Request(StopReason::kCancelled);
  EXPECT_EQ(SolveLeftColumns(a, {}, {.stop = source.token()}, left.result, left.flags),
            StopReason::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
