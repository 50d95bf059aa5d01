// spaid::eigen::Preconditioner and the real daemon, inside Eigen's own solvers: M is what the
// daemon builds, is applied rightly, and values alone are sent while the pattern stays.
#include <spaid/eigen.h>

#include <Eigen/IterativeLinearSolvers>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <unsupported/Eigen/IterativeSolvers>

#include "tests/e2e/daemon.h"
#include "tests/e2e/eigen_matrices.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

constexpr int kBoth = Eigen::Lower | Eigen::Upper;

template <class Matrix>
class EigenPreconditioner : public OneDaemon {
 protected:
  using M = eigen::Preconditioner<typename Matrix::Scalar>;
  void SetUp() override {
    OneDaemon::SetUp();
    client_ = std::make_unique<Client>(ClientOptions{.address = daemon_->address()});
  }
  // Sets an iterative solver of Eigen's up, and says whether it got its M.
  template <class Solver>
  void Compute(Solver& solver, const Matrix& a, Engine engine) {
    solver.setTolerance(std::is_same_v<typename Matrix::Scalar, double> ? 1e-10 : 1e-6);
    solver.preconditioner().setClient(*client_).setSpec({.engine = engine});
    solver.compute(a);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.preconditioner().lastErrorMessage();
  }

  std::unique_ptr<Client> client_;
};

// Each scalar, layout and index once: the solver's tests have more of them.
using Layouts = ::testing::Types<Eigen::SparseMatrix<double, Eigen::ColMajor>,
                                 Eigen::SparseMatrix<float, Eigen::RowMajor, int64_t>>;
TYPED_TEST_SUITE(EigenPreconditioner, Layouts);

TYPED_TEST(EigenPreconditioner, SparesConjugateGradientsIterations) {
  using Scalar = typename TypeParam::Scalar;
  const auto a = EigenMatrix<TypeParam>(Poisson(24, 25));
  const Columns<Scalar> b = SmoothColumns(a, 3);
  Eigen::ConjugateGradient<TypeParam, kBoth, typename TestFixture::M> cg;
  this->Compute(cg, a, Engine::kFsai);
  const Columns<Scalar> x = cg.solve(b);
  EXPECT_EQ(cg.info(), Eigen::Success);
  EXPECT_LT(RelativeDifference(x, DirectSolve(a, b, /*symmetric=*/true)), kNear<Scalar>);
  EXPECT_TRUE(cg.preconditioner().isFactor());
  Eigen::ConjugateGradient<TypeParam, kBoth, Eigen::IdentityPreconditioner> alone(a);
  alone.setTolerance(cg.tolerance());
  const Column<Scalar> y = alone.solve(b.col(2));
  EXPECT_LT(cg.iterations(), alone.iterations() * 3 / 4);
}

TYPED_TEST(EigenPreconditioner, ServesSolversOfUnsymmetricSystems) {
  using Scalar = typename TypeParam::Scalar;
  for (const auto& a : {EigenMatrix<TypeParam>(ConvectionDiffusion(20, 21, 1.5)),
                        EigenMatrix<TypeParam>(Irregular(300, 15))}) {
    const Column<Scalar> b = SmoothColumns(a, 1);
    const Columns<double> right = DirectSolve(a, b);
    Eigen::BiCGSTAB<TypeParam, typename TestFixture::M> bicgstab;
    this->Compute(bicgstab, a, Engine::kStaticSpai);
    const Column<Scalar> x = bicgstab.solve(b);
    EXPECT_EQ(bicgstab.info(), Eigen::Success);
    EXPECT_LT(RelativeDifference(x, right), kNear<Scalar>);
    EXPECT_FALSE(bicgstab.preconditioner().isFactor());
    Eigen::GMRES<TypeParam, typename TestFixture::M> gmres;
    this->Compute(gmres, a, Engine::kStaticSpai);
    const Column<Scalar> y = gmres.solve(b);
    EXPECT_EQ(gmres.info(), Eigen::Success);
    EXPECT_LT(RelativeDifference(y, right), kNear<Scalar>);
    const Column<Scalar> z = bicgstab.solveWithGuess(b, x);
    EXPECT_LE(bicgstab.iterations(), 1);
  }
}

