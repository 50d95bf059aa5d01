// Time steps through the real daemon: the M of an earlier A is kept, rebuilt, or grown anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/e2e/engine_of_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;

// S A S, where S is diagonal, 1 at time 0, and the more uneven the later.
CscMatrix Drifted(CscMatrix a, int time) {
  std::mt19937_64 random(7);
  std::vector<double> s(static_cast<size_t>(a.n));
  for (double& entry : s) {
    entry = std::exp(0.06 * time * (std::ldexp(static_cast<double>(random() >> 11), -52) - 1));
  }
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      const auto entry = static_cast<size_t>(p);
      a.values[entry] *= s[static_cast<size_t>(j)] * s[static_cast<size_t>(a.row_idx[entry])];
    }
  }
  return a;
}

// The Laplacian of a grid whose couplings in x and in y are as strong as that.
CscMatrix Anisotropic(int nx, int ny, double x, double y) {
  CscMatrix a = Poisson(nx, ny);
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      const auto entry = static_cast<size_t>(p);
      const int64_t distance = std::abs(a.row_idx[entry] - j);
      a.values[entry] = distance == 0 ? 2 * (x + y) : distance == 1 ? -x : -y;
    }
  }
  return a;
}

class TimeSteps : public EngineOfDaemon {
 protected:
  static constexpr double kRtol = 1e-8;

  // Solves, and looks for x itself.
  SolveResult Solved(const CscMatrix& a, SolveOptions options) {
    const std::vector<double> b = SmoothRhs(a);
    options.rtol = kRtol;
    auto solved = client_.Solve(a, b, options);
    EXPECT_TRUE(solved.ok()) << solved.error().message;
    if (!solved.ok()) return {};
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(RelativeResidual(a, solved->x, b), kRtol * (1 + 1e-6));
    const auto& history = solved->rhs[0].history;
    EXPECT_EQ(static_cast<int64_t>(history.size()), solved->rhs[0].iterations + 1);
    for (size_t k = 0; k < history.size(); ++k) {
      EXPECT_EQ(history[k].iteration, static_cast<int32_t>(k)) << "the history goes on";
    }
    return *std::move(solved);
  }
  static SolveOptions With(const std::string& m, ReuseMode mode, double factor = 1.5) {
    SolveOptions options;
    options.preconditioner = m;
    options.reuse = {.mode = mode, .factor = factor};
    return options;
  }
  std::string ReasonOf(const CscMatrix& a, const SolveOptions& options) {
    const auto refused = client_.Solve(a, SmoothRhs(a), options);
    EXPECT_FALSE(refused.ok());
    return refused.ok() ? "" : refused.error().reason + " " + refused.error().field;
  }
};

// One run over ten steps: what was decided and taken in each, and the handles that there were.
using Steps = std::vector<std::tuple<ReuseDecision, int64_t, int64_t>>;

TEST_F(TimeSteps, AutoKeepsMOverDriftingValuesUntilItTakesTooLong) {
  const CscMatrix start = Poisson(40, 30);
  Steps runs[2];
  for (Steps& steps : runs) {
    SolveOptions spec;
    spec.engine = Engine::kFsai;
    const SolveResult first = Solved(start, spec);
    EXPECT_FALSE(first.reuse);
    std::string m = first.preconditioner;
    std::set<std::string> handles = {m};
    int64_t count = first.rhs[0].iterations;  // 0: none is known
    for (int time = 1; time <= 10; ++time) {
      const CscMatrix a = Drifted(start, time);
      const SolveResult solved = Solved(a, With(m, ReuseMode::kAuto));
      ASSERT_TRUE(solved.reuse);
      const int64_t taken = solved.rhs[0].iterations;
      const auto allowed = static_cast<int64_t>(std::ceil(1.5 * static_cast<double>(count) - 1e-9));
      if (solved.reuse->decision == ReuseDecision::kKept) {
        EXPECT_EQ(solved.preconditioner, m);
        if (count == 0) count = taken;
        EXPECT_LE(taken, std::max(allowed, count)) << solved.reuse->reason;
        EXPECT_EQ(solved.reuse->first_iterations, count);
      } else {
        EXPECT_EQ(solved.reuse->decision, ReuseDecision::kRebuilt);
        ASSERT_GT(count, 0);
        EXPECT_GT(taken, allowed) << solved.reuse->reason;
        EXPECT_NE(solved.preconditioner, m);
        EXPECT_TRUE(solved.timings.rebuild);
        EXPECT_EQ(solved.reuse->first_iterations, count);
        m = solved.preconditioner;
        count = 0;
      }
      handles.insert(m);
      steps.emplace_back(solved.reuse->decision, taken, solved.reuse->first_iterations);
      const SolveResult keep = Solved(a, With(first.preconditioner, ReuseMode::kKeep));
      if (time == 10) {
        EXPECT_GT(keep.rhs[0].iterations, 1.5 * taken) << "what it spares";
      }
    }
    const auto rebuilt = std::count_if(steps.begin(), steps.end(), [](const auto& step) {
      return std::get<0>(step) == ReuseDecision::kRebuilt;
    });
    EXPECT_GE(rebuilt, 1);
    EXPECT_LE(rebuilt, 5);
    for (const std::string& handle : handles) {
      EXPECT_FALSE(client_.DeletePreconditioner(handle));
    }
  }
  EXPECT_EQ(runs[0], runs[1]) << "equal requests in equal order end alike";
}

