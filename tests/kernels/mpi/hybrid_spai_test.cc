// HybridSPAI against hand-made inverses, and bit for bit against one process.
#include "kernels/mpi/hybrid_spai.h"

#include <optional>

#include "kernels/gallery/gallery.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

std::vector<std::pair<std::string, StaticSpaiOptions>> Variants() {
  std::vector<std::pair<std::string, StaticSpaiOptions>> all;
  const auto add = [&](std::string name, const auto& set) {
    StaticSpaiOptions options;
    set(options);
    all.emplace_back(std::move(name), options);
  };
  add("default", [](StaticSpaiOptions&) {});
  add("QR", [](StaticSpaiOptions& o) { o.local_solver = LocalSolver::kQr; });
  add("Gram, power 2", [](StaticSpaiOptions& o) {
    o.local_solver = LocalSolver::kGram;
    o.pattern.power = 2;
  });
  add("power 3", [](StaticSpaiOptions& o) { o.pattern.power = 3; });
  add("threshold", [](StaticSpaiOptions& o) { o.pattern.keep_tau = 0.6; });
  add("threshold, power 2, rows", [](StaticSpaiOptions& o) {
    o.pattern.keep_tau = 0.4;
    o.pattern.power = 2;
    o.pattern.ensure_row = true;
  });
  add("post-filter", [](StaticSpaiOptions& o) { o.post_filter = 0.1; });
  return all;
}

// The M of one process; all ranks may call it, each for itself.
StaticSpaiResult Single(const CscMatrix& a, const PatternView* user,
                        const StaticSpaiOptions& options) {
  const Context context{.threads = 2};
  auto plan = PlanStaticSpai(a, user, options, context);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  auto m = BuildStaticSpai(**plan, a, options, context);
  EXPECT_TRUE(m.ok()) << m.status().message();
  return *std::move(m);
}

void ExpectSameQuality(const StaticSpaiQuality& found, const StaticSpaiQuality& expected,
                       const std::string& what) {
  EXPECT_EQ(found.residual_frobenius, expected.residual_frobenius) << what;
  EXPECT_EQ(found.residual_quantiles, expected.residual_quantiles) << what;
  EXPECT_EQ(found.worst_column, expected.worst_column) << what;
  EXPECT_EQ(found.density, expected.density) << what;
  EXPECT_EQ(found.gram_columns, expected.gram_columns) << what;
  EXPECT_EQ(found.qr_columns, expected.qr_columns) << what;
  EXPECT_EQ(found.rescued_columns, expected.rescued_columns) << what;
  EXPECT_EQ(found.first_rescued, expected.first_rescued) << what;
  EXPECT_EQ(found.rank_deficient_columns, expected.rank_deficient_columns) << what;
  EXPECT_EQ(found.first_rank_deficient, expected.first_rank_deficient) << what;
  EXPECT_EQ(found.zero_columns, expected.zero_columns) << what;
  EXPECT_EQ(found.first_zero_column, expected.first_zero_column) << what;
  EXPECT_EQ(found.min_scaled_pivot, expected.min_scaled_pivot) << what;
}

HybridSpaiResult ExpectAsOneProcess(const CscMatrix& whole, const Pattern* user,
                                    const StaticSpaiOptions& options, const std::string& what) {
  const SpreadMatrix a = Spread(whole);
  std::optional<SpreadPattern> spread;
  std::optional<PatternView> view;
  if (user != nullptr) {
    view = *user;
    auto pattern = SpreadWhole(a, Rank() == 0 ? &*view : nullptr);
    EXPECT_TRUE(pattern.ok()) << pattern.status().message();
    spread = *std::move(pattern);
  }
  const HybridSpaiOptions hybrid{.spai = options};
  const Context context{.threads = 1};
  auto plan = PlanHybridSpai(a, spread ? &*spread : nullptr, hybrid, context);
  EXPECT_TRUE(plan.ok()) << what << ": " << plan.status().message();
  if (!plan.ok()) return {};
  auto m = BuildHybridSpai(*plan, a, context);
  EXPECT_TRUE(m.ok()) << what << ": " << m.status().message();
  if (!m.ok()) return {};
  EXPECT_EQ(SumOf(PETSC_COMM_WORLD, plan->columns_here()), a.n) << what;
  const StaticSpaiResult single = Single(whole, view ? &*view : nullptr, options);
  ExpectSame(Gather(a.n, *m), single.m, what);
  ExpectSame(Gather(a.n, m->rows.get()), single.m, what + ", as PETSc has it");
  ExpectSameQuality(m->quality, single.quality, what);
  return *std::move(m);
}

TEST(HybridSpai, InvertsAThreeByThreeByHand) {
  // [1 1 0; 0 1 1; 0 0 1]: power 2 holds its whole inverse.
  CscMatrix a;
  a.n_rows = a.n_cols = 3;
  a.col_ptr = {0, 1, 3, 5};
  a.row_idx = {0, 0, 1, 1, 2};
  a.values = {1, 1, 1, 1, 1};
  StaticSpaiOptions options;
  options.pattern.power = 2;
  const HybridSpaiResult m = ExpectAsOneProcess(a, nullptr, options, "3 x 3");
  const CscMatrix found = Gather(3, m);
  if (Rank() == 0) {
    const double expected[] = {1, -1, 1, 1, -1, 1};
    ASSERT_EQ(found.values.size(), 6u);
    for (size_t p = 0; p < 6; ++p) EXPECT_NEAR(found.values[p], expected[p], 1e-14);
  }
  EXPECT_NEAR(m.quality.residual_frobenius, 0, 1e-14);
}

