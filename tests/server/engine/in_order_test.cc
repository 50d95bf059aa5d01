// AUTO's solves on the CPU of systems whose unknowns are in no order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/engine/build_result.h"
#include "server/engine/adapter.h"
#include "server/sched/job.h"

namespace spaid::server {
namespace {

using ::testing::EndsWith;
using ::testing::Not;

constexpr double kRtol = 1e-4;

// A grid of 400 x 400, numbered at random; its vectors take more than a core's cache. `diagonal` 0:
// rows sum to zero.
kernels::CscMatrix Mesh(double diagonal) {
  constexpr int64_t kSide = 400, kN = kSide * kSide;
  kernels::CscMatrix a;
  a.n_rows = a.n_cols = kN;
  a.col_ptr.push_back(0);
  const auto add = [&a](int64_t i, double v) {
    a.row_idx.push_back(static_cast<int32_t>(i));
    a.values.push_back(v);
  };
  for (int64_t j = 0; j < kN; ++j) {
    if (j >= kSide) add(j - kSide, -1);
    if (j % kSide > 0) add(j - 1, -1);
    const int sides = (j >= kSide) + (j % kSide > 0) + (j % kSide + 1 < kSide) + (j + kSide < kN);
    add(j, diagonal > 0 ? diagonal : sides);
    if (j % kSide + 1 < kSide) add(j + 1, -1);
    if (j + kSide < kN) add(j + kSide, -1);
    a.col_ptr.push_back(a.nnz());
  }
  std::vector<int32_t> order(static_cast<size_t>(kN));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
  return *kernels::PermuteSymmetric(a, order, {});
}

class InOrderTest : public testing::Test {
 protected:
  std::shared_ptr<const Matrix> Put(double diagonal) {
    return *adapter_.Prepare(Mesh(diagonal), kernels::Layout::kCsc, {});
  }
  static std::shared_ptr<Job> RunningJob() {
    auto job =
        Job::Create({.tenant = "t", .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}},
                    {}, RealClock());
    job->Start({"cpu"});
    return job;
  }
  std::shared_ptr<const kernels::Preconditioner> Fsai(const Matrix& a) const {
    const kernels::PreconditionerSpec spec{.engine = kernels::EngineKind::kFsai};
    const auto plan = engine_->MakePlan(spec, a.csc(), nullptr, {.threads = 1});
    return (*plan)->Build(spec, a.csc(), {.threads = 1})->preconditioner;
  }
  static std::vector<double> Rhs(const Matrix& a) {
    std::vector<double> b(static_cast<size_t>(a.n()));
    for (size_t i = 0; i < b.size(); ++i) b[i] = 0.1 + std::sin(static_cast<double>(i % 1000));
    return b;
  }
  // By AUTO, which begins at `rung`.
  static Solved Solve(const EngineAdapter& adapter, const std::shared_ptr<const Matrix>& a,
                      const std::shared_ptr<const kernels::Preconditioner>& m,
                      kernels::RungKind rung, Job& job, const kernels::NullSpace* space = nullptr) {
    EngineAdapter::Ladder ladder;
    ladder.asked = {.method = kernels::Method::kAuto, .rtol = kRtol};
    ladder.rung = {rung};
    ladder.what = "the first";
    ladder.straight = rung != kernels::RungKind::kBottom && m == nullptr;
    if (m != nullptr) ladder.engine = m->kind();
    kernels::SolveOptions options = ladder.asked;
    options.method = kernels::Method::kCg;
    options.null_space = space;
    auto solved = adapter.Solve(a, m, Rhs(*a), {}, options, {.device = "cpu"}, job, &ladder);
    EXPECT_TRUE(solved.ok()) << solved.status();
    return *std::move(solved);
  }
  static void ExpectSolves(const Solved& solved, const Matrix& a) {
    EXPECT_EQ(solved.result.rhs[0].outcome, kernels::Outcome::kConverged);
    std::vector<double> r = Rhs(a);
    const double b_norm = std::sqrt(std::inner_product(r.begin(), r.end(), r.begin(), 0.0));
    for (int64_t j = 0; j < a.n(); ++j) {
      for (int64_t p = a.csc().col_ptr[j]; p < a.csc().col_ptr[j + 1]; ++p) {
        r[a.csc().row_idx[p]] -= a.values[p] * solved.result.x[j];
      }
    }
    const double norm = std::sqrt(std::inner_product(r.begin(), r.end(), r.begin(), 0.0));
    EXPECT_LE(norm, kRtol * b_norm);
    EXPECT_NEAR(solved.result.rhs[0].true_relative_residual, norm / b_norm, 1e-3 * kRtol);
  }

