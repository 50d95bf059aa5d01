// Counts before there is anything: entries and bytes are bounds, work is an expectation.

#include <algorithm>
#include <cmath>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_build.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/fsai_device_estimate.h"
#include "kernels/fsai/fsai_tuning.h"
#include "kernels/fsai/row_batches.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Entries of column j with an index below `end`.
int64_t Before(const PatternView& p, int64_t j, int64_t end) {
  const auto column = p.column(j);
  return std::lower_bound(column.begin(), column.end(), end) - column.begin();
}

struct Rows : FsaiRowCounts {
  double squares = 0;

  void Add(int64_t q, int64_t times = 1) {
    const auto size = static_cast<double>(q), many = static_cast<double>(times);
    entries += q * times;
    longest = std::max(longest, q);
    squares += many * size * size;
    cubes += many * size * size * size;
  }
};

double ToDouble(int64_t x) { return static_cast<double>(x); }

int64_t StepsOf(const FsaiOptions& options) { return int64_t{options.s} * options.k_max; }

// Rows that grow from the diagonal as far as they may.
Rows GrownRows(int64_t n, const FsaiOptions& options) {
  Rows rows;
  const int64_t steps = StepsOf(options);
  for (int64_t i = 0; i < std::min(n, steps); ++i) rows.Add(i + 1);
  if (n > steps) rows.Add(steps + 1, n - steps);
  return rows;
}

int64_t ToCount(double x) { return x < 9e18 ? static_cast<int64_t>(x) : INT64_MAX; }

// Counts the work where no row repeats another, and rows grow as far as min_gain lets them.
BuildWork WorkOfGrowth(int64_t n, int64_t nnz_a, const Rows& rows, const FsaiOptions& options) {
  // The entries that a row takes before min_gain ends it, about: 4 by 1e-2 (1 to 6 on meshes and
  // grids) and 13 by 1e-3 (9 to 18).
  constexpr double kUntilGain = 0.4;
  const double size = ToDouble(n), mean = ToDouble(nnz_a) / size;
  const double most = ToDouble(std::max<int64_t>(1, StepsOf(options)));
  const double share =
      options.min_gain > 0 ? std::min(1.0, kUntilGain / std::sqrt(options.min_gain) / most) : 1;
  const double steps = share * ToDouble(std::max(options.k_max, 1));
  const double added = share * (ToDouble(rows.entries) - size);
  const double candidates = 0.6 * mean;  // of a row and step, for each of its entries
  FsaiOptions until = options;
  until.k_max = static_cast<int>(std::lround(steps));
  return {.rows = size,
          .nnz_a = ToDouble(nnz_a),
          .entries = size + added,
          .gathered = GatheredByGrowth(added, mean, until),
          .flops = share * share * share * rows.cubes / 3 + steps * candidates * added};
}

}  // namespace

BuildWork WorkOfGrowth(int64_t n, int64_t nnz_a, const FsaiOptions& options) {
  return WorkOfGrowth(n, nnz_a, GrownRows(n, options), options);
}

// An entry that joins brings those of its column, and candidates, which are looked at again in each
// later step.
double GatheredByGrowth(double added, double mean, const FsaiOptions& options) {
  return added * (mean + 20) * (1 + 0.08 * ToDouble(int64_t{options.s} * options.k_max));
}

