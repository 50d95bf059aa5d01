// Counts of a plan before there is one: exact where counting is cheap enough, else bounds by walks
// in the graph of the pattern.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/pattern.h"
#include "kernels/sparse/transpose.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

// Steps of exact counting (one step: one index looked at) that an estimate may cost; over it,
// bounds.
constexpr double kStepBudget = 4e8;

// Columns that the work is counted of where all are too many.
constexpr int64_t kSampleColumns = 256;

// The rules by which BuildPattern makes J_k, with the full base pattern.
struct Rules {
  PatternView a;
  PatternView base;
  int power = 1;
  Array<uint8_t> equal_columns;                 // FindEqualColumns
  std::optional<Array<int32_t>> column_of_row;  // row_match
  std::optional<Pattern> transposed;            // A's, for ensure_row
  PatternView rows_of_a;                        // a view of it

  int32_t Node(int64_t i) const {
    return column_of_row ? (*column_of_row)[static_cast<size_t>(i)] : static_cast<int32_t>(i);
  }
};

// Upper bounds per column by walks of length `power`: |J_k|, and Σ |A(:, j)| over J_k.
struct Bounds {
  Array<double> columns, entries;
};

Bounds WalkBounds(const Rules& rules, int threads) {
  constexpr int64_t kBatch = 4096;
  const auto for_nodes = [&](const auto& use) {
    ParallelFor(rules.a.n_cols, kBatch, threads, [&](int64_t begin, int64_t end, int) {
      for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c) use(c);
    });
  };
  const auto n = static_cast<size_t>(rules.a.n_cols);
  const auto cap = static_cast<double>(n), nnz = static_cast<double>(rules.a.nnz());
  Bounds now, next;
  now.columns.assign(n, 1);
  now.entries.resize(n);
  for (size_t j = 0; j < n; ++j) {
    now.entries[j] = static_cast<double>(rules.a.col_ptr[j + 1] - rules.a.col_ptr[j]);
  }
  const Array<double> lengths = now.entries;
  next = now;
  for (int level = 0; level < rules.power; ++level) {
    for_nodes([&](size_t c) {
      double columns = now.columns[c], entries = now.entries[c];
      for (const int32_t i : rules.base.column(static_cast<int64_t>(c))) {
        const auto to = static_cast<size_t>(rules.Node(i));
        if (to == c) continue;  // counted already
        columns += now.columns[to];
        entries += now.entries[to];
      }
      next.columns[c] = std::min(columns, cap);
      next.entries[c] = std::min(entries, nnz);
    });
    std::swap(now, next);
    if (now.columns == next.columns && now.entries == next.entries) break;
  }
  // now[c] belongs to the walk that starts at node c; column k of M starts at Node(k).
  for_nodes([&](size_t k) {
    const auto start = static_cast<size_t>(rules.Node(static_cast<int64_t>(k)));
    double columns = now.columns[start], entries = now.entries[start];
    if (rules.transposed) {
      for (const int32_t j : rules.rows_of_a.column(static_cast<int64_t>(k))) {
        columns += 1;
        entries += lengths[static_cast<size_t>(j)];
      }
    }
    next.columns[k] = std::min(columns, cap);
    next.entries[k] = std::min(entries, nnz);
  });
  return next;
}

// Bounds for a matching that is not perfect: BuildPattern pairs the rest in its own way, so that
// any column may stand for any row.
Bounds BoundsWithoutMatching(const Rules& rules) {
  const auto n = static_cast<size_t>(rules.a.n_cols);
  double longest = 1, longest_base = 1, longest_row = 0;
  for (size_t j = 0; j < n; ++j) {
    longest = std::max(longest, static_cast<double>(rules.a.col_ptr[j + 1] - rules.a.col_ptr[j]));
    longest_base = std::max(longest_base,
                            static_cast<double>(rules.base.col_ptr[j + 1] - rules.base.col_ptr[j]));
  }
  double columns = 1;
  for (int level = 0; level < rules.power; ++level) {
    columns = std::min(static_cast<double>(n), columns * (1 + longest_base));
  }
  if (rules.transposed) {
    for (size_t k = 0; k < n; ++k) {
      longest_row = std::max(longest_row, static_cast<double>(rules.rows_of_a.col_ptr[k + 1] -
                                                              rules.rows_of_a.col_ptr[k]));
    }
  }
  columns = std::min(static_cast<double>(n), columns + longest_row);
  Bounds bounds;
  bounds.columns.assign(n, columns);
  bounds.entries.assign(n, std::min(static_cast<double>(rules.a.nnz()), columns * longest));
  return bounds;
}

