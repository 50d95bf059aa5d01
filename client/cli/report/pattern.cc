#include "client/cli/report/pattern.h"

#include <algorithm>
#include <cstdlib>

namespace spaid::cli {
namespace {

constexpr int64_t kLong = 16;  // times the median

LengthFigures FiguresOf(std::vector<int64_t> lengths, int64_t nnz) {
  const auto middle = lengths.begin() + static_cast<int64_t>(lengths.size() - 1) / 2;
  std::nth_element(lengths.begin(), middle, lengths.end());
  return {.least = *std::min_element(lengths.begin(), lengths.end()),
          .median = *middle,
          .most = *std::max_element(lengths.begin(), lengths.end()),
          .mean = static_cast<double>(nnz) / static_cast<double>(lengths.size())};
}

std::vector<LengthBin> Bins(int64_t least, int64_t most, int64_t median, int limit) {
  std::vector<LengthBin> bins;
  const int64_t lengths = most - least + 1;
  const bool doubling = lengths > limit && most > kLong * std::max<int64_t>(median, 1);
  int64_t width = doubling ? 1 : (lengths + limit - 1) / limit;
  for (int64_t from = least; from <= most; from += width) {
    if (doubling && !bins.empty()) width = std::max<int64_t>(from, 1);
    bins.push_back({.from = from, .to = std::min(from + width - 1, most)});
  }
  return bins;
}

}  // namespace

PatternRaster MakeRaster(const CscMatrix& a, int limit) {
  PatternRaster raster;
  raster.n = a.n;
  raster.size = static_cast<int>(std::min<int64_t>(a.n, limit));
  raster.counts.assign(static_cast<size_t>(raster.size) * static_cast<size_t>(raster.size), 0);
  const auto cell = [&](int64_t index) { return index * raster.size / a.n; };
  for (int64_t column = 0; column < a.n; ++column) {
    const int64_t c = cell(column);
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      int64_t& count = raster.counts[cell(a.row_idx[k]) * raster.size + c];
      raster.most = std::max(raster.most, ++count);
    }
  }
  return raster;
}

PatternLengths MakeLengths(const CscMatrix& a, int limit) {
  PatternLengths result;
  std::vector<int64_t> rows(static_cast<size_t>(a.n)), columns(static_cast<size_t>(a.n));
  for (int64_t column = 0; column < a.n; ++column) {
    columns[column] = a.col_ptr[column + 1] - a.col_ptr[column];
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      ++rows[a.row_idx[k]];
      result.bandwidth = std::max<int64_t>(result.bandwidth, std::abs(a.row_idx[k] - column));
    }
  }
  const int64_t nnz = a.col_ptr.back();
  result.rows = FiguresOf(rows, nnz);
  result.columns = FiguresOf(columns, nnz);
  result.bins = Bins(std::min(result.rows.least, result.columns.least),
                     std::max(result.rows.most, result.columns.most),
                     std::min(result.rows.median, result.columns.median), limit);
  const auto bin_of = [&](int64_t length) -> LengthBin& {
    return *std::lower_bound(result.bins.begin(), result.bins.end(), length,
                             [](const LengthBin& bin, int64_t value) { return bin.to < value; });
  };
  for (const int64_t length : rows) ++bin_of(length).rows;
  for (const int64_t length : columns) ++bin_of(length).columns;
  return result;
}

}  // namespace spaid::cli
