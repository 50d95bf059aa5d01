// spaid::eigen::Solver and the real daemon, as Eigen's own tests ask its solvers (sparse_solver.h):
// against SimplicialLDLT and SparseLU, in every layout.
#include <spaid/eigen.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tests/e2e/eigen_matrices.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

template <class Matrix>
class EigenSolver : public OneDaemon {
 protected:
  using Solver = eigen::Solver<Matrix>;
  void SetUp() override {
    OneDaemon::SetUp();
    client_ = std::make_unique<Client>(ClientOptions{.address = daemon_->address()});
  }
  static int64_t PatternBytes(const Matrix& a) { return 8 * (a.rows() + 1) + 4 * a.nonZeros(); }
  static int64_t ValueBytes(const Matrix& a) {
    return static_cast<int64_t>(sizeof(typename Matrix::Scalar)) * a.nonZeros();
  }
  // Sum of the transfers of what the calls of `solver` send, as the client reports them.
  struct Sent {
    int64_t call = 0, all = 0;
    CallOptions Count() {
      return {.on_progress = [this](const Progress& p) {
        if (p.kind != Progress::Kind::kTransfer || p.stage != Stage::kUpload) return;
        all += p.done < call ? p.done : p.done - call;
        call = p.done;
      }};
    }
  };

  std::unique_ptr<Client> client_;
};

using Layouts = ::testing::Types<Eigen::SparseMatrix<double, Eigen::ColMajor>,
                                 Eigen::SparseMatrix<double, Eigen::RowMajor>,
                                 Eigen::SparseMatrix<double, Eigen::ColMajor, int64_t>,
                                 Eigen::SparseMatrix<double, Eigen::RowMajor, int64_t>,
                                 Eigen::SparseMatrix<float, Eigen::ColMajor>,
                                 Eigen::SparseMatrix<float, Eigen::RowMajor, int64_t>>;
TYPED_TEST_SUITE(EigenSolver, Layouts);

TYPED_TEST(EigenSolver, AgreesWithDirectSolversForManyColumns) {
  using Scalar = typename TypeParam::Scalar;
  for (const Eigen::Index columns : {1, 5}) {
    const auto spd = EigenMatrix<TypeParam>(Poisson(12, 13));
    Columns<Scalar> b = SmoothColumns(spd, columns);
    const Columns<Scalar> before = b;
    typename TestFixture::Solver solver;
    solver.setClient(*this->client_).compute(spd);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
    Columns<Scalar> x = solver.solve(b);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
    EXPECT_LT(RelativeDifference(x, DirectSolve(spd, b, /*symmetric=*/true)), kNear<Scalar>);
    EXPECT_EQ(b, before);
    EXPECT_EQ(static_cast<Eigen::Index>(solver.result().rhs.size()), columns) << "in one call";
    EXPECT_GT(solver.iterations(), 0);
    EXPECT_LE(solver.error(), solver.tolerance());
    EXPECT_EQ(solver.lastErrorMessage(), "");

    for (const auto& unsymmetric : {EigenMatrix<TypeParam>(ConvectionDiffusion(13, 11, 1.5)),
                                    EigenMatrix<TypeParam>(Irregular(150, 12))}) {
      b = SmoothColumns(unsymmetric, columns);
      x = solver.compute(unsymmetric).solve(b);
      ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
      EXPECT_LT(RelativeDifference(x, DirectSolve(unsymmetric, b)), kNear<Scalar>);
    }
  }
}

TYPED_TEST(EigenSolver, TakesWhateverHasTheMatrix) {
  using Scalar = typename TypeParam::Scalar;
  const auto a = EigenMatrix<TypeParam>(ConvectionDiffusion(9, 8, 0.7));
  const Column<Scalar> b = SmoothColumns(a, 1);
  const Columns<double> right = DirectSolve(a, b);
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_);
  const auto expect_solves = [&](const char* what) {
    const Column<Scalar> x = solver.solve(b);
    EXPECT_EQ(solver.info(), Eigen::Success) << what << ": " << solver.lastErrorMessage();
    EXPECT_LT(RelativeDifference(x, right), kNear<Scalar>) << what;
  };

  TypeParam loose = a;
  loose.uncompress();
  loose.reserve(Column<int>::Constant(a.outerSize(), 3));
  ASSERT_FALSE(loose.isCompressed());
  solver.compute(loose);
  expect_solves("uncompressed");

  TypeParam held = a;
  const Eigen::Map<TypeParam> map(held.rows(), held.cols(), held.nonZeros(), held.outerIndexPtr(),
                                  held.innerIndexPtr(), held.valuePtr());
  solver.compute(map);
  expect_solves("a map");

  solver.compute(Scalar(0.5) * (a + a));
  expect_solves("an expression");

  // Some columns, or rows, of a larger matrix: its pointers do not begin with 0.
  const bool by_rows = TypeParam::IsRowMajor;
  const Eigen::Index n = a.rows();
  TypeParam wide(by_rows ? 2 * n : n, by_rows ? n : 2 * n);
  for (Eigen::Index j = 0; j < n; ++j) {
    for (typename TypeParam::InnerIterator it(a, j); it; ++it) {
      wide.insert(it.row() + (by_rows ? n : 0), it.col() + (by_rows ? 0 : n)) = it.value();
      wide.insert(it.row(), it.col()) = 1;
    }
  }
  wide.makeCompressed();
  solver.compute(wide.middleRows(by_rows ? n : 0, n).middleCols(by_rows ? 0 : n, n));
  expect_solves("a block");
  if constexpr (TypeParam::IsRowMajor) {
    solver.compute(wide.middleRows(n, n));
  } else {
    solver.compute(wide.middleCols(n, n));
  }
  expect_solves("a panel");
}

