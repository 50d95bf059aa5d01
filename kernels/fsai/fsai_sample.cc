#include "kernels/fsai/fsai_sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kLeastRows = 8;
constexpr size_t kStart = 64;
constexpr double kFlopsPerEntry = 2;
// A smaller ratio says nothing more.
constexpr double kLeastRatio = 1e-6;

double Gain(const RowOutcome& row) { return -std::log(std::max(kLeastRatio, row.psi_ratio)); }

}  // namespace

FsaiSample SampleFsai(const CscView& a, std::span<const int32_t> rows, const FsaiOptions& options,
                      int threads) {
  FsaiSample sample;
  Array<double> diagonal(static_cast<size_t>(a.n_cols));
  ParallelFor(a.n_cols, 1 << 14, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto column = a.column(j);
      const auto at = std::lower_bound(column.begin(), column.end(), j) - column.begin();
      diagonal[static_cast<size_t>(j)] = a.column_values(j)[static_cast<size_t>(at)];
    }
  });
  const auto grower = MakeRowGrower(a, diagonal, RulesOf(options));
  std::vector<RowEntry> entries;
  std::vector<double> ratios;
  double flops = 0;
  for (const int32_t i : rows) {
    if (sample.rows >= kLeastRows && flops > kFlopsPerEntry * static_cast<double>(a.nnz())) break;
    const auto column = a.column(i);
    auto before = column.first(
        static_cast<size_t>(std::lower_bound(column.begin(), column.end(), i) - column.begin()));
    before = before.last(std::min(before.size(), kStart));
    const RowOutcome on_a = grower->Grow(i, before, /*k_max=*/0, entries, ratios);
    const RowOutcome grown = grower->Grow(i, {}, options.k_max, entries, ratios);
    sample.static_gain += Gain(on_a);
    sample.grown_gain += Gain(grown);
    sample.grown_entries += static_cast<double>(entries.size());
    flops += on_a.flops + grown.flops;
    ++sample.rows;
  }
  for (double* mean : {&sample.static_gain, &sample.grown_gain, &sample.grown_entries}) {
    *mean /= static_cast<double>(std::max<int64_t>(1, sample.rows));
  }
  return sample;
}

}  // namespace spaid::kernels