TEST(HybridSpai, HasTheBitsOfOneProcessOnTheZoo) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(11)) {
    for (const auto& [name, options] : Variants()) {
      ExpectAsOneProcess(entry.a, nullptr, options, entry.name + ", " + name);
    }
  }
}

// Groups of shifted copies, which are solved eight at a time: where they are many, over the borders
// of ranks.
TEST(HybridSpai, HasTheBitsOfOneProcessOnGrids) {
  const std::pair<std::string, CscMatrix> grids[] = {
      {"Laplacian", oracle::Laplacian2d(40, 37)},
      {"convection", oracle::ConvectionDiffusion(37, 40, 4)},
      {"elasticity", oracle::From(gallery::Elasticity3d(8))},
      {"27 points", oracle::From(gallery::Laplace27(11))},
      {"periodic", oracle::From(gallery::Periodic(4000, 7))},
      {"Stokes", oracle::From(gallery::Stokes2d(20))},
  };
  for (const auto& [name, a] : grids) {
    for (const auto& [variant, options] : Variants()) {
      if (options.pattern.power > 2) continue;
      ExpectAsOneProcess(a, nullptr, options, name + ", " + variant);
    }
  }
}

TEST(HybridSpai, GridsOfOneProcessAreSolvedInLanes) {
  StaticSpaiOptions options;
  const CscMatrix a = oracle::Laplacian2d(40, 37);
  const auto plan = PlanStaticSpai(a, nullptr, options, {});
  EXPECT_TRUE(plan.ok());
  EXPECT_FALSE((*plan)->structures.empty());  // or the test above shows less than it says
}

TEST(HybridSpai, HasTheBitsOfOneProcessOnIrregularReducibleAndPermutedMatrices) {
  const std::pair<std::string, CscMatrix> matrices[] = {
      {"irregular", oracle::RandomIrregular(700, 6, 21)},
      {"reducible", oracle::BlockTriangular(600, 7, 22)},
      {"permuted", oracle::RowPermuted(500, 23)},
      {"dense row and column", oracle::DenseRowAndColumn(900, 24)},
      {"arrow", oracle::Arrow(1200)},
      {"badly scaled", oracle::BadlyScaled(500, 25)},
      {"circuit", oracle::From(gallery::Circuit(2000, 3, 600))},
  };
  for (const auto& [name, a] : matrices) {
    for (const auto& [variant, options] : Variants()) {
      if (options.pattern.power > 2 || (name == "arrow" && options.pattern.power > 1)) continue;
      ExpectAsOneProcess(a, nullptr, options, name + ", " + variant);
    }
  }
}

// One block after the other on the diagonal.
CscMatrix Chain(const CscMatrix& first, const CscMatrix& second) {
  CscMatrix both = first;
  both.n_rows = both.n_cols = first.n_cols + second.n_cols;
  for (const int32_t row : second.row_idx) {
    both.row_idx.push_back(row + static_cast<int32_t>(first.n_rows));
  }
  both.values.insert(both.values.end(), second.values.begin(), second.values.end());
  for (int64_t k = 1; k <= second.n_cols; ++k) {
    both.col_ptr.push_back(first.nnz() + second.col_ptr[static_cast<size_t>(k)]);
  }
  return both;
}

// More kinds of columns than are told apart: which ones are depends on the order of all.
TEST(HybridSpai, HasTheBitsOfOneProcessWhereKindsAreTooMany) {
  const CscMatrix irregular = oracle::RandomIrregular(5000, 4, 41);
  const CscMatrix grid = oracle::Laplacian2d(30, 30);
  ExpectAsOneProcess(Chain(irregular, grid), nullptr, {}, "irregular first");
  ExpectAsOneProcess(Chain(grid, irregular), nullptr, {}, "grid first");
}

// All columns share one J, over all ranks, in groups of at most 32.
TEST(HybridSpai, HasTheBitsOfOneProcessWhereColumnsOfAllRanksShareTheirPattern) {
  constexpr int64_t kN = 100;
  const CscMatrix a = oracle::RandomIrregular(kN, 5, 31);
  Pattern full{kN, kN, {0}, {}};
  for (int64_t k = 0; k < kN; ++k) {
    for (int32_t i = 0; i < kN; ++i) full.row_idx.push_back(i);
    full.col_ptr.push_back(full.nnz());
  }
  for (const auto& [name, options] : Variants()) {
    if (options.pattern.power > 1) continue;
    ExpectAsOneProcess(a, &full, options, "full pattern, " + name);
  }
}

