// Shared by the makers of the gallery: a matrix under construction, row by row.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/gallery/gallery.h"

namespace spaid::gallery {

class RowBuilder {
 public:
  RowBuilder(int64_t n, int64_t expected_entries);
  // Columns of a row come in ascending order.
  void Add(int64_t column, double value) {
    columns_.push_back(static_cast<int32_t>(column));
    values_.push_back(value);
  }
  void EndRow() { row_ptr_.push_back(static_cast<int64_t>(columns_.size())); }
  // Transposes the rows into CSC. Row order makes every column sorted.
  Matrix ToCsc() &&;

 private:
  int64_t n_;
  std::vector<int64_t> row_ptr_;
  std::vector<int32_t> columns_;
  std::vector<double> values_;
};

// A row of (column, value) terms in any order, same columns summed.
using Terms = std::vector<std::pair<int, double>>;
// Sorts by column, sums equal columns in the order that std::sort leaves them in, and ends the row.
void AddSummedRow(Terms& terms, RowBuilder& rows);

// The coordinate 1/√3 of the Gauss points of an element.
inline double GaussPoint(Rounding rounding) {
  return rounding == Rounding::kPeers ? 1 / std::sqrt(3.0) : std::numbers::inv_sqrt3;
}

}  // namespace spaid::gallery
