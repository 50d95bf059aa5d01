// Changes of a matrix in place. The order in which random numbers are drawn is part of them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/gallery/gallery.h"

namespace spaid::gallery {

void VaryCoefficients(const Arrays& a) {
  Uniform uniform(12345);
  const size_t n = a.col_ptr.size() - 1;
  std::vector<double> added(n, 0.0);
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end() - 1), diagonal(n);
  for (size_t j = 0; j < n; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const auto i = static_cast<size_t>(a.row_idx[p]);
      // Entries of column j above the diagonal are the mirrors, in that order.
      const int64_t mirror = next[i]++;
      if (i == j) diagonal[j] = p;
      if (i <= j) continue;
      const double value = a.values[p] * (0.5 + 1.5 * uniform()), more = a.values[p] - value;
      a.values[p] = a.values[mirror] = value;
      added[i] += more;
      added[j] += more;
    }
  }
  for (size_t j = 0; j < n; ++j) a.values[diagonal[j]] += added[j];
}

void Symmetrize(const Arrays& a) {
  // Columns come in ascending order, and so do the entries of each that mirror theirs.
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end());
  for (size_t j = 0; j + 1 < a.col_ptr.size(); ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const auto i = static_cast<size_t>(a.row_idx[p]);
      const int64_t mirror = next[i]++;
      if (i > j) a.values[p] = a.values[mirror] = (a.values[p] + a.values[mirror]) / 2;
    }
  }
}

void PermuteNodes(const Arrays& a, int node, int64_t window) {
  const auto n = static_cast<int64_t>(a.col_ptr.size()) - 1, nodes = n / node;
  std::vector<int64_t> from(nodes), to(nodes);
  std::iota(from.begin(), from.end(), int64_t{0});
  std::mt19937_64 generator(12345);
  for (int64_t begin = 0; begin < nodes; begin += window) {
    const int64_t end = std::min(nodes, begin + window);
    for (int64_t i = end - 1; i > begin; --i) {
      const auto below = static_cast<uint64_t>(i - begin + 1);
      std::swap(from[i], from[begin + static_cast<int64_t>(generator() % below)]);
    }
  }
  for (int64_t i = 0; i < nodes; ++i) to[from[i]] = i;
  const std::vector<int64_t> old_ptr(a.col_ptr.begin(), a.col_ptr.end());
  const std::vector<int32_t> old_idx(a.row_idx.begin(), a.row_idx.end());
  const std::vector<double> old_values(a.values.begin(), a.values.end());
  std::vector<std::pair<int64_t, double>> column;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t old = from[j / node] * node + j % node;
    column.clear();
    for (int64_t p = old_ptr[old]; p < old_ptr[old + 1]; ++p) {
      column.emplace_back(to[old_idx[p] / node] * node + old_idx[p] % node, old_values[p]);
    }
    std::sort(column.begin(), column.end());
    int64_t at = a.col_ptr[j];
    for (const auto& [row, value] : column) {
      a.row_idx[at] = static_cast<int32_t>(row);
      a.values[at++] = value;
    }
    a.col_ptr[j + 1] = at;
  }
}

}  // namespace spaid::gallery
