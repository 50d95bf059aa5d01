// Columns that repeat others: copied or grown, the same pattern; and copied wherever they do
// repeat.
#include "kernels/bench/problems.h"
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

struct Case {
  const char* name;
  CscMatrix a;
  double copied;  // share of the columns that is, at the least; 0: none
};

// Nonsymmetric, on a cycle: every column repeats, but for those that the numbering cuts.
CscMatrix Cycle(int64_t n) {
  oracle::Dense d(n, n);
  for (int64_t i = 0; i < n; ++i) {
    d(i, i) = 2;
    d(i, (i + 1) % n) = -1.25;
    d((i + 3) % n, i) = 0.5;
  }
  return oracle::FromDense(d);
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  all.push_back({"7 points", bench::ConvectionDiffusion(20, 0), 0.6});
  all.push_back({"27 points", bench::Laplacian27(14), 0.3});
  all.push_back({"elasticity", bench::Elasticity(15), 0.2});
  all.push_back({"cycle", Cycle(900), 0.8});
  CscMatrix changed = bench::ConvectionDiffusion(20, 0);
  changed.values[20'000] *= 1.5;
  all.push_back({"one entry changed", std::move(changed), 0.6});
  all.push_back({"varying", bench::WithVaryingCoefficients(bench::ConvectionDiffusion(10, 0)), 0});
  all.push_back({"random", oracle::RandomIrregular(300, 6, 5), 0});
  return all;
}

TEST(DynamicRepeats, AreTheColumnsThemselves) {
  for (const Case& c : AllCases()) {
    for (DynamicSpaiOptions options : {Steps(6), Steps(3, 4), Steps(10, 5, 0.3)}) {
      for (const bool fp32 : {false, true}) {
        const std::string what = std::string(c.name) + ", " + std::to_string(options.max_steps) +
                                 (fp32 ? " in fp32" : "");
        options.growth_precision = fp32 ? Precision::kFp32 : Precision::kFp64;
        options.repeat_hash_bits = 0;
        const DynamicSpaiPattern grown = Grow(c.a, options);
        EXPECT_EQ(grown.quality.copied_columns, 0) << what;
        for (const int bits : {64, 3}) {
          options.repeat_hash_bits = bits;
          const DynamicSpaiPattern copied = Grow(c.a, options);
          ExpectSame(copied, grown, what);
          if (bits < 64) continue;
          const auto share =
              static_cast<double>(copied.quality.copied_columns) / static_cast<double>(c.a.n_cols);
          EXPECT_GE(share, c.copied) << what;
          if (c.copied == 0) {
            EXPECT_LE(share, 0.05) << what;
          }
        }
      }
    }
  }
}

TEST(DynamicRepeats, FromAGivenPattern) {
  const CscMatrix a = bench::ConvectionDiffusion(18, 0);
  // Of each fifth column the diagonal alone.
  Pattern initial;
  initial.n_rows = initial.n_cols = a.n_cols;
  initial.col_ptr.push_back(0);
  for (int64_t k = 0; k < a.n_cols; ++k) {
    for (const int32_t j : a.pattern().column(k)) {
      if (j == k || k % 5 != 0) initial.row_idx.push_back(j);
    }
    initial.col_ptr.push_back(initial.nnz());
  }
  const PatternView view = initial;
  DynamicSpaiOptions options = Steps(3, 2);
  options.repeat_hash_bits = 0;
  const DynamicSpaiPattern grown = Grow(a, options, 2, &view);
  options.repeat_hash_bits = 64;
  const DynamicSpaiPattern copied = Grow(a, options, 2, &view);
  ExpectSame(copied, grown, "initial");
  EXPECT_GT(copied.quality.copied_columns, a.n_cols / 4);
}

}  // namespace
}  // namespace spaid::kernels
