// PETSc's solvers with HybridSPAI's M, judged by b − A x.
#include "kernels/mpi/spread_krylov.h"

#include <cmath>
#include <limits>

#include "kernels/krylov/operators.h"
#include "tests/kernels/mpi/support.h"

namespace spaid::kernels::mpi {
namespace {

// b = A (1, 2, 3, ...) / n.
Array<double> RightHandSide(const CscMatrix& a) {
  Array<double> b;
  b.assign(static_cast<size_t>(a.n_rows), 0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const auto rows = CscView(a).column(j);
    const auto values = CscView(a).column_values(j);
    for (size_t p = 0; p < rows.size(); ++p) {
      b[static_cast<size_t>(rows[p])] +=
          values[p] * static_cast<double>(j + 1) / static_cast<double>(a.n_cols);
    }
  }
  return b;
}

Array<double> OwnPart(const SpreadMatrix& a, const Array<double>& whole) {
  return Array<double>(whole.begin() + a.own().begin, whole.begin() + a.own().end);
}

struct Solved {
  Status status;
  RhsResult result;
  Array<double> x;
};

Solved SolveWith(const SpreadMatrix& a, Mat m, const Array<double>& b, const SolveOptions& options,
                 const Context& context = {}, double guess = 0) {
  Solved solved;
  solved.x.assign(static_cast<size_t>(a.own().size()), guess);
  auto result = SolveSpread(a, m, OwnPart(a, b), solved.x, options, context);
  solved.status = result.status();
  if (result.ok()) solved.result = *std::move(result);
  return solved;
}

MatOwner Precondition(const SpreadMatrix& a) {
  const auto plan = PlanHybridSpai(a, nullptr, {}, {.threads = 1});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  auto m = BuildHybridSpai(*plan, a, {.threads = 1});
  EXPECT_TRUE(m.ok()) << m.status().message();
  return std::move(m->rows);
}

// Iterations within 2 of one process', or among those of 20 runs with another last digit of M: sums
// over ranks have another order, and BiCGSTAB's counts scatter by that alone.
template <class Perturbed>
void ExpectAlike(int64_t found, int64_t expected, const std::string& what,
                 const Perturbed& iterations) {
  if (std::abs(found - expected) <= 2) return;
  int64_t least = expected, most = expected;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const int64_t other = iterations(seed);
    least = std::min(least, other);
    most = std::max(most, other);
  }
  EXPECT_GE(found, least) << what;
  EXPECT_LE(found, most) << what;
}

struct Problem {
  std::string name;
  CscMatrix a;
  bool definite;
};
std::vector<Problem> Problems() {
  std::vector<Problem> all;
  all.push_back({"Laplacian", oracle::Laplacian2d(30, 31), true});
  all.push_back({"SPD", oracle::RandomSpd(400, 5, 2), true});
  all.push_back({"convection", oracle::ConvectionDiffusion(30, 29, 2), false});
  all.push_back({"irregular", oracle::RandomIrregular(500, 5, 3), false});
  all.push_back({"dense row", oracle::DenseRowAndColumn(300, 4), false});
  return all;
}

TEST(SpreadKrylov, TakesTheIterationsOfOneProcess) {
  for (const Problem& problem : Problems()) {
    const SpreadMatrix a = Spread(problem.a);
    const MatOwner m = Precondition(a);
    const Array<double> b = RightHandSide(problem.a);
    const auto plan = PlanStaticSpai(problem.a, nullptr, {}, {});
    const auto single = BuildStaticSpai(**plan, problem.a, {}, {});
    const CsrOperator op = CsrOperator::FromColumns(problem.a);
    const CsrOperator m_op = CsrOperator::FromColumns(single->m);
    for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
      if (method == Method::kCg && !problem.definite) continue;
      // M of an SPD A is not symmetric to the last bit; CG is asked without it.
      const bool with_m = method != Method::kCg;
      const SolveOptions options{.method = method, .rtol = 1e-8};
      const std::string what =
          problem.name + ", method " + std::to_string(static_cast<int>(method));
      const Solved solved = SolveWith(a, with_m ? m.get() : nullptr, b, options);
      EXPECT_TRUE(solved.status.ok()) << what << solved.status.message();
      EXPECT_EQ(solved.result.outcome, Outcome::kConverged) << what << solved.result.detail;
      EXPECT_LE(solved.result.true_relative_residual, 1e-8) << what;
      const auto expected = Solve(op, with_m ? &m_op : nullptr, b, {}, options, {});
      EXPECT_TRUE(expected.ok());
      ExpectAlike(solved.result.iterations, expected->rhs[0].iterations, what, [&](uint64_t seed) {
        CscMatrix other = single->m;
        oracle::Random random(seed);
        for (double& v : other.values) v *= 1 + 1e-14 * random.Uniform(-1, 1);
        const CsrOperator other_op = CsrOperator::FromColumns(other);
        return Solve(op, with_m ? &other_op : nullptr, b, {}, options, {})->rhs[0].iterations;
      });
      EXPECT_EQ(std::ssize(solved.result.history), solved.result.iterations + 1) << what;
    }
  }
}

