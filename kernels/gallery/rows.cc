#include "kernels/gallery/rows.h"

#include <algorithm>
#include <numeric>

namespace spaid::gallery {

RowBuilder::RowBuilder(int64_t n, int64_t expected_entries) : n_(n) {
  row_ptr_.reserve(n + 1);
  row_ptr_.push_back(0);
  columns_.reserve(expected_entries);
  values_.reserve(expected_entries);
}

Matrix RowBuilder::ToCsc() && {
  Matrix a;
  a.n = n_;
  a.col_ptr.assign(n_ + 1, 0);
  for (const int32_t column : columns_) ++a.col_ptr[column + 1];
  std::partial_sum(a.col_ptr.begin(), a.col_ptr.end(), a.col_ptr.begin());
  a.row_idx.resize(columns_.size());
  a.values.resize(columns_.size());
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end() - 1);
  for (int64_t row = 0; row < n_; ++row) {
    for (int64_t k = row_ptr_[row]; k < row_ptr_[row + 1]; ++k) {
      const int64_t at = next[columns_[k]]++;
      a.row_idx[at] = static_cast<int32_t>(row);
      a.values[at] = values_[k];
    }
  }
  return a;
}

void AddSummedRow(Terms& terms, RowBuilder& rows) {
  std::sort(terms.begin(), terms.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t k = 0; k < terms.size();) {
    const int column = terms[k].first;
    double sum = terms[k].second;
    for (++k; k < terms.size() && terms[k].first == column; ++k) sum += terms[k].second;
    rows.Add(column, sum);
  }
  rows.EndRow();
}

}  // namespace spaid::gallery
