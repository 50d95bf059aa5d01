// The daemon's main job through the C++ client: upload, build, solve, and again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;

class MainJob : public OneDaemon {
 protected:
  static ClientOptions Options() { return {.address = daemon_->address()}; }
};

TEST_F(MainJob, ServerInfoSaysWhatWorks) {
  Client client(Options());
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_FALSE(info->version.empty());
  EXPECT_THAT(info->engines,
              ::testing::IsSupersetOf({Engine::kJacobi, Engine::kStaticSpai, Engine::kFsai,
                                       Engine::kAfsai, Engine::kDynamicSpai}));
  EXPECT_THAT(info->methods,
              ::testing::IsSupersetOf(
                  {Method::kCg, Method::kBicgstab, Method::kGmres, Method::kMinres, Method::kIdr}));
  ASSERT_FALSE(info->devices.empty());
  EXPECT_EQ(info->tenant, "default");
  EXPECT_FALSE(info->draining);
  EXPECT_GT(info->max_matrix_bytes, 0);
}

struct Pair {
  Engine engine;
  Method method;
  bool symmetric;
};

class EveryPair : public MainJob, public ::testing::WithParamInterface<Pair> {};

TEST_P(EveryPair, Converges) {
  const auto [engine, method, symmetric] = GetParam();
  const CscMatrix a = symmetric ? Poisson(30, 20) : ConvectionDiffusion(30, 20, 0.5);
  const std::vector<double> b = SmoothRhs(a);
  Client client(Options());
  const auto solved = client.Solve(a, b, {.engine = engine, .method = method, .rtol = 1e-9});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  ASSERT_EQ(solved->rhs.size(), 1u);
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  // Both as computed here and as the daemon says.
  EXPECT_LE(RelativeResidual(a, solved->x, b), 1.001e-9);
  EXPECT_LE(solved->rhs[0].true_relative_residual, 1e-9);
  EXPECT_EQ(solved->engine, engine);
  EXPECT_EQ(solved->method, method);
  EXPECT_EQ(solved->device, "cpu");
  EXPECT_FALSE(solved->rhs[0].history.empty());
  if (engine == Engine::kStaticSpai) {
    EXPECT_FALSE(solved->preconditioner.empty());
    EXPECT_NEAR(solved->nnz_ratio, 1.0, 1e-12);  // pattern power 1: M has A's pattern
  }
}

INSTANTIATE_TEST_SUITE_P(
    EngineAndMethod, EveryPair,
    ::testing::Values(
        Pair{Engine::kNone, Method::kCg, true}, Pair{Engine::kNone, Method::kBicgstab, false},
        Pair{Engine::kNone, Method::kGmres, false}, Pair{Engine::kJacobi, Method::kCg, true},
        Pair{Engine::kJacobi, Method::kBicgstab, false},
        Pair{Engine::kJacobi, Method::kGmres, false},
        Pair{Engine::kStaticSpai, Method::kBicgstab, false},
        Pair{Engine::kStaticSpai, Method::kBicgstab, true},
        Pair{Engine::kStaticSpai, Method::kGmres, false},
        Pair{Engine::kDynamicSpai, Method::kBicgstab, false},
        Pair{Engine::kDynamicSpai, Method::kGmres, true}, Pair{Engine::kFsai, Method::kCg, true},
        Pair{Engine::kFsai, Method::kBicgstab, true}, Pair{Engine::kAfsai, Method::kCg, true},
        Pair{Engine::kAfsai, Method::kGmres, true}, Pair{Engine::kNone, Method::kMinres, true},
        Pair{Engine::kFsai, Method::kMinres, true}, Pair{Engine::kNone, Method::kIdr, false},
        Pair{Engine::kStaticSpai, Method::kIdr, false}),
    [](const auto& instance) {
      std::string name = std::string(Name(instance.param.engine)) + "_" +
                         std::string(Name(instance.param.method)) +
                         (instance.param.symmetric ? "_symmetric" : "_nonsymmetric");
      std::erase(name, '-');
      return name;
    });

