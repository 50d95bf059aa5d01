// Bounds on what a rank takes, against sizes that are known. Peaks of ranks are measured in
// tests/e2e/mpi/bounds_test.py.
#include "kernels/mpi/rank_bytes.h"

#include "kernels/gallery/gallery.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

using BuildToBound = RanksDevice::BuildToBound;

constexpr int64_t kMuch = int64_t{1} << 40;

RanksDevice::RankBytes BoundOn(const CscMatrix& a, const BuildToBound& build, int ranks,
                               int64_t halo_limit = kMuch) {
  const auto bound =
      BoundRankBytes(a.pattern(), build, {.ranks = ranks, .threads = 1, .halo_limit = halo_limit});
  EXPECT_TRUE(bound.ok()) << bound.status().message();
  return bound.ok() ? *bound : RanksDevice::RankBytes();
}

const StaticSpaiOptions kStatic;
const DynamicSpaiOptions kDynamic;
const FsaiOptions kAdaptive;

std::vector<BuildToBound> Builds(const CscMatrix& a) {
  return {{.static_spai = &kStatic, .nnz_m = a.nnz(), .column_nnz = 5},
          {.dynamic_spai = &kDynamic, .nnz_m = 51 * a.n_cols, .gram_nnz = 25 * a.n_cols},
          {.fsai = &kAdaptive, .nnz_m = 31 * a.n_cols}};
}

TEST(RankBytes, OneRankFetchesNothing) {
  const CscMatrix a = oracle::Laplacian2d(30, 30);
  for (const BuildToBound& build : Builds(a)) EXPECT_EQ(BoundOn(a, build, 1).halo, 0);
}

TEST(RankBytes, AHaloIsOfTheWholeAtTheMostAndOfTheLimit) {
  const CscMatrix a = oracle::Laplacian2d(30, 30);
  const BuildToBound build = Builds(a)[0];
  // Index, value and place of each entry, and a length of each column.
  EXPECT_EQ(BoundOn(a, build, 3).halo, a.nnz() * 20 + a.n_cols * 8);
  for (const BuildToBound& any : Builds(a)) {
    EXPECT_EQ(BoundOn(a, any, 3, 5000).halo, 5000);
    EXPECT_LT(BoundOn(a, any, 3, 5000).all, BoundOn(a, any, 3).all);
  }
}

RanksDevice::Shares OfSpread(const CscMatrix& a) {
  const auto shares = SharesOf(Spread(a), 2);
  EXPECT_TRUE(shares.ok()) << shares.status().message();
  return shares.ok() ? *shares : RanksDevice::Shares();
}

// The sizes are known of a matrix that lies there alone, and not which columns are long together.
TEST(RankBytes, OfSharesAreNoLessThanOfThePattern) {
  const CscMatrix a = oracle::RandomIrregular(500, 8, 3);
  const RanksDevice::Shares shares = OfSpread(a);
  EXPECT_EQ(shares.n, a.n_cols);
  EXPECT_EQ(shares.nnz, a.nnz());
  const CscMatrix by_rows = *Transpose(a, {});
  int64_t gram_nnz = 0, gram_longest = 0, longest_column = 0, longest_row = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    std::vector<int32_t> met;  // columns with a row in common
    for (const int32_t i : CscView(a).column(j)) {
      const auto row = CscView(by_rows).column(i);
      met.insert(met.end(), row.begin(), row.end());
    }
    std::ranges::sort(met);
    const int64_t of_column = std::unique(met.begin(), met.end()) - met.begin();
    gram_nnz += of_column;
    gram_longest = std::max(gram_longest, of_column);
    longest_column = std::max(longest_column, std::ssize(CscView(a).column(j)));
    longest_row = std::max(longest_row, std::ssize(CscView(by_rows).column(j)));
  }
  EXPECT_EQ(shares.gram_nnz, gram_nnz);
  EXPECT_EQ(shares.gram_longest, gram_longest);
  EXPECT_GE(shares.gram_own, gram_nnz / Ranks());
  EXPECT_LE(shares.gram_own, gram_nnz);
  EXPECT_EQ(shares.longest_column, longest_column);
  EXPECT_EQ(shares.longest_row, longest_row);
  for (const BuildToBound& build : Builds(a)) {
    const RanksShape shape{.ranks = Ranks(), .threads = 1, .halo_limit = kMuch};
    const auto by_pattern = BoundRankBytes(a.pattern(), build, shape);
    const auto by_shares = BoundRankBytes(shares, build, shape);
    ASSERT_TRUE(by_shares.ok());
    // Nobody knows from the pattern which rank has which columns of AᵀA.
    if (build.dynamic_spai == nullptr) {
      EXPECT_GE(by_shares->all, by_pattern->all);
    }
    EXPECT_GE(by_shares->halo, by_pattern->halo);
    EXPECT_LT(by_shares->all, 3 * by_pattern->all);
  }
}

