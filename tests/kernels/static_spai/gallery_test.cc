// The accuracy rule on every column of the gallery's families and the benchmarks' problems, at
// sizes for a test.
#include "kernels/gallery/gallery.h"

#include <algorithm>
#include <numbers>
#include <string>

#include "kernels/bench/problems.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

struct Family {
  const char* name;
  CscMatrix (*make)();
  int max_power;
};

constexpr Family kFamilies[] = {
    {"P7_30", [] { return bench::ConvectionDiffusion(30, 0); }, 1},
    {"P7_12", [] { return bench::ConvectionDiffusion(12, 0); }, 3},
    {"convdiff_30", [] { return bench::ConvectionDiffusion(30, 400); }, 1},
    {"convdiff_12", [] { return bench::ConvectionDiffusion(12, 400); }, 3},
    {"P27_16", [] { return bench::Laplacian27(16); }, 1},
    {"P27_8", [] { return bench::Laplacian27(8); }, 2},
    {"aniso_100", [] { return bench::Anisotropic(100, 1e-3, std::numbers::pi / 8); }, 2},
    {"elasticity_9", [] { return bench::Elasticity(9); }, 1},
    {"elasticity_4", [] { return bench::Elasticity(4); }, 2},
    {"circuit_8k", [] { return bench::Circuit(8000, 12, 300); }, 1},
    {"circuit_1k", [] { return bench::Circuit(1000, 4, 60); }, 2},
};

class Gallery : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, Gallery, ::testing::ValuesIn(kFamilies),
                         [](const auto& family) { return std::string(family.param.name); });

TEST_P(Gallery, GramKeepsUpWithQrInEveryColumn) {
  const CscMatrix a = GetParam().make();
  for (int power = 1; power <= GetParam().max_power; ++power) {
    const StaticSpaiResult qr = Build(a, nullptr, With(LocalSolver::kQr, power));
    for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kAuto}) {
      const StaticSpaiResult result = Build(a, nullptr, With(solver, power));
      ExpectGramAccuracy(a, result, qr, std::string(GetParam().name) + " " + std::to_string(power));
      EXPECT_EQ(result.quality.rescued_columns, 0);  // none of these needs it
      EXPECT_EQ(result.quality.non_finite_columns, 0);
    }
  }
}

class EveryFamily : public ::testing::TestWithParam<gallery::Family> {};
INSTANTIATE_TEST_SUITE_P(Gallery, EveryFamily,
                         ::testing::ValuesIn(gallery::Families().begin(),
                                             gallery::Families().end()),
                         [](const auto& test) { return std::string(test.param.name); });

// At a quarter of its default size.
TEST_P(EveryFamily, GramKeepsUpWithQrInEveryColumn) {
  const gallery::Family& family = GetParam();
  const gallery::Matrix made = family.make(std::max(family.min_size, family.default_size / 4));
  const CscView a{{made.n, made.n, made.col_ptr, made.row_idx}, made.values};
  const StaticSpaiResult qr = Build(a, nullptr, With(LocalSolver::kQr));
  for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kAuto}) {
    const StaticSpaiResult result = Build(a, nullptr, With(solver));
    ExpectGramAccuracy(a, result, qr, std::string(family.name));
    EXPECT_EQ(result.quality.zero_columns, qr.quality.zero_columns);
  }
}

TEST(AutoSolver, TakesGramForElasticity) {
  const CscMatrix a = bench::Elasticity(5);
  const StaticSpaiResult result = Build(a, nullptr, {});
  EXPECT_EQ(result.quality.gram_columns, a.n_cols);
}

}  // namespace
}  // namespace spaid::kernels