TEST_F(MainJob, AutoSaysWhatItChoseAndWhy) {
  const CscMatrix a = ConvectionDiffusion(25, 25, 1.0);
  const std::vector<double> b = SmoothRhs(a);
  Client client(Options());
  const auto solved = client.Solve(a, b);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  EXPECT_NE(solved->engine, Engine::kAuto);
  EXPECT_NE(solved->method, Method::kAuto);
  EXPECT_FALSE(solved->choice_reason.empty());
}

TEST_F(MainJob, ABuiltInverseIsWhatItsQualitySays) {
  const CscMatrix a = ConvectionDiffusion(18, 17, 0.7);
  Client client(Options());
  const auto matrix = client.Upload(a, "with a label");
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(matrix->n, a.n);
  EXPECT_EQ(matrix->nnz, static_cast<int64_t>(a.row_idx.size()));
  EXPECT_EQ(matrix->label, "with a label");
  EXPECT_TRUE(matrix->diagnosis.structurally_symmetric);
  EXPECT_FALSE(matrix->diagnosis.numerically_symmetric);

  std::vector<double> residuals;
  for (const int power : {1, 2}) {
    std::set<Progress::Kind> kinds;
    const PreconditionerSpec spec{.pattern_power = power};
    const auto estimate = client.Estimate(matrix->name, spec);
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;
    const auto built = client.Build(
        matrix->name, spec, true,
        {.on_progress = [&](const Progress& progress) { kinds.insert(progress.kind); }});
    ASSERT_TRUE(built.ok()) << built.error().message;
    ASSERT_TRUE(built->m);
    const PreconditionerInfo& info = built->preconditioner;
    EXPECT_EQ(info.matrix, matrix->name);
    EXPECT_EQ(info.spec.pattern_power, power);
    EXPECT_EQ(info.nnz, static_cast<int64_t>(built->m->values.size()));
    EXPECT_LE(info.nnz, estimate->nnz);
    EXPECT_LE(info.host_bytes, estimate->host_bytes);
    const double residual = InverseResidual(a, *built->m);
    EXPECT_NEAR(info.quality.residual_frobenius, residual, 1e-10 * residual);
    residuals.push_back(residual);
    EXPECT_THAT(kinds,
                ::testing::IsSupersetOf({Progress::Kind::kQueued, Progress::Kind::kStarted,
                                         Progress::Kind::kQuality, Progress::Kind::kFinished}));
    // The same, fetched later by its handle.
    const auto again = client.Download(info.name);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->values, built->m->values);
    EXPECT_EQ(again->row_idx, built->m->row_idx);
    EXPECT_EQ(again->col_ptr, built->m->col_ptr);
  }
  EXPECT_LT(residuals[1], residuals[0]);  // a larger pattern contains the smaller one's minimum
}

TEST_F(MainJob, AFullPatternGivesTheInverse) {
  const CscMatrix a = ConvectionDiffusion(4, 3, 0.3);
  Client client(Options());
  const auto built = client.Build(a, PreconditionerSpec{.pattern_power = 8}, true);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->m->values.size(), 144u);
  EXPECT_LT(InverseResidual(a, *built->m), 1e-10);
}