// One row, or unknowns of nodes: each is counted once.
TEST(RankBytes, AtaIsCountedByHand) {
  const CscMatrix grid = oracle::Laplacian2d(20, 20);
  // Nodes two steps apart, at most, have a row in common: 13 inside, fewer at the rim.
  EXPECT_EQ(OfSpread(grid).gram_longest, 13);
  EXPECT_EQ(OfSpread(grid).gram_nnz, 20 * 20 + 4 * 20 * 19 + 4 * 20 * 18 + 4 * 19 * 19);
  const CscMatrix nodes = oracle::From(gallery::Elasticity3d(6));
  EXPECT_EQ(OfSpread(nodes).gram_longest, 375);
}

// A dense row gives each column n: their sum is a bound that costs nothing.
TEST(RankBytes, ADenseRowIsNotWalkedForEachColumn) {
  const CscMatrix a = oracle::DenseRowAndColumn(900, 24);
  const RanksDevice::Shares shares = OfSpread(a);
  EXPECT_EQ(shares.gram_longest, 900);
  EXPECT_LE(shares.gram_nnz, 900 * 900);
}

TEST(RankBytes, AreOfTheRankWithMost) {
  // The first of four ranks owns most of the entries, by columns and by rows.
  CscMatrix a;
  a.n_rows = a.n_cols = 4000;
  a.col_ptr.push_back(0);
  for (int32_t j = 0; j < 4000; ++j) {
    for (int32_t i = 0; i < (j < 1000 ? 200 : 0); ++i) {
      if (i != j) a.row_idx.push_back(i);
    }
    a.row_idx.push_back(j);
    std::sort(a.row_idx.begin() + a.col_ptr.back(), a.row_idx.end());
    a.col_ptr.push_back(a.nnz());
  }
  a.values.assign(a.row_idx.size(), 1);
  const BuildToBound build{.static_spai = &kStatic, .nnz_m = a.nnz(), .column_nnz = 201};
  EXPECT_GT(BoundOn(a, build, 4, 0).all, a.nnz() * 48);
}

// As long as nothing is fetched, more ranks take less each, down to what is there for each row.
TEST(RankBytes, FallWithTheNumberOfRanks) {
  const CscMatrix a = oracle::From(gallery::Laplace27(24));
  for (const BuildToBound& build : Builds(a)) {
    if (build.dynamic_spai != nullptr) continue;  // AᵀA may be anywhere
    const int64_t one = BoundOn(a, build, 1, 0).all, four = BoundOn(a, build, 4, 0).all;
    EXPECT_LT(four, one);
    EXPECT_GT(four, one / 8);
  }
}

// M, or G, of each rank is there at the end: no bound may be under that.
TEST(RankBytes, HoldWhatABuildLeaves) {
  const CscMatrix whole = oracle::From(gallery::Elasticity3d(8));
  const SpreadMatrix a = Spread(whole);
  const auto plan = PlanHybridSpai(a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto m = BuildHybridSpai(*plan, a, {});
  ASSERT_TRUE(m.ok()) << m.status().message();
  const BuildToBound build{.static_spai = &kStatic, .nnz_m = plan->nnz_m(), .column_nnz = 81};
  const RanksDevice::RankBytes bound = BoundOn(whole, build, Ranks());
  EXPECT_LE(plan->halo_bytes(), bound.halo);
  EXPECT_LE(plan->bytes() + a.columns.bytes() + m->columns.bytes(), bound.all);
  // Shares of entries, whatever the work: two of them and a group at the most.
  EXPECT_LE(m->columns.nnz(), 2 * plan->nnz_m() / Ranks() + 2 * 32 * 81);
}

// A few columns have nearly all the work, others nearly all entries.
TEST(RankBytes, NoRankHasMoreThanTwoSharesOfM) {
  const std::pair<std::string, CscMatrix> matrices[] = {
      {"dense row and column", oracle::DenseRowAndColumn(900, 24)},
      {"arrow", oracle::Arrow(900)},
      {"circuit", oracle::From(gallery::Circuit(2000, 3, 600))},
      {"irregular", oracle::RandomIrregular(900, 6, 21)},
  };
  for (const auto& [name, whole] : matrices) {
    const SpreadMatrix a = Spread(whole);
    const auto plan = PlanHybridSpai(a, nullptr, {}, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto m = BuildHybridSpai(*plan, a, {});
    ASSERT_TRUE(m.ok()) << m.status().message();
    int64_t longest = 0;
    for (int64_t k = 0; k < m->columns.n_cols; ++k) {
      longest = std::max(longest, m->columns.col_ptr[static_cast<size_t>(k) + 1] -
                                      m->columns.col_ptr[static_cast<size_t>(k)]);
    }
    EXPECT_LE(m->columns.nnz(), 2 * plan->nnz_m() / Ranks() + 32 * longest) << name;
  }
}

}  // namespace
}  // namespace spaid::kernels::mpi
