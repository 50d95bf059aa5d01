// On the real matrices of the folder SPAID_MATRICES; skipped where there is none.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/amg/problems.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels {
namespace {

struct Bound {
  const char* name;
  int64_t iterations;  // at most, to 1e-7; by BiCGSTAB they differ between processors
};

class RealMatrices : public ::testing::TestWithParam<Bound> {};

TEST_P(RealMatrices, AreSolvedInSoManyIterations) {
  const char* const folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) GTEST_SKIP() << "SPAID_MATRICES names no folder";
  auto a = oracle::ReadMatrixMarket(std::string(folder) + "/" + GetParam().name + ".mtx.gz");
  if (!a) GTEST_SKIP() << "no " << GetParam().name << " in " << folder;
  const auto symmetric = IsExactlySymmetric(*a, Threads(2));
  ASSERT_TRUE(symmetric.ok());
  if (*symmetric && a->values[0] < 0) {
    for (double& value : a->values) value = -value;
  }
  const auto built = BuildAmg(*a, *symmetric, {}, {}, Threads(2));
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_LE(built->quality.operator_complexity, 3);
  const CsrOperator op = CsrOperator::FromColumns(*a);
  oracle::Random random(1);
  std::vector<double> x(static_cast<size_t>(a->n_cols)), b(x.size());
  for (double& value : x) value = random.Uniform(-1, 1);
  op.Apply(x, b, 2);
  const SolveOptions options{
      .method = *symmetric ? Method::kCg : Method::kBicgstab, .rtol = 1e-7, .max_iterations = 1000};
  const auto solved = Solve(op, built->hierarchy.get(), b, {}, options, Threads(2));
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_LE(solved->rhs[0].iterations, GetParam().iterations);
}

INSTANTIATE_TEST_SUITE_P(
    , RealMatrices,
    ::testing::Values(Bound{"bcsstk18", 110}, Bound{"bcsstk15", 115}, Bound{"bcsstk16", 35},
                      Bound{"Dubcova1", 40}, Bound{"1138_bus", 25}, Bound{"rail_20209", 18},
                      Bound{"rail_79841", 20}, Bound{"aft01", 18}, Bound{"nos3", 40},
                      Bound{"sherman5", 40}, Bound{"mcfe", 4}, Bound{"watt_1", 8},
                      Bound{"steam2", 4}, Bound{"orsreg_1", 16}, Bound{"add32", 12},
                      Bound{"memplus", 70}, Bound{"epb0", 110}, Bound{"sherman4", 14}),
    [](const auto& test) {
      const std::string name = test.param.name;
      return name[0] == '1' ? "bus_1138" : name;
    });

}  // namespace
}  // namespace spaid::kernels