TEST_F(MainJob, BlockJacobiInvertsBlocksAndGoesWithCg) {
  // Blocks as long as the grid is wide: lines of it.
  CscMatrix a = Poisson(25, 41);
  const PreconditionerSpec spec{.engine = Engine::kJacobi, .block_size = 25};
  Client client(Options());
  const auto matrix = client.Upload(a);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  const auto estimate = client.Estimate(matrix->name, spec);
  ASSERT_TRUE(estimate.ok()) << estimate.error().message;
  const auto built = client.Build(matrix->name, spec, true);
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->preconditioner.spec.engine, Engine::kJacobi);
  EXPECT_EQ(built->preconditioner.spec.block_size, 25);
  EXPECT_EQ(built->preconditioner.nnz, 41 * 25 * 25);
  EXPECT_EQ(estimate->nnz, built->preconditioner.nnz);
  EXPECT_LE(built->preconditioner.host_bytes, estimate->host_bytes);
  const double residual = InverseResidual(a, *built->m);
  EXPECT_NEAR(built->preconditioner.quality.residual_frobenius, residual, 1e-10 * residual);

  const std::vector<double> b = SmoothRhs(a);
  const auto by_points = client.Solve(matrix->name, b, {.engine = Engine::kJacobi});
  const auto by_lines = client.Solve(
      matrix->name, b, {.preconditioner = built->preconditioner.name, .method = Method::kAuto});
  ASSERT_TRUE(by_points.ok() && by_lines.ok());
  EXPECT_EQ(by_lines->method, Method::kCg);
  EXPECT_EQ(by_lines->rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(RelativeResidual(a, by_lines->x, b), 1.001e-8);
  EXPECT_LT(by_lines->rhs[0].iterations, by_points->rhs[0].iterations);

  // New values for the pattern; and other blocks are another preconditioner, no rebuild.
  for (double& value : a.values) value *= 1.25;
  const auto next = client.Build(a, spec);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_TRUE(next->timings.rebuild);
  const auto other = client.Build(a, {.engine = Engine::kJacobi, .block_size = 5});
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_FALSE(other->timings.rebuild);
  EXPECT_NE(other->preconditioner.name, next->preconditioner.name);
}

TEST_F(MainJob, TheNextTimeStepReusesThePlan) {
  CscMatrix a = ConvectionDiffusion(40, 30, 0.2);
  const PreconditionerSpec spec{.pattern_power = 2};
  Client client(Options());
  const auto first = client.Build(a, spec);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_FALSE(first->timings.rebuild);
  const auto same = client.Build(a, spec);
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->timings.reused);
  EXPECT_EQ(same->preconditioner.name, first->preconditioner.name);
  EXPECT_EQ(same->timings.bytes_up, 0);  // found by its digest

  for (double& value : a.values) value *= 1.25;
  const auto next = client.Build(a, spec, true);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_TRUE(next->timings.rebuild);
  EXPECT_FALSE(next->timings.reused);
  EXPECT_EQ(next->timings.plan_ms, 0);
  EXPECT_NE(next->preconditioner.name, first->preconditioner.name);
  const double residual = InverseResidual(a, *next->m);
  EXPECT_NEAR(next->preconditioner.quality.residual_frobenius, residual, 1e-10 * residual);
  // An old M for a new A is an ordinary request.
  const std::vector<double> b = SmoothRhs(a);
  const auto solved = client.Solve(
      a, b, {.preconditioner = first->preconditioner.name, .method = Method::kBicgstab});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(RelativeResidual(a, solved->x, b), 1.001e-8);
}