TYPED_TEST(EigenPreconditioner, AppliesTheMOfTheDaemon) {
  using Scalar = typename TypeParam::Scalar;
  for (const Engine engine : {Engine::kJacobi, Engine::kStaticSpai, Engine::kFsai, Engine::kAfsai,
                              Engine::kDynamicSpai, Engine::kAuto}) {
    const CscMatrix from = Poisson(11, 12);
    const auto a = EigenMatrix<TypeParam>(from);
    typename TestFixture::M m;
    m.setClient(*this->client_).setSpec({.engine = engine}).compute(a);
    ASSERT_EQ(m.info(), Eigen::Success) << Name(engine) << ": " << m.lastErrorMessage();
    const auto built = this->client_->Build(from, {.engine = engine}, /*fetch_result=*/true);
    ASSERT_TRUE(built.ok()) << built.error().message;
    const CscMatrix& there = *built->m;
    ASSERT_EQ(m.isFactor(), there.is_factor);
    const Columns<double> g(EigenMatrix<Eigen::SparseMatrix<double>>(there));
    const Columns<double> right = there.is_factor ? g.transpose() * g : g;
    const Columns<Scalar> b = Columns<Scalar>::Random(a.rows(), 4);
    const double near = std::is_same_v<Scalar, double> ? 1e-12 : 1e-5;
    const Columns<Scalar> all = m.solve(b);
    EXPECT_LT(RelativeDifference(all, right * b.template cast<double>()), near) << Name(engine);
    const Column<Scalar> one = m.solve(Scalar(2) * b.col(1));
    EXPECT_LT(RelativeDifference(one, 2 * right * b.col(1).template cast<double>()), near);
    const Eigen::SparseMatrix<Scalar> sparse = b.sparseView();
    const Eigen::SparseMatrix<Scalar> thin = m.solve(sparse);
    EXPECT_LT(RelativeDifference(Columns<Scalar>(thin), right * b.template cast<double>()), near);
    EXPECT_EQ(m.rows(), a.rows());
    EXPECT_EQ(m.matrix().nonZeros(), static_cast<Eigen::Index>(there.row_idx.size()));
  }
}

TYPED_TEST(EigenPreconditioner, SendsThePatternOnceForTenFactorizations) {
  using Scalar = typename TypeParam::Scalar;
  // A pattern that no other test of this daemon has sent.
  auto a = EigenMatrix<TypeParam>(Poisson(
      35, 36 + static_cast<int>(sizeof(Scalar) + sizeof(typename TypeParam::StorageIndex))));
  int64_t sent = 0;
  typename TestFixture::M m;
  m.setClient(*this->client_).setSpec({.engine = Engine::kStaticSpai});
  m.setCallOptions({.on_progress = [&](const Progress& p) {
    if (p.kind == Progress::Kind::kTransfer && p.stage == Stage::kUpload && p.done == p.total) {
      sent += p.done;
    }
  }});
  m.analyzePattern(a);
  ASSERT_EQ(m.info(), Eigen::Success) << m.lastErrorMessage();
  const int64_t pattern = 8 * (a.rows() + 1) + 4 * a.nonZeros();
  EXPECT_EQ(sent, pattern);
  const int64_t values = static_cast<int64_t>(sizeof(Scalar)) * a.nonZeros();
  for (int step = 0; step < 10; ++step) {
    a.diagonal() *= Scalar(1.1);
    m.factorize(a);
    ASSERT_EQ(m.info(), Eigen::Success) << m.lastErrorMessage();
    EXPECT_EQ(m.result().timings.bytes_up, values);
    if (step > 0) {
      EXPECT_TRUE(m.result().timings.rebuild);
      EXPECT_EQ(m.result().timings.bytes_down, 8 * m.matrix().nonZeros()) << "M's values alone";
    }
  }
  EXPECT_EQ(sent, pattern + 10 * values);
  a.diagonal() *= Scalar(1.1);
  m.compute(a);
  EXPECT_EQ(m.result().timings.bytes_up, values) << "compute() finds that it has the pattern";
}