// Iterations of CGLS, as the cost of a local problem counts them.
constexpr double kIterations = 100;

struct Totals {
  int64_t columns = 0;  // counted
  int64_t nnz_m = 0, n1_max = 0, n2_max = 0, sum_n1 = 0;
  double qr_flops = 0, gram_flops = 0;
  // The work of different local problems, by qr_flops and gram_flops where those are not solved by
  // CGLS; their entries.
  double qr_work = 0, gram_work = 0, gathered = 0;
  LocalCounts largest;

  // `shares`: the column has the local problem of the one before it.
  void Add(const LocalCounts& counts, int64_t n2, bool shares = false) {
    ++columns;
    nnz_m += n2;
    n1_max = std::max(n1_max, counts.n1);
    n2_max = std::max(n2_max, n2);
    sum_n1 += counts.n1;
    qr_flops += QrFlops(counts, n2, 1);
    gram_flops += GramFlops(counts, n2, 1);
    largest.n1 = std::max(largest.n1, counts.n1);
    largest.rows = std::max(largest.rows, counts.rows);
    largest.entries = std::max(largest.entries, counts.entries);
    const auto entries = static_cast<double>(counts.entries);
    if (n2 > static_spai_tuning::kMaxDenseColumns) {
      qr_work += kIterations * 4 * entries;
      gram_work += kIterations * 4 * entries;
      gathered += entries;
      return;
    }
    // One that shares takes what a right-hand side takes.
    qr_work += shares ? QrFlops(counts, n2, 2) - QrFlops(counts, n2, 1) : QrFlops(counts, n2, 1);
    gram_work +=
        shares ? GramFlops(counts, n2, 2) - GramFlops(counts, n2, 1) : GramFlops(counts, n2, 1);
    if (!shares) gathered += entries;
  }
  void Add(const Totals& other) {
    columns += other.columns;
    nnz_m += other.nnz_m;
    n1_max = std::max(n1_max, other.n1_max);
    n2_max = std::max(n2_max, other.n2_max);
    sum_n1 += other.sum_n1;
    qr_flops += other.qr_flops;
    gram_flops += other.gram_flops;
    qr_work += other.qr_work;
    gram_work += other.gram_work;
    gathered += other.gathered;
    largest.n1 = std::max(largest.n1, other.largest.n1);
    largest.rows = std::max(largest.rows, other.largest.rows);
    largest.entries = std::max(largest.entries, other.largest.entries);
  }
};

// The unknowns of one node, say.
bool SharesWithLast(const Rules& rules, int64_t k) {
  return k % static_spai_tuning::kMaxGroup != 0 && !rules.transposed && !rules.column_of_row &&
         rules.equal_columns[static_cast<size_t>(k)] != 0;
}

// Finds J_k by breadth-first search; one per thread.
class Explorer {
 public:
  explicit Explorer(int64_t n) : counter_(n), seen_(static_cast<size_t>(n), -1) {}

  void Count(const Rules& rules, int64_t k, Totals& totals) {
    const LocalCounts counts = Find(rules, k);
    totals.Add(counts, n2(), SharesWithLast(rules, k));
  }

  // |J_k| of the last column.
  int64_t n2() const { return static_cast<int64_t>(columns_.size()); }
  // Entries of A in the columns J_k: the steps that counting the last column took, about.
  int64_t Steps(const Rules& rules) const {
    int64_t steps = n2();
    for (const int32_t j : columns_) steps += rules.a.col_ptr[j + 1] - rules.a.col_ptr[j];
    return steps;
  }