TEST_F(MainJob, MIsStoredAsAskedForAndFiguresAreTold) {
  const CscMatrix a = ConvectionDiffusion(200, 180, 0.4);
  const std::vector<double> b = SmoothRhs(a);
  Client client(Options());
  SolveOptions options{.engine = Engine::kStaticSpai, .rtol = 1e-9};
  for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kAuto}) {
    options.m_precision = precision;
    const auto solved = client.Solve(a, b, options);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(RelativeResidual(a, solved->x, b), 1.001e-9);
    ASSERT_TRUE(solved->m_precision.has_value());
    if (precision == Precision::kAuto) {
      EXPECT_EQ(solved->precision_reason.rfind(std::string(Name(*solved->m_precision)) + ": ", 0),
                0u)
          << solved->precision_reason;
    } else {
      EXPECT_EQ(solved->m_precision, precision);
      EXPECT_EQ(solved->precision_reason, "");
    }
    const SolveFigures& figures = solved->figures;
    EXPECT_EQ(figures.iterations, solved->rhs[0].iterations);
    EXPECT_GT(figures.place_ms, 0);
    EXPECT_GT(figures.check_ms, 0);
    EXPECT_LE(figures.place_ms + figures.trial_ms + figures.iterate_ms + figures.check_ms,
              solved->timings.solve_ms);
    EXPECT_NEAR(figures.iterations_per_second * figures.iterate_ms,
                1e3 * static_cast<double>(figures.iterations), 1e-6);
    EXPECT_GT(figures.copy_bytes_per_second, 1e7);
    EXPECT_NEAR(figures.copy_share, figures.bytes_per_second / figures.copy_bytes_per_second, 1e-9);
    EXPECT_EQ(solved->placement, "") << "there is one device alone";
  }
  // M is about the inverse: too large for fp32.
  CscMatrix tiny = a;
  for (double& value : tiny.values) value *= 1e-45;
  options.m_precision = Precision::kFp32;
  const auto refused = client.Solve(tiny, b, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(refused.error().reason, "FLOAT32_OVERFLOW");
  EXPECT_EQ(refused.error().field, "header.preconditioner_storage");
  EXPECT_THAT(refused.error().message, HasSubstr("store M in fp64"));
  const auto none = client.Solve(a, b, {.engine = Engine::kJacobi});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->m_precision.has_value());
}

TEST_F(MainJob, SeveralRightHandSidesAndAGuess) {
  const CscMatrix a = Poisson(20, 20);
  const std::vector<double> b1 = SmoothRhs(a);
  std::vector<double> b(b1);
  b.insert(b.end(), b1.rbegin(), b1.rend());
  b.resize(3 * b1.size());  // the third is zero
  Client client(Options());
  const auto solved = client.Solve(a, b, {.engine = Engine::kJacobi, .method = Method::kCg});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  ASSERT_EQ(solved->rhs.size(), 3u);
  const auto n = static_cast<size_t>(a.n);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(solved->rhs[i].outcome, Outcome::kConverged);
    EXPECT_LE(
        RelativeResidual(a, std::span(solved->x).subspan(i * n, n), std::span(b).subspan(i * n, n)),
        1.001e-8);
  }
  EXPECT_EQ(solved->rhs[2].outcome, Outcome::kConverged);
  for (size_t i = 2 * n; i < 3 * n; ++i) ASSERT_EQ(solved->x[i], 0.0);

  const auto from_solution = client.Solve(
      a, b,
      {.engine = Engine::kJacobi, .method = Method::kCg, .rtol = 1e-7, .initial_guess = solved->x});
  ASSERT_TRUE(from_solution.ok()) << from_solution.error().message;
  for (const auto& rhs : from_solution->rhs) EXPECT_EQ(rhs.iterations, 0);
}

TEST_F(MainJob, RowMajorFp32AndUnsortedInputAreTheSameMatrix) {
  const CscMatrix a =
      Poisson(9, 7);  // symmetric: its CSR is its CSC; small integers: exact in fp32
  Client client(Options());
  const auto plain = client.Upload(a);
  ASSERT_TRUE(plain.ok()) << plain.error().message;

  CscView rows = a;
  rows.by_rows = true;
  const auto by_rows = client.Upload(rows);
  ASSERT_TRUE(by_rows.ok()) << by_rows.error().message;
  const std::vector<float> narrow(a.values.begin(), a.values.end());
  CscView fp32 = a;
  fp32.values = {};
  fp32.values_f32 = narrow;
  const auto single = client.Upload(fp32);
  ASSERT_TRUE(single.ok()) << single.error().message;
  CscMatrix shuffled = a;
  std::swap(shuffled.row_idx[0], shuffled.row_idx[1]);
  std::swap(shuffled.values[0], shuffled.values[1]);
  CscView unsorted = shuffled;
  unsorted.sort_and_sum = true;
  const auto sorted = client.Upload(unsorted);
  ASSERT_TRUE(sorted.ok()) << sorted.error().message;
  for (const auto* other : {&*by_rows, &*single, &*sorted}) {
    EXPECT_EQ(other->pattern_digest, plain->pattern_digest);
    EXPECT_EQ(other->value_digest, plain->value_digest);
  }
}

