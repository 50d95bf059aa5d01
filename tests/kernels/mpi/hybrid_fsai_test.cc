// FSAI over ranks against hand-made factors, and bit for bit against one process.
#include "kernels/mpi/hybrid_fsai.h"

#include <cmath>
#include <numeric>
#include <optional>

#include "kernels/gallery/gallery.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/transpose.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

FsaiOptions Static() {
  FsaiOptions options;
  options.adaptive = false;
  return options;
}

std::vector<std::pair<std::string, FsaiOptions>> Variants() {
  std::vector<std::pair<std::string, FsaiOptions>> all;
  const auto add = [&](std::string name, const auto& set) {
    FsaiOptions options = Static();
    set(options);
    all.emplace_back(std::move(name), options);
  };
  add("default", [](FsaiOptions&) {});
  add("power 2", [](FsaiOptions& o) { o.power = 2; });
  add("power 3, filtered after", [](FsaiOptions& o) {
    o.power = 3;
    o.post_filter = 0.05;
  });
  add("filtered before, power 2", [](FsaiOptions& o) {
    o.drop_tol = 0.2;
    o.power = 2;
  });
  add("fp32", [](FsaiOptions& o) { o.precision = Precision::kFp32; });
  return all;
}

std::vector<std::pair<std::string, FsaiOptions>> AdaptiveVariants() {
  std::vector<std::pair<std::string, FsaiOptions>> all;
  const auto add = [&](std::string name, const auto& set) {
    FsaiOptions options;
    set(options);
    all.emplace_back(std::move(name), options);
  };
  add("adaptive", [](FsaiOptions&) {});
  add("few steps of several", [](FsaiOptions& o) {
    o.k_max = 3;
    o.s = 3;
  });
  add("fp32, filtered after", [](FsaiOptions& o) {
    o.precision = Precision::kFp32;
    o.post_filter = 0.05;
    o.k_max = 12;
  });
  add("to where it gains, every row grown", [](FsaiOptions& o) {
    o.min_gain = 1e-2;
    o.repeat_hash_bits = 0;
  });
  add("no step", [](FsaiOptions& o) { o.k_max = 0; });
  return all;
}

// The own rows of G of all ranks, as columns, on rank 0.
CscMatrix GatherRows(const SpreadMatrix& a, const HybridFsaiResult& g) {
  Array<Entry> own;
  for (int64_t k = 0; k < g.rows.n_cols; ++k) {
    for (auto p = static_cast<size_t>(g.rows.col_ptr[static_cast<size_t>(k)]);
         p < static_cast<size_t>(g.rows.col_ptr[static_cast<size_t>(k) + 1]); ++p) {
      own.push_back({static_cast<int32_t>(a.own().begin + k), g.rows.row_idx[p], g.rows.values[p]});
    }
  }
  return Gather(a.n, own);
}

HybridFsaiResult ExpectAsOneProcess(const CscMatrix& whole, const Pattern* user,
                                    const FsaiOptions& options, const std::string& what) {
  const SpreadMatrix a = Spread(whole);
  std::optional<SpreadPattern> spread;
  std::optional<PatternView> view;
  if (user != nullptr) {
    view = *user;
    auto pattern = SpreadWhole(a, Rank() == 0 ? &*view : nullptr);
    EXPECT_TRUE(pattern.ok()) << pattern.status().message();
    spread = *std::move(pattern);
  }
  auto found = BuildHybridFsai(a, spread ? &*spread : nullptr, {.fsai = options}, {.threads = 1});
  EXPECT_TRUE(found.ok()) << what << ": " << found.status().message();
  const auto single = BuildFsai(whole, view ? &*view : nullptr, options, {});
  EXPECT_TRUE(single.ok()) << what << ": " << single.status().message();
  if (!found.ok() || !single.ok()) return {};
  ExpectSame(GatherRows(a, *found), single->g_rows, what);
  EXPECT_EQ(found->nnz, single->g_rows.nnz()) << what;
  const FsaiQuality &q = found->quality, &expected = single->quality;
  EXPECT_NEAR(q.kaporin, expected.kaporin, 1e-12 * expected.kaporin) << what;
  EXPECT_EQ(q.density, expected.density) << what;
  EXPECT_EQ(q.nnz_row_max, expected.nnz_row_max) << what;
  EXPECT_EQ(q.not_spd_rows, expected.not_spd_rows) << what;
  EXPECT_EQ(q.first_not_spd, expected.first_not_spd) << what;
  EXPECT_EQ(q.slow_rows, expected.slow_rows) << what;
  EXPECT_EQ(q.converged_rows, expected.converged_rows) << what;
  EXPECT_EQ(q.steps, expected.steps) << what;
  EXPECT_EQ(q.kaporin_by_step.size(), expected.kaporin_by_step.size()) << what;
  for (size_t t = 0; t < expected.kaporin_by_step.size(); ++t) {
    EXPECT_NEAR(q.kaporin_by_step[t], expected.kaporin_by_step[t],
                1e-12 * expected.kaporin_by_step[t])
        << what << ", step " << t;
  }
  return *std::move(found);
}

