// The job factory over the real engine of the CPU: what is kept between builds, and AUTO.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/engine/job_factory.h"
#include "tests/server/engine/job_factory_fixture.h"

namespace spaid::server {
namespace {

// Builds and solves over the real engine.
class RealEngineTest : public JobFactoryTest {
 protected:
  static v1::PreconditionerSpec Afsai() {
    v1::PreconditionerSpec spec = Spec(v1::ENGINE_KIND_AFSAI);
    spec.mutable_fsai()->set_k_max(1);
    return spec;
  }
  v1::Preconditioner Build(const Stored<Matrix>& a, const v1::PreconditionerSpec& spec) {
    auto ticket = cpu_bench_->StartBuild(
        {.tenant = "t", .matrix = a, .spec = spec, .field = "header.spec", .terms = {}});
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok()) return {};
    return ToProto(ticket->ready ? *ticket->ready : Built(*ticket)->preconditioner);
  }
  void SetUp() override {
    JobFactoryTest::SetUp();
    cpu_bench_ =
        std::make_unique<JobFactory>(JobFactory::Parts{.adapter = &cpu_adapter_,
                                                       .matrices = &matrices_,
                                                       .preconditioners = &preconditioners_,
                                                       .scheduler = &cpu_scheduler_,
                                                       .jobs = &jobs_});
  }

