// Estimates are upper bounds: of the plan's counts, and of the memory that a build really takes.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernels/static_spai/helpers.h"

namespace {

// Bytes in use and their peak, over all threads of this program.
std::atomic<int64_t> g_live{0}, g_peak{0};
// More than this is not to be had, except in small pieces.
std::atomic<int64_t> g_limit{INT64_MAX};
constexpr size_t kSmallPiece = 1024;

void* Allocate(size_t size, size_t alignment) {
  if (size > kSmallPiece && g_live + static_cast<int64_t>(size) > g_limit) throw std::bad_alloc();
  void* p = alignment <= alignof(std::max_align_t) ? std::malloc(size)
                                                   : std::aligned_alloc(alignment, size);
  if (p == nullptr) throw std::bad_alloc();
  const int64_t live = g_live += static_cast<int64_t>(malloc_usable_size(p));
  int64_t peak = g_peak;
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return p;
}

void Release(void* p) noexcept {
  if (p != nullptr) g_live -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 1); }
void operator delete(void* p) noexcept { Release(p); }
void operator delete(void* p, size_t) noexcept { Release(p); }

namespace spaid::kernels {
namespace {

void ExpectBounds(const StaticSpaiCounts& estimate, const StaticSpaiCounts& plan,
                  const std::string& what, bool exact) {
  if (exact) {
    EXPECT_EQ(estimate.nnz_m, plan.nnz_m) << what;
    EXPECT_EQ(estimate.n1_max, plan.n1_max) << what;
    EXPECT_EQ(estimate.n2_max, plan.n2_max) << what;
    EXPECT_EQ(estimate.sum_n1, plan.sum_n1) << what;
  }
  EXPECT_GE(estimate.nnz_m, plan.nnz_m) << what;
  EXPECT_GE(estimate.n1_max, plan.n1_max) << what;
  EXPECT_GE(estimate.n2_max, plan.n2_max) << what;
  EXPECT_GE(estimate.sum_n1, plan.sum_n1) << what;
  EXPECT_GE(estimate.plan_bytes, plan.plan_bytes) << what;
  EXPECT_GE(estimate.build_bytes, plan.build_bytes) << what;
  EXPECT_GE(estimate.gram_flops * (1 + 1e-12), plan.gram_flops) << what;
}

TEST(StaticSpaiEstimate, BoundsThePlan) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(31)) {
    for (const int power : {1, 2, 3}) {
      for (const bool ensure_row : {false, true}) {
        for (const bool row_match : {false, true}) {
          for (const double tau : {-1.0, 0.3, 0.9}) {
            StaticSpaiOptions options;
            options.pattern.power = power;
            options.pattern.ensure_row = ensure_row;
            options.pattern.row_match = row_match;
            if (tau >= 0) options.pattern.keep_tau = tau;
            auto estimate = EstimateStaticSpai(entry.a.pattern(), nullptr, options, {});
            ASSERT_TRUE(estimate.ok()) << estimate.status().message();
            auto plan = PlanStaticSpai(entry.a, nullptr, options, {});
            ASSERT_TRUE(plan.ok()) << plan.status().message();
            ExpectBounds(*estimate, Counts(**plan),
                         entry.name + " power " + std::to_string(power) + " tau " +
                             std::to_string(tau) + (ensure_row ? " ensure_row" : "") +
                             (row_match ? " row_match" : ""),
                         tau < 0 && !row_match);
          }
        }
      }
    }
  }
}

TEST(StaticSpaiEstimate, BoundsThePlanOfAUserPattern) {
  const CscMatrix a = oracle::RandomIrregular(100, 5, 32);
  const Pattern diagonal = DiagonalPattern(100);
  const PatternView view = diagonal;
  auto estimate = EstimateStaticSpai(a.pattern(), &view, {}, {});
  auto plan = PlanStaticSpai(a, &view, {}, {});
  ASSERT_TRUE(estimate.ok() && plan.ok());
  EXPECT_EQ(estimate->nnz_m, 100);
  ExpectBounds(*estimate, Counts(**plan), "diagonal", true);
}

// Too dense to count: the walk bounds take over, at once and still as bounds.
TEST(StaticSpaiEstimate, StaysCheapOnAnArrow) {
  const CscMatrix a = oracle::Arrow(30000);
  auto estimate = EstimateStaticSpai(a.pattern(), nullptr, With(LocalSolver::kAuto, 2), {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->n2_max, 30000);
  EXPECT_EQ(estimate->nnz_m, int64_t{30000} * 30000);  // and that is the truth
}

TEST(StaticSpaiEstimate, BuildsTakeNoMoreMemoryThanSaid) {
  for (const CscMatrix& a :
       {oracle::Laplacian2d(70, 70), oracle::RandomIrregular(4000, 8, 33), oracle::Arrow(5000),
        oracle::DenseRowAndColumn(1000, 34), oracle::Singular(300, 35)}) {
    for (const LocalSolver solver : {LocalSolver::kAuto, LocalSolver::kGram, LocalSolver::kQr}) {
      for (const double filter : {0.0, 0.1}) {
        StaticSpaiOptions options = With(solver);
        options.post_filter = filter;
        const Context context{.stop = {}, .progress = nullptr, .threads = 2};
        auto estimate = EstimateStaticSpai(a.pattern(), nullptr, options, context);
        ASSERT_TRUE(estimate.ok());
        const int64_t before = g_live;
        auto plan = PlanStaticSpai(a, nullptr, options, context);
        ASSERT_TRUE(plan.ok());
        EXPECT_LE(g_live - before, estimate->plan_bytes + 4096);
        g_peak = g_live.load();
        const int64_t start = g_live;
        auto result = BuildStaticSpai(**plan, a, options, context);
        ASSERT_TRUE(result.ok());
        EXPECT_LE(g_peak - start, estimate->build_bytes)
            << a.n_cols << " " << static_cast<int>(solver) << " " << filter;
      }
    }
  }
}

// Wherever memory runs out, in whichever thread: a status, and the process lives on.
TEST(StaticSpaiMemory, RunningOutIsAStatus) {
  const CscMatrix a = oracle::DenseRowAndColumn(600, 36);
  const Context context{.stop = {}, .progress = nullptr, .threads = 3};
  for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kQr}) {
    StaticSpaiOptions options = With(solver);
    options.post_filter = 0.01;
    auto plan = PlanStaticSpai(a, nullptr, options, context);
    ASSERT_TRUE(plan.ok());
    const auto run_out = [&](const auto& compute) {
      int failures = 0;
      for (int64_t room = 0;; room = room * 5 / 4 + 2048) {
        g_limit = g_live + room;
        const Status status = compute();
        g_limit = INT64_MAX;
        if (status.ok()) break;
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
        EXPECT_EQ(status.reason(), "OUT_OF_MEMORY");
        ++failures;
      }
      EXPECT_GT(failures, 3);
    };
    const auto status_of = [](const auto& r) { return r.ok() ? Status() : r.status(); };
    run_out([&] { return status_of(BuildStaticSpai(**plan, a, options, context)); });
    run_out([&] { return status_of(PlanStaticSpai(a, nullptr, options, context)); });
    run_out([&] { return status_of(EstimateStaticSpai(a, nullptr, options, context)); });
  }
}

}  // namespace
}  // namespace spaid::kernels