TEST(HybridFsai, FactorsATwoByTwoByHand) {
  // [4 2; 2 5]: row 0 of G is 1/2; of row 1 g̃ = −1/2, ψ = 4: (−1/4, 1/2).
  CscMatrix whole;
  whole.n_rows = whole.n_cols = 2;
  whole.col_ptr = {0, 2, 4};
  whole.row_idx = {0, 1, 0, 1};
  whole.values = {4, 2, 2, 5};
  const SpreadMatrix a = Spread(whole);
  const auto g = BuildHybridFsai(a, nullptr, {.fsai = Static()}, {});
  ASSERT_TRUE(g.ok()) << g.status().message();
  const CscMatrix found = GatherRows(a, *g);
  if (Rank() == 0) {
    EXPECT_EQ(found.row_idx, (Array<int32_t>{0, 0, 1}));
    EXPECT_NEAR(found.values[0], 0.5, 1e-15);
    EXPECT_NEAR(found.values[1], -0.25, 1e-15);
    EXPECT_NEAR(found.values[2], 0.5, 1e-15);
  }
  EXPECT_NEAR(g->quality.kaporin, std::sqrt(4.0 / 5), 1e-15);
}

TEST(HybridFsai, HasTheBitsOfOneProcess) {
  const std::pair<std::string, CscMatrix> matrices[] = {
      {"Laplacian", oracle::Laplacian2d(31, 29)},
      {"27 points", oracle::From(gallery::Laplace27(9))},
      {"elasticity", oracle::From(gallery::Elasticity3d(7))},
      {"random", oracle::RandomSpd(700, 6, 3)},
      {"anisotropy", oracle::From(gallery::RotatedAnisotropy2d(30, 1e-3, 0.5))},
      {"jumps", oracle::From(gallery::Jumps3d(10, 5, 4))},
      {"fewer rows than ranks", oracle::Laplacian2d(3, 1)},
  };
  for (const auto& [name, a] : matrices) {
    for (const auto& variants : {Variants(), AdaptiveVariants()}) {
      for (const auto& [variant, options] : variants) {
        ExpectAsOneProcess(a, nullptr, options, name + ", " + variant);
      }
    }
  }
}

// A 4 x 4 chain: row i of G grows from its diagonal to i − 1, then i − 2, ..., and is whole with i.
TEST(HybridFsai, GrowsTheRowsOfAChainByHand) {
  const CscMatrix whole = oracle::Laplacian2d(4, 1);
  FsaiOptions options;
  options.k_max = 3;
  options.epsilon = 0;
  const HybridFsaiResult g = ExpectAsOneProcess(whole, nullptr, options, "chain of 4");
  EXPECT_EQ(g.nnz, 10);
  // The pivots of A are 4, 15/4, 56/15, 209/56 (a_ii = 4), or 2, 3/2, 4/3, 5/4.
  double product = 1, pivot = 0;
  for (int i = 0; i < 4; ++i) {
    pivot = i == 0 ? whole.values[0] : whole.values[0] - 1 / pivot;
    product *= pivot / whole.values[0];
  }
  EXPECT_NEAR(g.quality.kaporin, std::pow(product, 0.25), 1e-14);
  EXPECT_LE(g.rounds, 4);
  if (Ranks() == 1) {
    EXPECT_EQ(g.rounds, 1);
    EXPECT_EQ(g.halo_bytes, 0);
  }
}

// Unknowns in no order: rows grow over all ranks, in rounds, and nothing is cut off.
TEST(HybridFsai, GrowsThroughTheWholeGraphWhereUnknownsAreInNoOrder) {
  constexpr int64_t kSide = 18, kN = kSide * kSide;
  const CscMatrix a = oracle::Laplacian2d(kSide, kSide);
  const auto at = [](int32_t i) { return static_cast<int32_t>(int64_t{i} * 101 % kN); };
  std::vector<std::vector<std::pair<int32_t, double>>> columns(static_cast<size_t>(kN));
  for (int32_t j = 0; j < kN; ++j) {
    auto& column = columns[static_cast<size_t>(at(j))];
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      column.emplace_back(at(a.row_idx[p]), a.values[p]);
    }
    std::ranges::sort(column);
  }
  CscMatrix permuted{kN, kN, {0}, {}, {}};
  for (const auto& column : columns) {
    for (const auto& [row, value] : column) {
      permuted.row_idx.push_back(row);
      permuted.values.push_back(value);
    }
    permuted.col_ptr.push_back(permuted.nnz());
  }
  for (const auto& [variant, options] : AdaptiveVariants()) {
    const HybridFsaiResult g =
        ExpectAsOneProcess(permuted, nullptr, options, "permuted, " + variant);
    if (Ranks() > 1 && options.k_max >= 12) {  // rows ask for lower ones: the first rank for none
      EXPECT_GT(g.rounds, 1) << variant;
      EXPECT_LE(g.rounds, options.k_max + 1) << variant;
      EXPECT_EQ(g.halo_bytes > 0, Rank() > 0) << variant;
    }
  }
}

