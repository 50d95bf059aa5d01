// Singular systems over ranks: the outcomes, figures and solutions of one process.
#include "kernels/mpi/spread_null_space.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gallery/gallery.h"
#include "kernels/krylov/operators.h"
#include "kernels/mpi/petsc_preconditioner.h"
#include "kernels/mpi/session.h"
#include "kernels/sparse/diagnosis.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

std::shared_ptr<const NullSpace> SpaceOf(const CscMatrix& a, const NullSpaceRequest& request = {}) {
  auto space = MakeNullSpace(a, Diagnose(a, 1), request);
  EXPECT_TRUE(space.ok()) << space.status().message();
  return space.ok() ? *space : nullptr;
}

struct Solved {
  RhsResult result;
  std::vector<double> x;  // the own part
};

Solved SolveHere(const SpreadMatrix& a, Mat m, const NullSpace* whole, const std::vector<double>& b,
                 const SolveOptions& options, const std::vector<double>& guess = {}) {
  std::unique_ptr<SpreadNullSpace> space;
  if (whole != nullptr) {
    space = std::make_unique<SpreadNullSpace>(a, Rank() == 0 ? whole : nullptr);
  }
  const auto own = [&](const std::vector<double>& v) {
    return std::vector<double>(v.begin() + a.own().begin, v.begin() + a.own().end);
  };
  Solved solved;
  solved.x = guess.empty() ? std::vector<double>(static_cast<size_t>(a.own().size())) : own(guess);
  auto result = SolveSpread(a, m, own(b), solved.x, options, {}, space.get());
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (result.ok()) solved.result = *std::move(result);
  return solved;
}

// b = A x of an x that is no constant, and `unreachable` along constants.
std::vector<double> RightHandSide(const CscMatrix& a, double unreachable) {
  std::vector<double> x(static_cast<size_t>(a.n_cols)), b(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(3.0 * static_cast<double>(i));
  ColumnOperator(a).Apply(x, b, 1);
  for (double& e : b) e += unreachable;
  return b;
}

// Two unknowns between springs: A = [1 −1; −1 1].
TEST(SpreadNullSpace, SolvesTwoUnknownsByHand) {
  const CscMatrix whole{2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, -1, -1, 1}};
  const SpreadMatrix a = Spread(whole);
  const auto space = SpaceOf(whole);
  for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
    const SolveOptions options{.method = method, .rtol = 1e-10};
    Solved s = SolveHere(a, nullptr, space.get(), {1, -1}, options);
    EXPECT_EQ(s.result.outcome, Outcome::kConverged) << s.result.detail;
    EXPECT_NEAR(s.result.unreachable, 0, 1e-15);
    for (size_t i = 0; i < s.x.size(); ++i) {
      EXPECT_NEAR(s.x[i], (a.own().begin + static_cast<int64_t>(i)) == 0 ? 0.5 : -0.5, 1e-14);
    }
    // (3, −1) is (2, −2), which x = (1, −1) reaches, and (1, 1).
    s = SolveHere(a, nullptr, space.get(), {3, -1}, options);
    EXPECT_EQ(s.result.outcome, Outcome::kStagnated);
    EXPECT_TRUE(s.result.beyond_reach);
    EXPECT_NEAR(s.result.unreachable, std::sqrt(0.2), 1e-14);
    EXPECT_NEAR(s.result.true_residual, std::sqrt(2.0), 1e-13);
    for (size_t i = 0; i < s.x.size(); ++i) {
      EXPECT_NEAR(s.x[i], (a.own().begin + static_cast<int64_t>(i)) == 0 ? 1 : -1, 1e-13);
    }
    // Nothing of (5, 5) is reached, and a guess of constants goes.
    s = SolveHere(a, nullptr, space.get(), {5, 5}, options, {7, 7});
    EXPECT_EQ(s.result.outcome, Outcome::kStagnated);
    EXPECT_NEAR(s.result.unreachable, 1, 1e-14);
    for (const double x : s.x) EXPECT_EQ(x, 0);
  }
}

TEST(SpreadNullSpace, EndsAsOneProcessDoes) {
  const CscMatrix neumann = oracle::From(gallery::Jumps3d(7, 2, 2, 1, gallery::Boundary::kNeumann));
  const CscMatrix graph = oracle::From(gallery::GraphLaplacian(300));
  for (const auto& [name, whole] : {std::pair("neumann", neumann), std::pair("graph", graph)}) {
    const SpreadMatrix a = Spread(whole);
    const auto space = SpaceOf(whole);
    ASSERT_NE(space, nullptr) << name;
    const CsrOperator op = CsrOperator::FromColumns(whole);
    for (const double unreachable : {0.0, 1e-12, 0.3}) {
      for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
        for (const double scale : {1.0, 1e-200, 1e200}) {
          std::vector<double> b = RightHandSide(whole, unreachable);
          for (double& e : b) e *= scale;
          SolveOptions options{.method = method, .rtol = 1e-8, .null_space = space.get()};
          const auto expected = Solve(op, nullptr, b, {}, options, {});
          EXPECT_TRUE(expected.ok());
          const RhsResult& one = expected->rhs[0];
          const Solved found = SolveHere(a, nullptr, space.get(), b, options);
          const std::string what = std::string(name) + ", method " +
                                   std::to_string(static_cast<int>(method)) + ", unreachable " +
                                   std::to_string(unreachable) + ", times " + std::to_string(scale);
          EXPECT_EQ(found.result.outcome, one.outcome) << what << found.result.detail << one.detail;
          EXPECT_EQ(found.result.beyond_reach, one.beyond_reach) << what;
          EXPECT_NEAR(found.result.unreachable, one.unreachable, 1e-12) << what;
          // Iterations of BiCGSTAB scatter by the order of sums.
          EXPECT_LE(std::abs(found.result.iterations - one.iterations),
                    method == Method::kBicgstab ? 12 + one.iterations / 4 : 2)
              << what;
          if (unreachable > 0.1) {
            EXPECT_NEAR(found.result.true_relative_residual, one.true_relative_residual, 1e-8);
          } else {
            EXPECT_LE(found.result.true_relative_residual, 1e-8) << what;
          }
          double sum = 0, most = 0;
          for (size_t i = 0; i < found.x.size(); ++i) {
            const auto at = static_cast<size_t>(a.own().begin) + i;
            sum += found.x[i];
            most = std::max(most, std::abs(found.x[i] - expected->x[at]) / scale);
          }
          Must(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD));
          EXPECT_NEAR(sum / scale, 0, 1e-7) << what << ": x is without constants";
          EXPECT_LT(most, 1e-3) << what;
        }
      }
    }
  }
}