TEST(HybridSpai, TakesAPatternOfTheUser) {
  const CscMatrix a = oracle::RandomIrregular(300, 5, 32);
  const Pattern user = BuildPattern(oracle::BlockTriangular(300, 5, 33), nullptr, {}, {}).value();
  ExpectAsOneProcess(a, &user, {}, "user");
  StaticSpaiOptions squared;
  squared.pattern.power = 2;
  ExpectAsOneProcess(a, &user, squared, "user, power 2");
}

TEST(HybridSpai, BuildsOtherValuesOnOnePlan) {
  CscMatrix whole = oracle::RandomIrregular(300, 5, 34);
  const SpreadMatrix a = Spread(whole);
  const auto plan = PlanHybridSpai(a, nullptr, {}, {});
  EXPECT_TRUE(plan.ok());
  for (double& v : whole.values) v *= 1 + 0.1 * v;
  const SpreadMatrix other = Spread(whole);
  const auto m = BuildHybridSpai(*plan, other, {});
  EXPECT_TRUE(m.ok()) << m.status().message();
  ExpectSame(Gather(a.n, *m), Single(whole, nullptr, {}).m, "other values");
}

TEST(HybridSpai, RefusesAMatrixOfAnotherPattern) {
  const SpreadMatrix a = Spread(oracle::RandomIrregular(60, 4, 1));
  const auto plan = PlanHybridSpai(a, nullptr, {}, {});
  EXPECT_TRUE(plan.ok());
  const SpreadMatrix other = Spread(oracle::RandomIrregular(60, 4, 2));
  ExpectRefused(BuildHybridSpai(*plan, other, {}).status(), StatusCode::kInvalidArgument,
                "PLAN_MISMATCH");
}

TEST(HybridSpai, RefusesAColumnWithoutAnEntryByItsNumberInTheWhole) {
  CscMatrix whole;
  whole.n_rows = whole.n_cols = 40;
  whole.col_ptr.push_back(0);
  for (int32_t k = 0; k < 40; ++k) {
    if (k != 37) whole.row_idx.push_back(k);
    whole.col_ptr.push_back(std::ssize(whole.row_idx));
  }
  whole.values.assign(39, 1);
  ExpectRefused(PlanHybridSpai(Spread(whole), nullptr, {}, {}).status(),
                StatusCode::kFailedPrecondition, "ZERO_COLUMN", "column", 37);
}

TEST(HybridSpai, RefusesOptions) {
  const SpreadMatrix a = Spread(oracle::Arrow(40));
  HybridSpaiOptions options;
  options.spai.pattern.row_match = true;
  ExpectRefused(PlanHybridSpai(a, nullptr, options, {}).status(), StatusCode::kInvalidArgument,
                "BAD_ROW_MATCH", "row_match");
  options = {};
  options.spai.pattern.power = 0;
  ExpectRefused(PlanHybridSpai(a, nullptr, options, {}).status(), StatusCode::kInvalidArgument,
                "BAD_PATTERN_POWER", "pattern_power");
  if (Ranks() > 1) {
    options = {};
    options.spai.pattern.power = Rank() == 1 ? 2 : 1;
    ExpectRefused(PlanHybridSpai(a, nullptr, options, {}).status(), StatusCode::kInvalidArgument,
                  "OPTIONS_DIFFER", "options");
  }
  options = {};
  options.halo_bytes = -1;
  ExpectRefused(PlanHybridSpai(a, nullptr, options, {}).status(), StatusCode::kInvalidArgument,
                "BAD_HALO_BYTES", "halo_bytes");
  options = {};
  options.spai.pattern.max_nnz = 60;
  ExpectRefused(PlanHybridSpai(a, nullptr, options, {}).status(), StatusCode::kResourceExhausted,
                "PATTERN_TOO_LARGE");
}

TEST(HybridSpai, RefusesAHaloOverItsLimitWithBothNumbers) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(30, 30));
  const auto plan = PlanHybridSpai(a, nullptr, {}, {});
  EXPECT_TRUE(plan.ok());
  if (Ranks() == 1) {
    EXPECT_EQ(plan->halo_bytes(), 0);
    return;
  }
  EXPECT_GT(plan->halo_bytes(), 0);
  int64_t most = plan->halo_bytes();
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, PETSC_COMM_WORLD);
  HybridSpaiOptions options{.spai = {}, .halo_bytes = most};
  EXPECT_TRUE(PlanHybridSpai(a, nullptr, options, {}).ok());
  options.halo_bytes = most - 1;
  const Status status = PlanHybridSpai(a, nullptr, options, {}).status();
  ExpectRefused(status, StatusCode::kResourceExhausted, "HALO_TOO_LARGE", "halo_bytes");
  EXPECT_NE(status.message().find(std::to_string(most) + " bytes"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("limit is " + std::to_string(most - 1)), std::string::npos)
      << status.message();
  options.halo_bytes = 1;
  options.spai.pattern.power = 2;  // in the steps of the pattern
  ExpectRefused(PlanHybridSpai(a, nullptr, options, {}).status(), StatusCode::kResourceExhausted,
                "HALO_TOO_LARGE", "halo_bytes");
}

}  // namespace
}  // namespace spaid::kernels::mpi