TYPED_TEST(EigenSolver, TakesWhateverHasTheRightHandSide) {
  using Scalar = typename TypeParam::Scalar;
  const auto a = EigenMatrix<TypeParam>(Poisson(9, 8));
  const Columns<Scalar> b = SmoothColumns(a, 4);
  const Columns<double> right = DirectSolve(a, b, /*symmetric=*/true);
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_).compute(a);

  Columns<Scalar> x = Columns<Scalar>::Constant(a.rows() + 2, 6, 7);
  x.block(1, 1, a.rows(), 4) = solver.solve(b);
  EXPECT_LT(RelativeDifference(x.block(1, 1, a.rows(), 4), right), kNear<Scalar>);
  EXPECT_EQ(x(0, 0), 7);
  EXPECT_EQ(x(a.rows() + 1, 5), 7);
  x = solver.solve(Scalar(0.5) * (b + b));
  EXPECT_LT(RelativeDifference(x, right), kNear<Scalar>);
  const Eigen::Matrix<Scalar, Eigen::Dynamic, 4, Eigen::RowMajor> rows = b;
  x = solver.solve(rows);
  EXPECT_LT(RelativeDifference(x, right), kNear<Scalar>);
  x = solver.solve(b.middleCols(1, 2));
  EXPECT_LT(RelativeDifference(x, right.middleCols(1, 2)), kNear<Scalar>);
  Column<Scalar> one = Column<Scalar>::Zero(a.rows());
  one += solver.solve(b.col(2));
  EXPECT_LT(RelativeDifference(one, right.col(2)), kNear<Scalar>);

  const Eigen::SparseMatrix<Scalar> sparse = b.sparseView();
  const Eigen::SparseMatrix<Scalar> sparse_x = solver.solve(sparse);
  EXPECT_LT(RelativeDifference(Columns<Scalar>(sparse_x), right), kNear<Scalar>);

  const Column<Scalar> nothing = solver.solve(Column<Scalar>::Zero(a.rows()));
  EXPECT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  EXPECT_EQ(nothing.norm(), 0);
  const Columns<Scalar> none = solver.solve(Columns<Scalar>(a.rows(), 0));
  EXPECT_EQ(solver.info(), Eigen::Success);
  EXPECT_EQ(none.cols(), 0);
}

TYPED_TEST(EigenSolver, BeginsWithTheGuess) {
  using Scalar = typename TypeParam::Scalar;
  const auto a = EigenMatrix<TypeParam>(Poisson(14, 15));
  const Columns<Scalar> b = SmoothColumns(a, 2);
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_).compute(a);
  const Columns<Scalar> x = solver.solve(b);
  const auto cold = solver.iterations();
  const Columns<Scalar> again = solver.solveWithGuess(b, x);
  EXPECT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  EXPECT_LE(solver.iterations(), 1);
  EXPECT_GT(cold, 5);
  EXPECT_LT(RelativeDifference(again, x), kNear<Scalar>);
}

TYPED_TEST(EigenSolver, SendsThePatternOnce) {
  using Scalar = typename TypeParam::Scalar;
  // Patterns that no other test of this daemon has sent.
  auto a = EigenMatrix<TypeParam>(
      Poisson(31 + static_cast<int>(sizeof(Scalar)),
              31 + static_cast<int>(sizeof(typename TypeParam::StorageIndex)) +
                  (TypeParam::IsRowMajor ? 1 : 0)));
  const Column<Scalar> b = SmoothColumns(a, 1);
  typename TestFixture::Sent sent;
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_).setOptions({.engine = Engine::kFsai});
  solver.setCallOptions(sent.Count());
  solver.analyzePattern(a);
  ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  EXPECT_EQ(sent.all, this->PatternBytes(a));
  for (int step = 1; step <= 10; ++step) {
    a *= Scalar(1.1);
    solver.factorize(a);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
    const Column<Scalar> x = solver.solve(b);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
    EXPECT_LT((a * x - b).norm(), 1e-4 * b.norm());
    EXPECT_EQ(solver.result().timings.bytes_up, this->ValueBytes(a) + 8 * a.rows()) << step;
    EXPECT_EQ(solver.result().reuse.has_value(), step > 1);
  }
  EXPECT_EQ(sent.all, this->PatternBytes(a) + 10 * (this->ValueBytes(a) + 8 * a.rows()));
  // compute() finds by itself that it has the pattern.
  a *= Scalar(0.9);
  const Column<Scalar> x = solver.compute(a).solve(b);
  EXPECT_EQ(solver.result().timings.bytes_up, this->ValueBytes(a) + 8 * a.rows());
}