TEST(HybridFsai, APatternOfTheCallersIsCutAtTheDiagonal) {
  const CscMatrix a = oracle::Laplacian2d(17, 16);
  Pattern user{a.n_rows, a.n_cols, {0}, {}};
  for (int64_t i = 0; i < a.n_cols; ++i) {
    for (const int64_t j : {i - 17, i - 1, i + 1}) {
      if (j >= 0 && j < a.n_cols) user.row_idx.push_back(static_cast<int32_t>(j));
    }
    user.col_ptr.push_back(user.nnz());
  }
  ExpectAsOneProcess(a, &user, Static(), "the caller's");
  for (const auto& [variant, options] : AdaptiveVariants()) {
    ExpectAsOneProcess(a, &user, options, "from the caller's, " + variant);
  }
}

// An A that holds zeros on one side alone is symmetric, its pattern is not.
TEST(HybridFsai, RowsAreThoseOfAnAWhosePatternIsNotSymmetric) {
  CscMatrix a = oracle::Laplacian2d(12, 12);
  CscMatrix with_zeros{a.n_rows, a.n_cols, {0}, {}, {}};
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      with_zeros.row_idx.push_back(a.row_idx[p]);
      with_zeros.values.push_back(a.values[p]);
    }
    if (j % 5 == 0 && j + 40 < a.n_cols) {
      with_zeros.row_idx.push_back(static_cast<int32_t>(j + 40));
      with_zeros.values.push_back(0);
    }
    with_zeros.col_ptr.push_back(std::ssize(with_zeros.row_idx));
  }
  FsaiOptions options = Static();
  ExpectAsOneProcess(with_zeros, nullptr, options, "below the diagonal");
  const auto above = Transpose(with_zeros, {});
  ASSERT_TRUE(above.ok());
  options.power = 2;
  ExpectAsOneProcess(*above, nullptr, options, "above the diagonal");
}

TEST(HybridFsai, CgByItTakesTheIterationsOfOneProcess) {
  const CscMatrix whole = oracle::From(gallery::Laplace27(12));
  const SpreadMatrix a = Spread(whole);
  const auto g = BuildHybridFsai(a, nullptr, {.fsai = Static()}, {});
  ASSERT_TRUE(g.ok()) << g.status().message();
  const auto n = static_cast<size_t>(whole.n_cols);
  std::vector<double> exact(n), b(n);
  for (size_t i = 0; i < n; ++i) exact[i] = std::sin(static_cast<double>(i * i));
  ColumnOperator(whole).Apply(exact, b, 1);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-9};
  const auto first = static_cast<size_t>(a.own().begin), own = static_cast<size_t>(a.own().size());
  std::vector<double> x(own, 0.0);
  const auto solved = SolveSpread(a, g->m.get(), std::span(b).subspan(first, own), x, options, {});
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->outcome, Outcome::kConverged) << solved->detail;
  for (size_t i = 0; i < own; ++i) EXPECT_NEAR(x[i], exact[first + i], 1e-6);
  const auto single = BuildFsai(whole, nullptr, Static(), {});
  ASSERT_TRUE(single.ok());
  const auto columns = Transpose(single->g_rows, {});
  ASSERT_TRUE(columns.ok());
  const FactoredOperator m(std::make_shared<CsrOperator>(CsrOperator::FromRows(single->g_rows)),
                           std::make_shared<CsrOperator>(CsrOperator::FromRows(*columns)));
  const auto alone = kernels::Solve(*CsrOperator::FromColumns(whole, {}), &m, b, {}, options, {});
  ASSERT_TRUE(alone.ok());
  EXPECT_NEAR(static_cast<double>(solved->iterations),
              static_cast<double>(alone->rhs[0].iterations), 2);
}

