// Orders of rank 0, as all ranks carry them out together.
#include "kernels/mpi/session.h"

#include "kernels/gallery/gallery.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

// A session, and what rank 0 asks of it.
class Orders : public ::testing::Test {
 protected:
  // On all ranks the same; `root` is read on rank 0.
  Status Do(const Order& order, AtRoot* root) {
    return session_.Do(order, Rank() == 0 ? root : nullptr);
  }
  void SpreadAs(int64_t number, const CscMatrix& matrix, bool rows_alone = false) {
    const CscView view = matrix;
    AtRoot root;
    root.matrix = &view;
    const Status status =
        Do({.what = Order::What::kSpread, .flag = rows_alone, .made = number}, &root);
    EXPECT_TRUE(status.ok()) << status.message();
    if (Rank() == 0) {
      EXPECT_GE(root.bytes, matrix.nnz() * 12);
    }
  }
  Status PlanAs(int64_t number, int64_t a, const StaticSpaiOptions& options,
                const PatternView* pattern = nullptr) {
    AtRoot root;
    root.pattern = pattern;
    Order order{.what = Order::What::kPlan, .flag = pattern != nullptr, .made = number, .a = a};
    Pack(options, order);
    return Do(order, &root);
  }
  RanksDevice::Built BuildAs(int64_t number, int64_t plan, int64_t a) {
    AtRoot root;
    const Status status =
        Do({.what = Order::What::kBuild, .made = number, .a = a, .plan = plan}, &root);
    EXPECT_TRUE(status.ok()) << status.message();
    return std::move(root.built);
  }
  Status SolveBy(int64_t a, int64_t m, const SolveOptions& options, std::span<const double> b,
                 std::span<const double> x0, int64_t n, SolveResult* result) {
    AtRoot root;
    root.b = b;
    root.x0 = x0;
    Order order{.what = Order::What::kSolve,
                .flag = !x0.empty(),
                .keep_history = options.keep_history,
                .count = static_cast<int32_t>(std::ssize(b) / n),
                .a = a,
                .m = m};
    Pack(options, order);
    const Status status = Do(order, &root);
    *result = std::move(root.solved);
    return status;
  }

  Session session_{PETSC_COMM_WORLD, 1};
};

StaticSpaiResult Single(const CscMatrix& a, const PatternView* user,
                        const StaticSpaiOptions& options) {
  auto plan = PlanStaticSpai(a, user, options, {});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *BuildStaticSpai(**plan, a, options, {});
}

TEST_F(Orders, OptionsArriveAsTheyWereSent) {
  StaticSpaiOptions sent;
  sent.pattern.power = 3;
  sent.pattern.keep_tau = 0.25;
  sent.pattern.ensure_row = true;
  sent.pattern.max_nnz = 1'234'567'890'123;
  sent.local_solver = LocalSolver::kGram;
  sent.post_filter = 0.125;
  Order order;
  Pack(sent, order);
  StaticSpaiOptions found;
  Unpack(order, found);
  EXPECT_EQ(found.pattern.power, 3);
  EXPECT_EQ(found.pattern.keep_tau, 0.25);
  EXPECT_TRUE(found.pattern.ensure_row);
  EXPECT_EQ(found.pattern.max_nnz, 1'234'567'890'123);
  EXPECT_EQ(found.local_solver, LocalSolver::kGram);
  EXPECT_EQ(found.post_filter, 0.125);
  Pack(StaticSpaiOptions(), order);
  Unpack(order, found);
  EXPECT_FALSE(found.pattern.keep_tau.has_value());
  SolveOptions solve{.method = Method::kGmres, .rtol = 1e-5, .max_iterations = INT32_MAX};
  Pack(solve, order);
  SolveOptions got;
  Unpack(order, got);
  EXPECT_EQ(got.method, Method::kGmres);
  EXPECT_EQ(got.rtol, 1e-5);
  EXPECT_EQ(got.max_iterations, INT32_MAX);
}

TEST_F(Orders, MComesToRank0WithTheBitsOfOneProcess) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(5)) {
    for (const int power : {1, 2}) {
      StaticSpaiOptions options;
      options.pattern.power = power;
      SpreadAs(1, entry.a);
      ASSERT_TRUE(PlanAs(2, 1, options).ok()) << entry.name;
      const RanksDevice::Built built = BuildAs(3, 2, 1);
      const StaticSpaiResult single = Single(entry.a, nullptr, options);
      ExpectSame(built.m, single.m, entry.name);
      if (Rank() == 0) {
        EXPECT_EQ(built.quality.residual_frobenius, single.quality.residual_frobenius);
      }
    }
  }
}

