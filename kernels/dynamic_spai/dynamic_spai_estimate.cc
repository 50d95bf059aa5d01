// Counts before there is anything: entries and bytes are bounds, work is an expectation.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/dynamic_spai/dynamic_spai_device_estimate.h"
#include "kernels/dynamic_spai/dynamic_spai_tuning.h"
#include "kernels/dynamic_spai/gram.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/fsai/fsai_tuning.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/sparse/transpose.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/long_columns.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

namespace tuning = dynamic_spai_tuning;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

double ToDouble(int64_t x) { return static_cast<double>(x); }

int64_t ToCount(double x) { return x < 9e18 ? static_cast<int64_t>(x) : INT64_MAX; }

struct Columns {
  int64_t entries = 0, longest = 0;
  int64_t initial = 0;  // that growth begins with

  Columns(const PatternView* from, int64_t n, const DynamicSpaiOptions& options) {
    const int64_t steps = int64_t{options.per_step} * options.max_steps;
    for (int64_t k = 0; k < n; ++k) {
      int64_t start = 1;
      if (from != nullptr) {
        const auto column = from->column(k);
        const bool own = std::binary_search(column.begin(), column.end(), static_cast<int32_t>(k));
        start = static_cast<int64_t>(column.size()) + (own ? 0 : 1);
      }
      int64_t most = std::min(n, start + steps);
      if (options.max_column_nnz > 0) {
        most = std::min(most, std::max<int64_t>(start, options.max_column_nnz));
      }
      initial += start;
      entries += most;
      longest = std::max(longest, most);
    }
  }
};

// Bounds on AᵀA; its own counts where they are to be had in the steps that an estimate may take.
struct Gram {
  int64_t nnz = 0, longest = 0;
  Array<double> products;  // that each column is the sums of
  double squares = 0;      // all: Σ over rows of A of their squared lengths
};

Result<Gram> BoundGram(const PatternView& a, const PatternView& by_rows, const Context& context) {
  Gram gram;
  const int64_t n = a.n_cols;
  gram.products.resize(Z(n));
  double nnz = 0, distinct = 0, longest = 0;
  for (int64_t j = 0; j < n; ++j) {
    double products = 0;
    for (const int32_t l : a.column(j)) {
      products += ToDouble(by_rows.col_ptr[Z(l) + 1] - by_rows.col_ptr[Z(l)]);
    }
    gram.products[Z(j)] = products;
    gram.squares += products;
    if (j == 0 || !std::ranges::equal(a.column(j), a.column(j - 1))) distinct += products;
    const double most = std::min(products, ToDouble(n));
    nnz += most;
    longest = std::max(longest, most);
  }
  gram.nnz = ToCount(nnz);
  gram.longest = ToCount(longest);
  if (distinct > tuning::kCountedProducts) return Result<Gram>(std::move(gram));
  GramCounts counts;
  const StopReason stopped = CountGram(a, by_rows, INT64_MAX, context, counts);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "estimate of dynamic SPAI");
  gram.nnz = counts.nnz;
  gram.longest = *std::max_element(counts.columns.begin() + 1, counts.columns.end());
  return Result<Gram>(std::move(gram));
}

// All columns alike. Those that have a residual to come to grow a third of what they may, about.
BuildWork WorkOf(const PatternView& a, const Columns& m, const Gram& gram,
                 const DynamicSpaiOptions& options) {
  const double n = ToDouble(a.n_cols), nnz = ToDouble(a.nnz()), gram_nnz = ToDouble(gram.nnz);
  const double initial = ToDouble(m.initial) / n, share = options.tol > 0 ? 1.0 / 3 : 1;
  const double added = share * (ToDouble(m.entries) / n - initial), entries = initial + added;
  const double steps = added / options.per_step;
  // Entries of the columns of AᵀA that a column's entries bring, in whose rows each step chooses.
  const double walked = entries * gram_nnz / n;
  const double local = entries * nnz / n;      // entries of its local problem
  constexpr double kOfGram = 5, kOfLocal = 8;  // that an entry of AᵀA, or of a local problem, takes
  return {.rows = n,
          .nnz_a = nnz,
          .entries = n * entries,
          .gathered = gram.squares + kOfGram * gram_nnz +
                      n * (walked + 0.6 * steps * std::min(n, walked) + kOfLocal * local),
          .flops = 2 * gram.squares + n * (walked * steps + 2 * std::pow(entries, 3) / 3)};
}

}  // namespace

