// The accuracy rule on every column of every real matrix of the folder SPAID_MATRICES.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/static_spai/helpers.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels {
namespace {

// QR beyond this would take long; a sample of the columns is tested then.
constexpr double kMaxQrFlops = 6e9;

// Every `step`-th column of (E + |A|)^power whole, the others with the diagonal only.
Pattern Sample(const CscMatrix& a, int power, int64_t step) {
  PatternOptions options;
  options.power = power;
  const Pattern whole = BuildPattern(a, nullptr, options, {}).value();
  Pattern sample;
  sample.n_rows = sample.n_cols = a.n_cols;
  sample.col_ptr.push_back(0);
  for (int64_t k = 0; k < a.n_cols; ++k) {
    const auto rows = PatternView(whole).column(k);
    if (k % step == 0) {
      sample.row_idx.insert(sample.row_idx.end(), rows.begin(), rows.end());
    } else {
      sample.row_idx.push_back(static_cast<int32_t>(k));
    }
    sample.col_ptr.push_back(static_cast<int64_t>(sample.row_idx.size()));
  }
  return sample;
}

void ExpectGramKeepsUpWithQr(const CscMatrix& a, const std::string& name) {
  for (const int power : {1, 2}) {
    auto plan = PlanStaticSpai(a, nullptr, With(LocalSolver::kQr, power), {});
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().reason(), "ZERO_COLUMN") << plan.status().message();
      std::printf("%s: %s\n", name.c_str(), plan.status().message().c_str());
      return;
    }
    const auto step =
        static_cast<int64_t>(std::ceil(std::max(1.0, Counts(**plan).qr_flops / kMaxQrFlops)));
    std::optional<Pattern> sample;
    PatternView view;
    if (step > 1) {
      sample = Sample(a, power, step);
      view = *sample;
      std::printf("%s, power %d: every %lld-th column, all would take too long\n", name.c_str(),
                  power, static_cast<long long>(step));
    }
    const PatternView* pattern = sample ? &view : nullptr;
    const int build_power = sample ? 1 : power;
    const StaticSpaiResult qr = Build(a, pattern, With(LocalSolver::kQr, build_power));
    const StaticSpaiResult gram = Build(a, pattern, With(LocalSolver::kGram, build_power));
    const StaticSpaiResult automatic = Build(a, pattern, With(LocalSolver::kAuto, build_power));
    const std::string what = name + ", power " + std::to_string(power);
    ExpectGramAccuracy(a, gram, qr, what);
    ExpectGramAccuracy(a, automatic, qr, what);
    EXPECT_EQ(qr.quality.zero_columns, gram.quality.zero_columns) << what;
    EXPECT_EQ(gram.quality.not_converged_columns, 0) << what;
    if (gram.quality.rescued_columns > 0) {
      std::printf("%s: %lld columns rescued\n", what.c_str(),
                  static_cast<long long>(gram.quality.rescued_columns));
    }
  }
}

// One test, not one a file: what is there is known when it runs, not when it is built.
TEST(RealMatrices, GramKeepsUpWithQrInEveryColumn) {
  const char* folder = std::getenv("SPAID_MATRICES");
  const std::vector<std::string> files =
      folder != nullptr ? oracle::MatrixMarketFiles(folder) : std::vector<std::string>();
  if (files.empty()) GTEST_SKIP() << "SPAID_MATRICES names no folder with Matrix Market files";
  int64_t tested = 0;
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const std::string name = std::filesystem::path(file).filename().string();
    const std::optional<CscMatrix> a = oracle::ReadMatrixMarket(file);
    if (!a || a->n_rows != a->n_cols) {
      std::printf("%s: left out, not a square real coordinate matrix\n", name.c_str());
      continue;
    }
    ExpectGramKeepsUpWithQr(*a, name);
    ++tested;
  }
  EXPECT_GT(tested, 0);
}

}  // namespace
}  // namespace spaid::kernels
