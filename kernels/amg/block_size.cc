#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/amg/amg.h"
#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// Whether the node's columns have the same rows, which are those of whole nodes.
bool IsWhole(const PatternView& a, int64_t node, int64_t b) {
  const std::span<const int32_t> rows = a.column(node * b);
  if (rows.empty() || static_cast<int64_t>(rows.size()) % b != 0) return false;
  for (size_t p = 0; p < rows.size(); p += static_cast<size_t>(b)) {
    // Rows ascend: the last of b is b - 1 behind the first where there is none between.
    if (rows[p] % b != 0 || rows[p + static_cast<size_t>(b) - 1] != rows[p] + b - 1) return false;
  }
  for (int64_t k = 1; k < b; ++k) {
    const std::span<const int32_t> other = a.column(node * b + k);
    if (!std::equal(rows.begin(), rows.end(), other.begin(), other.end())) return false;
  }
  return true;
}

}  // namespace

int DetectBlockSize(const PatternView& a, int threads) {
  constexpr int64_t kNodesAtOnce = 4096;
  for (const int64_t b : {6, 4, 3, 2}) {
    const int64_t nodes = a.n_cols / b;
    if (nodes == 0 || a.n_cols % b != 0) continue;
    std::atomic<int64_t> broken = 0;
    std::atomic<bool> coupled = false;
    ParallelFor(nodes, kNodesAtOnce, threads, [&](int64_t begin, int64_t end, int) {
      int64_t own = 0;
      bool any = false;
      for (int64_t node = begin; node < end && 10 * (broken + own) <= nodes; ++node) {
        if (!IsWhole(a, node, b)) ++own;
        any = any || static_cast<int64_t>(a.column(node * b).size()) > b;
      }
      broken += own;
      if (any) coupled = true;
    });
    if (10 * broken <= nodes && coupled) return static_cast<int>(b);
  }
  return 1;
}

}  // namespace spaid::kernels