double GrowthBytes(const GrowthSizes& sizes, const DynamicSpaiOptions& options, int threads) {
  const double n = ToDouble(sizes.n), nnz_a = ToDouble(sizes.nnz_a), nnz_m = ToDouble(sizes.nnz_m);
  const double nnz = ToDouble(std::min(sizes.gram_nnz, GramLimit()));
  const double longest = ToDouble(sizes.gram_longest), entries = ToDouble(sizes.longest_of_m);
  // [B̂, −Âᵀ] with its diagonal; A's transpose, norms and counts while that is made.
  const double gram = 12 * (nnz + nnz_a) + 32 * n;
  const double making = 12 * nnz_a + 32 * n + 4 * n * std::min(threads, 8);
  // What each thread has for one column of B̂, and for its largest column of M, twice where it is an
  // array that grows.
  const double finder = 12.2 * n + 8 * longest;
  const double capacity = 2 * std::max(32.0, entries + 8), reached = std::min(n, entries * longest);
  const double dense = std::max(ToDouble(fsai_tuning::kDenseElements), 16 * capacity);
  // The dense block is laid out anew where a column outgrows it.
  const double grower = 4 * n + 16 * capacity * capacity + 16 * dense + 192 * capacity +
                        64 * reached + 32 * std::min(nnz, entries * longest) + 16 * longest;
  // Where columns begin; their batches, and together; what is found to repeat.
  const double batches = ToDouble((sizes.n - 1) / BatchRows(sizes.n) + 1);
  const double columns = 12 * n + 8 * ToDouble(sizes.initial) + 12 * nnz_m +
                         threads * std::min(8 * nnz_m, 4.0 * (1 << 20)) + 16 * n +
                         batches * (128 + 8 * (options.max_steps + 1.0));
  const double repeats =
      options.repeat_hash_bits > 0
          ? 64 * 2 * n + 2 * n / ToDouble(fsai_tuning::kRowsPerClass) * (128 + 24 * entries)
          : 0;
  return gram + std::max(making + threads * finder, columns + repeats + threads * grower);
}

Result<DynamicSpaiCounts> EstimateDynamicSpai(const CscView& a, const PatternView* initial,
                                              const DynamicSpaiOptions& options,
                                              const Context& with_progress) {
  return GuardMemory("estimate of dynamic SPAI", [&]() -> Result<DynamicSpaiCounts> {
    if (Status status = CheckDynamicSpai(a, initial, options); !status.ok()) return status;
    Context context = with_progress;
    context.progress = nullptr;
    if (Status status = CheckColumns(a, context.threads); !status.ok()) return status;
    const int64_t n = a.n_cols;
    const int threads = ResolveThreads(context.threads);
    const Columns m(initial, n, options);
    const auto rows = Transpose(PatternView(a), context);
    if (!rows.ok()) return rows.status();
    const auto gram = BoundGram(a, *rows, context);
    if (!gram.ok()) return gram.status();
    DynamicSpaiCounts counts;
    counts.nnz_m = m.entries;
    counts.gram_nnz = gram->nnz;

    const LocalCounts largest = LargestProblem(a, m.longest);
    const int64_t pairs = MaxLongPairs(a);
    // The grown pattern, and once more in the plan.
    const double numbers = 8 * ToDouble(n) + 4 * ToDouble(m.entries) +
                           ToDouble(PlanBytes(n, m.entries, pairs)) +
                           ToDouble(BuildBytes(n, m.entries, pairs, largest, m.longest, threads,
                                               options.post_filter > 0));
    const double growth = GrowthBytes({.n = n,
                                       .nnz_a = a.nnz(),
                                       .gram_nnz = gram->nnz,
                                       .gram_longest = gram->longest,
                                       .initial = m.initial,
                                       .nnz_m = m.entries,
                                       .longest_of_m = m.longest},
                                      options, threads);
    counts.host_bytes = ToCount(std::max(growth, numbers) + (1 << 20));

    DynamicSpaiBounds bounds;
    bounds.gram_nnz = gram->nnz;
    bounds.gram_longest = gram->longest;
    bounds.products = gram->squares;
    bounds.nnz_m = m.entries;
    bounds.longest = m.longest;
    bounds.initial = m.initial;
    EstimateOnDevice(a, initial != nullptr, bounds, options, counts);
    counts.work = WorkOf(a, m, *gram, options);
    return counts;
  });
}

}  // namespace spaid::kernels
