// Dynamic SPAI over ranks against a pattern grown by hand, and bit for bit against one process.
#include "kernels/mpi/hybrid_dynamic_spai.h"

#include <cmath>
#include <optional>

#include "kernels/gallery/gallery.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

std::vector<std::pair<std::string, DynamicSpaiOptions>> Variants() {
  std::vector<std::pair<std::string, DynamicSpaiOptions>> all;
  const auto add = [&](std::string name, const auto& set) {
    DynamicSpaiOptions options;
    set(options);
    all.emplace_back(std::move(name), options);
  };
  add("default", [](DynamicSpaiOptions&) {});
  add("one entry a step, to a small residual", [](DynamicSpaiOptions& o) {
    o.per_step = 1;
    o.max_steps = 25;
    o.tol = 0.05;
  });
  add("no step", [](DynamicSpaiOptions& o) { o.max_steps = 0; });
  add("fp32, few entries", [](DynamicSpaiOptions& o) {
    o.growth_precision = Precision::kFp32;
    o.max_column_nnz = 7;
  });
  add("every column grown", [](DynamicSpaiOptions& o) {
    o.repeat_hash_bits = 0;
    o.per_step = 3;
    o.post_filter = 0.05;
    o.local_solver = LocalSolver::kQr;
  });
  return all;
}

// The M of one process, and how it grew; all ranks may call it, each for itself.
struct Single {
  DynamicSpaiPattern grown;
  CscMatrix m;

  Single(const CscMatrix& a, const PatternView* initial, const DynamicSpaiOptions& options) {
    auto pattern = GrowDynamicSpai(a, initial, options, {.threads = 2});
    EXPECT_TRUE(pattern.ok()) << pattern.status().message();
    if (!pattern.ok()) return;
    grown = *std::move(pattern);
    const PatternView of_m = grown.m;
    auto plan = PlanStaticSpai(a, &of_m, NumbersOf(options), {});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    m = BuildStaticSpai(**plan, a, NumbersOf(options), {})->m;
  }
};

void ExpectSameQuality(const DynamicSpaiQuality& found, const DynamicSpaiQuality& expected,
                       const std::string& what) {
  EXPECT_EQ(found.converged_columns, expected.converged_columns) << what;
  EXPECT_EQ(found.nnz_column_max, expected.nnz_column_max) << what;
  EXPECT_EQ(found.dependent_columns, expected.dependent_columns) << what;
  EXPECT_EQ(found.first_dependent, expected.first_dependent) << what;
  EXPECT_EQ(found.gram_nnz, expected.gram_nnz) << what;
  EXPECT_EQ(found.residual_by_step.size(), expected.residual_by_step.size()) << what;
  for (size_t t = 0; t < expected.residual_by_step.size(); ++t) {
    EXPECT_NEAR(found.residual_by_step[t], expected.residual_by_step[t],
                1e-12 * expected.residual_by_step[t])
        << what << ", step " << t;
  }
}

HybridDynamicPattern ExpectAsOneProcess(const CscMatrix& whole, const Pattern* initial,
                                        const DynamicSpaiOptions& options,
                                        const std::string& what) {
  const SpreadMatrix a = Spread(whole);
  std::optional<SpreadPattern> spread;
  std::optional<PatternView> view;
  if (initial != nullptr) {
    view = *initial;
    auto pattern = SpreadWhole(a, Rank() == 0 ? &*view : nullptr);
    EXPECT_TRUE(pattern.ok()) << pattern.status().message();
    spread = *std::move(pattern);
  }
  auto grown =
      GrowHybridDynamicSpai(a, spread ? &*spread : nullptr, {.dynamic = options}, {.threads = 1});
  EXPECT_TRUE(grown.ok()) << what << ": " << grown.status().message();
  if (!grown.ok()) return {};
  const auto plan = PlanHybridSpai(a, &grown->m, {.spai = NumbersOf(options)}, {.threads = 1});
  EXPECT_TRUE(plan.ok()) << what << ": " << plan.status().message();
  if (!plan.ok()) return {};
  const auto m = BuildHybridSpai(*plan, a, {.threads = 1});
  EXPECT_TRUE(m.ok()) << what << ": " << m.status().message();
  if (!m.ok()) return {};
  const Single single(whole, view ? &*view : nullptr, options);
  ExpectSame(Gather(a.n, *m), single.m, what);
  ExpectSameQuality(grown->quality, single.grown.quality, what);
  return *std::move(grown);
}

