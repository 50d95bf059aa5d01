// The accuracy rule on every column of every real matrix of the folder SPAID_MATRICES.
#include <algorithm>
#include <cctype>
#include <cmath>
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
constexpr double kMaxQrFlops = 30e9;

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

class RealMatrix : public ::testing::TestWithParam<std::string> {};

TEST_P(RealMatrix, GramKeepsUpWithQrInEveryColumn) {
  if (GetParam().empty()) GTEST_SKIP() << "SPAID_MATRICES names no folder with Matrix Market files";
  const std::optional<CscMatrix> a = oracle::ReadMatrixMarket(GetParam());
  if (!a) GTEST_SKIP() << "not a real coordinate matrix";
  if (a->n_rows != a->n_cols) GTEST_SKIP() << "not square";
  for (const int power : {1, 2}) {
    auto plan = PlanStaticSpai(*a, nullptr, With(LocalSolver::kQr, power), {});
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().reason(), "ZERO_COLUMN") << plan.status().message();
      GTEST_SKIP() << "has an empty column: " << plan.status().message();
    }
    const auto step =
        static_cast<int64_t>(std::ceil(std::max(1.0, Counts(**plan).qr_flops / kMaxQrFlops)));
    std::optional<Pattern> sample;
    PatternView view;
    if (step > 1) {
      sample = Sample(*a, power, step);
      view = *sample;
      RecordProperty("sampled_step_power_" + std::to_string(power), static_cast<int>(step));
    }
    const PatternView* pattern = sample ? &view : nullptr;
    const int build_power = sample ? 1 : power;
    const StaticSpaiResult qr = Build(*a, pattern, With(LocalSolver::kQr, build_power));
    const StaticSpaiResult gram = Build(*a, pattern, With(LocalSolver::kGram, build_power));
    const StaticSpaiResult automatic = Build(*a, pattern, With(LocalSolver::kAuto, build_power));
    const std::string what = GetParam() + ", power " + std::to_string(power);
    ExpectGramAccuracy(*a, gram, qr, what);
    ExpectGramAccuracy(*a, automatic, qr, what);
    EXPECT_EQ(qr.quality.zero_columns, gram.quality.zero_columns) << what;
    EXPECT_EQ(gram.quality.not_converged_columns, 0) << what;
    RecordProperty("rescued_power_" + std::to_string(power),
                   static_cast<int>(gram.quality.rescued_columns));
  }
}

std::vector<std::string> Files() {
  const char* folder = std::getenv("SPAID_MATRICES");
  std::vector<std::string> files;
  if (folder != nullptr) files = oracle::MatrixMarketFiles(folder);
  if (files.empty()) files.push_back("");
  return files;
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& file) {
  std::string name = std::filesystem::path(file.param).filename().string();
  name = name.substr(0, name.find('.'));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name.empty() ? std::string("None") : "m_" + name;
}

INSTANTIATE_TEST_SUITE_P(Files, RealMatrix, ::testing::ValuesIn(Files()), NameOf);

}  // namespace
}  // namespace spaid::kernels