  LocalCounts Find(const Rules& rules, int64_t k) {
    columns_.clear();
    Visit(k, rules.Node(k));
    size_t begin = 0;
    for (int level = 0; level < rules.power; ++level) {
      const size_t end = columns_.size();
      for (; begin < end; ++begin) {
        for (const int32_t i : rules.base.column(columns_[begin])) Visit(k, rules.Node(i));
      }
    }
    if (rules.transposed) {
      for (const int32_t j : rules.rows_of_a.column(k)) Visit(k, j);
    }
    return counter_.Count(rules.a, rules.equal_columns, columns_);
  }

 private:
  void Visit(int64_t k, int32_t node) {
    if (seen_[static_cast<size_t>(node)] == k) return;
    seen_[static_cast<size_t>(node)] = static_cast<int32_t>(k);
    columns_.push_back(node);
  }

  LocalCounter counter_;
  std::vector<int32_t> seen_;  // the last k whose J_k holds the node
  std::vector<int32_t> columns_;
};

void AddBounds(const Bounds& bounds, int64_t n, Totals& totals) {
  for (size_t k = 0; k < bounds.columns.size(); ++k) {
    LocalCounts counts;
    counts.entries = static_cast<int64_t>(bounds.entries[k]);
    counts.n1 = counts.rows = std::min(n, counts.entries);
    const auto n2 = static_cast<int64_t>(bounds.columns[k]);
    // Σ c (c + 1) / 2 over rows of c <= n2 entries, `entries` in all.
    const double pairs = bounds.entries[k] * (bounds.columns[k] + 1) / 2;
    counts.gram_pairs = static_cast<int64_t>(std::min(pairs, 0.5 * static_cast<double>(INT64_MAX)));
    totals.Add(counts, n2);
  }
}

// Counts columns that are evenly spread, as many as an estimate may look at.
Totals CountSome(const Rules& rules, const StopToken& stop) {
  const int64_t n = rules.a.n_cols;
  Explorer explorer(n);
  Totals some;
  double steps = 0;
  for (int64_t i = 0; i < kSampleColumns && steps < kStepBudget / 16 && !stop.stop_requested();
       ++i) {
    // By the golden ratio: in step with no grid.
    const double at = (static_cast<double>(i) + 0.5) * 0.6180339887498949;
    const auto k = static_cast<int64_t>((at - std::floor(at)) * static_cast<double>(n));
    explorer.Count(rules, std::min(k, n - 1), some);
    steps += static_cast<double>(explorer.Steps(rules));
  }
  return some;
}

BuildWork WorkOf(const StaticSpaiCounts& counts, const Totals& looked_at, LocalSolver solver) {
  const double times =
      static_cast<double>(counts.n) / static_cast<double>(std::max<int64_t>(1, looked_at.columns));
  const double flops = solver == LocalSolver::kQr ? looked_at.qr_work
                       : solver == LocalSolver::kGram
                           ? looked_at.gram_work
                           : std::min(looked_at.gram_work, looked_at.qr_work);
  const bool dense = counts.n2_max <= static_spai_tuning::kMaxDenseColumns;
  return {.rows = static_cast<double>(counts.n),
          .nnz_a = static_cast<double>(counts.nnz_a),
          .entries = static_cast<double>(counts.nnz_m),
          .gathered = times * looked_at.gathered,
          .flops = times * flops,
          .longest = dense ? static_cast<double>(counts.n2_max) : 0};
}

// Every column; nullopt where that takes more than kStepBudget steps (which columns were looked at
// by then depends on the threads, whether it does not).
Result<std::optional<Totals>> CountAll(const Rules& rules, const Context& context) {
  const int64_t n = rules.a.n_cols;
  struct alignas(kApart) Worker {
    std::unique_ptr<Explorer> explorer;
    Totals totals;
  };
  std::vector<Worker> workers(static_cast<size_t>(ResolveThreads(context.threads)));
  std::atomic<int64_t> steps = 0;
  const StopReason stopped =
      ParallelFor(n, 256, context, Stage::kPlan, [&](int64_t begin, int64_t end, int worker) {
        if (static_cast<double>(steps.load(std::memory_order_relaxed)) > kStepBudget) return;
        Worker& own = workers[static_cast<size_t>(worker)];
        if (!own.explorer) own.explorer = std::make_unique<Explorer>(n);
        int64_t taken = 0;
        for (int64_t k = begin; k < end; ++k) {
          own.explorer->Count(rules, k, own.totals);
          taken += own.explorer->Steps(rules);
        }
        steps.fetch_add(taken, std::memory_order_relaxed);
      });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "estimate of static SPAI");
  if (static_cast<double>(steps.load()) > kStepBudget) return std::optional<Totals>();
  Totals totals;
  for (const Worker& own : workers) totals.Add(own.totals);
  return std::optional<Totals>(totals);
}

