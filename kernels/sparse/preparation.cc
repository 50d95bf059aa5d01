#include "kernels/sparse/preparation.h"

#include <algorithm>
#include <limits>

#include "kernels/sparse/diagnosis.h"

namespace spaid::kernels {

int64_t CanonicalizeBytes(int64_t n, int64_t nnz, Layout layout, const ValidationOptions& options) {
  const int64_t value = options.pattern_only ? 0 : sizeof(double);
  const int64_t index = sizeof(int32_t);
  int64_t bytes = 0;
  if (options.sort_and_sum) {
    // Keys and values of the longest column, of the one before, too, while they grow; sums of all
    // rows; then one array in its final size.
    const int64_t longest = std::min(nnz, n);
    bytes = 2 * longest * (static_cast<int64_t>(sizeof(uint64_t)) + value) + n * (1 + value);
    bytes = std::max(bytes, nnz * std::max(value, index));
  }
  if (layout == Layout::kCsr) {
    const int64_t counter = nnz <= std::numeric_limits<int32_t>::max() ? 4 : 8;
    bytes = std::max(bytes, nnz * (index + value) + (n + 1) * 8 + n * counter);
  }
  return bytes;
}

int64_t DiagnoseBytes(int64_t n, int64_t nnz) {
  // Sums and counts of the rows, beside the walks, whose oddities are few.
  const int64_t walk = 28 * n;
  // The pattern of what is not zero; then of each column its row, layer, place in the queue and
  // next entry, of each row its column, and a path, which grows.
  const int64_t matching = nnz <= kMatchingLimit ? 4 * nnz + 44 * n : 0;
  return std::max(walk, matching) + (1 << 16);
}

}  // namespace spaid::kernels
