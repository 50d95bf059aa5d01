// Looks at where a matrix has entries: a raster for a spy plot, and lengths of rows and columns.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// Stored entries counted in size x size cells, by rows; cell (r, c) has rows i with floor(i size /
// n) = r, and columns alike. An entry a cell where n is at most `size`.
struct PatternRaster {
  int64_t n = 0;
  int size = 0;
  std::vector<int64_t> counts = {};
  int64_t most = 0;  // in a cell

  int64_t at(int row, int column) const {
    return counts[static_cast<size_t>(row) * static_cast<size_t>(size) +
                  static_cast<size_t>(column)];
  }
};
// Counts in one pass over the entries. `limit`: cells per side at most.
PatternRaster MakeRaster(const CscMatrix& a, int limit);

// Figures of the stored entries in rows, or in columns.
struct LengthFigures {
  int64_t least = 0, median = 0, most = 0;  // median: the lower one
  double mean = 0;
};

// Rows and columns with `from` to `to` stored entries.
struct LengthBin {
  int64_t from = 0, to = 0, rows = 0, columns = 0;
};

struct PatternLengths {
  LengthFigures rows, columns;
  std::vector<LengthBin> bins;  // ascending, without gaps; the first and the last are not empty
  int64_t bandwidth = 0;        // largest |i - j| of an entry
};
// Counts lengths into about `limit` bins: of one length each where that suffices, else of equal
// width, or by powers of two where the longest is over 16 times the median.
PatternLengths MakeLengths(const CscMatrix& a, int limit);

}  // namespace spaid::cli