// Figures of kernels/static_spai/cuda: entries of a local problem that gets a table; words of the
// table for each chunk of so many rows; limits of problems that are solved in global memory.
constexpr double kDeviceEntries = 16384;
constexpr double kChunkRows = 32, kChunkWords = 5;
constexpr double kTableColumns = 128, kLargeColumns = 2048, kLargeEntries = 4194304;
// A column of A as long as this gives a local problem no table, of however few entries.
constexpr double kLongColumn = 8192;
// Tables that take no more are never made in waves, and a wave is not kept from having as much.
// That is more than the largest table takes.
constexpr double kWaveBytes = 4 << 20;
// Its path by diagonals (dia_tuning.h): the least share of the diagonals that is stored, and
// the work space.
constexpr double kDiaFill = 1.0 / 3, kDiaWork = 256 << 20;
double DiaWork(double nnz_a) { return std::min(kDiaWork, 40 * nnz_a + (1 << 20)); }

bool AllHaveTables(double n2, double entries) {
  return n2 <= kTableColumns && entries <= kDeviceEntries && entries < kLongColumn;
}

// Bytes of one cluster of blocks that solves local problems in global memory: tiles, vectors, a
// hash table of rows with sums in fixed point.
double LargeBytes(double n, double n2, double entries) {
  if (AllHaveTables(n2, entries)) return 0;
  const double tiles = std::ceil(std::min(n2, kLargeColumns) / 8);
  double slots = 64;
  while (slots < 2 * std::min({entries, n, kLargeEntries})) slots *= 2;
  return 8 * (32 * tiles * (tiles + 1) + 21 * 8 * tiles + 8 * slots) + 8 * slots;
}

// The same by QR: Â with its right-hand sides, R, solutions, a hash table of rows.
double LargeQrBytes(double n, double n2, double entries) {
  if (AllHaveTables(n2, entries)) return 0;
  constexpr double kDense = static_cast<double>(static_spai_tuning::kMaxDenseEntries);
  const double columns = std::min(n2, kLargeColumns) + 4, chunk = 32 * columns;
  const double rows = std::min({entries, n, kLargeEntries});
  double slots = 64;
  while (slots < 2 * rows) slots *= 2;
  return 8 * (std::min(rows * columns + chunk, kDense + chunk) + columns * (columns + 4)) +
         8 * slots;
}

// Bytes that kernels/sparse/cuda has allocated at once for the pattern of M, at most, the pattern
// included. Powers before the last have no more entries than M.
double PatternBytes(const StaticSpaiCounts& counts, const Rules& rules,
                    const PatternOptions& options, bool user) {
  const auto n = static_cast<double>(counts.n), nnz_a = static_cast<double>(counts.nnz_a),
             nnz_m = static_cast<double>(counts.nnz_m);
  const double pointers = 8 * (n + 1), base = pointers + 4 * static_cast<double>(rules.base.nnz());
  const double match = options.row_match ? 4 * n : 0;
  const double factor = base + 4 * n;  // E + |base|
  const double factored = (user ? base : 0) + match + factor;
  if (options.power == 1 && !options.row_match && !options.ensure_row) return factored;
  const double rows = options.ensure_row ? pointers + 4 * nnz_a : 0;
  const double powers = (options.power > 2 || (options.power > 1 && options.row_match) ? 2 : 1) *
                        (pointers + 4 * nnz_m);
  // Bounds, a list of columns, a bitmap.
  return std::max(factored, factor + match + rows + powers + 8 * n + n / 8);
}

