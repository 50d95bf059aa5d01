// Systems of the C interface, through the real daemon.
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/c/c_problem.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::c {
namespace {

using e2e::Poisson;

class CSystem : public e2e::OneDaemon {
 protected:
  void SetUp() override {
    OneDaemon::SetUp();
    client_ = Connect(daemon_->address());
  }
  // By columns, borrowed.
  SystemPtr Make(const CscMatrix& a, int flags = 0) {
    spaid_system* system = nullptr;
    EXPECT_EQ(spaid_system_csc(client_.get(), a.n, a.col_ptr.data(), 64, a.row_idx.data(), 32,
                               a.values.data(), flags, &system),
              0)
        << spaid_last_error();
    return SystemPtr(system);
  }
  // Expects convergence.
  Report Solve(const SystemPtr& system, const Options& options, const std::vector<double>& b,
               std::vector<double>* x, const double* guess = nullptr, int count = 1) {
    spaid_report* report = nullptr;
    x->resize(b.size());
    EXPECT_EQ(spaid_solve(system.get(), options.get(), count, b.data(), guess, x->data(), &report),
              0)
        << spaid_last_error();
    return Report(report);
  }

  ClientPtr client_;
};

template <class T>
std::vector<T> As(const std::vector<int>& from, int base) {
  std::vector<T> to;
  for (const int value : from) to.push_back(static_cast<T>(value) + base);
  return to;
}

TEST_F(CSystem, SolvesInEveryLayout) {
  const Three a;
  const Options options = Set({{"rtol", "1e-12"}});
  for (int layout = 0; layout < 32; ++layout) {
    const bool by_rows = layout & 1, wide_ptr = layout & 2, wide_idx = layout & 4;
    const int base = layout & 8 ? 1 : 0;
    const int flags = (base ? SPAID_ONE_BASED : 0) | (layout & 16 ? SPAID_COPY : 0);
    SCOPED_TRACE(layout);
    auto ptr32 = As<int32_t>(a.row_ptr, base), idx32 = As<int32_t>(a.col_idx, base);
    auto ptr64 = As<int64_t>(a.row_ptr, base), idx64 = As<int64_t>(a.col_idx, base);
    std::vector<double> values = by_rows ? a.by_rows : a.by_columns;
    spaid_system* made = nullptr;
    ASSERT_EQ(
        (by_rows ? spaid_system_csr : spaid_system_csc)(
            client_.get(), 3, wide_ptr ? static_cast<const void*>(ptr64.data()) : ptr32.data(),
            wide_ptr ? 64 : 32, wide_idx ? static_cast<const void*>(idx64.data()) : idx32.data(),
            wide_idx ? 64 : 32, values.data(), flags, &made),
        0)
        << spaid_last_error();
    const SystemPtr system(made);
    if (flags & SPAID_COPY) {  // nobody looks at these again
      std::fill(ptr32.begin(), ptr32.end(), -1);
      std::fill(ptr64.begin(), ptr64.end(), -1);
      std::fill(idx32.begin(), idx32.end(), -1);
      std::fill(idx64.begin(), idx64.end(), -1);
      std::fill(values.begin(), values.end(), NAN);
    }
    std::vector<double> x;
    const Report report = Solve(system, options, a.b, &x);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(x[i], static_cast<double>(i + 1), 1e-10);
    EXPECT_LE(spaid_report_residual(report.get(), 0), 1e-12);
  }
}

TEST_F(CSystem, SortsAndSumsWhereItIsAsked) {
  const std::vector<int> ptr = {0, 3, 6, 8}, idx = {1, 0, 0, 2, 1, 0, 2, 1};
  const std::vector<double> values = {-1, 1, 3, -1, 4, -2, 4, -1};
  spaid_system* made = nullptr;
  ASSERT_EQ(spaid_system_csr(client_.get(), 3, ptr.data(), 32, idx.data(), 32, values.data(),
                             SPAID_SORT_AND_SUM, &made),
            0);
  std::vector<double> x;
  Solve(SystemPtr(made), Set({{"rtol", "1e-12"}}), Three().b, &x);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(x[i], static_cast<double>(i + 1), 1e-10);

  ASSERT_EQ(
      spaid_system_csr(client_.get(), 3, ptr.data(), 32, idx.data(), 32, values.data(), 0, &made),
      0);
  const SystemPtr unsorted(made);
  EXPECT_EQ(spaid_solve(unsorted.get(), nullptr, 1, Three().b.data(), nullptr, x.data(), nullptr),
            SPAID_INVALID_ARGUMENT)
      << "the daemon refuses it";
  EXPECT_NE(Reason(), "");
}

TEST_F(CSystem, SolvesSeveralRightHandSidesFromAGuess) {
  const CscMatrix a = Poisson(30, 20);
  const SystemPtr system = Make(a);
  std::vector<double> b, want;
  for (int k = 0; k < 3; ++k) {
    std::vector<double> x(static_cast<size_t>(a.n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i + 1) * (k + 1));
    const std::vector<double> image = e2e::Multiply(a, x);
    want.insert(want.end(), x.begin(), x.end());
    b.insert(b.end(), image.begin(), image.end());
  }
  const Options options = Set({{"engine", "jacobi"}, {"method", "cg"}, {"rtol", "1e-11"}});
  std::vector<double> x;
  const Report report = Solve(system, options, b, &x, nullptr, 3);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], want[i], 1e-7);
  EXPECT_EQ(Text(report, "method"), "cg");
  EXPECT_EQ(Text(report, "rhs.2.outcome"), "CONVERGED");
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(spaid_report_outcome(report.get(), k), SPAID_CONVERGED);
    const spaid_long count = spaid_report_history(report.get(), k, 0, nullptr, nullptr);
    ASSERT_GT(count, 2);
    std::vector<spaid_long> iterations(static_cast<size_t>(count), -1);
    std::vector<double> residuals(static_cast<size_t>(count), -1);
    EXPECT_EQ(spaid_report_history(report.get(), k, count, iterations.data(), residuals.data()),
              count);
    EXPECT_TRUE(std::is_sorted(iterations.begin(), iterations.end()));
    EXPECT_LE(iterations.back(), spaid_report_iterations(report.get(), k));
    EXPECT_LE(residuals.back(), 1e-10);
    double one = -1;
    EXPECT_EQ(spaid_report_history(report.get(), k, 1, nullptr, &one), count);
    EXPECT_EQ(one, residuals.front());
  }
  // x is both the guess and the result: it solves the system already.
  const Report again = Solve(system, Set({{"rtol", "1e-6"}}), b, &x, x.data(), 3);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(spaid_report_iterations(again.get(), k), 0);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], want[i], 1e-5);
}