TEST(HybridDynamicSpai, GrowsAThreeByThreeByHand) {
  // [1 1 0; 0 1 1; 0 0 1]: column 0 of the inverse is e_0, column 1 (−1, 1, 0), column 2 (1, −1,
  // 1): each of them is reached, with residual 0, by as many steps of one entry.
  CscMatrix whole;
  whole.n_rows = whole.n_cols = 3;
  whole.col_ptr = {0, 1, 3, 5};
  whole.row_idx = {0, 0, 1, 1, 2};
  whole.values = {1, 1, 1, 1, 1};
  DynamicSpaiOptions options;
  options.per_step = 1;
  options.max_steps = 3;
  options.tol = 1e-6;
  const HybridDynamicPattern grown = ExpectAsOneProcess(whole, nullptr, options, "3 x 3");
  EXPECT_EQ(grown.quality.converged_columns, 3);
  EXPECT_EQ(grown.quality.nnz_column_max, 3);
  // A column of AᵀA for each step at the most, and one that finds that nothing is missing.
  EXPECT_LE(grown.rounds, 4);
}

TEST(HybridDynamicSpai, HasTheBitsOfOneProcessOnTheZoo) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(11)) {
    for (const auto& [name, options] : Variants()) {
      ExpectAsOneProcess(entry.a, nullptr, options, entry.name + ", " + name);
    }
  }
}

TEST(HybridDynamicSpai, HasTheBitsOfOneProcessOnGrids) {
  const std::pair<std::string, CscMatrix> grids[] = {
      {"Laplacian", oracle::Laplacian2d(24, 23)},
      {"convection", oracle::ConvectionDiffusion(23, 24, 4)},
      {"elasticity", oracle::From(gallery::Elasticity3d(5))},
      {"periodic", oracle::From(gallery::Periodic(900, 7))},
      {"Stokes", oracle::From(gallery::Stokes2d(10))},
      {"fewer columns than ranks", oracle::Laplacian2d(3, 1)},
  };
  for (const auto& [name, a] : grids) {
    for (const auto& [variant, options] : Variants()) {
      ExpectAsOneProcess(a, nullptr, options, name + ", " + variant);
    }
  }
}

TEST(HybridDynamicSpai, HasTheBitsOfOneProcessOnIrregularReducibleAndPermutedMatrices) {
  const std::pair<std::string, CscMatrix> matrices[] = {
      {"irregular", oracle::RandomIrregular(500, 6, 21)},
      {"reducible", oracle::BlockTriangular(400, 7, 22)},
      {"permuted", oracle::RowPermuted(400, 23)},
      {"dense row and column", oracle::DenseRowAndColumn(300, 24)},
      {"arrow", oracle::Arrow(200)},
      {"badly scaled", oracle::BadlyScaled(400, 25)},
      {"circuit", oracle::From(gallery::Circuit(800, 3, 200))},
  };
  for (const auto& [name, a] : matrices) {
    for (const auto& [variant, options] : Variants()) {
      ExpectAsOneProcess(a, nullptr, options, name + ", " + variant);
    }
  }
}

TEST(HybridDynamicSpai, BeginsWithAPatternOfTheCallers) {
  const CscMatrix a = oracle::RandomIrregular(300, 5, 32);
  const Pattern initial =
      BuildPattern(oracle::BlockTriangular(300, 5, 33), nullptr, {}, {}).value();
  for (const auto& [variant, options] : Variants()) {
    ExpectAsOneProcess(a, &initial, options, "initial, " + variant);
  }
}

// The matrix of a chain of `n` unknowns, of which the i-th has the number i · stride mod n.
CscMatrix Chain(int64_t n, int64_t stride) {
  const auto at = [&](int64_t i) { return static_cast<int32_t>(i * stride % n); };
  std::vector<std::vector<std::pair<int32_t, double>>> columns(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    auto& column = columns[static_cast<size_t>(at(i))];
    column.emplace_back(at(i), 2.1);
    if (i > 0) column.emplace_back(at(i - 1), -1);
    if (i + 1 < n) column.emplace_back(at(i + 1), -1);
    std::ranges::sort(column);
  }
  CscMatrix chain{n, n, {0}, {}, {}};
  for (const auto& column : columns) {
    for (const auto& [row, value] : column) {
      chain.row_idx.push_back(row);
      chain.values.push_back(value);
    }
    chain.col_ptr.push_back(chain.nnz());
  }
  return chain;
}

// Each step of a column near a border asks for one column more of the next rank, which nobody can
// know before that step; where neighbours are never of one rank, all columns do.
TEST(HybridDynamicSpai, GrowsAcrossRanksInAsManyRoundsAsItAsksFor) {
  DynamicSpaiOptions options;
  options.per_step = 1;
  options.max_steps = 12;
  options.tol = 1e-3;
  for (const int64_t stride : {1, 31}) {
    const HybridDynamicPattern grown = ExpectAsOneProcess(
        Chain(120, stride), nullptr, options, "chain of stride " + std::to_string(stride));
    EXPECT_EQ(grown.quality.nnz_column_max, 13);
    if (Ranks() == 1) {
      EXPECT_EQ(grown.rounds, 1);
      EXPECT_EQ(grown.halo_bytes, 0);
    } else {
      EXPECT_GT(grown.rounds, stride == 1 ? 3 : 1);
      EXPECT_LE(grown.rounds, options.max_steps + 1);
      EXPECT_GT(grown.halo_bytes, 0);
    }
  }
}

