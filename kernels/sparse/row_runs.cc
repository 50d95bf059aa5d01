#include "kernels/sparse/row_runs.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// Rows that one thread takes at a time, and no run leaves: nodes of 2 to 8 unknowns fit.
constexpr int64_t kRowsAtATime = 1680;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

int RowRun(const PatternView& rows, int64_t i, int64_t end) {
  const auto first = rows.column(i);
  const auto is_same = [&](int64_t j) {
    const auto other = rows.column(j);
    return other.size() == first.size() && std::equal(first.begin(), first.end(), other.begin());
  };
  int run = 1;
  while (run < kMostRun && i + run < end && is_same(i + run)) ++run;
  return run;
}

Array<uint8_t> FindRowRuns(const PatternView& rows, int threads) {
  Array<uint8_t> runs(Z(rows.n_cols));
  std::atomic<int64_t> in_runs{0};
  ParallelFor(rows.n_cols, kRowsAtATime, threads, [&](int64_t begin, int64_t end, int) {
    int64_t found = 0;
    for (int64_t i = begin; i < end;) {
      const int run = RowRun(rows, i, end);
      runs[Z(i)] = static_cast<uint8_t>(run);
      std::fill_n(runs.begin() + i + 1, run - 1, uint8_t{0});
      if (run > 1) found += rows.col_ptr[Z(i + run)] - rows.col_ptr[Z(i)];
      i += run;
    }
    in_runs.fetch_add(found, std::memory_order_relaxed);
  });
  if (2 * in_runs < rows.nnz() || in_runs == 0) return {};
  return runs;
}

}  // namespace spaid::kernels