TEST_F(MainJob, ListsHoldWhatIsThereUntilItIsDeleted) {
  Client client(Options());
  const auto matrix = client.Upload(Poisson(3, 5), "listed");
  ASSERT_TRUE(matrix.ok());
  const auto built = client.Build(matrix->name, PreconditionerSpec{});
  ASSERT_TRUE(built.ok());
  const auto has = [](const auto& items, const std::string& name) {
    for (const auto& item : *items) {
      if (item.name == name) return true;
    }
    return false;
  };
  EXPECT_TRUE(has(client.ListMatrices(), matrix->name));
  EXPECT_TRUE(has(client.ListPreconditioners(), built->preconditioner.name));
  EXPECT_FALSE(client.DeletePreconditioner(built->preconditioner.name));
  EXPECT_FALSE(client.DeleteMatrix(matrix->name));
  EXPECT_FALSE(has(client.ListMatrices(), matrix->name));
  EXPECT_FALSE(has(client.ListPreconditioners(), built->preconditioner.name));
  EXPECT_EQ(client.GetMatrix(matrix->name).error().reason, "HANDLE_UNKNOWN");
  EXPECT_EQ(client.GetPreconditioner(built->preconditioner.name).error().reason, "HANDLE_UNKNOWN");
}

TEST_F(MainJob, ManyClientsAtOnce) {
  constexpr int kClients = 8, kSolves = 6;
  std::atomic<int> converged = 0;
  std::mutex mutex;
  std::string failures;
  {
    std::vector<std::jthread> threads;
    for (int c = 0; c < kClients; ++c) {
      threads.emplace_back([&, c] {
        Client client(Options());
        for (int s = 0; s < kSolves; ++s) {
          const CscMatrix a = ConvectionDiffusion(12 + s, 11, 0.1 * (c % 4 + 1));
          const std::vector<double> b = SmoothRhs(a);
          const auto solved =
              client.Solve(a, b, {.engine = Engine::kStaticSpai, .method = Method::kBicgstab});
          if (solved.ok() && solved->rhs[0].outcome == Outcome::kConverged &&
              RelativeResidual(a, solved->x, b) <= 1.001e-8) {
            ++converged;
          } else {
            const std::lock_guard lock(mutex);
            failures += solved.ok() ? "not converged\n" : solved.error().message + "\n";
          }
        }
      });
    }
  }
  EXPECT_EQ(converged, kClients * kSolves) << failures;
}

TEST_F(MainJob, TheSameBuildFromManyIsOneBuild) {
  const CscMatrix a = ConvectionDiffusion(60, 50, 0.35);
  std::vector<std::future<Expected<BuildResult>>> builds;
  for (int i = 0; i < 6; ++i) {
    builds.push_back(std::async(std::launch::async, [&] {
      Client client(Options());
      return client.Build(a, PreconditionerSpec{.pattern_power = 3});
    }));
  }
  std::set<std::string> names;
  int made = 0;
  for (auto& build : builds) {
    const auto result = build.get();
    ASSERT_TRUE(result.ok()) << result.error().message;
    names.insert(result->preconditioner.name);
    made += !result->timings.reused;
  }
  EXPECT_EQ(names.size(), 1u);
  EXPECT_EQ(made, 1);
}

// Long enough to be met running; short enough to be waited for.
const PreconditionerSpec kLongBuild{.pattern_power = 4, .local_solver = LocalSolver::kQr};
// Minutes: to be stopped.
const PreconditionerSpec kEndlessBuild{.pattern_power = 10, .local_solver = LocalSolver::kQr};

