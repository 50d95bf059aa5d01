// Stops that one rank alone is told of, in each phase; and progress.
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/base/clock.h"
#include "kernels/gallery/gallery.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

constexpr double kWithinMs = 1000;

bool Told() { return Rank() + 1 == Ranks(); }  // the last rank is the one

// A matrix whose M takes seconds.
CscMatrix Heavy() { return oracle::From(gallery::Elasticity3d(14)); }

HybridSpaiOptions HeavyOptions() {
  HybridSpaiOptions options;
  options.spai.pattern.power = 2;
  options.spai.local_solver = LocalSolver::kQr;
  return options;
}

class Seen : public ProgressSink {
 public:
  explicit Seen(StopSource* source = nullptr, Stage stage = Stage::kBuild)
      : source_(source), stop_in_(stage) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    ordered_ &= done >= done_ || stage != stage_;
    stage_ = stage;
    done_ = done;
    total_ = total;
    if (source_ != nullptr && stage == stop_in_) Stop();
  }
  void OnResidual(const ResidualPoint&) override {
    if (++residuals_ == 3 && source_ != nullptr) Stop();
  }
  int64_t done() const { return done_; }
  int64_t total() const { return total_; }
  int64_t residuals() const { return residuals_; }
  bool ordered() const { return ordered_; }
  double ms_since_stop() const { return MsSince(stopped_); }

 private:
  void Stop() {
    if (stopped_ == Clock::time_point()) stopped_ = Clock::now();
    source_->Request(StopReason::kCancelled);
  }
  StopSource* const source_;
  const Stage stop_in_;
  Stage stage_ = Stage::kPlan;
  int64_t done_ = 0, total_ = 0, residuals_ = 0;
  bool ordered_ = true;
  Clock::time_point stopped_;
};

TEST(Stops, BeforeAPlan) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(10, 10));
  StopSource source;
  if (Told()) source.Request(StopReason::kCancelled);
  ExpectRefused(PlanHybridSpai(a, nullptr, {}, {.stop = source.token()}).status(),
                StatusCode::kCancelled, "CANCELLED");
}

TEST(Stops, WhileTheMatrixIsSpread) {
  StopSource source;
  if (Told()) source.Request(StopReason::kCancelled);
  const CscMatrix whole = oracle::Laplacian2d(10, 10);
  const CscView view = whole;
  ExpectRefused(
      SpreadWhole(PETSC_COMM_WORLD, Rank() == 0 ? &view : nullptr, {.stop = source.token()})
          .status(),
      StatusCode::kCancelled, "CANCELLED");
}

TEST(Stops, InTheMiddleOfAPlan) {
  const SpreadMatrix a = Spread(Heavy());
  StopSource source;
  Seen seen(Told() ? &source : nullptr, Stage::kPlan);
  HybridSpaiOptions options;
  options.spai.pattern.power = 4;
  const auto plan = PlanHybridSpai(
      a, nullptr, options,
      {.stop = Told() ? source.token() : StopToken(), .progress = &seen, .threads = 1});
  ExpectRefused(plan.status(), StatusCode::kCancelled, "CANCELLED");
  if (Told()) {
    EXPECT_LT(seen.ms_since_stop(), kWithinMs);
  }
}

TEST(Stops, InTheMiddleOfABuild) {
  const SpreadMatrix a = Spread(Heavy());
  const auto plan = PlanHybridSpai(a, nullptr, HeavyOptions(), {.threads = 1});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  StopSource source;
  Seen seen(Told() ? &source : nullptr);
  const auto m = BuildHybridSpai(
      *plan, a, {.stop = Told() ? source.token() : StopToken(), .progress = &seen, .threads = 1});
  ExpectRefused(m.status(), StatusCode::kCancelled, "CANCELLED");
  if (Told()) {
    EXPECT_LT(seen.ms_since_stop(), kWithinMs);
  }
}

TEST(Stops, ATimeLimitInABuild) {
  const SpreadMatrix a = Spread(Heavy());
  const auto plan = PlanHybridSpai(a, nullptr, HeavyOptions(), {.threads = 1});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  StopSource source;
  const auto limit = Clock::now() + std::chrono::milliseconds(100);
  if (Told()) source.SetTimeLimit(limit);
  const auto m = BuildHybridSpai(*plan, a, {.stop = source.token(), .threads = 1});
  ExpectRefused(m.status(), StatusCode::kDeadlineExceeded, "TIME_LIMIT");
  EXPECT_LT(MsSince(limit), kWithinMs);
}

TEST(Stops, InTheMiddleOfASolve) {
  const CscMatrix whole = oracle::Laplacian2d(300, 300);
  const SpreadMatrix a = Spread(whole);
  Array<double> b, x;
  b.assign(static_cast<size_t>(a.own().size()), 1);
  for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
    StopSource source;
    Seen seen(Told() ? &source : nullptr);
    x.assign(b.size(), 0);
    const auto result =
        SolveSpread(a, nullptr, b, x, {.method = method, .rtol = 1e-300, .max_iterations = 1000000},
                    {.stop = Told() ? source.token() : StopToken(), .progress = &seen});
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->outcome, Outcome::kCancelled) << result->detail;
    if (Told()) {
      EXPECT_LT(seen.ms_since_stop(), kWithinMs);
    }
  }
}

TEST(Progress, CountsTheColumnsOfAllRanksAndEachIteration) {
  const CscMatrix whole = oracle::Laplacian2d(60, 60);
  const SpreadMatrix a = Spread(whole);
  const auto plan = PlanHybridSpai(a, nullptr, {}, {.threads = 1});
  EXPECT_TRUE(plan.ok());
  Seen seen;
  const auto m = BuildHybridSpai(*plan, a, {.progress = &seen, .threads = 1});
  EXPECT_TRUE(m.ok());
  EXPECT_TRUE(seen.ordered());
  EXPECT_EQ(seen.done(), 3600);
  EXPECT_EQ(seen.total(), 3600);
  Array<double> b, x;
  b.assign(static_cast<size_t>(a.own().size()), 1);
  x.assign(b.size(), 0);
  const auto result = SolveSpread(a, m->rows.get(), b, x, {}, {.progress = &seen});
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(seen.residuals(), result->iterations + 1);
}

}  // namespace
}  // namespace spaid::kernels::mpi