TYPED_TEST(EigenSolver, TakesAnotherPatternByComputeAlone) {
  using Scalar = typename TypeParam::Scalar;
  const auto a = EigenMatrix<TypeParam>(Poisson(8, 9));
  const auto other = EigenMatrix<TypeParam>(Poisson(9, 8));
  const Column<Scalar> b = SmoothColumns(other, 1);
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_).compute(a).factorize(other);
  EXPECT_EQ(solver.info(), Eigen::InvalidInput);
  ASSERT_TRUE(solver.lastError());
  EXPECT_EQ(solver.lastError()->reason, "OTHER_PATTERN");
  EXPECT_NE(solver.lastErrorMessage().find("compute()"), std::string::npos);
  Column<Scalar> x = solver.solve(b);
  EXPECT_EQ(solver.info(), Eigen::InvalidInput) << "there is no matrix";
  EXPECT_EQ(x.norm(), 0);
  for (const auto& next : {other, a, EigenMatrix<TypeParam>(Poisson(5, 5))}) {
    const Column<Scalar> rhs = SmoothColumns(next, 1);
    x = solver.compute(next).solve(rhs);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
    EXPECT_LT(RelativeDifference(x, DirectSolve(next, rhs, /*symmetric=*/true)), kNear<Scalar>);
  }
}

TYPED_TEST(EigenSolver, ReadsOneTriangle) {
  using Scalar = typename TypeParam::Scalar;
  auto a = EigenMatrix<TypeParam>(Poisson(8, 9));
  const Column<Scalar> b = SmoothColumns(a, 1);
  const Columns<double> right = DirectSolve(a, b, /*symmetric=*/true);
  const TypeParam lower = a.template triangularView<Eigen::Lower>();
  const TypeParam upper = a.template triangularView<Eigen::Upper>();
  eigen::Solver<TypeParam, Eigen::Lower> of_lower;
  of_lower.setClient(*this->client_);
  eigen::Solver<TypeParam, Eigen::Upper> of_upper;
  of_upper.setClient(*this->client_);
  const Column<Scalar> x = of_lower.compute(lower).solve(b), y = of_upper.compute(upper).solve(b);
  EXPECT_LT(RelativeDifference(x, right), kNear<Scalar>) << of_lower.lastErrorMessage();
  EXPECT_LT(RelativeDifference(y, right), kNear<Scalar>) << of_upper.lastErrorMessage();
  const Column<Scalar> z = of_lower.factorize(a).solve(b);
  EXPECT_LT(RelativeDifference(z, right), kNear<Scalar>) << "the other triangle is not read";
}

TYPED_TEST(EigenSolver, OneUnknownAndNone) {
  using Scalar = typename TypeParam::Scalar;
  TypeParam a(1, 1);
  a.insert(0, 0) = 4;
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_).compute(a);
  const Column<Scalar> x = solver.solve(Column<Scalar>::Constant(1, 8));
  EXPECT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  EXPECT_NEAR(x(0), 2, 1e-6);
  a.resize(0, 0);
  const Columns<Scalar> none = solver.compute(a).solve(Columns<Scalar>(0, 3));
  EXPECT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  EXPECT_EQ(none.cols(), 3);
}

TYPED_TEST(EigenSolver, RefusesWhatIsNoMatrixToSolveWith) {
  using Scalar = typename TypeParam::Scalar;
  typename TestFixture::Solver solver;
  solver.setClient(*this->client_);
  solver.compute(TypeParam(3, 4));
  EXPECT_EQ(solver.info(), Eigen::InvalidInput);
  EXPECT_EQ(solver.lastError()->reason, "SIZE_MISMATCH");
  EXPECT_NE(solver.lastErrorMessage().find("3 x 4"), std::string::npos);

  auto a = EigenMatrix<TypeParam>(Poisson(6, 7));
  const Column<Scalar> b = SmoothColumns(a, 1);
  a.valuePtr()[5] = std::numeric_limits<Scalar>::quiet_NaN();
  Column<Scalar> x = solver.compute(a).solve(b);
  EXPECT_EQ(solver.info(), Eigen::InvalidInput);
  EXPECT_FALSE(solver.lastErrorMessage().empty());

  // Rows of a column out of order: Eigen does not make such, a map may have them.
  TypeParam bad = EigenMatrix<TypeParam>(Poisson(6, 7));
  std::swap(bad.innerIndexPtr()[0], bad.innerIndexPtr()[1]);
  const Eigen::Map<TypeParam> map(bad.rows(), bad.cols(), bad.nonZeros(), bad.outerIndexPtr(),
                                  bad.innerIndexPtr(), bad.valuePtr());
  solver.compute(map);
  EXPECT_EQ(solver.info(), Eigen::InvalidInput);
  EXPECT_FALSE(solver.lastErrorMessage().empty());
}

}  // namespace
}  // namespace spaid::e2e
