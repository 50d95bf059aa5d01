#include "kernels/fsai/sampled_kaporin.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/row_growth.h"
#include "kernels/sparse/jacobi_column.h"

namespace spaid::kernels {
namespace {

// Rows wait for memory, which threads share; but each has 4 n bytes to clear before.
constexpr int64_t kMostGrowers = 4;

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

double SampledKaporin(const CscView& a, const FsaiOptions& options, int64_t rows, int threads) {
  const int64_t n = a.n_cols;
  if (n == 0) return 1;
  const int64_t taken = std::min(n, rows);
  std::vector<int64_t> sample(static_cast<size_t>(taken));
  std::minstd_rand random;  // a stride would be that of a grid
  for (int64_t k = 0; k < taken; ++k) {
    sample[static_cast<size_t>(k)] = taken == n ? k : static_cast<int64_t>(random()) % n;
  }
  std::vector<double> logs(sample.size());
  const int64_t growers = std::clamp<int64_t>(threads, 1, kMostGrowers);
  ParallelFor(
      taken, (taken + growers - 1) / growers, threads, [&](int64_t begin, int64_t end, int) {
        ScaledColumns columns(a);
        const auto grower = MakeRowGrower(columns, RulesOf(options));
        std::vector<RowEntry> entries;
        std::vector<double> ratios;
        for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
          columns.Begin(sample[k]);
          logs[k] = std::log(grower->Grow(sample[k], {}, options.k_max, entries, ratios).psi_ratio);
        }
      });
  return std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(taken));
}

}  // namespace spaid::kernels
