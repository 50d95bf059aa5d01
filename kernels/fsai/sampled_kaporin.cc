#include "kernels/fsai/sampled_kaporin.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/fsai/row_growth.h"
#include "kernels/sparse/jacobi_column.h"

namespace spaid::kernels {
namespace {

// The columns of D^(-1/2) A D^(-1/2) down to the row that grows, which needs no others.
class ScaledColumns final : public GrowthColumns {
 public:
  explicit ScaledColumns(const CscView& a) : a_(a) {}

  void Begin(int64_t row) {
    row_ = row;
    used_ = 0;
  }
  int64_t n_rows() const override { return a_.n_rows; }
  GrowthColumn Column(int64_t j) override {
    const auto rows = a_.column(j);
    const auto values = a_.column_values(j);
    const double diagonal = EntryOf(a_, j, j);
    if (used_ == values_.size()) values_.emplace_back();
    std::vector<double>& scaled = values_[used_++];
    scaled.clear();
    for (size_t p = 0; p < rows.size() && rows[p] <= row_; ++p) {
      const int32_t i = rows[p];
      scaled.push_back(i == j ? 1 : values[p] / std::sqrt(diagonal * EntryOf(a_, i, i)));
    }
    return {rows.first(scaled.size()), scaled};
  }

 private:
  const CscView a_;
  int64_t row_ = 0;
  size_t used_ = 0;
  std::vector<std::vector<double>> values_;  // of the columns that the row has asked for
};

}  // namespace

double SampledKaporin(const CscView& a, const FsaiOptions& options, int64_t rows) {
  const int64_t n = a.n_cols;
  if (n == 0) return 1;
  ScaledColumns columns(a);
  const auto grower = MakeRowGrower(columns, RulesOf(options));
  std::minstd_rand random;  // a stride would be that of a grid
  std::vector<RowEntry> entries;
  std::vector<double> ratios;
  const int64_t taken = std::min(n, rows);
  double logs = 0;
  for (int64_t k = 0; k < taken; ++k) {
    const int64_t i = taken == n ? k : static_cast<int64_t>(random()) % n;
    columns.Begin(i);
    logs += std::log(grower->Grow(i, {}, options.k_max, entries, ratios).psi_ratio);
  }
  return std::exp(logs / static_cast<double>(taken));
}

}  // namespace spaid::kernels
