// Real matrices of the folder SPAID_MATRICES: M bit for bit as one process makes it, by the
// patterns of A and of its threshold.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/kernels/mpi/support.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels::mpi {
namespace {

// Beyond, one process takes long for the comparison.
constexpr double kMostFlops = 4e10;

TEST(HybridSpaiReal, HasTheBitsOfOneProcess) {
  const char* folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) GTEST_SKIP() << "SPAID_MATRICES is not set";
  for (const std::string& path : oracle::MatrixMarketFiles(folder)) {
    const auto read = oracle::ReadMatrixMarket(path);
    if (!read || read->n_rows != read->n_cols) continue;
    const std::string name = std::filesystem::path(path).filename().string();
    const SpreadMatrix a = Spread(*read);
    for (const bool threshold : {false, true}) {
      StaticSpaiOptions options;
      if (threshold) options.pattern.keep_tau = 0.7;
      const auto plan = PlanHybridSpai(a, nullptr, {.spai = options}, {.threads = 1});
      const auto single = PlanStaticSpai(*read, nullptr, options, {.threads = 1});
      EXPECT_EQ(plan.ok(), single.ok()) << name;
      if (!plan.ok() || !single.ok()) {
        EXPECT_EQ(plan.status().message(), single.status().message()) << name;
        continue;
      }
      if (Counts(**single).gram_flops > kMostFlops) {
        if (Rank() == 0) std::printf("%s: left out, it would take too long\n", name.c_str());
        continue;
      }
      const auto m = BuildHybridSpai(*plan, a, {.threads = 1});
      EXPECT_TRUE(m.ok()) << name << ": " << m.status().message();
      if (!m.ok()) continue;
      const CscMatrix found = Gather(a.n, *m);
      if (Rank() != 0) continue;
      const auto expected = BuildStaticSpai(**single, *read, options, {.threads = 1});
      EXPECT_TRUE(expected.ok());
      ExpectSame(found, expected->m, name + (threshold ? ", threshold" : ""));
      EXPECT_EQ(m->quality.residual_frobenius, expected->quality.residual_frobenius) << name;
    }
  }
}

}  // namespace
}  // namespace spaid::kernels::mpi