TEST_F(MainJob, ADetachedJobOutlivesItsClientAndCanBeWatched) {
  const CscMatrix a = ConvectionDiffusion(70, 70, 0.15);
  Client client(Options());
  const auto matrix = client.Upload(a);
  ASSERT_TRUE(matrix.ok());
  std::stop_source stop;
  std::string job;
  const auto left = client.Build(matrix->name, kLongBuild, false,
                                 {.stop = stop.get_token(),
                                  .on_progress =
                                      [&](const Progress& progress) {
                                        job = progress.job;
                                        if (progress.kind == Progress::Kind::kStarted) {
                                          stop.request_stop();
                                        }
                                      },
                                  .detach = true});
  ASSERT_FALSE(left.ok());
  EXPECT_EQ(left.error().reason, "STOP_REQUESTED");
  std::vector<int64_t> numbers;
  const auto ended = client.Watch(job, {.on_progress = [&](const Progress& progress) {
                                    if (progress.event_number > 0) {
                                      numbers.push_back(progress.event_number);
                                    }
                                  }});
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_EQ(ended->state, JobState::kSucceeded);
  EXPECT_TRUE(ended->detached);
  EXPECT_FALSE(ended->preconditioner.empty());
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_EQ(numbers.front(), 1);
  EXPECT_TRUE(client.GetPreconditioner(ended->preconditioner).ok());
}

TEST_F(MainJob, AJobCanBeCancelledFromElsewhere) {
  const CscMatrix a = ConvectionDiffusion(90, 80, 0.45);
  Client client(Options()), other(Options());
  const auto built =
      client.Build(a, kEndlessBuild, false, {.on_progress = [&](const Progress& progress) {
                     if (progress.kind == Progress::Kind::kStarted) {
                       EXPECT_TRUE(other.Cancel(progress.job).ok());
                     }
                   }});
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().code, Code::kCancelled);
  EXPECT_EQ(built.error().reason, "CANCELLED");
}

TEST_F(MainJob, ADroppedClientsJobIsCancelled) {
  const CscMatrix a = ConvectionDiffusion(90, 85, 0.55);
  Client client(Options());
  std::stop_source stop;
  std::string job;
  const auto left =
      client.Build(a, kEndlessBuild, false,
                   {.stop = stop.get_token(), .on_progress = [&](const Progress& progress) {
                      if (progress.kind == Progress::Kind::kStarted) {
                        job = progress.job;
                        stop.request_stop();
                      }
                    }});
  ASSERT_FALSE(left.ok());
  ASSERT_FALSE(job.empty()) << left.error().message;
  const auto ended = client.Watch(job, {});
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_EQ(ended->state, JobState::kCancelled);
}

TEST_F(MainJob, DeadlinesReachTheInnermostLoop) {
  const CscMatrix a = ConvectionDiffusion(120, 120, 0.65);
  Client client(Options());
  const auto matrix = client.Upload(a);
  ASSERT_TRUE(matrix.ok());
  const auto max_run =
      client.Build(matrix->name, kEndlessBuild, false, {.max_run = std::chrono::milliseconds(20)});
  ASSERT_FALSE(max_run.ok());
  EXPECT_EQ(max_run.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(max_run.error().reason, "MAX_RUN");
  const auto timeout =
      client.Build(matrix->name, kEndlessBuild, false, {.timeout = std::chrono::milliseconds(100)});
  ASSERT_FALSE(timeout.ok());
  EXPECT_EQ(timeout.error().code, Code::kDeadlineExceeded);
}

TEST_F(MainJob, NotConvergingIsNotAnError) {
  const CscMatrix a = Poisson(40, 40);
  const std::vector<double> b = SmoothRhs(a);
  Client client(Options());
  const auto solved = client.Solve(
      a, b, {.engine = Engine::kNone, .method = Method::kCg, .rtol = 1e-10, .max_iterations = 5});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kMaxIterations);
  EXPECT_EQ(solved->rhs[0].iterations, 5);
  // The best iterate comes with its own residual.
  EXPECT_NEAR(solved->rhs[0].true_relative_residual, RelativeResidual(a, solved->x, b), 1e-12);
}