int64_t Bytes(double bytes) {
  return bytes < 9e18 ? static_cast<int64_t>(bytes) : std::numeric_limits<int64_t>::max();
}

// Blocks are rounded up, and sorts and sums want some scratch.
constexpr double kDeviceSlack = 4 << 20;

}  // namespace

void DeviceProblems::Add(double entries, double columns) {
  const double kept = std::min(entries, kDeviceEntries);
  // One for the column's place.
  words += columns * (kept + kChunkWords * std::ceil(kept / kChunkRows) + 2);
  most = std::max(most, entries);
}

// Bounds the bytes that kernels/static_spai/cuda has allocated at once.
void BoundDeviceBytes(const DeviceProblems& problems, double pattern_bytes,
                      const StaticSpaiOptions& options, StaticSpaiCounts& counts) {
  const auto n = static_cast<double>(counts.n), nnz_a = static_cast<double>(counts.nnz_a),
             nnz_m = static_cast<double>(counts.nnz_m);
  const double matrix = 12 * nnz_a + 8 * n;
  // m_ptr, members, group_ptr, structure_of, structures, order; m_idx. Structures that 32 columns
  // share may have 1912 bytes for lanes, and 8; or, for waves of tables, each has the number of a
  // group, and in a build a copy of the structure with the number of a wave, and its words.
  const double plan = (8 + 4 + 4 + 4 + 32 + 4) * n + 4 * nnz_m + 60 * n;
  static_assert(60 >= 4 + 32 + 4 + 8);
  const double tables = 4 * problems.words, wave = std::min(tables, kWaveBytes);
  // While equal groups are looked for: three names of each, hashes, and a table of up to 4 n slots.
  const double planning = (16 + 8 + 4 * 12 + 4 + 8) * n;
  // The scaled matrix; values of M; norms, pivots, flags, scales.
  const auto n2 = static_cast<double>(counts.n2_max);
  // By QR: two orders of the groups; and keys, sorted, with the scratch of that. A rescue by QR
  // that finds no memory is left to the host.
  const bool by_qr = options.local_solver == LocalSolver::kQr;
  const double solving = by_qr ? (2 * 4 + 4 * 4) * n + LargeQrBytes(n, n2, problems.most)
                               : LargeBytes(n, n2, problems.most);
  const double building = 8 * nnz_a + 8 * nnz_m + (3 * 8 + 1) * n + solving;
  // Values of M, norms, pivots, flags; M compacted.
  const double filtering =
      options.post_filter > 0 ? (8 + 12) * nnz_m + (2 * 8 + 1 + 8 + 0.125) * n : 0;
  // By diagonals: m_ptr, masks, what offsets lead out by; m_idx; the scaled matrix, the work space,
  // and the results as above.
  const double by_diagonals = by_qr ? 0
                                    : (8 + 8 + 4 + 2 * 8) * n + 4 * nnz_m + 8 * nnz_a / kDiaFill +
                                          DiaWork(nnz_a) + 8 * nnz_m + (3 * 8 + 1) * n + filtering;
  counts.device_bytes =
      Bytes(matrix + kDeviceSlack +
            std::max({pattern_bytes, plan + tables + std::max({planning, building, filtering}),
                      by_diagonals}));
  // Without memory for the path by diagonals the plan goes without, and without memory for a
  // compacted M the host compacts it.
  counts.device_bytes_min = Bytes(
      matrix + kDeviceSlack + std::max(pattern_bytes, plan + wave + std::max(planning, building)));
}