TEST(HybridFsai, RefusesAsOneProcessDoes) {
  FsaiOptions options = Static();
  const auto build = [&](const CscMatrix& whole) {
    return BuildHybridFsai(Spread(whole), nullptr, {.fsai = options}, {}).status();
  };
  CscMatrix bad = oracle::Laplacian2d(10, 10);
  // The last rank's, and the first place counts.
  const auto last = static_cast<size_t>(bad.nnz() - 1);
  bad.values[last] = -1;
  ExpectRefused(build(bad), StatusCode::kFailedPrecondition, "NOT_POSITIVE_DEFINITE", "values", 99);
  bad = oracle::Laplacian2d(10, 10);
  bad.values[last - 1] *= 1.5;  // (98, 99)
  ExpectRefused(build(bad), StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", "values", 98);
  options.symmetry_tolerance = 0.5;
  EXPECT_TRUE(build(bad).ok());
  options = Static();
  options.power = 0;
  ExpectRefused(build(oracle::Laplacian2d(4, 4)), StatusCode::kInvalidArgument, "BAD_FSAI_OPTION",
                "pattern_power");
  options = FsaiOptions();
  options.time_budget_ms = 10;
  ExpectRefused(build(oracle::Laplacian2d(4, 4)), StatusCode::kInvalidArgument, "NOT_SPREAD",
                "time_budget");
  if (Ranks() == 1) return;
  const SpreadMatrix a = Spread(oracle::Laplacian2d(40, 40));
  const auto large = BuildHybridFsai(a, nullptr, {.fsai = Static(), .halo_bytes = 100}, {});
  EXPECT_EQ(large.status().reason(), "HALO_TOO_LARGE") << large.status().message();
}

TEST(HybridFsai, RowsWithoutAPositivePivotAreCounted) {
  // Positive diagonal, but indefinite.
  CscMatrix whole = oracle::Laplacian2d(20, 20);
  for (size_t p = 0; p < whole.values.size(); ++p) {
    if (whole.values[p] > 0) whole.values[p] = 1;
  }
  FsaiOptions options = Static();
  options.power = 2;
  const SpreadMatrix a = Spread(whole);
  const auto found = BuildHybridFsai(a, nullptr, {.fsai = options}, {});
  ASSERT_TRUE(found.ok()) << found.status().message();
  const auto single = BuildFsai(whole, nullptr, options, {});
  ASSERT_TRUE(single.ok());
  EXPECT_GT(found->quality.not_spd_rows, 0);
  EXPECT_EQ(found->quality.not_spd_rows, single->quality.not_spd_rows);
  EXPECT_EQ(found->quality.first_not_spd, single->quality.first_not_spd);
  // Rows that grow have read the same, whatever they met.
  for (const auto& [variant, adaptive] : AdaptiveVariants()) {
    const HybridFsaiResult g = ExpectAsOneProcess(whole, nullptr, adaptive, variant);
    if (adaptive.k_max > 0) {
      EXPECT_GT(g.quality.not_spd_rows, 0) << variant;
    }
  }
}

TEST(HybridFsai, GrowthIsRefusedAHaloOverItsLimitWithBothNumbers) {
  if (Ranks() == 1) return;
  const SpreadMatrix a = Spread(oracle::Laplacian2d(30, 30));
  const auto grown = BuildHybridFsai(a, nullptr, {}, {});
  ASSERT_TRUE(grown.ok()) << grown.status().message();
  int64_t most = grown->halo_bytes;
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, PETSC_COMM_WORLD);
  EXPECT_TRUE(BuildHybridFsai(a, nullptr, {.fsai = {}, .halo_bytes = most}, {}).ok());
  const Status status =
      BuildHybridFsai(a, nullptr, {.fsai = {}, .halo_bytes = most - 1}, {}).status();
  ExpectRefused(status, StatusCode::kResourceExhausted, "HALO_TOO_LARGE", "halo_bytes");
  EXPECT_NE(status.message().find(std::to_string(most) + " bytes"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("limit is " + std::to_string(most - 1)), std::string::npos)
      << status.message();
}

TEST(HybridFsai, ACancelledBuildEndsOnAllRanks) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(30, 30));
  StopSource source;
  if (Rank() == 0) source.Request(StopReason::kCancelled);
  ExpectRefused(BuildHybridFsai(a, nullptr, {.fsai = Static()}, {.stop = source.token()}).status(),
                StatusCode::kCancelled, "CANCELLED");
  EXPECT_TRUE(BuildHybridFsai(a, nullptr, {.fsai = Static()}, {}).ok());
  ExpectRefused(BuildHybridFsai(a, nullptr, {}, {.stop = source.token()}).status(),
                StatusCode::kCancelled, "CANCELLED");
}

}  // namespace
}  // namespace spaid::kernels::mpi