  std::unique_ptr<kernels::Engine> engine_ = kernels::MakeCpuEngine();
  EngineAdapter adapter_{*engine_, {.threads = 1}};
};

TEST_F(InOrderTest, RungsAboveTheBottomGoThroughAInOrder) {
  const auto a = Put(4);
  const Solved solved = Solve(adapter_, a, nullptr, kernels::RungKind::kBottom, *RunningJob());
  ExpectSolves(solved, *a);
  ASSERT_GE(solved.rungs.size(), 2u);
  EXPECT_THAT(solved.rungs[0].what, Not(EndsWith(", reordered")));
  EXPECT_THAT(solved.rungs[1].what, EndsWith(", reordered"));
  EXPECT_EQ(adapter_.plan_cache().entries, 1) << "the order, which serves other values";
  EXPECT_EQ(adapter_.plan_cache().bytes, 4 * a->n());
  EXPECT_GT(solved.result.figures.place_ms, 0);

  const auto next = Put(4.001);
  const Solved again = Solve(adapter_, next, nullptr, kernels::RungKind::kFsai, *RunningJob());
  ExpectSolves(again, *next);
  ASSERT_EQ(again.rungs.size(), 1u);
  EXPECT_THAT(again.rungs[0].what, EndsWith(", reordered"));
  EXPECT_EQ(adapter_.plan_cache().entries, 1);
  EXPECT_EQ(adapter_.plan_cache().hits, 1);
  const EngineAdapter fresh(*engine_, {.threads = 3});
  EXPECT_EQ(Solve(fresh, next, nullptr, kernels::RungKind::kFsai, *RunningJob()).result.x,
            again.result.x)
      << "kept or found, by however many threads: the same bits";
}

TEST_F(InOrderTest, AnMThatIsThereComesAlong) {
  const auto a = Put(4.1);
  const auto m = Fsai(*a);
  const Solved solved = Solve(adapter_, a, m, kernels::RungKind::kFsai, *RunningJob());
  ExpectSolves(solved, *a);
  EXPECT_EQ(adapter_.plan_cache().entries, 1);
  // Neither without memory, nor by name, nor at the bottom.
  const EngineAdapter full(*engine_, {.threads = 1, .ladder_bytes = 1});
  const Solved without = Solve(full, a, m, kernels::RungKind::kFsai, *RunningJob());
  ExpectSolves(without, *a);
  EXPECT_NEAR(static_cast<double>(without.result.rhs[0].iterations),
              static_cast<double>(solved.result.rhs[0].iterations), 2);
  const kernels::SolveOptions named{.method = kernels::Method::kCg, .rtol = kRtol};
  const auto by_name = full.Solve(a, m, Rhs(*a), {}, named, {.device = "cpu"}, *RunningJob());
  ASSERT_TRUE(by_name.ok());
  EXPECT_EQ(by_name->result.x, engine_->Solve(a->csc(), m.get(), Rhs(*a), {}, named, {})->x);
  EXPECT_EQ(by_name->result.x, without.result.x);
  EXPECT_TRUE(Solve(full, a, nullptr, kernels::RungKind::kBottom, *RunningJob()).rungs.empty());
  EXPECT_EQ(full.plan_cache().entries, 0);
}

TEST_F(InOrderTest, NullSpacesComeAlong) {
  const auto a = Put(0);
  const auto space = adapter_.FindNullSpace(*a, {});
  ASSERT_TRUE(space.ok() && *space != nullptr);
  const Solved solved =
      Solve(adapter_, a, nullptr, kernels::RungKind::kFsai, *RunningJob(), space->get());
  EXPECT_THAT(solved.rungs[0].what, EndsWith(", reordered"));
  EXPECT_EQ(solved.rungs[0].left, "") << "it solves what is reached";
  const kernels::RhsResult& rhs = solved.result.rhs[0];
  EXPECT_TRUE(rhs.beyond_reach);
  EXPECT_NEAR(rhs.true_relative_residual, rhs.unreachable, kRtol);
  const kernels::Array<double>& x = solved.result.x;
  double size = 0;
  for (const double v : x) size = std::max(size, std::abs(v));
  EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0), 0, 1e-6 * size);
}

TEST_F(InOrderTest, AStopEndsTheSearchForAnOrder) {
  const auto a = Put(4.1);
  for (const bool built : {false, true}) {
    const auto job = RunningJob();
    job->RequestStop(StopCause::kCancelled);
    const auto m = built ? Fsai(*a) : nullptr;
    const Solved solved = Solve(adapter_, a, m, kernels::RungKind::kFsai, *job);
    EXPECT_EQ(solved.result.rhs[0].outcome, kernels::Outcome::kCancelled);
  }
  EXPECT_EQ(adapter_.plan_cache().entries, 0);
}

TEST_F(InOrderTest, RefusalsNameTheCallersIndices) {
  const auto a = Put(4.1);
  std::vector<double> b = Rhs(*a);
  b[77] = std::nan("");
  EngineAdapter::Ladder ladder;
  ladder.rung.kind = kernels::RungKind::kFsai;
  const auto m = Fsai(*a);
  const auto refused = adapter_.Solve(a, m, b, {}, {.method = kernels::Method::kCg},
                                      {.device = "cpu"}, *RunningJob(), &ladder);
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("rhs[77]"));
}

}  // namespace
}  // namespace spaid::server
