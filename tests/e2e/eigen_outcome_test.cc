// How solves of spaid::eigen::Solver end, in the real daemon and without one: every outcome has its
// info() and its words.
#include <spaid/eigen.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/eigen_matrices.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"
#include "tests/oracle/generators.h"

namespace spaid::e2e {
namespace {

using Plain = Eigen::SparseMatrix<double>;
using Vector = Eigen::VectorXd;

class EigenSolverOutcome : public OneDaemon {
 protected:
  void SetUp() override {
    OneDaemon::SetUp();
    client_ = std::make_unique<Client>(ClientOptions{.address = daemon_->address()});
    solver_.setClient(*client_);
  }
  std::unique_ptr<Client> client_;
  eigen::Solver<Plain> solver_;
};

TEST_F(EigenSolverOutcome, SingularSystems) {
  // Differences along a ring: constants are in the null space.
  const int n = 60;
  Plain ring(n, n);
  for (int i = 0; i < n; ++i) {
    ring.insert(i, i) = 2;
    ring.insert((i + 1) % n, i) = -1;
    ring.insert((i + n - 1) % n, i) = -1;
  }
  Vector b = Vector::Zero(n);
  b(3) = 1;
  b(40) = -1;
  const Vector x = solver_.compute(ring).solve(b);
  EXPECT_EQ(solver_.info(), Eigen::Success) << solver_.lastErrorMessage();
  EXPECT_LT((ring * x - b).norm(), 1e-7);
  EXPECT_NEAR(x.sum(), 0, 1e-7);
  b(3) = 2;  // now no x reaches b
  const Vector y = solver_.solve(b);
  EXPECT_EQ(solver_.info(), Eigen::NoConvergence);
  EXPECT_FALSE(solver_.lastErrorMessage().empty());

  Plain zero(5, 5);
  solver_.compute(zero);
  const Vector z = solver_.solve(Vector::Ones(5));
  EXPECT_NE(solver_.info(), Eigen::Success);
  EXPECT_FALSE(solver_.lastErrorMessage().empty());
}

TEST_F(EigenSolverOutcome, EveryOutcomeHasItsInfo) {
  const auto a = EigenMatrix<Plain>(Poisson(40, 41));
  const Columns<double> b = SmoothColumns(a, 3);
  solver_.setMaxIterations(2).compute(a);
  const Columns<double> x = solver_.solve(b);
  EXPECT_EQ(solver_.info(), Eigen::NoConvergence);
  EXPECT_EQ(solver_.iterations(), 2);
  EXPECT_GT(solver_.error(), solver_.tolerance());
  EXPECT_NE(solver_.lastErrorMessage().find("column 0: max-iterations"), std::string::npos)
      << solver_.lastErrorMessage();
  EXPECT_LT((a * x - b).norm(), b.norm()) << "the best iterate";

  // One column of three: said of that one.
  Columns<double> one_hard = Columns<double>::Zero(a.rows(), 3);
  one_hard.col(1) = b.col(0);
  const Columns<double> y = solver_.solve(one_hard);
  EXPECT_EQ(solver_.info(), Eigen::NoConvergence);
  EXPECT_NE(solver_.lastErrorMessage().find("column 1"), std::string::npos);

  Plain indefinite = a;
  indefinite.diagonal() *= -1;
  solver_.setOptions({.engine = Engine::kNone, .method = Method::kCg}).compute(indefinite);
  const Vector z = solver_.solve(b.col(0));
  EXPECT_EQ(solver_.info(), Eigen::NumericalIssue);
  EXPECT_NE(solver_.lastErrorMessage().find("column 0: "), std::string::npos);
}

// Each family of the zoo, all sizes: systems said to be solved are, and others have a reason.
TEST_F(EigenSolverOutcome, SaysTheTruthOfPathologicalMatrices) {
  int solved = 0, all = 0;
  for (const auto& [name, from, regular] : oracle::Zoo(3)) {
    const auto a = EigenMatrix<Plain>(from);
    const Vector b = SmoothColumns(a, 1);
    const Vector x = solver_.compute(a).solve(b);
    ++all;
    if (solver_.info() == Eigen::Success) {
      ++solved;
      EXPECT_TRUE(Solves(a, x, b, 1e-8)) << name;
    } else {
      EXPECT_FALSE(solver_.lastErrorMessage().empty()) << name;
    }
  }
  EXPECT_GT(all, 30);
  EXPECT_GT(solved, all / 2);
}

TEST_F(EigenSolverOutcome, AsksForComputeAfterSettings) {
  const auto a = EigenMatrix<Plain>(Poisson(8, 9));
  const Vector b = SmoothColumns(a, 1);
  solver_.compute(a);
  solver_.setOptions({.engine = Engine::kFsai});
  Vector x = solver_.solve(b);
  EXPECT_EQ(solver_.info(), Eigen::InvalidInput);
  EXPECT_EQ(solver_.lastError()->reason, "NOT_COMPUTED");
  x = solver_.compute(a).solve(b);
  EXPECT_EQ(solver_.info(), Eigen::Success) << solver_.lastErrorMessage();
  EXPECT_EQ(solver_.result().engine, Engine::kFsai);
}

TEST_F(EigenSolverOutcome, Stops) {
  const auto a = EigenMatrix<Plain>(Poisson(8, 9));
  const Vector b = SmoothColumns(a, 1);
  std::stop_source stop;
  solver_.setCallOptions({.stop = stop.get_token()});
  solver_.compute(a);
  stop.request_stop();
  const Vector x = solver_.solve(b);
  EXPECT_EQ(solver_.info(), Eigen::NumericalIssue);
  EXPECT_EQ(solver_.lastError()->reason, "STOP_REQUESTED");
}

TEST(EigenConnection, NobodyIsThere) {
  const auto a = EigenMatrix<Plain>(Poisson(8, 9));
  eigen::Solver<Plain> solver;
  solver.setClientOptions({.address = "127.0.0.1:1", .max_attempts = 1}).compute(a);
  EXPECT_EQ(solver.info(), Eigen::NumericalIssue);
  EXPECT_EQ(solver.lastError()->reason, "UNREACHABLE");
  EXPECT_NE(solver.lastErrorMessage().find("127.0.0.1:1"), std::string::npos);
  const Vector x = solver.solve(Vector::Ones(a.rows()));
  EXPECT_EQ(solver.info(), Eigen::NumericalIssue);
  EXPECT_FALSE(solver.lastErrorMessage().empty());
  solver.setClientOptions({.address = ""}).compute(a);
  EXPECT_EQ(solver.info(), Eigen::InvalidInput);
  EXPECT_EQ(solver.lastError()->reason, "BAD_OPTION");
}

TEST(EigenConnection, IsThatOfTheEnvironment) {
  const TempDir folder;
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  setenv("SPAID_ADDRESS", daemon.address().c_str(), 1);
  const auto a = EigenMatrix<Plain>(Poisson(8, 9));
  const Vector b = SmoothColumns(a, 1);
  eigen::Solver<Plain> solver(a);
  const Vector x = solver.solve(b);
  EXPECT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  setenv("SPAID_TOKEN", "two\nlines", 1);
  eigen::Solver<Plain> other(a);
  unsetenv("SPAID_TOKEN");
  unsetenv("SPAID_ADDRESS");
  EXPECT_EQ(other.info(), Eigen::InvalidInput);
  EXPECT_EQ(other.lastError()->field, "token");
}

TEST(EigenConnection, OutlivesItsDaemon) {
  auto daemon = std::make_unique<Daemon>();
  ASSERT_TRUE(daemon->serving()) << daemon->log();
  const std::string address = daemon->address();
  auto a = EigenMatrix<Plain>(Poisson(18, 19));
  const Vector b = SmoothColumns(a, 1);
  eigen::Solver<Plain> solver;
  solver.setClientOptions({.address = address}).setOptions({.engine = Engine::kFsai}).compute(a);
  for (int life = 0; life < 3; ++life) {
    const Vector x = solver.solve(b);
    ASSERT_EQ(solver.info(), Eigen::Success) << life << ": " << solver.lastErrorMessage();
    EXPECT_LT((a * x - b).norm(), 1e-7 * b.norm());
    daemon.reset();  // which forgets all
    daemon = std::make_unique<Daemon>(std::vector<std::string>{}, address.c_str());
    ASSERT_TRUE(daemon->serving()) << daemon->log();
    a *= 1.5;
    solver.factorize(a);
  }
  daemon.reset();
  const Vector x = solver.solve(b);
  EXPECT_EQ(solver.info(), Eigen::NumericalIssue);
  EXPECT_FALSE(solver.lastErrorMessage().empty());
}

TEST(EigenConnection, SharesMemoryWithADaemonOnThisHost) {
  const TempDir folder;
  const std::string local = (folder / "local").string();
  Daemon daemon({"--local-socket=" + local});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address(), .local_socket = local});
  auto a = EigenMatrix<Plain>(Poisson(40, 41));
  const Columns<double> b = SmoothColumns(a, 3);
  eigen::Solver<Plain> solver;
  solver.setClient(client).setOptions({.engine = Engine::kFsai}).compute(a);
  ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
  for (int step = 0; step < 3; ++step) {
    const int64_t before = client.GetLocalStatus().shared_bytes;
    const Columns<double> x = solver.solve(b);
    ASSERT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
    EXPECT_LT((a * x - b).norm(), 1e-7 * b.norm());
    const int64_t values = 8 * a.nonZeros(), vectors = 8 * b.size();
    EXPECT_EQ(client.GetLocalStatus().shared_bytes - before, values + 2 * vectors) << step;
    a *= 2;
    solver.factorize(a);
  }
  EXPECT_EQ(client.GetLocalStatus().fallback_bytes, 0);

  // No descriptor is left for the memory of more columns.
  rlimit all{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &all), 0);
  rlimit none = all;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Columns<double> x = solver.solve(SmoothColumns(a, 5));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &all), 0);
  EXPECT_NE(solver.info(), Eigen::Success);
  ASSERT_TRUE(solver.lastError());
  EXPECT_EQ(solver.lastError()->reason, "OUT_OF_MEMORY") << solver.lastErrorMessage();
  const Columns<double> y = solver.solve(b);
  EXPECT_EQ(solver.info(), Eigen::Success) << solver.lastErrorMessage();
}

}  // namespace
}  // namespace spaid::e2e