TEST(HybridDynamicSpai, RefusesAsOneProcessDoes) {
  CscMatrix whole = oracle::Laplacian2d(8, 5);
  for (auto p = static_cast<size_t>(whole.col_ptr[37]); p < static_cast<size_t>(whole.col_ptr[38]);
       ++p) {
    whole.values[p] = 0;
  }
  const auto grow = [](const CscMatrix& of, const HybridDynamicOptions& options) {
    return GrowHybridDynamicSpai(Spread(of), nullptr, options, {}).status();
  };
  ExpectRefused(grow(whole, {}), StatusCode::kFailedPrecondition, "ZERO_COLUMN", "column", 37);
  const CscMatrix good = oracle::Laplacian2d(8, 5);
  HybridDynamicOptions options;
  options.dynamic.tol = 1;
  ExpectRefused(grow(good, options), StatusCode::kInvalidArgument, "BAD_DYNAMIC_OPTION", "tol");
  options = {};
  options.halo_bytes = -1;
  ExpectRefused(grow(good, options), StatusCode::kInvalidArgument, "BAD_HALO_BYTES", "halo_bytes");
  if (Ranks() > 1) {
    options = {};
    options.dynamic.max_steps = Rank() == 1 ? 3 : 2;
    ExpectRefused(grow(good, options), StatusCode::kInvalidArgument, "OPTIONS_DIFFER", "options");
  }
}

TEST(HybridDynamicSpai, RefusesAHaloOverItsLimitWithBothNumbers) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(20, 20));
  const auto grown = GrowHybridDynamicSpai(a, nullptr, {}, {});
  EXPECT_TRUE(grown.ok()) << grown.status().message();
  if (!grown.ok() || Ranks() == 1) return;
  int64_t most = grown->halo_bytes;
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, PETSC_COMM_WORLD);
  HybridDynamicOptions options{.dynamic = {}, .halo_bytes = most};
  EXPECT_TRUE(GrowHybridDynamicSpai(a, nullptr, options, {}).ok());
  options.halo_bytes = most - 1;  // in a late round
  const Status status = GrowHybridDynamicSpai(a, nullptr, options, {}).status();
  ExpectRefused(status, StatusCode::kResourceExhausted, "HALO_TOO_LARGE", "halo_bytes");
  EXPECT_NE(status.message().find(std::to_string(most) + " bytes"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("limit is " + std::to_string(most - 1)), std::string::npos)
      << status.message();
  options.halo_bytes = 1;  // in the rows that AᵀA is made of
  ExpectRefused(GrowHybridDynamicSpai(a, nullptr, options, {}).status(),
                StatusCode::kResourceExhausted, "HALO_TOO_LARGE", "halo_bytes");
}

TEST(HybridDynamicSpai, RefusesMoreOfTheGramMatrixThanARankMayHave) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(20, 20));
  const auto whole = GrowHybridDynamicSpai(a, nullptr, {}, {});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const HybridDynamicOptions enough{.dynamic = {}, .gram_entries = whole->quality.gram_nnz};
  EXPECT_TRUE(GrowHybridDynamicSpai(a, nullptr, enough, {}).ok());
  const HybridDynamicOptions few{.dynamic = {},
                                 .gram_entries = whole->quality.gram_nnz / (2 * Ranks())};
  const Status status = GrowHybridDynamicSpai(a, nullptr, few, {}).status();
  // The first of the longest rows, of the whole.
  ExpectRefused(status, StatusCode::kResourceExhausted, "GRAM_TOO_LARGE", "row_idx", 21);
  EXPECT_NE(status.message().find("memory holds " + std::to_string(few.gram_entries)),
            std::string::npos)
      << status.message();
}

TEST(HybridDynamicSpai, ACancelledGrowthEndsOnAllRanks) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(20, 20));
  StopSource source;
  if (Rank() == 0) source.Request(StopReason::kCancelled);
  ExpectRefused(GrowHybridDynamicSpai(a, nullptr, {}, {.stop = source.token()}).status(),
                StatusCode::kCancelled, "CANCELLED");
  EXPECT_TRUE(GrowHybridDynamicSpai(a, nullptr, {}, {}).ok());
}

}  // namespace
}  // namespace spaid::kernels::mpi