TEST(SpreadKrylov, SolvesADiagonalByHand) {
  CscMatrix a;
  a.n_rows = a.n_cols = 3;
  a.col_ptr = {0, 1, 2, 3};
  a.row_idx = {0, 1, 2};
  a.values = {2, 4, 8};
  const SpreadMatrix spread = Spread(a);
  const MatOwner m = Precondition(spread);
  for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
    const Solved solved = SolveWith(spread, m.get(), {2, 8, 24}, {.method = method});
    EXPECT_EQ(solved.result.outcome, Outcome::kConverged) << solved.result.detail;
    EXPECT_EQ(solved.result.iterations, 1);
    for (size_t i = 0; i < solved.x.size(); ++i) {
      EXPECT_NEAR(solved.x[i], static_cast<double>(spread.own().begin) + static_cast<double>(i) + 1,
                  1e-14);
    }
  }
}

TEST(SpreadKrylov, TellsZeroRightHandSidesAndGoodGuesses) {
  const CscMatrix whole = oracle::Laplacian2d(6, 7);
  const SpreadMatrix a = Spread(whole);
  Array<double> b;
  b.assign(42, 0);
  Solved solved = SolveWith(a, nullptr, b, {}, {}, 3);
  EXPECT_EQ(solved.result.outcome, Outcome::kConverged);
  for (const double x : solved.x) EXPECT_EQ(x, 0);
  // A (1, ..., 1) with that guess.
  for (int64_t j = 0; j < 42; ++j) {
    for (int64_t p = whole.col_ptr[static_cast<size_t>(j)];
         p < whole.col_ptr[static_cast<size_t>(j) + 1]; ++p) {
      b[static_cast<size_t>(whole.row_idx[static_cast<size_t>(p)])] +=
          whole.values[static_cast<size_t>(p)];
    }
  }
  solved = SolveWith(a, nullptr, b, {}, {}, 1);
  EXPECT_EQ(solved.result.outcome, Outcome::kConverged);
  EXPECT_EQ(solved.result.iterations, 0);
}

TEST(SpreadKrylov, TellsHowItEnded) {
  const CscMatrix whole = oracle::Laplacian2d(30, 30);
  const SpreadMatrix a = Spread(whole);
  const Array<double> b = RightHandSide(whole);
  for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
    const Solved few = SolveWith(a, nullptr, b, {.method = method, .max_iterations = 5});
    EXPECT_EQ(few.result.outcome, Outcome::kMaxIterations);
    EXPECT_EQ(few.result.iterations, 5);
    EXPECT_GT(few.result.true_relative_residual, 1e-8);
    // Under what fp64 attains.
    const Solved deep = SolveWith(a, nullptr, b, {.method = method, .rtol = 1e-18});
    EXPECT_EQ(deep.result.outcome, Outcome::kStagnated) << deep.result.detail;
    EXPECT_LT(deep.result.true_relative_residual, 1e-12);
  }
}

TEST(SpreadKrylov, TellsAnIndefiniteMatrix) {
  CscMatrix a;
  a.n_rows = a.n_cols = 4;
  a.col_ptr = {0, 1, 2, 3, 4};
  a.row_idx = {0, 1, 2, 3};
  a.values = {1, -2, 3, -4};
  const SpreadMatrix spread = Spread(a);
  const Solved solved = SolveWith(spread, nullptr, {1, 1, 1, 1}, {.method = Method::kCg});
  EXPECT_EQ(solved.result.outcome, Outcome::kIndefinite) << solved.result.detail;
}

