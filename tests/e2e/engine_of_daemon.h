// What the tests of an engine through the real daemon share, whichever engine it is.
#pragma once

#include <gmock/gmock.h>
#include <spaid/client.h>

#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "tests/e2e/one_daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {

class EngineOfDaemon : public OneDaemon {
 protected:
  // Of the matrix of that name, within what was estimated, told from queue to end, and kept as it
  // came while it was being built. Nothing where it failed, which is a test failure.
  std::optional<BuildResult> BuildAsEstimated(const std::string& matrix,
                                              const PreconditionerSpec& spec) {
    const auto estimate = client_.Estimate(matrix, spec);
    EXPECT_TRUE(estimate.ok()) << estimate.error().message;
    std::set<Progress::Kind> kinds;
    auto built = client_.Build(matrix, spec, true, {.on_progress = [&](const Progress& progress) {
                                 kinds.insert(progress.kind);
                               }});
    EXPECT_TRUE(built.ok()) << built.error().message;
    if (!estimate.ok() || !built.ok()) return std::nullopt;
    EXPECT_EQ(estimate->engine, spec.engine);
    EXPECT_THAT(kinds, ::testing::IsSupersetOf({Progress::Kind::kQueued, Progress::Kind::kStarted,
                                                Progress::Kind::kStage, Progress::Kind::kQuality,
                                                Progress::Kind::kFinished}));
    const PreconditionerInfo& info = built->preconditioner;
    EXPECT_LE(info.nnz, estimate->nnz);
    EXPECT_LE(info.host_bytes, estimate->host_bytes);
    const auto kept = client_.Download(info.name);
    EXPECT_TRUE(kept.ok()) << kept.error().message;
    if (!built->m || !kept.ok()) {
      ADD_FAILURE() << "no M";
      return std::nullopt;
    }
    EXPECT_EQ(info.nnz, static_cast<int64_t>(built->m->values.size()));
    EXPECT_EQ(built->m->is_factor, info.is_factor);
    EXPECT_EQ(kept->is_factor, info.is_factor);
    EXPECT_EQ(kept->col_ptr, built->m->col_ptr);
    EXPECT_EQ(kept->row_idx, built->m->row_idx);
    EXPECT_EQ(kept->values, built->m->values);
    return *std::move(built);
  }

  // By `method`, which nobody named, in fewer iterations than with Jacobi.
  void ExpectBetterThanJacobi(const std::string& matrix, const CscMatrix& a,
                              const std::string& preconditioner, Method method) {
    const std::vector<double> b = SmoothRhs(a);
    const auto solved = client_.Solve(matrix, b, {.preconditioner = preconditioner});
    const auto by_jacobi = client_.Solve(matrix, b, {.engine = Engine::kJacobi});
    ASSERT_TRUE(solved.ok() && by_jacobi.ok());
    EXPECT_EQ(solved->method, method);
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
    EXPECT_LE(RelativeResidual(a, solved->x, b), 1.001e-8);
    EXPECT_LT(solved->rhs[0].iterations, by_jacobi->rhs[0].iterations);
  }

  // M of the values of `next` is made on the pattern that grew for those of `a`, unless it is to
  // grow anew: `regrow` is `spec` that says so. Either serves. `reused`: Quality's word for it.
  // `rebuilt` gets the first of the two.
  void ExpectRebuiltUnlessRegrown(const CscMatrix& a, const CscMatrix& next,
                                  const PreconditionerSpec& spec, const PreconditionerSpec& regrow,
                                  bool (*reused)(const Quality&), BuildResult* rebuilt) {
    const auto first = client_.Build(a, spec, true);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_FALSE(first->timings.rebuild);
    EXPECT_FALSE(reused(first->preconditioner.quality));
    EXPECT_TRUE(client_.Build(a, spec)->timings.reused);

    const auto second = client_.Build(next, spec, true);
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_TRUE(second->timings.rebuild);
    EXPECT_FALSE(second->timings.reused);
    EXPECT_TRUE(reused(second->preconditioner.quality));
    EXPECT_EQ(second->m->row_idx, first->m->row_idx);
    EXPECT_NE(second->m->values, first->m->values);

    const auto third = client_.Build(next, regrow, true);
    ASSERT_TRUE(third.ok()) << third.error().message;
    EXPECT_FALSE(third->timings.rebuild);
    EXPECT_FALSE(reused(third->preconditioner.quality));
    EXPECT_TRUE(third->preconditioner.spec.regrow);
    EXPECT_NE(third->m->row_idx, first->m->row_idx);
    const std::vector<double> b = SmoothRhs(next);
    for (const auto* m : {&second, &third}) {
      const auto solved = client_.Solve(next, b, {.preconditioner = (*m)->preconditioner.name});
      ASSERT_TRUE(solved.ok()) << solved.error().message;
      EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
      EXPECT_LE(RelativeResidual(next, solved->x, b), 1.001e-8);
    }
    *rebuilt = *second;
  }

  void ExpectRefusedAt(const Expected<BuildResult>& refused, const char* reason,
                       const char* index) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_EQ(refused.error().reason, reason);
    EXPECT_THAT(refused.error().metadata,
                ::testing::Contains(std::pair<std::string, std::string>("index", index)));
  }

  // `spec` of `a` takes long; it is cancelled once it has started.
  void ExpectACancelledBuildEnds(const CscMatrix& a, const PreconditionerSpec& spec) {
    std::stop_source stop;
    CallOptions call;
    call.stop = stop.get_token();
    call.on_progress = [&](const Progress& progress) {
      if (progress.kind == Progress::Kind::kStarted) stop.request_stop();
    };
    const auto built = client_.Build(a, spec, false, call);
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.error().code, Code::kCancelled);
  }

  Client client_{{.address = daemon_->address()}};
};

}  // namespace spaid::e2e
