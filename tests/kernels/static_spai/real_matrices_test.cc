// The accuracy rule on every column of every real matrix of the folder SPAID_MATRICES.
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/static_spai/helpers.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels {
namespace {

// QR beyond this would take long; such a matrix is tested at power 1 only.
constexpr double kMaxQrFlops = 30e9;  // at power 2

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
    if (power > 1 && Counts(**plan).qr_flops > kMaxQrFlops) break;
    const StaticSpaiResult qr = Build(*a, nullptr, With(LocalSolver::kQr, power));
    const StaticSpaiResult gram = Build(*a, nullptr, With(LocalSolver::kGram, power));
    const StaticSpaiResult automatic = Build(*a, nullptr, With(LocalSolver::kAuto, power));
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