int64_t FsaiBytes(const FsaiSizes& sizes, const FsaiOptions& options, int of_threads) {
  const double size = ToDouble(sizes.n), nnz_a = ToDouble(sizes.nnz_a);
  const double nnz_g = ToDouble(sizes.nnz_g);
  const double longest_column = ToDouble(sizes.longest_column);
  // Bytes: the result; the same in batches, or before a filter; the checks, at worst with a
  // transpose of A; and what each thread has for its largest row, twice where it is an array that
  // grows.
  const double threads = ResolveThreads(of_threads);
  const double longest = ToDouble(sizes.longest_row);
  double per_thread = 4 * size;
  const double pattern_bytes = options.adaptive ? 0 : 12 * nnz_a + 8 * nnz_g;
  if (options.adaptive) {
    const double capacity = 2 * std::max(32.0, longest);
    const double reached = std::min(size, (longest + 1) * longest_column);
    const double dense = std::max(ToDouble(fsai_tuning::kDenseElements), 16 * capacity);
    // The dense block is laid out anew where a row outgrows it.
    per_thread += 16 * capacity * capacity + 16 * dense + 192 * capacity + 48 * reached +
                  std::min(24 * nnz_g, 6.0 * (1 << 20)) +
                  32 * std::min(nnz_a, longest * longest_column) + 16 * longest_column;
  } else {
    const double dense = std::min(longest, ToDouble(fsai_tuning::kDenseRow)) + 16;
    // The factor, or where its pivots fail W twice; of long rows the entries of their problem.
    per_thread += 8 * dense * dense + 32 * dense * dense +
                  8 * ToDouble(fsai_tuning::kDenseElements) + 128 * longest + 32 * nnz_a;
  }
  const double batches = ToDouble((sizes.n - 1) / BatchRows(sizes.n) + 1);
  // Lists of the search for rows that repeat, and rows that are kept to copy from.
  const double repeats =
      options.adaptive && options.repeat_hash_bits > 0
          ? 64 * size + size / ToDouble(fsai_tuning::kRowsPerClass) * (128 + 24 * longest)
          : 0;
  const double bytes = 2 * (12 * nnz_g + 8 * size) + 8 * size +
                       24 * nnz_g * (options.post_filter > 0) + pattern_bytes + 24 * size +
                       4 * size * std::min(threads, 8.0) + 12 * nnz_a + 12 * size +
                       batches * (128 + 8 * (options.k_max + 1.0)) + threads * per_thread + repeats;
  return ToCount(bytes + (1 << 20));
}

Result<FsaiCounts> EstimateFsai(const PatternView& a, const PatternView* initial,
                                const FsaiOptions& options, const Context& context) {
  if (Status status = CheckFsai(a, options); !status.ok()) return status;
  if (initial != nullptr && (initial->n_rows != a.n_rows || initial->n_cols != a.n_cols)) {
    return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                  "the pattern and the matrix are of different sizes")
        .At("pattern");
  }
  const int64_t n = a.n_cols;
  const double size = ToDouble(n);
  const int64_t longest_column = LongestColumn(a, ResolveThreads(context.threads));
  Rows rows;
  if (options.adaptive && initial == nullptr) {
    rows = GrownRows(n, options);
  } else if (options.adaptive) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t start = Before(*initial, i, i);
      rows.Add(std::min(i, start + StepsOf(options)) + 1);
      rows.initial_entries += start + 1;
      rows.initial_longest = std::max(rows.initial_longest, start + 1);
    }
  } else if (initial != nullptr) {
    for (int64_t i = 0; i < n; ++i) rows.Add(Before(*initial, i, i) + 1);
  } else if (options.power == 1) {
    for (int64_t j = 0; j < n; ++j) {
      rows.Add(a.col_ptr[Z(j) + 1] - a.col_ptr[Z(j)] - Before(a, j, j + 1) + 1);
    }
    // Those were columns of the lower triangle; a row may have all of a column above the diagonal,
    // too.
    rows.longest = std::min(n, longest_column + 1);
  } else {
    PatternOptions pattern_options;
    pattern_options.power = options.power;
    const Result<int64_t> whole = CountPattern(a, nullptr, pattern_options, context);
    if (!whole.ok()) return whole.status();
    const double q = (ToDouble(*whole) / size + 1) / 2;
    rows.entries = IsSymmetricPattern(a, context.threads) ? (*whole + n) / 2 : *whole;
    rows.squares = size * q * q;
    rows.cubes = rows.squares * q;
    // A walk of `power` steps, each to as many as the longest column has.
    rows.longest = ToCount(
        std::min(size, std::pow(ToDouble(longest_column) + 1, std::min(options.power, 64))));
  }
  FsaiCounts counts;
  counts.nnz_g = rows.entries;
  counts.host_bytes = FsaiBytes({.n = n,
                                 .nnz_a = a.nnz(),
                                 .longest_column = longest_column,
                                 .nnz_g = rows.entries,
                                 .longest_row = rows.longest},
                                options, context.threads);
  if (options.adaptive) {
    counts.work = WorkOfGrowth(n, a.nnz(), rows, options);
  } else {
    counts.work = {.rows = size, .nnz_a = ToDouble(a.nnz()), .entries = ToDouble(rows.entries)};
    counts.work.flops = rows.cubes / 3 + rows.squares;
  }
  EstimateOnDevice(n, a.nnz(), longest_column, rows, options, counts);
  return counts;
}

}  // namespace spaid::kernels