TEST(SpreadNullSpace, PreconditionersStayBetweenProjections) {
  const CscMatrix whole = oracle::From(gallery::Jumps3d(10, 5, 1, 1, gallery::Boundary::kNeumann));
  const SpreadMatrix a = Spread(whole);
  const auto space = SpaceOf(whole);
  const std::vector<double> b = RightHandSide(whole, 0);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-10};
  const Solved bare = SolveHere(a, nullptr, space.get(), b, options);
  for (const PetscMethod method : {PetscMethod::kBoomeramg, PetscMethod::kGamg}) {
    auto built = BuildPetsc(a, method, {}, {}, {});
    EXPECT_TRUE(built.ok()) << built.status().message();
    if (!built.ok()) continue;
    const Solved with = SolveHere(a, built->m.get(), space.get(), b, options);
    EXPECT_EQ(with.result.outcome, Outcome::kConverged) << with.result.detail;
    EXPECT_LT(2 * with.result.iterations, bare.result.iterations);
    for (size_t i = 0; i < with.x.size(); ++i) EXPECT_NEAR(with.x[i], bare.x[i], 1e-6);
  }
}

// A of two parts that know nothing of each other, with a vector for each; and one whose transpose
// alone maps constants to zero.
TEST(SpreadNullSpace, GivenVectorsAndThoseOfTheTranspose) {
  CscMatrix parts{12, 12, {0}, {}, {}};
  for (int32_t j = 0; j < 12; ++j) {
    const int32_t first = j < 6 ? 0 : 6;
    for (int32_t i = first; i < first + 6; ++i) {
      parts.row_idx.push_back(i);
      parts.values.push_back(i == j ? 5 : -1);
    }
    parts.col_ptr.push_back(parts.nnz());
  }
  std::vector<double> vectors(24, 0.0);
  for (size_t i = 0; i < 12; ++i) vectors[(i < 6 ? 0 : 12) + i] = 2;
  const auto two = SpaceOf(parts, {.choice = NullSpaceChoice::kGiven, .vectors = vectors});
  std::vector<double> b(12);
  for (size_t i = 0; i < 12; ++i) b[i] = i == 0 ? 1 : i == 1 ? -1 : i == 7 ? 3 : i == 8 ? -3 : 0;
  const SpreadMatrix a = Spread(parts);
  const Solved solved = SolveHere(a, nullptr, two.get(), b, {.method = Method::kCg});
  EXPECT_EQ(solved.result.outcome, Outcome::kConverged);
  for (size_t i = 0; i < solved.x.size(); ++i) {
    EXPECT_NEAR(solved.x[i], b[static_cast<size_t>(a.own().begin) + i] / 6, 1e-12);
  }

  const CscMatrix left{2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, -1, 2, -2}};  // columns sum to zero
  const auto of_transpose = SpaceOf(left);
  ASSERT_NE(of_transpose, nullptr);
  EXPECT_TRUE(of_transpose->right().empty());
  const Solved reached =
      SolveHere(Spread(left), nullptr, of_transpose.get(), {3, -1}, {.method = Method::kGmres});
  EXPECT_TRUE(reached.result.beyond_reach);
  EXPECT_NEAR(reached.result.unreachable, std::sqrt(0.2), 1e-14);
}

// As rank 0 orders it: with a right-hand side of each kind.
TEST(SpreadNullSpace, ComesWithAnOrder) {
  const CscMatrix whole = oracle::From(gallery::Jumps3d(6, 3, 1, 1, gallery::Boundary::kNeumann));
  const auto space = SpaceOf(whole);
  Session session(PETSC_COMM_WORLD, 1);
  const CscView view = whole;
  AtRoot root;
  root.matrix = &view;
  EXPECT_TRUE(
      session.Do({.what = Order::What::kSpread, .made = 1}, Rank() == 0 ? &root : nullptr).ok());
  std::vector<double> b = RightHandSide(whole, 0), other = RightHandSide(whole, 1);
  b.insert(b.end(), other.begin(), other.end());
  root.b = b;
  root.null_space = space.get();
  Order order{.what = Order::What::kSolve, .null_space = true, .count = 2, .a = 1};
  Pack(SolveOptions{.method = Method::kCg, .rtol = 1e-9}, order);
  EXPECT_TRUE(session.Do(order, Rank() == 0 ? &root : nullptr).ok());
  if (Rank() == 0) {
    EXPECT_EQ(root.solved.rhs[0].outcome, Outcome::kConverged) << root.solved.rhs[0].detail;
    EXPECT_EQ(root.solved.rhs[1].outcome, Outcome::kStagnated);
    EXPECT_TRUE(root.solved.rhs[1].beyond_reach);
  }
}

}  // namespace
}  // namespace spaid::kernels::mpi