TEST_F(MainJob, RealMatrices) {
  const char* folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr || *folder == '\0') {
    GTEST_SKIP() << "SPAID_MATRICES names no folder of matrices";
  }
  struct Case {
    const char* file;
    Engine engine;
    Method method;
  };
  Client client(Options());
  for (const Case& c : {Case{"nos3", Engine::kJacobi, Method::kCg},
                        Case{"orsirr_1", Engine::kStaticSpai, Method::kBicgstab},
                        Case{"sherman4", Engine::kStaticSpai, Method::kGmres},
                        Case{"add32", Engine::kStaticSpai, Method::kBicgstab}}) {
    SCOPED_TRACE(c.file);
    const auto path = std::filesystem::path(folder) / (std::string(c.file) + ".mtx.gz");
    const auto read = oracle::ReadMatrixMarket(path.string());
    ASSERT_TRUE(read) << path;
    const CscMatrix a{.n = read->n_rows,
                      .col_ptr = {read->col_ptr.begin(), read->col_ptr.end()},
                      .row_idx = {read->row_idx.begin(), read->row_idx.end()},
                      .values = {read->values.begin(), read->values.end()}};
    const std::vector<double> ones(static_cast<size_t>(a.n), 1.0);
    const std::vector<double> b = Multiply(a, ones);
    const auto solved = client.Solve(a, b, {.engine = c.engine, .method = c.method});
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(RelativeResidual(a, solved->x, b), 1.001e-8);
  }
}

TEST(TwoTenants, SeeNothingOfEachOther) {
  Daemon daemon({"--trust-tenant-header"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client blue({.address = daemon.address(), .tenant = "blue"});
  Client red({.address = daemon.address(), .tenant = "red"});
  EXPECT_EQ(blue.GetServerInfo()->tenant, "blue");
  const CscMatrix a = Poisson(8, 8);
  const auto mine = blue.Upload(a);
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  EXPECT_EQ(red.GetMatrix(mine->name).error().code, Code::kNotFound);
  EXPECT_EQ(red.GetMatrix(mine->name).error().reason, "HANDLE_UNKNOWN");
  EXPECT_TRUE(red.ListMatrices()->empty());
  const auto theirs = red.Upload(a);  // the same content is not found by its digest
  ASSERT_TRUE(theirs.ok());
  EXPECT_NE(theirs->name, mine->name);
}

TEST(Eviction, IsHealedByTheClientThatHasTheArrays) {
  // Room for about two of these matrices.
  const CscMatrix a = Poisson(60, 60);
  Daemon daemon({"--matrix-store-bytes=" + std::to_string(5 * ArrayBytes(a) / 2),
                 "--max-matrix-bytes=" + std::to_string(2 * ArrayBytes(a))});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client({.address = daemon.address()});
  const auto first = client.Upload(a);
  ASSERT_TRUE(first.ok()) << first.error().message;
  for (int i = 1; i <= 3; ++i) {
    CscMatrix other = a;
    other.values[0] = 4.0 + i;
    // STORE_FULL while the stream of an upload before has not let go of its matrix yet.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (bool stored = false; !stored;) {
      const auto upload = client.Upload(other);
      stored = upload.ok();
      if (!stored) {
        ASSERT_EQ(upload.error().reason, "STORE_FULL") << upload.error().message;
        ASSERT_LT(std::chrono::steady_clock::now(), end);
      }
    }
  }
  const std::vector<double> b = SmoothRhs(a);
  const auto by_handle = client.Solve(first->name, b);
  EXPECT_EQ(by_handle.error().code, Code::kNotFound);
  EXPECT_EQ(by_handle.error().reason, "HANDLE_EVICTED");
  const auto solved = client.Solve(a, b, {.engine = Engine::kJacobi, .method = Method::kCg});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
}

}  // namespace
}  // namespace spaid::e2e
