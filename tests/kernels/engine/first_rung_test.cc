// With which rung AUTO begins on a GPU: by hand, on systems that were measured, and what refuses.
#include "kernels/engine/first_rung.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "kernels/amg/suitability.h"
#include "kernels/engine/cost.h"
#include "kernels/gallery/gallery.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::engine_test {
namespace {

RungKind LeastOf(const RungTimes& t) {
  if (t.bottom_ms <= std::min(t.fsai_ms, t.amg_ms)) return RungKind::kBottom;
  return t.fsai_ms <= t.amg_ms ? RungKind::kLightAfsai : RungKind::kAmg;
}

TEST(FirstRung, ForetellsSetUpsAndIterations) {
  // 10^4 unknowns: 12 times 10 iterations for 7 decades.
  DeviceTerms terms{.n = 1e4, .nnz = 5e4};
  SolveWork work{.method = Method::kCg, .n = 1e4, .nnz_a = 5e4};
  const double jacobi = IterationMs(work, Backend::kCuda, 1);
  EXPECT_NEAR(ForetellTimes(terms).bottom_ms, 120 * jacobi, 1e-9);
  EXPECT_EQ(ForetellTimes(terms).fsai_ms, kNoRung);
  EXPECT_EQ(ForetellTimes(terms).amg_ms, kNoRung);
  terms.decades = 3.5;
  EXPECT_NEAR(ForetellTimes(terms).bottom_ms, 60 * jacobi, 1e-9);
  // Three times as many where rows are irregular, a quarter of them by FSAI of 5 entries a row.
  terms.decades = 7;
  terms.rows = DeviceTerms::Rows::kIrregular;
  terms.fsai_setup_ms = 2;
  terms.amg_setup_ms = 8;
  terms.amg_entries = 1e5;
  work.nnz_m = 1e5;
  const double fsai = IterationMs(work, Backend::kCuda, 1);
  work.parts = true;
  const double cycle = IterationMs(work, Backend::kCuda, 1);
  work.nnz_m *= 1.5;
  const double rough = IterationMs(work, Backend::kCuda, 1);
  const RungTimes irregular = ForetellTimes(terms);
  EXPECT_NEAR(irregular.bottom_ms, 360 * jacobi, 1e-9);
  EXPECT_NEAR(irregular.fsai_ms, 2 + 90 * fsai, 1e-9);
  // 40 cycles, each of 1.5 times its entries; 60 where coefficients jump, 75 of nodes.
  EXPECT_NEAR(irregular.amg_ms, 8 + 40 * rough, 1e-9);
  terms.block = 3;
  EXPECT_NEAR(ForetellTimes(terms).bottom_ms, 504 * jacobi, 1e-9);
  EXPECT_NEAR(ForetellTimes(terms).fsai_ms, 2 + 126 * fsai, 1e-9);
  EXPECT_NEAR(ForetellTimes(terms).amg_ms, 8 + 75 * rough, 1e-9);
  // As many at any size where coefficients jump.
  terms.block = 1;
  terms.uneven = true;
  EXPECT_NEAR(ForetellTimes(terms).bottom_ms, 1300 * jacobi, 1e-9);
  EXPECT_NEAR(ForetellTimes(terms).fsai_ms, 2 + 280 * fsai, 1e-9);
  EXPECT_NEAR(ForetellTimes(terms).amg_ms, 8 + 60 * rough, 1e-9);
  // FSAI of regular rows takes as long as Jacobi, and more for its set-up.
  terms.rows = DeviceTerms::Rows::kRegular;
  EXPECT_EQ(ForetellTimes(terms).fsai_ms, kNoRung);
  EXPECT_NEAR(ForetellTimes(terms).amg_ms, 8 + 20 * cycle, 1e-9);
  // A third as many where rows are even, more of nodes; Jacobi's set-up counts.
  terms.bottom_setup_ms = 3;
  terms.block = 3;
  EXPECT_NEAR(ForetellTimes(terms).bottom_ms, 3 + 168 * jacobi, 1e-9);
  terms.rows = DeviceTerms::Rows::kEven;
  EXPECT_NEAR(ForetellTimes(terms).bottom_ms, 3 + 40 * jacobi, 1e-9);
}

// Measured on one H200 (docs/figures/totals-meshes-h200.csv and docs/decisions/auto.md), totals of
// Jacobi, FSAI and multigrid: the rung that is foretold to win takes at most 1.3 of the best.
TEST(FirstRung, IsNearTheBestOfWhatWasMeasured) {
  using Rows = DeviceTerms::Rows;
  constexpr Rows kEven = Rows::kEven, kRegular = Rows::kRegular, kIrregular = Rows::kIrregular;
  struct Measured {
    const char* name;
    double n, nnz;
    int block;
    bool positive;
    Rows rows;
    double jacobi_setup, fsai_setup, amg_setup;  // as foretold
    double jacobi, fsai, amg;                    // kNoRung: not measured, or none
  };
  const Measured cases[] = {
      {"P7 128", 2097152, 14581760, 1, true, kRegular, 22, kNoRung, 17.5, 56, 87, 37},
      {"P27 100", 1e6, 26463592, 1, true, kEven, 16, kNoRung, 27, 31, 55, 44},
      {"E80 40", 187200, 14411340, 3, true, kRegular, 5.3, kNoRung, 14, 27, 35, 30},
      {"E80 60", 637200, 49902300, 3, true, kRegular, 18, kNoRung, 40, 99, 111, 71},
      {"P7 64", 262144, 1810432, 1, true, kRegular, 2.8, kNoRung, 7, 9.1, 17, 14},
      {"aniso 1640", 2689600, 24186724, 1, true, kIrregular, 30, 59, 34, 191, 185, 71},
      {"aniso 400", 160000, 1435204, 1, true, kIrregular, 1.8, 6.8, 11, 12.6, 20, 15},
      {"varcoef 100", 1e6, 6940000, 1, true, kRegular, 11, kNoRung, 11, 30, 46, 30},
      {"convdiff 100", 1e6, 6940000, 1, false, kRegular, 11, kNoRung, 14, 57, kNoRung, 29},
      {"convdiff 64", 262144, 1810432, 1, false, kRegular, 2.8, kNoRung, 9.1, 17, kNoRung, 17.4},
      {"diffusion", 994856, 16366056, 1, true, kIrregular, 13, 28, 43, 123, 93, 81},
      {"jumps", 994856, 16366056, 1, true, kIrregular, 13, 28, 43, 169, 81, 95},
      {"elasticity", 743967, 36591435, 3, true, kIrregular, 16, 36, 72, 211, 106, 145},
      {"convection", 994856, 16366056, 1, false, kRegular, 13, kNoRung, 24, 361, kNoRung, 226},
      {"diffusion, 200,000", 198278, 3249170, 1, true, kIrregular, 2.6, 8.5, 15, 30, 24, 28},
      {"jumps, 200,000", 198278, 3249170, 1, true, kIrregular, 2.6, 8.5, 15, 52, 30, 32},
      {"elasticity, 100,000", 296733, 14552523, 3, true, kIrregular, 5.8, 17, 33, 80, 56, 63},
      {"diffusion, 20,000", 19602, 317390, 1, true, kIrregular, 0.3, 4, kNoRung, 7, 6.8, 11},
      {"jumps, 20,000", 19602, 317390, 1, true, kIrregular, 0.3, 4, kNoRung, 18, 9.4, 12},
      {"elasticity, 10,000", 29256, 1413252, 3, true, kIrregular, 0.6, 4.8, 13, 14, 10.5, 16},
      {"jumps, 10,000", 9752, 157028, 1, true, kIrregular, 0.1, 3, kNoRung, 11, 7.4, 9.6},
      {"elasticity, 5,000", 14544, 694494, 3, true, kIrregular, 0.2, 3.6, kNoRung, 10, 7.7, 11},
  };
  for (const Measured& c : cases) {
    const DeviceTerms terms{.n = c.n,
                            .nnz = c.nnz,
                            .positive = c.positive,
                            .block = c.block,
                            .rows = c.rows,
                            .uneven = std::string_view(c.name).starts_with("jumps"),
                            .bottom_setup_ms = c.jacobi_setup,
                            .fsai_setup_ms = c.fsai_setup,
                            .amg_setup_ms = c.amg_setup,
                            .amg_entries = 2 * c.nnz + (c.rows == kIrregular ? 16 * c.n : 0)};
    const RungKind kind = LeastOf(ForetellTimes(terms));
    const double takes = kind == RungKind::kBottom ? c.jacobi
                         : kind == RungKind::kAmg  ? c.amg
                                                   : c.fsai;
    EXPECT_LE(takes, 1.3 * std::min({c.jacobi, c.fsai, c.amg})) << c.name;
  }
}

TEST(FirstRung, IsTheBottomWhereNothingElseMayBe) {
  const CscMatrix a = oracle::From(gallery::RotatedAnisotropy2d(200, 1e-3, 0.39));
  const Diagnosis diagnosis = Diagnose(a);
  const Array<double> b(static_cast<size_t>(a.n_cols), 1.0);
  SolveOptions options{.method = Method::kAuto, .rtol = 1e-300};
  LadderCase c{.a = a, .diagnosis = diagnosis, .b = b, .options = options, .threads = 2};
  const auto engine = MakeCpuEngine();
  EXPECT_EQ(FirstRung(*engine, c, {}), RungKind::kBottom) << "it is the CPU";
  // 300 decades by Jacobi take longer than any set-up.
  c.backend = Backend::kCuda;
  EXPECT_NE(FirstRung(*engine, c, {}), RungKind::kBottom);
  options.method = Method::kGmres;
  EXPECT_EQ(FirstRung(*engine, c, {}), RungKind::kBottom) << "these rungs are CG's";
  options = {.method = Method::kAuto, .rtol = 0.5};
  EXPECT_EQ(FirstRung(*engine, c, {}), RungKind::kBottom) << "it ends at once";
  options = {.method = Method::kAuto, .rtol = 1e-300};
  c.ladder.to_build = true;
  EXPECT_EQ(FirstRung(*engine, c, {}), RungKind::kBottom);
}

// Each unknown of `of` becomes a node of three, which are coupled weakly.
gallery::Matrix InNodes(const gallery::Matrix& of) {
  constexpr int64_t kUnknowns = 3;
  constexpr double kCoupling = 0.01;
  gallery::Matrix nodes;
  nodes.n = kUnknowns * of.n;
  nodes.col_ptr.assign(1, 0);
  for (int64_t j = 0; j < nodes.n; ++j) {
    const auto node = static_cast<size_t>(j / kUnknowns);
    for (auto p = static_cast<size_t>(of.col_ptr[node]);
         p < static_cast<size_t>(of.col_ptr[node + 1]); ++p) {
      for (int64_t k = 0; k < kUnknowns; ++k) {
        nodes.row_idx.push_back(static_cast<int32_t>(kUnknowns * of.row_idx[p] + k));
        nodes.values.push_back(of.values[p] * (k == j % kUnknowns ? 1 : kCoupling));
      }
    }
    nodes.col_ptr.push_back(static_cast<int64_t>(nodes.row_idx.size()));
  }
  return nodes;
}

// A look at another matrix tells whether there was one before.
TEST(FirstRung, LooksAtAllOfAWhereTheSampleIsNotClear) {
  const auto engine = MakeCpuEngine();
  struct Case {
    const char* name;
    gallery::Matrix a;
    bool clear;
  };
  // Constants have 0.016 and, by the larger diagonal, 0.04; of the elasticity the worst of three
  // unknowns has 0.04, of nodes of a plane that are alike 0.01.
  gallery::Matrix larger = gallery::ConvectionDiffusion3d(64, 0);
  for (double& value : larger.values) value *= value > 0 ? 1.025 : 1;
  const Case cases[] = {{"64^3", gallery::ConvectionDiffusion3d(64, 0), true},
                        {"64^3, larger diagonal", std::move(larger), false},
                        {"elasticity", gallery::Elasticity3d(20), false},
                        {"nodes", InNodes(gallery::RotatedAnisotropy2d(200, 1, 0)), true}};
  for (const Case& at : cases) {
    SCOPED_TRACE(at.name);
    const CscMatrix a = oracle::From(at.a);
    const Diagnosis diagnosis = Diagnose(a);
    const Array<double> b(static_cast<size_t>(64 * a.n_cols), 1.0);  // one set-up for 64
    const SolveOptions options{.method = Method::kAuto, .rtol = 1e-300};
    LadderCase c{.a = a, .diagnosis = diagnosis, .b = b, .options = options, .threads = 2};
    c.backend = Backend::kCuda;
    ASSERT_EQ(FirstRung(*engine, c, {}), RungKind::kAmg);
    const AmgSuitability& found = c.look->Of({}, 1, 1);
    const AmgSuitability all = LookForAmg(a, diagnosis.max_row_entries, 1);
    EXPECT_TRUE(found.suits);
    EXPECT_TRUE(all.suits);
    // The sample has no corner of 64^3, but rows of the boundary, or none.
    EXPECT_LE(found.beta, all.beta);
    EXPECT_GE(found.beta, 0.9 * all.beta);
    if (!at.clear) {
      EXPECT_EQ(found.beta, all.beta);
    }
  }
  // Nothing is taken for a look that was.
  AmgLook look;
  EXPECT_FALSE(look.Of({}, 1, 1).suits);
  look.Take({true, 2});
  EXPECT_FALSE(look.Of({}, 1, 1).suits);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