TYPED_TEST(EigenPreconditioner, ReadsOneTriangle) {
  using Scalar = typename TypeParam::Scalar;
  const auto a = EigenMatrix<TypeParam>(Poisson(14, 15));
  const Column<Scalar> b = SmoothColumns(a, 1);
  const TypeParam lower = a.template triangularView<Eigen::Lower>();
  Eigen::ConjugateGradient<TypeParam, Eigen::Lower, eigen::Preconditioner<Scalar, Eigen::Lower>> cg;
  this->Compute(cg, lower, Engine::kFsai);
  const Column<Scalar> x = cg.solve(b);
  EXPECT_EQ(cg.info(), Eigen::Success);
  EXPECT_LT(RelativeDifference(x, DirectSolve(a, b, /*symmetric=*/true)), kNear<Scalar>);
}

using Plain = Eigen::SparseMatrix<double>;
using Vector = Eigen::VectorXd;

class EigenPreconditionerFailure : public OneDaemon {
 protected:
  void SetUp() override {
    OneDaemon::SetUp();
    client_ = std::make_unique<Client>(ClientOptions{.address = daemon_->address()});
  }
  std::unique_ptr<Client> client_;
};

TEST_F(EigenPreconditionerFailure, LeavesNoMBehind) {
  auto a = EigenMatrix<Plain>(Poisson(9, 10));
  Plain indefinite = a;
  indefinite.diagonal() *= -1;
  Eigen::ConjugateGradient<Plain, kBoth, eigen::Preconditioner<>> cg;
  cg.preconditioner().setClient(*client_).setSpec({.engine = Engine::kFsai});
  cg.compute(a);
  ASSERT_EQ(cg.info(), Eigen::Success) << cg.preconditioner().lastErrorMessage();
  cg.compute(indefinite);
  EXPECT_EQ(cg.info(), Eigen::InvalidInput);
  ASSERT_TRUE(cg.preconditioner().lastError());
  EXPECT_FALSE(cg.preconditioner().lastErrorMessage().empty());
  const Vector x = cg.solve(Vector::Ones(a.rows()));
  EXPECT_NE(cg.info(), Eigen::Success);
  EXPECT_TRUE(std::isnan(x.sum()));
  const Eigen::SparseMatrix<double> one = Vector::Ones(a.rows()).sparseView();
  const Eigen::SparseMatrix<double> thin = cg.preconditioner().solve(one);
  EXPECT_TRUE(std::isnan(thin.sum()));
  cg.compute(a);
  EXPECT_EQ(cg.info(), Eigen::Success) << "the next is as good as the first";
  EXPECT_TRUE(std::isfinite(cg.solve(Vector::Ones(a.rows())).sum()));
}

TEST_F(EigenPreconditionerFailure, IsToldInWords) {
  const auto a = EigenMatrix<Plain>(Poisson(9, 10));
  eigen::Preconditioner<> m;
  m.setClient(*client_).setSpec({.engine = Engine::kStaticSpai});
  m.factorize(a);
  EXPECT_EQ(m.info(), Eigen::InvalidInput);
  EXPECT_EQ(m.lastError()->reason, "OTHER_PATTERN") << "no pattern yet";
  m.compute(a).factorize(EigenMatrix<Plain>(Poisson(10, 9)));
  EXPECT_EQ(m.lastError()->reason, "OTHER_PATTERN");
  m.compute(Plain(2, 3));
  EXPECT_EQ(m.lastError()->reason, "SIZE_MISMATCH");
  m.setSpec({.engine = Engine::kStaticSpai, .pattern_power = 99}).compute(a);
  EXPECT_EQ(m.info(), Eigen::InvalidInput);
  EXPECT_NE(m.lastErrorMessage().find("pattern_power"), std::string::npos) << m.lastErrorMessage();
  m.setSpec({.engine = Engine::kAmg}).compute(a);
  EXPECT_EQ(m.info(), Eigen::InvalidInput);
  EXPECT_EQ(m.lastError()->reason, "PART_NEEDED");
  EXPECT_NE(m.lastErrorMessage().find("spaid::eigen::Solver"), std::string::npos);
  m.setClientOptions({.address = "127.0.0.1:1", .max_attempts = 1}).compute(a);
  EXPECT_EQ(m.info(), Eigen::NumericalIssue);
  EXPECT_EQ(m.lastError()->reason, "UNREACHABLE");

  eigen::Preconditioner<double, kBoth, short> narrow;
  narrow.setClient(*client_).setSpec({.engine = Engine::kStaticSpai}).compute(a);
  EXPECT_EQ(narrow.info(), Eigen::Success) << narrow.lastErrorMessage();
  narrow.compute(EigenMatrix<Plain>(Poisson(100, 100)));
  EXPECT_EQ(narrow.info(), Eigen::InvalidInput);
  EXPECT_EQ(narrow.lastError()->field, "StorageIndex");
}