TEST_F(TimeSteps, RebuildBuildsValuesAlone) {
  const CscMatrix start = ConvectionDiffusion(30, 20, 0.5);
  SolveOptions spec;
  spec.engine = Engine::kStaticSpai;
  spec.spec.pattern_power = 2;
  std::string m = Solved(start, spec).preconditioner;
  const auto built = client_.GetPreconditioner(m);
  ASSERT_TRUE(built.ok());
  for (int time = 1; time <= 3; ++time) {
    const SolveResult solved = Solved(Drifted(start, time), With(m, ReuseMode::kRebuild));
    EXPECT_EQ(solved.reuse->decision, ReuseDecision::kRebuilt);
    EXPECT_TRUE(solved.timings.rebuild);
    EXPECT_NE(solved.preconditioner, m);
    m = solved.preconditioner;
    const auto rebuilt = client_.GetPreconditioner(m);
    ASSERT_TRUE(rebuilt.ok());
    EXPECT_EQ(rebuilt->spec.pattern_power, 2);
    EXPECT_EQ(rebuilt->nnz, built->nnz);
    EXPECT_EQ(rebuilt->matrix, solved.matrix);
  }
}

TEST_F(TimeSteps, APatternThatGrewForOtherValuesIsGrownAnew) {
  const auto along = [](double x, double y) { return Anisotropic(30, 30, x, y); };
  SolveOptions spec;
  spec.engine = Engine::kDynamicSpai;
  spec.method = Method::kBicgstab;
  spec.spec.dynamic_spai = {.tol = 0.2, .max_steps = 8, .step_size = 3};
  const SolveResult first = Solved(along(1, 0.01), spec);
  const auto with = [](const std::string& m, ReuseMode mode) {
    SolveOptions options = With(m, mode);
    options.method = Method::kBicgstab;
    return options;
  };
  // The pattern is one along x, of no use here.
  const SolveResult second =
      Solved(along(0.01, 1), with(first.preconditioner, ReuseMode::kRebuild));
  EXPECT_EQ(second.reuse->decision, ReuseDecision::kRebuilt);
  ASSERT_TRUE(second.quality && second.quality->dynamic_spai);
  EXPECT_TRUE(second.quality->dynamic_spai->pattern_reused);
  ASSERT_GT(second.rhs[0].iterations, 1.5 * first.rhs[0].iterations);
  const SolveResult third =
      Solved(along(0.011, 1), with(second.preconditioner, ReuseMode::kRebuild));
  EXPECT_EQ(third.reuse->decision, ReuseDecision::kRegrown) << third.reuse->reason;
  EXPECT_THAT(third.reuse->reason, HasSubstr("its own first count was"));
  EXPECT_FALSE(third.quality->dynamic_spai->pattern_reused);
  EXPECT_LT(third.rhs[0].iterations, second.rhs[0].iterations / 1.5);
  EXPECT_TRUE(client_.GetPreconditioner(third.preconditioner)->spec.regrow);
  // From there on the new pattern is the one that serves.
  const SolveResult fourth =
      Solved(along(0.012, 1), with(third.preconditioner, ReuseMode::kRebuild));
  EXPECT_EQ(fourth.reuse->decision, ReuseDecision::kRebuilt) << fourth.reuse->reason;
  EXPECT_TRUE(fourth.quality->dynamic_spai->pattern_reused);
  EXPECT_LT(fourth.rhs[0].iterations, second.rhs[0].iterations / 1.5);
}