TEST(SpreadKrylov, TellsABreakdownOfASingularMatrix) {
  CscMatrix a;  // [0 1; 0 0], and b outside its range
  a.n_rows = a.n_cols = 2;
  a.col_ptr = {0, 0, 1};
  a.row_idx = {0};
  a.values = {1};
  const SpreadMatrix spread = Spread(a);
  for (const Method method : {Method::kBicgstab, Method::kGmres}) {
    const Solved solved = SolveWith(spread, nullptr, {0, 1}, {.method = method});
    EXPECT_TRUE(solved.result.outcome == Outcome::kBreakdown ||
                solved.result.outcome == Outcome::kStagnated)
        << static_cast<int>(solved.result.outcome) << solved.result.detail;
  }
}

TEST(SpreadKrylov, SolvesForTinyAndHugeRightHandSides) {
  const CscMatrix whole = oracle::Laplacian2d(8, 9);
  const SpreadMatrix a = Spread(whole);
  for (const double scale : {1e-250, 1e250}) {
    Array<double> b = RightHandSide(whole);
    for (double& v : b) v *= scale;
    for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
      const Solved solved = SolveWith(a, nullptr, b, {.method = method});
      EXPECT_EQ(solved.result.outcome, Outcome::kConverged) << solved.result.detail;
      for (size_t i = 0; i < solved.x.size(); ++i) {
        const double expected = static_cast<double>(a.own().begin) + static_cast<double>(i) + 1;
        EXPECT_NEAR(solved.x[i] / scale * 72, expected, 1e-5);
      }
    }
  }
}

TEST(SpreadKrylov, TellsNumbersThatOverflow) {
  CscMatrix a = oracle::Laplacian2d(5, 5);
  for (double& v : a.values) v *= 1e300;
  const SpreadMatrix spread = Spread(a);
  Array<double> b;
  b.assign(25, 1e300);
  const Solved solved = SolveWith(spread, nullptr, b, {.method = Method::kBicgstab});
  EXPECT_EQ(solved.result.outcome, Outcome::kNonFinite) << solved.result.detail;
}

TEST(SpreadKrylov, RefusesOnAllRanksWhatOneFinds) {
  const CscMatrix whole = oracle::Laplacian2d(6, 7);
  const SpreadMatrix a = Spread(whole);
  Array<double> b = RightHandSide(whole);
  b[41] = std::numeric_limits<double>::infinity();  // the last rank's
  ExpectRefused(SolveWith(a, nullptr, b, {}).status, StatusCode::kInvalidArgument,
                "NON_FINITE_VALUE", "rhs", 41);
  b[41] = 1;
  ExpectRefused(SolveWith(a, nullptr, b, {.method = Method::kMinres}).status,
                StatusCode::kInvalidArgument, "METHOD_NOT_SPREAD", "method");
  ExpectRefused(SolveWith(a, nullptr, b, {.rtol = 0}).status, StatusCode::kInvalidArgument,
                "BAD_TOLERANCE", "rtol");
  if (Ranks() > 1) {
    const Method method = Rank() == 1 ? Method::kCg : Method::kGmres;
    ExpectRefused(SolveWith(a, nullptr, b, {.method = method}).status, StatusCode::kInvalidArgument,
                  "OPTIONS_DIFFER", "options");
  }
  const SpreadMatrix other = Spread(oracle::Laplacian2d(6, 8));
  ExpectRefused(SolveWith(a, other.rows.get(), b, {}).status, StatusCode::kInvalidArgument,
                "PRECONDITIONER_SIZE_MISMATCH", "preconditioner");
  Array<double> x;
  x.assign(static_cast<size_t>(a.own().size()) + (Rank() + 1 == Ranks() ? 1 : 0), 0);
  ExpectRefused(SolveSpread(a, nullptr, OwnPart(a, b), x, {}, {}).status(),
                StatusCode::kInvalidArgument, "RHS_LENGTH_MISMATCH", "rhs");
}

}  // namespace
}  // namespace spaid::kernels::mpi