TEST_F(EigenPreconditionerFailure, OneUnknownAndNone) {
  Plain a(1, 1);
  a.insert(0, 0) = 4;
  eigen::Preconditioner<> m;
  m.setClient(*client_).setSpec({.engine = Engine::kStaticSpai}).compute(a);
  ASSERT_EQ(m.info(), Eigen::Success) << m.lastErrorMessage();
  EXPECT_DOUBLE_EQ(m.solve(Vector::Constant(1, 8))(0), 2);
  m.compute(Plain(0, 0));
  EXPECT_EQ(m.info(), Eigen::Success) << m.lastErrorMessage();
  EXPECT_EQ(m.solve(Vector(0)).rows(), 0);
}

TEST_F(EigenPreconditionerFailure, HealsWhatTheDaemonHasDropped) {
  auto a = EigenMatrix<Plain>(Poisson(9, 10));
  eigen::Preconditioner<> m;
  m.setClient(*client_).setSpec({.engine = Engine::kFsai}).analyzePattern(a);
  for (int step = 0; step < 3; ++step) {
    const auto matrices = client_->ListMatrices();
    ASSERT_TRUE(matrices.ok());
    for (const MatrixInfo& matrix : *matrices) ASSERT_FALSE(client_->DeleteMatrix(matrix.name));
    a *= 2;
    m.factorize(a);
    ASSERT_EQ(m.info(), Eigen::Success) << step << ": " << m.lastErrorMessage();
    // G of 2 A is that of A over the root of 2.
    EXPECT_NEAR(m.matrix().coeff(0, 0), 1 / std::sqrt(a.coeff(0, 0)), 1e-12);
  }
}

TEST(EigenPreconditionerConnection, SharesMemoryWithADaemonOnThisHost) {
  const TempDir folder;
  const std::string local = (folder / "local").string();
  Daemon daemon({"--local-socket=" + local});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address(), .local_socket = local});
  auto a = EigenMatrix<Plain>(Poisson(40, 41));
  eigen::Preconditioner<> m;
  m.setClient(client).setSpec({.engine = Engine::kStaticSpai}).analyzePattern(a);
  Vector last;
  for (int step = 0; step < 3; ++step) {
    const int64_t before = client.GetLocalStatus().shared_bytes;
    a *= 2;
    m.factorize(a);
    ASSERT_EQ(m.info(), Eigen::Success) << m.lastErrorMessage();
    EXPECT_EQ(client.GetLocalStatus().shared_bytes - before, 8 * a.nonZeros());
    const Vector y = m.solve(Vector::Ones(a.rows()));
    if (step > 0) {
      EXPECT_LT((2 * y - last).norm(), 1e-12 * last.norm()) << "M of 2 A is half of M";
    }
    last = y;
  }
}

TEST_F(EigenPreconditionerFailure, TheExampleRuns) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string example = folder / "spaid_example_eigen";
  const Ran ran = RunProgram({example, daemon_->address(), "20", "3"});
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_NE(ran.output.find("step 3: "), std::string::npos) << ran.output;
  const Ran nobody = RunProgram({example, "127.0.0.1:1", "5", "1"});
  EXPECT_EQ(nobody.status, 1);
  EXPECT_NE(nobody.output.find("127.0.0.1:1"), std::string::npos) << nobody.output;
}

}  // namespace
}  // namespace spaid::e2e