TEST_F(TimeSteps, SeveralRightHandSidesGoOnWhereTheyAre) {
  const CscMatrix start = Poisson(30, 25), a = Drifted(start, 12);
  SolveOptions spec;
  spec.engine = Engine::kFsai;
  const SolveResult first = Solved(start, spec);
  // The second one is almost solved by its guess, the third is zero.
  const std::vector<double> one = SmoothRhs(a);
  const auto n = one.size();
  std::vector<double> b(3 * n, 0.0), guess(3 * n, 0.0);
  std::copy(one.begin(), one.end(), b.begin());
  std::copy(one.begin(), one.end(), b.begin() + static_cast<int64_t>(n));
  for (size_t j = 0; j < n; ++j) {
    guess[n + j] = static_cast<double>(j + 1) / static_cast<double>(n) * (1 + 1e-7);
  }
  SolveOptions options = With(first.preconditioner, ReuseMode::kAuto, 1);
  options.initial_guess = guess;
  options.rtol = kRtol;
  const auto solved = client_.Solve(a, b, options);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(solved->reuse->decision, ReuseDecision::kRebuilt) << solved->reuse->reason;
  EXPECT_EQ(solved->reuse->first_iterations, first.rhs[0].iterations);
  ASSERT_EQ(solved->rhs.size(), 3u);
  EXPECT_GT(solved->rhs[0].iterations, first.rhs[0].iterations);
  EXPECT_LT(solved->rhs[1].iterations, solved->rhs[0].iterations);
  EXPECT_EQ(solved->rhs[2].iterations, 0);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(solved->rhs[k].outcome, Outcome::kConverged);
    const std::span<const double> x(solved->x.data() + k * n, n);
    if (k < 2) {
      EXPECT_LE(RelativeResidual(a, x, one), kRtol * (1 + 1e-6));
    }
    for (size_t i = 0; i < solved->rhs[k].history.size(); ++i) {
      EXPECT_EQ(solved->rhs[k].history[i].iteration, static_cast<int32_t>(i));
    }
  }
}

TEST_F(TimeSteps, AMatrixThatTheEngineCannotServeLeavesTheOldM) {
  const CscMatrix start = Poisson(20, 20);
  SolveOptions spec;
  spec.engine = Engine::kFsai;
  const std::string m = Solved(start, spec).preconditioner;
  CscMatrix a = start;
  for (size_t p = 0; p < a.values.size() && p < 5; ++p) {
    if (a.row_idx[p] == 0) a.values[p] = -4;  // the first diagonal entry
  }
  SolveOptions options = With(m, ReuseMode::kRebuild);
  options.method = Method::kGmres;
  options.restart = 200;
  const SolveResult solved = Solved(a, options);
  EXPECT_EQ(solved.reuse->decision, ReuseDecision::kKept);
  EXPECT_THAT(solved.reuse->reason, HasSubstr("NOT_POSITIVE_DEFINITE"));
  EXPECT_EQ(solved.preconditioner, m);
}

TEST_F(TimeSteps, BadPoliciesAreRefusedWithTheirField) {
  const CscMatrix a = Poisson(8, 8);
  SolveOptions spec;
  spec.engine = Engine::kJacobi;
  const std::string m = Solved(a, spec).preconditioner;
  for (const auto mode : {ReuseMode::kRebuild, ReuseMode::kAuto}) {
    SolveOptions none = spec;
    none.reuse.mode = mode;
    EXPECT_EQ(ReasonOf(a, none), "BAD_REUSE header.reuse.mode");
    EXPECT_EQ(ReasonOf(Poisson(8, 9), With(m, mode)),
              "PRECONDITIONER_SIZE_MISMATCH header.preconditioner");
    EXPECT_EQ(ReasonOf(a, With("preconditioners/none", mode)), "HANDLE_UNKNOWN ");
  }
  for (const double factor : {0.99, -1.0, std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(ReasonOf(a, With(m, ReuseMode::kAuto, factor)), "BAD_REUSE header.reuse.factor");
  }
  EXPECT_EQ(ReasonOf(a, With(m, static_cast<ReuseMode>(9))), "UNKNOWN_ENUM header.reuse.mode");
  EXPECT_EQ(Solved(a, With(m, ReuseMode::kAuto, 0)).reuse->reason, "M is of this matrix");
}

TEST_F(TimeSteps, AClientThatLeavesStopsIt) {
  const CscMatrix start = Poisson(60, 60);
  SolveOptions spec;
  spec.engine = Engine::kFsai;
  const std::string m = Solved(start, spec).preconditioner;
  std::stop_source source;
  CallOptions call;
  call.stop = source.get_token();
  call.on_progress = [&](const Progress& news) {
    if (news.kind == Progress::Kind::kResiduals) source.request_stop();
  };
  const CscMatrix a = Drifted(start, 60);
  SolveOptions options = With(m, ReuseMode::kAuto);
  options.rtol = 1e-14;
  const auto stopped = client_.Solve(a, SmoothRhs(a), options, call);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace spaid::e2e