  std::unique_ptr<kernels::Engine> cpu_ = kernels::MakeCpuEngine();
  EngineAdapter cpu_adapter_{*cpu_, {.threads = 1}};
  Scheduler cpu_scheduler_{SchedulerOptions{}};
  std::unique_ptr<JobFactory> cpu_bench_;
};

TEST_F(RealEngineTest, BuildsRebuildsAndGrowsAnew) {
  const auto a = Put(Banded(40)), next = Put(Banded(40, 1));
  const v1::Preconditioner first = Build(a, Afsai());
  EXPECT_TRUE(first.is_factor());
  EXPECT_EQ(first.spec().fsai().k_max(), 1);
  EXPECT_EQ(first.spec().fsai().epsilon(), 1e-3) << "resolved, with its defaults";
  EXPECT_FALSE(first.build_timings().rebuild());
  EXPECT_LT(first.quality().fsai().kaporin(), 1);
  EXPECT_EQ(Build(a, Afsai()).name(), first.name()) << "it is there";

  const v1::Preconditioner second = Build(next, Afsai());
  EXPECT_TRUE(second.build_timings().rebuild());
  EXPECT_TRUE(second.quality().fsai().pattern_reused());
  v1::PreconditionerSpec regrow = Afsai();
  regrow.mutable_fsai()->set_regrow(true);
  const v1::Preconditioner third = Build(next, regrow);
  EXPECT_NE(third.name(), second.name());
  EXPECT_FALSE(third.build_timings().rebuild());
  EXPECT_TRUE(third.spec().fsai().regrow());
  EXPECT_FALSE(third.quality().fsai().pattern_reused());
}

TEST_F(RealEngineTest, FindsAScalingAnewForAnyEngine) {
  // Row and column 3 are far from the others. With columns reversed there is something to match.
  const auto uneven = [&](int power, bool reversed) {
    const kernels::CscMatrix banded = Banded(40);
    kernels::CscMatrix a = banded;
    a.col_ptr.resize(1);
    size_t to = 0;
    for (int64_t k = 0; k < 40; ++k) {
      const int64_t j = reversed ? 39 - k : k;
      for (int64_t p = banded.col_ptr[j]; p < banded.col_ptr[j + 1]; ++p, ++to) {
        a.row_idx[to] = banded.row_idx[p];
        a.values[to] = std::ldexp(banded.values[p], power * ((j == 3) + (a.row_idx[to] == 3)));
      }
      a.col_ptr.push_back(static_cast<int64_t>(to));
    }
    return Put(std::move(a));
  };
  const auto expect_anew = [&](v1::PreconditionerSpec spec, v1::Scaling scaling) {
    spec.set_scaling(scaling);
    const bool reversed = scaling == v1::SCALING_MATCHING;
    const auto first = uneven(10, reversed), next = uneven(11, reversed);
    EXPECT_FALSE(Build(first, spec).quality().scaling_reused());
    v1::PreconditionerSpec regrow = spec;
    regrow.set_regrow(true);
    const v1::Preconditioner anew = Build(next, regrow);
    EXPECT_EQ(anew.quality().scaling(), scaling);
    EXPECT_FALSE(anew.build_timings().rebuild());
    EXPECT_FALSE(anew.quality().scaling_reused());
    EXPECT_TRUE(anew.spec().regrow());
    EXPECT_EQ(Build(next, regrow).name(), anew.name()) << "it is there";
    const v1::Preconditioner again = Build(next, spec);
    EXPECT_NE(again.name(), anew.name());
    EXPECT_FALSE(again.spec().regrow());
    EXPECT_TRUE(again.build_timings().rebuild());
    EXPECT_FALSE(again.quality().scaling_reused()) << "the factors that are kept are its own";
    const v1::Preconditioner other = Build(uneven(12, reversed), spec);
    EXPECT_TRUE(other.build_timings().rebuild());
    EXPECT_TRUE(other.quality().scaling_reused());
  };
  expect_anew(Spec(), v1::SCALING_EQUILIBRATE);
  expect_anew(Spec(), v1::SCALING_MATCHING);
  expect_anew(Spec(v1::ENGINE_KIND_FSAI), v1::SCALING_EQUILIBRATE);
  expect_anew(Spec(v1::ENGINE_KIND_JACOBI), v1::SCALING_EQUILIBRATE);
}

// A rung of A scaled is begun with, of A scaled, as often as it serves.
TEST_F(RealEngineTest, AutoBeginsAgainWithAScaledMatrix) {
  constexpr int64_t kN = 600;
  const kernels::CscMatrix banded = Banded(kN);
  kernels::CscMatrix a = banded;
  a.col_ptr.resize(1);
  size_t to = 0;
  for (int64_t k = 0; k < kN; ++k) {
    const int64_t j = kN - 1 - k;
    for (int64_t p = banded.col_ptr[j]; p < banded.col_ptr[j + 1]; ++p, ++to) {
      a.row_idx[to] = banded.row_idx[p];
      a.values[to] = std::ldexp(banded.values[p], static_cast<int>(7 * a.row_idx[to] % 81 - 40));
    }
    a.col_ptr.push_back(static_cast<int64_t>(to));
  }
  const auto matrix = Put(std::move(a));
  std::vector<double> b(kN, 0.0);
  const kernels::CscView csc = matrix.value->csc();
  for (size_t p = 0; p < csc.values.size(); ++p) b[csc.row_idx[p]] += csc.values[p];
  for (int turn = 0; turn < 4; ++turn) {
    auto request = Solve(matrix);
    request.spec = Spec(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = kernels::Method::kAuto;
    request.b.assign(b.begin(), b.end());
    const auto outcome = Solved(*cpu_bench_->StartSolve(std::move(request)));
    ASSERT_TRUE(outcome);
    const v1::SolveDone& done = outcome->done;
    EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
    if (turn == 0) {
      EXPECT_GT(done.rungs_size(), 1);
    } else {
      EXPECT_EQ(done.rungs_size(), 0) << turn << ": " << done.rungs(0).what();
      EXPECT_NE(done.quality().scaling(), v1::SCALING_NONE);
    }
  }
}

TEST_F(RealEngineTest, WhereThereIsNothingToFindAnewItIsTheSameBuild) {
  const auto a = Put(Banded(40));
  for (const auto engine : {v1::ENGINE_KIND_FSAI, v1::ENGINE_KIND_STATIC_SPAI}) {
    v1::PreconditionerSpec regrow = Spec(engine);
    regrow.set_regrow(true);
    const v1::Preconditioner built = Build(a, regrow);
    EXPECT_FALSE(built.spec().regrow());
    EXPECT_EQ(Build(a, Spec(engine)).name(), built.name());
  }
}

TEST_F(RealEngineTest, ABuildWithATimeBudgetIsNobodyElses) {
  const auto a = Put(Banded(40));
  v1::PreconditionerSpec timed = Afsai();
  timed.mutable_fsai()->mutable_time_budget()->set_seconds(100);
  EXPECT_NE(Build(a, timed).name(), Build(a, timed).name());
}

TEST_F(RealEngineTest, ASolveBuildsItAndTakesCg) {
  auto request = Solve(Put(Banded(40)));
  request.spec = Afsai();
  request.solve.options.method = kernels::Method::kAuto;
  const auto outcome = Solved(*cpu_bench_->StartSolve(std::move(request)));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->done.method(), v1::METHOD_CG);
  EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(outcome->done.choice().engine(), v1::ENGINE_KIND_AFSAI);
  EXPECT_TRUE(outcome->done.quality().has_fsai());
  // The build's refusal is the solve's, here before anything is built: CG is not sound.
  auto refused = Solve(Put(Upper()));
  refused.spec = Afsai();
  refused.solve.options.method = kernels::Method::kCg;
  EXPECT_EQ(ReasonOf(cpu_bench_->StartSolve(std::move(refused)).status()), "NOT_SYMMETRIC");
  auto failed = Solve(Put(Upper()));
  failed.spec = Afsai();
  failed.solve.options.method = kernels::Method::kGmres;
  auto ticket = cpu_bench_->StartSolve(std::move(failed));
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  AwaitEnd(ticket->job);
  EXPECT_EQ(ReasonOf(ticket->job->error()), "NOT_SYMMETRIC");
}

TEST_F(RealEngineTest, AutoServesEveryMethod) {
  for (const kernels::Method method :
       {kernels::Method::kAuto, kernels::Method::kCg, kernels::Method::kBicgstab,
        kernels::Method::kGmres, kernels::Method::kMinres, kernels::Method::kIdr}) {
    auto request = Solve(Put(Banded(40)));
    request.spec = Spec(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = method;
    const auto outcome = Solved(*cpu_bench_->StartSolve(std::move(request)));
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(outcome->done.choice().reason().starts_with("Jacobi: what costs least"));
    EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  }
}

TEST_F(RealEngineTest, AutoBuildsWhatSolves) {
  const auto a = Put(Banded(40));
  const v1::Preconditioner built = Build(a, Spec(v1::ENGINE_KIND_AUTO));
  EXPECT_EQ(built.spec().engine(), v1::ENGINE_KIND_JACOBI) << "it solves a small one";
  // Equal requests build nothing new; the first one is known by then.
  EXPECT_EQ(Build(a, Spec(v1::ENGINE_KIND_AUTO)).name(), built.name());
  EXPECT_EQ(Build(a, Spec(v1::ENGINE_KIND_JACOBI)).name(), built.name());
  // A rotation has no diagonal, of which no Jacobi is made.
  kernels::CscMatrix rotation = Diagonal(40);
  for (int32_t j = 0; j < 40; ++j) rotation.row_idx[j] = (j + 1) % 40;
  const auto rotated = Put(std::move(rotation));
  const v1::Preconditioner other = Build(rotated, Spec(v1::ENGINE_KIND_AUTO));
  EXPECT_EQ(other.spec().engine(), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_NE(other.choice().reason().find("a solve with a right-hand side of its own came to it"),
            std::string::npos)
      << other.choice().reason();
}

TEST_F(RealEngineTest, EstimatesBoundTheBuild) {
  const auto a = Put(Banded(40));
  const auto estimate = cpu_bench_->EstimateBuild("t", *a.value, Afsai(), "spec");
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->choice.engine(), v1::ENGINE_KIND_AFSAI);
  EXPECT_LE(estimate->figures.nnz_m, 40 * 2);
  const v1::Preconditioner built = Build(a, Afsai());
  EXPECT_GE(estimate->figures.nnz_m, built.nnz());
  EXPECT_GE(estimate->figures.host_bytes, built.host_bytes());
}

}  // namespace
}  // namespace spaid::server