TEST_F(Orders, APatternOfTheCallersIsSpread) {
  const CscMatrix a = oracle::Laplacian2d(12, 9);
  Pattern user{a.n_rows, a.n_cols, {0}, {}};
  for (int64_t j = 0; j < a.n_cols; ++j) {
    user.row_idx.push_back(static_cast<int32_t>(j));
    user.col_ptr.push_back(j + 1);
  }
  const PatternView view = user;
  SpreadAs(1, a);
  ASSERT_TRUE(PlanAs(2, 1, {}, &view).ok());
  ExpectSame(BuildAs(3, 2, 1).m, Single(a, &view, {}).m, "a diagonal");
}

TEST_F(Orders, OtherValuesAreBuiltOnThePlan) {
  CscMatrix a = oracle::Laplacian2d(15, 15);
  SpreadAs(1, a);
  ASSERT_TRUE(PlanAs(2, 1, {}).ok());
  for (double& value : a.values) value *= 1.5;
  a.values[0] += 1;
  SpreadAs(3, a);
  ExpectSame(BuildAs(4, 2, 3).m, Single(a, nullptr, {}).m, "new values");
  // The plan is not that of another pattern; all ranks say so, and serve on.
  SpreadAs(5, oracle::Laplacian2d(25, 9));
  AtRoot root;
  ExpectRefused(Do({.what = Order::What::kBuild, .made = 6, .a = 5, .plan = 2}, &root),
                StatusCode::kInvalidArgument, "PLAN_MISMATCH");
  ExpectSame(BuildAs(7, 2, 3).m, Single(a, nullptr, {}).m, "after a refusal");
}

TEST_F(Orders, SeveralRightHandSidesComeBackInTheirPlaces) {
  const CscMatrix a = oracle::Laplacian2d(20, 17);
  const int64_t n = a.n_cols;
  SpreadAs(1, a);
  ASSERT_TRUE(PlanAs(2, 1, {}).ok());
  const CscMatrix m = BuildAs(3, 2, 1).m;
  std::vector<double> exact(static_cast<size_t>(3 * n)), b(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = std::sin(static_cast<double>(i * i));
  const ColumnOperator op(a);
  for (size_t k = 0; k < 3; ++k) {
    const auto first = k * static_cast<size_t>(n);
    op.Apply(std::span(exact).subspan(first, static_cast<size_t>(n)),
             std::span(b).subspan(first, static_cast<size_t>(n)), 1);
  }
  SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-10};
  SolveResult found;
  ASSERT_TRUE(SolveBy(1, 3, options, b, {}, n, &found).ok());
  if (Rank() == 0) {
    ASSERT_EQ(found.rhs.size(), 3u);
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(found.x[i], exact[i], 1e-7);
    int64_t iterations = 0;
    for (int32_t k = 0; k < 3; ++k) {
      const RhsResult& rhs = found.rhs[static_cast<size_t>(k)];
      EXPECT_EQ(rhs.outcome, Outcome::kConverged) << rhs.detail;
      EXPECT_EQ(rhs.history.back().rhs, k);
      iterations += rhs.iterations;
    }
    EXPECT_EQ(found.figures.iterations, iterations);
    EXPECT_GT(found.figures.bytes, 0);
  }
  // From the solution on there is nothing to do.
  ASSERT_TRUE(SolveBy(1, 0, options, b, exact, n, &found).ok());
  if (Rank() == 0) {
    EXPECT_EQ(found.figures.iterations, 0);
  }
  // M as rank 0 has it, spread by its rows.
  SpreadAs(4, m, /*rows_alone=*/true);
  SolveResult by_copy;
  ASSERT_TRUE(SolveBy(1, 4, options, b, {}, n, &by_copy).ok());
  ASSERT_TRUE(SolveBy(1, 3, options, b, {}, n, &found).ok());
  if (Rank() == 0) {
    EXPECT_EQ(by_copy.x, found.x);
  }
}

TEST_F(Orders, BadInputIsToldByAllAndNothingIsHeld) {
  CscMatrix a = oracle::Laplacian2d(6, 6);
  const int64_t n = a.n_cols;
  const CscMatrix good = a;
  a.values[static_cast<size_t>(a.nnz() - 1)] = std::nan("");  // the last rank's
  const CscView view = a;
  AtRoot root;
  root.matrix = &view;
  ExpectRefused(Do({.what = Order::What::kSpread, .made = 1}, &root), StatusCode::kInvalidArgument,
                "NON_FINITE_VALUE", "values", a.nnz() - 1);
  SpreadAs(1, good);
  std::vector<double> b(static_cast<size_t>(n), 1.0);
  SolveResult found;
  ExpectRefused(SolveBy(1, 0, {.method = Method::kMinres}, b, {}, n, &found),
                StatusCode::kInvalidArgument, "METHOD_NOT_SPREAD", "method");
  EXPECT_TRUE(Do({.what = Order::What::kFree, .made = 1}, &root).ok());
  EXPECT_TRUE(Do({.what = Order::What::kAnswer}, &root).ok());
}

}  // namespace
}  // namespace spaid::kernels::mpi