namespace {

Result<StaticSpaiCounts> Estimate(const PatternView& a, const PatternView* user_pattern,
                                  const StaticSpaiOptions& options, const Context& context) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status = CheckColumns(a, context.threads); !status.ok()) return status;
  const PatternOptions& pattern = options.pattern;
  if (Status status = CheckPattern(a, user_pattern, pattern); !status.ok()) return status;
  const int64_t n = a.n_cols;
  Rules rules{a, user_pattern != nullptr ? *user_pattern : a, pattern.power, {}, {}, {}, {}};
  rules.equal_columns = FindEqualColumns(a, context.threads);
  if (pattern.ensure_row) {
    Result<Pattern> transposed = Transpose(a, context);
    if (!transposed.ok()) return transposed.status();
    rules.transposed = *std::move(transposed);
    rules.rows_of_a = *rules.transposed;
  }
  bool matched = true;
  if (pattern.row_match) {
    const Result<Array<int32_t>> matching = MaximumMatching(a, context);
    if (!matching.ok()) return matching.status();
    const Array<int32_t>& row_of_column = *matching;
    Array<int32_t> column_of_row(static_cast<size_t>(n));
    for (size_t j = 0; j < row_of_column.size() && matched; ++j) {
      matched = row_of_column[j] >= 0;
      if (matched) column_of_row[static_cast<size_t>(row_of_column[j])] = static_cast<int32_t>(j);
    }
    if (matched) rules.column_of_row = std::move(column_of_row);
  }

  const Bounds bounds = matched ? WalkBounds(rules, context.threads) : BoundsWithoutMatching(rules);
  std::optional<Totals> counted;
  double steps = 0;  // of counting all, at most
  for (const double entries : bounds.entries) steps += entries;
  if (matched && steps <= 8 * kStepBudget) {
    Result<std::optional<Totals>> result = CountAll(rules, context);
    if (!result.ok()) return result.status();
    counted = *result;
  }
  Totals totals;
  if (counted) {
    totals = *counted;
  } else {
    AddBounds(bounds, n, totals);
    // M's own size is the figure that matters most, and cheaper to count.
    Context quiet = context;
    quiet.progress = nullptr;
    PatternOptions limited = pattern;
    const auto budget = static_cast<int64_t>(kStepBudget);
    limited.max_nnz = pattern.max_nnz > 0 ? std::min(pattern.max_nnz, budget) : budget;
    const Result<int64_t> nnz = CountPattern(a, user_pattern, limited, quiet);
    if (!nnz.ok()) return nnz.status();
    if (*nnz <= limited.max_nnz) totals.nnz_m = *nnz;
  }
  if (pattern.max_nnz > 0) totals.nnz_m = std::min(totals.nnz_m, pattern.max_nnz);

  StaticSpaiCounts counts;
  counts.n = n;
  counts.nnz_a = a.nnz();
  counts.nnz_m = totals.nnz_m;
  counts.n1_max = totals.n1_max;
  counts.n2_max = totals.n2_max;
  counts.sum_n1 = totals.sum_n1;
  counts.qr_flops = totals.qr_flops;
  counts.gram_flops = totals.gram_flops;
  const Totals looked_at = counted ? *counted : CountSome(rules, context.stop);
  if (const StopReason reason = context.stop.Poll(); reason != StopReason::kNone) {
    return StopStatus(reason, "estimate of static SPAI");
  }
  counts.work = WorkOf(counts, looked_at, options.local_solver);
  // With a threshold any smaller pattern may come, and compression depends on the pattern: a
  // problem that is compressed now may not be then.
  if (pattern.keep_tau) {
    totals.largest.rows = totals.largest.n1;
    for (const double e : bounds.entries) {
      totals.largest.entries = std::max(totals.largest.entries, static_cast<int64_t>(e));
    }
  }
  const int64_t pairs = MaxLongPairs(a);
  counts.plan_bytes = PlanBytes(n, counts.nnz_m, pairs);
  counts.build_bytes = BuildBytes(n, counts.nnz_m, pairs, totals.largest, counts.n2_max,
                                  ResolveThreads(context.threads), options.post_filter > 0);
  DeviceProblems problems;
  for (const double entries : bounds.entries) problems.Add(entries);
  BoundDeviceBytes(problems, PatternBytes(counts, rules, pattern, user_pattern != nullptr), options,
                   counts);
  return counts;
}

}  // namespace

Result<StaticSpaiCounts> EstimateStaticSpai(const PatternView& a, const PatternView* user_pattern,
                                            const StaticSpaiOptions& options,
                                            const Context& context) {
  return GuardMemory("estimate of static SPAI",
                     [&] { return Estimate(a, user_pattern, options, context); });
}

}  // namespace spaid::kernels