TEST_F(CSystem, AStepSendsValuesAndKeepsM) {
  CscMatrix a = e2e::Irregular(3000, 7);
  a = e2e::OtherValues(std::move(a));
  const SystemPtr system = Make(a);
  const Options options = Set({{"engine", "static-spai"}, {"reuse", "keep"}});
  const std::vector<double> b = e2e::SmoothRhs(a);
  std::vector<double> x;
  const Report first = Solve(system, options, b, &x);
  const auto value_bytes = static_cast<double>(8 * a.values.size());
  EXPECT_GT(Number(first, "bytes_up"), value_bytes + static_cast<double>(4 * a.row_idx.size()));
  for (double& value : a.values) value *= 1.25;
  ASSERT_EQ(spaid_system_set_values(system.get(), a.values.data()), 0);
  const Report second = Solve(system, options, b, &x);
  EXPECT_LE(e2e::RelativeResidual(a, x, b), 1e-7);
  EXPECT_EQ(Number(second, "bytes_up"), value_bytes + static_cast<double>(8 * b.size()));
  EXPECT_EQ(Text(second, "reuse.decision"), "kept");
  EXPECT_EQ(Text(second, "preconditioner"), Text(first, "preconditioner"));
  // Another spec is another M; what stays is the matrix.
  const Report third =
      Solve(system, Set({{"engine", "static-spai"}, {"pattern-power", "2"}}), b, &x);
  EXPECT_NE(Text(third, "preconditioner"), Text(first, "preconditioner"));
  const char* decision = "";
  EXPECT_EQ(spaid_report_text(third.get(), "reuse.decision", &decision), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(decision, nullptr);
  EXPECT_EQ(Number(third, "bytes_up"), static_cast<double>(8 * b.size()));
}

TEST_F(CSystem, TellsHowItEnded) {
  const CscMatrix a = Poisson(40, 40);
  const SystemPtr system = Make(a);
  const std::vector<double> b(static_cast<size_t>(a.n), 1.0);
  std::vector<double> x(b.size(), NAN);
  spaid_report* told = nullptr;
  ASSERT_EQ(spaid_solve(system.get(),
                        Set({{"engine", "none"}, {"method", "cg"}, {"max-iterations", "5"}}).get(),
                        1, b.data(), nullptr, x.data(), &told),
            SPAID_MAX_ITERATIONS);
  const Report report(told);
  EXPECT_EQ(spaid_report_iterations(report.get(), 0), 5);
  EXPECT_NEAR(spaid_report_residual(report.get(), 0), e2e::RelativeResidual(a, x, b), 1e-12)
      << "x is the best iterate";
  EXPECT_STREQ(spaid_status_name(SPAID_MAX_ITERATIONS), "max-iterations");

  // diag(1, -1): CG sees that at once, and the second of two right-hand sides alone suffers.
  const std::vector<int> ptr = {0, 1, 2}, idx = {0, 1};
  const std::vector<double> values = {1, -1}, two = {1, 0, 1, 1};
  spaid_system* made = nullptr;
  ASSERT_EQ(
      spaid_system_csr(client_.get(), 2, ptr.data(), 32, idx.data(), 32, values.data(), 0, &made),
      0);
  const SystemPtr indefinite(made);
  x.assign(4, NAN);
  const int status =
      spaid_solve(indefinite.get(), Set({{"engine", "none"}, {"method", "minres"}}).get(), 2,
                  two.data(), nullptr, x.data(), nullptr);
  EXPECT_EQ(status, 0) << spaid_last_error();
  EXPECT_NEAR(x[3], -1, 1e-7);
  EXPECT_NE(spaid_solve(indefinite.get(), Set({{"engine", "none"}, {"method", "cg"}}).get(), 2,
                        two.data(), nullptr, x.data(), nullptr),
            0)
      << "CG needs a positive diagonal";
}

TEST_F(CSystem, ProjectsNullVectorsOut) {
  // A ring: rows sum to 0, and b does, too.
  const int n = 50;
  std::vector<int> ptr = {0}, idx;
  std::vector<double> values, b(n, 0.0), x(n, 0.0), z(n, 1.0);
  for (int i = 0; i < n; ++i) {
    std::vector<int> row = {(i + n - 1) % n, i, (i + 1) % n};
    std::sort(row.begin(), row.end());
    for (const int j : row) {
      idx.push_back(j);
      values.push_back(j == i ? 2 : -1);
    }
    ptr.push_back(static_cast<int>(idx.size()));
  }
  b[0] = 1;
  b[n / 2] = -1;
  spaid_system* made = nullptr;
  ASSERT_EQ(
      spaid_system_csr(client_.get(), n, ptr.data(), 32, idx.data(), 32, values.data(), 0, &made),
      0);
  const SystemPtr system(made);
  const Options options = Set({{"engine", "none"}, {"method", "cg"}, {"null-space", "none"}});
  ASSERT_EQ(spaid_system_set_null_vectors(system.get(), 1, z.data()), 0) << spaid_last_error();
  z.assign(z.size(), NAN);  // copied
  const Report report = Solve(system, options, b, &x);
  EXPECT_NE(Text(report, "null_space"), "");
  double sum = 0;
  for (const double value : x) sum += value;
  EXPECT_NEAR(sum, 0, 1e-8);
  EXPECT_NEAR(x[0] - x[n / 2], n / 4.0, 1e-5) << "two halves of the ring, in parallel";
  ASSERT_EQ(spaid_system_set_null_vectors(system.get(), 0, nullptr), 0);
  EXPECT_EQ(Text(Solve(system, options, b, &x), "null_space"), "");
  EXPECT_EQ(spaid_system_set_null_vectors(system.get(), -1, nullptr), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(spaid_system_set_null_vectors(system.get(), 1, nullptr), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "vectors");
}

TEST_F(CSystem, GivesMultigridNearNullVectorsAndCoordinates) {
  const CscMatrix a = Poisson(40, 40);
  const std::vector<double> b(static_cast<size_t>(a.n), 1.0);
  const SystemPtr system = Make(a);
  std::vector<double> x(b.size()), ones(b.size(), 1.0);
  const Options options = Set({{"engine", "amg"}, {"rtol", "1e-10"}});
  ASSERT_EQ(spaid_system_set_near_null_space(system.get(), 1, ones.data()), 0);
  ones.assign(ones.size(), NAN);  // copied
  const Report report = Solve(system, options, b, &x);
  EXPECT_EQ(Text(report, "engine"), "amg");
  EXPECT_GE(Number(report, "quality.amg.levels.1.rows"), 1);
  EXPECT_EQ(Number(report, "quality.amg.levels.0.rows"), a.n);
  EXPECT_EQ(Text(report, "quality.amg.smoother"), "l1-jacobi");
  ones.assign(2 * ones.size(), 1.0);
  const auto solve = [&] {
    return spaid_solve(system.get(), options.get(), 1, b.data(), nullptr, x.data(), nullptr);
  };
  ASSERT_EQ(spaid_system_set_near_null_space(system.get(), 2, ones.data()), 0);
  EXPECT_EQ(solve(), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Reason(), "RANK_DEFICIENT");
  ASSERT_EQ(spaid_system_set_coordinates(system.get(), 4, ones.data()), 0);
  EXPECT_EQ(solve(), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Reason(), "BAD_COORDINATES");
  ASSERT_EQ(spaid_system_set_coordinates(system.get(), 0, nullptr), 0);
  EXPECT_EQ(solve(), 0) << spaid_last_error();
  EXPECT_EQ(spaid_system_set_coordinates(system.get(), -1, nullptr), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(spaid_system_set_coordinates(system.get(), 2, nullptr), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "coordinates");
  spaid_preconditioner* m = nullptr;
  EXPECT_EQ(spaid_build(system.get(), options.get(), &m, nullptr), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Reason(), "PART_NEEDED");
  EXPECT_EQ(m, nullptr);
  EXPECT_EQ(spaid_build(system.get(), options.get(), nullptr, nullptr), 0) << spaid_last_error();
}

// A progress function: what it saw, and does.
struct Seen {
  std::vector<std::string> stages;
  std::vector<double> residuals;
  spaid_long stop_at = -1;  // iteration
};

int See(void* data, const spaid_progress* news) {
  Seen& seen = *static_cast<Seen*>(data);
  if (seen.stages.empty() || seen.stages.back() != news->stage) seen.stages.push_back(news->stage);
  if (news->rhs < 0) return 0;
  seen.residuals.push_back(news->relative_residual);
  return seen.stop_at >= 0 && news->iteration >= seen.stop_at;
}

TEST_F(CSystem, ReportsProgressAndStopsWhereItIsTold) {
  const CscMatrix a = Poisson(60, 60);
  const SystemPtr system = Make(a);
  const std::vector<double> b(static_cast<size_t>(a.n), 1.0);
  std::vector<double> x;
  Seen seen;
  ASSERT_EQ(spaid_system_set_progress(system.get(), See, &seen), 0);
  const Options options = Set({{"engine", "fsai"}});
  const Report report = Solve(system, options, b, &x);
  EXPECT_EQ(std::count(seen.stages.begin(), seen.stages.end(), "upload") > 0, true);
  EXPECT_EQ(std::count(seen.stages.begin(), seen.stages.end(), "solve") > 0, true);
  ASSERT_EQ(static_cast<spaid_long>(seen.residuals.size()),
            spaid_report_history(report.get(), 0, 0, nullptr, nullptr));
  EXPECT_LE(seen.residuals.back(), 1e-8);
  const size_t seen_before = seen.residuals.size();

  seen = {.stages = {}, .residuals = {}, .stop_at = 0};
  EXPECT_EQ(spaid_solve(system.get(), options.get(), 1, b.data(), nullptr, x.data(), nullptr),
            SPAID_STOPPED);
  EXPECT_EQ(Reason(), "STOP_REQUESTED");
  EXPECT_EQ(seen.residuals.size(), 1U) << "nobody is told more after the stop";
  // One that has nothing left to be ended is stopped all the same.
  std::vector<spaid_long> iterations(seen_before, -1);
  spaid_report_history(report.get(), 0, static_cast<spaid_long>(seen_before), iterations.data(),
                       nullptr);
  seen = {.stages = {}, .residuals = {}, .stop_at = iterations.back()};
  EXPECT_EQ(spaid_solve(system.get(), options.get(), 1, b.data(), nullptr, x.data(), nullptr),
            SPAID_STOPPED);
  // The system serves on, without a progress function.
  ASSERT_EQ(spaid_system_set_progress(system.get(), nullptr, nullptr), 0);
  Solve(system, options, b, &x);
}

// Waits in the first report of a residual until the test has done something.
struct Gate {
  std::promise<void> reached;
  std::promise<void> open;
  bool waited = false;
};

int Wait(void* data, const spaid_progress* news) {
  Gate& gate = *static_cast<Gate*>(data);
  if (news->rhs < 0 || gate.waited) return 0;
  gate.waited = true;
  gate.reached.set_value();
  gate.open.get_future().wait();
  return 0;
}

TEST_F(CSystem, IsCancelledByAnotherThreadAndServesOneCallAtATime) {
  const CscMatrix a = Poisson(500, 500);  // 1,000 iterations: the daemon is at work meanwhile
  const SystemPtr system = Make(a);
  const std::vector<double> b = e2e::SmoothRhs(a);
  std::vector<double> x(b.size()), y(b.size());
  Gate gate;
  ASSERT_EQ(spaid_system_set_progress(system.get(), Wait, &gate), 0);
  const Options options = Set({{"engine", "none"}, {"method", "cg"}, {"rtol", "1e-13"}});
  EXPECT_EQ(spaid_cancel(system.get()), 0) << "nothing is running";
  int status = 0;
  std::string reason;
  std::thread solving([&] {
    status = spaid_solve(system.get(), options.get(), 1, b.data(), nullptr, x.data(), nullptr);
    reason = Reason();
  });
  gate.reached.get_future().wait();
  EXPECT_EQ(spaid_solve(system.get(), nullptr, 1, b.data(), nullptr, y.data(), nullptr),
            SPAID_FAILED_PRECONDITION);
  EXPECT_EQ(Reason(), "SYSTEM_BUSY");
  EXPECT_EQ(spaid_build(system.get(), nullptr, nullptr, nullptr), SPAID_FAILED_PRECONDITION);
  EXPECT_EQ(spaid_system_set_values(system.get(), a.values.data()), SPAID_FAILED_PRECONDITION);
  EXPECT_EQ(spaid_system_set_progress(system.get(), nullptr, nullptr), SPAID_FAILED_PRECONDITION);
  EXPECT_EQ(spaid_system_set_null_vectors(system.get(), 0, nullptr), SPAID_FAILED_PRECONDITION);
  EXPECT_EQ(spaid_cancel(system.get()), 0);
  gate.open.set_value();
  solving.join();
  EXPECT_EQ(status, SPAID_STOPPED);
  EXPECT_EQ(reason, "STOP_REQUESTED");
}

TEST_F(CSystem, ObjectsMayBeFreedInAnyOrder) {
  const Three a;
  spaid_system* made = nullptr;
  ASSERT_EQ(spaid_system_csr(client_.get(), 3, a.row_ptr.data(), 32, a.col_idx.data(), 32,
                             a.by_rows.data(), 0, &made),
            0);
  const SystemPtr system(made);
  client_.reset();
  std::vector<double> x;
  spaid_report* told = nullptr;
  ASSERT_EQ(spaid_build(system.get(), Set({{"engine", "jacobi"}}).get(), nullptr, &told), 0);
  const Report built(told);
  const Report solved = Solve(system, Set({{"engine", "jacobi"}}), a.b, &x);
  EXPECT_EQ(Text(solved, "engine"), "jacobi");
  EXPECT_EQ(Text(solved, "preconditioner"), Text(built, "name"));
  EXPECT_EQ(Text(solved, "reuse.decision"), "kept");
}

TEST_F(CSystem, ManySystemsShareAClient) {
  const CscMatrix a = Poisson(40, 30);
  const std::vector<double> b(static_cast<size_t>(a.n), 1.0);
  std::vector<std::thread> threads;
  std::vector<int> status(8, -99);
  for (int k = 0; k < 8; ++k) {
    threads.emplace_back([&, k] {
      const SystemPtr system = Make(a);
      std::vector<double> x(b.size());
      status[static_cast<size_t>(k)] =
          spaid_solve(system.get(), nullptr, 1, b.data(), nullptr, x.data(), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int of : status) EXPECT_EQ(of, 0);
}

TEST(CLocal, SharesMemoryWithADaemonOnThisHost) {
  const e2e::TempDir folder;
  const std::string socket = folder / "local";
  e2e::Daemon daemon({"--local-socket=" + socket});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const ClientPtr client = Connect(Set({{"address", daemon.address()}, {"local-socket", socket}}));
  const CscMatrix a = Poisson(100, 100);
  const size_t n = static_cast<size_t>(a.n);
  const auto shared = [&](size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(spaid_allocate(client.get(), static_cast<spaid_long>(bytes), &memory), 0)
        << spaid_last_error();
    return memory;
  };
  auto* const values = static_cast<double*>(shared(8 * a.values.size()));
  auto* const b = static_cast<double*>(shared(8 * n));
  auto* const x = static_cast<double*>(shared(8 * n));
  std::copy(a.values.begin(), a.values.end(), values);
  std::fill(b, b + n, 1.0);
  spaid_system* made = nullptr;
  ASSERT_EQ(spaid_system_csc(client.get(), a.n, a.col_ptr.data(), 64, a.row_idx.data(), 32, values,
                             0, &made),
            0);
  const SystemPtr system(made);
  ASSERT_EQ(spaid_solve(system.get(), nullptr, 1, b, nullptr, x, nullptr), 0) << spaid_last_error();
  const std::vector<double> solution(x, x + n), ones(n, 1.0);
  EXPECT_LE(e2e::RelativeResidual(a, solution, ones), 1e-7);
  spaid_report* told = nullptr;
  ASSERT_EQ(spaid_client_info(client.get(), &told), 0) << spaid_last_error();
  const Report info(told);
  EXPECT_EQ(Number(info, "local.available"), 1) << Text(info, "local.why");
  EXPECT_EQ(Number(info, "local.shared_bytes"), static_cast<double>(8 * a.values.size() + 16 * n));
  EXPECT_EQ(Number(info, "local.fallback_bytes"), 0);

  EXPECT_EQ(spaid_release(client.get(), x), 0);
  EXPECT_EQ(spaid_release(client.get(), x), SPAID_INVALID_ARGUMENT) << "twice";
  EXPECT_EQ(spaid_release(client.get(), nullptr), 0);
  void* memory = nullptr;
  EXPECT_EQ(spaid_allocate(client.get(), 0, &memory), SPAID_INVALID_ARGUMENT);
  EXPECT_EQ(Field(), "bytes");
  EXPECT_EQ(memory, nullptr);
  // More than any machine has. The limit is for the machine that runs this test, should it be
  // tried.
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low = {64 << 20, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_EQ(spaid_allocate(client.get(), spaid_long{1} << 60, &memory), SPAID_RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(), "OUT_OF_MEMORY");
  EXPECT_NE(std::string(spaid_last_error()).find(std::strerror(ENOMEM)), std::string::npos)
      << spaid_last_error();
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace spaid::c
