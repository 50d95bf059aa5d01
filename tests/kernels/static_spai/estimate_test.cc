// Estimates are upper bounds: of the plan's counts, and of the memory that a build really takes.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "kernels/static_spai/static_spai_plan.h"
#include "tests/kernels/base/counted_memory.h"
#include "tests/kernels/static_spai/helpers.h"

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

// --- Bytes of a device ---

StaticSpaiCounts Estimated(const CscMatrix& a, const StaticSpaiOptions& options) {
  auto counts = EstimateStaticSpai(a.pattern(), nullptr, options, {});
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  return counts.ok() ? *counts : StaticSpaiCounts{};
}

TEST(StaticSpaiEstimate, DeviceBytesGrowWithThePattern) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(31)) {
    for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kQr}) {
      int64_t least = 0, most = 0;
      for (const int power : {1, 2, 3}) {
        const StaticSpaiCounts counts = Estimated(entry.a, With(solver, power));
        EXPECT_GT(counts.device_bytes_min, 0) << entry.name;
        EXPECT_LE(counts.device_bytes_min, counts.device_bytes) << entry.name;
        EXPECT_GE(counts.device_bytes_min, least) << entry.name << ", power " << power;
        EXPECT_GE(counts.device_bytes, most) << entry.name << ", power " << power;
        least = counts.device_bytes_min;
        most = counts.device_bytes;
      }
    }
  }
}

TEST(StaticSpaiEstimate, DeviceBytesGrowWithTheMatrix) {
  int64_t least = 0, most = 0;
  for (const int64_t n : {10, 100, 1000, 10000, 40000}) {
    const StaticSpaiCounts counts =
        Estimated(oracle::RandomIrregular(n, 8, 36), With(LocalSolver::kGram));
    EXPECT_GT(counts.device_bytes_min, least) << n;
    EXPECT_GT(counts.device_bytes, most) << n;
    least = counts.device_bytes_min;
    most = counts.device_bytes;
  }
}

TEST(StaticSpaiEstimate, WavesSpareTheTablesAlone) {
  // 12 columns of 12 entries each: some 170 words a table, which is most of the plan.
  const CscMatrix large = oracle::RandomIrregular(40000, 12, 37);
  const StaticSpaiCounts waved = Estimated(large, With(LocalSolver::kQr));
  EXPECT_LT(waved.device_bytes_min, waved.device_bytes * 7 / 10);
  // What a plan and a build hold besides: A, both patterns, M's values, scaled values of A.
  const int64_t rest = 12 * large.nnz() + 4 * waved.nnz_m + 8 * waved.nnz_m + 8 * large.nnz();
  EXPECT_GT(waved.device_bytes_min, rest);
  // Tables of a few MB are made at once. Without the path by diagonals nothing is left to spare.
  for (const CscMatrix& small :
       {oracle::Laplacian2d(30, 30), oracle::RandomIrregular(500, 8, 38), oracle::Arrow(40)}) {
    const StaticSpaiCounts counts = Estimated(small, With(LocalSolver::kQr));
    EXPECT_EQ(counts.device_bytes_min, counts.device_bytes) << small.n_cols;
  }
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

// The prediction of an estimate is that of the plan, which knows every group of columns.
TEST(StaticSpaiEstimate, CountsTheWorkOfThePlan) {
  // Three unknowns a node: columns that share J.
  const CscMatrix scalar = oracle::Laplacian2d(40, 40);
  CscMatrix nodes;
  nodes.n_rows = nodes.n_cols = 3 * scalar.n_cols;
  nodes.col_ptr.push_back(0);
  for (int64_t j = 0; j < nodes.n_cols; ++j) {
    for (const int32_t i : CscView(scalar).column(j / 3)) {
      for (int32_t c = 0; c < 3; ++c) {
        nodes.row_idx.push_back(3 * i + c);
        nodes.values.push_back(3 * i + c == j ? 20 : -1);
      }
    }
    nodes.col_ptr.push_back(static_cast<int64_t>(nodes.row_idx.size()));
  }
  const CscMatrix dense = OrthogonalKahan(400, 1.5, 37);
  const CscMatrix irregular = oracle::RandomIrregular(20000, 6, 38);
  struct Case {
    const char* name;
    const CscMatrix* a;
    int power;
    double factor;
  };
  const CscMatrix grid = oracle::Laplacian2d(150, 150), arrow = oracle::Arrow(30000);
  // 5e8 steps by the walk bound, over the budget of exact counting.
  const CscMatrix large = oracle::Laplacian2d(400, 400);
  for (const Case& c : {Case{"grid", &grid, 1, 1.02},
                        {"grid", &grid, 2, 1.05},
                        {"nodes", &nodes, 1, 1.05},
                        {"nodes", &nodes, 2, 1.1},
                        {"dense", &dense, 1, 1.05},
                        {"irregular", &irregular, 1, 1.2},
                        {"irregular", &irregular, 2, 1.3},
                        {"large", &large, 4, 1.05}}) {
    for (const LocalSolver solver : {LocalSolver::kAuto, LocalSolver::kQr}) {
      if (c.a == &large && solver == LocalSolver::kQr) continue;  // one plan of that size will do
      const StaticSpaiOptions options = With(solver, c.power);
      auto estimate = EstimateStaticSpai(c.a->pattern(), nullptr, options, {});
      ASSERT_TRUE(estimate.ok());
      auto plan = PlanStaticSpai(*c.a, nullptr, options, {});
      ASSERT_TRUE(plan.ok());
      const StaticSpaiCounts& counts = Counts(**plan);
      const double flops = solver == LocalSolver::kQr
                               ? counts.qr_flops
                               : std::min(counts.qr_flops, counts.gram_flops);
      EXPECT_GT(flops, 0);
      EXPECT_LE(estimate->work.flops, flops * c.factor) << c.name << c.power;
      EXPECT_GE(estimate->work.flops, flops / c.factor) << c.name << c.power;
      EXPECT_EQ(estimate->nnz_m, Counts(**plan).nnz_m) << c.name << c.power;
    }
  }
  // Local problems that are too large for a dense factor, which counts of a plan know nothing of.
  const auto estimate =
      EstimateStaticSpai(arrow.pattern(), nullptr, With(LocalSolver::kAuto, 1), {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_LT(estimate->work.flops, 1e4 * static_cast<double>(arrow.nnz()));
}

TEST(StaticSpaiEstimate, BytesBeyondCountingAreTheMost) {
  LocalCounts largest;
  largest.rows = largest.n1 = largest.entries = 1000;
  EXPECT_EQ(BuildBytes(1000, INT64_MAX / 8, 0, largest, 10, 2, true), INT64_MAX);
  EXPECT_EQ(BuildBytes(1000, INT64_MAX / 13, 0, largest, 10, 2, true), INT64_MAX);  // M twice
  EXPECT_EQ(BuildBytes(1000, 1000, INT64_MAX / 2, largest, 10, 2, false), INT64_MAX);
  EXPECT_LT(BuildBytes(1000, 1000, 0, largest, 10, 2, true), 100'000'000);
  EXPECT_EQ(PlanBytes(1000, INT64_MAX / 2, 0), INT64_MAX);
  EXPECT_LT(PlanBytes(1000, 1000, 0), 100'000);
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
