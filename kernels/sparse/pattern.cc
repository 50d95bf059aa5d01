#include "kernels/sparse/pattern.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/base/reasons.h"
#include "kernels/sparse/hash.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kBatch = 256;       // columns; large enough to hide the cost of taking a batch
constexpr int64_t kCopyBatch = 4096;  // columns of a plain copy

// Entries that no machine's memory is asked about: the question takes 0.2 ms.
constexpr int64_t kAlwaysFits = (int64_t{64} << 20) / kBytesPerPatternEntry;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A set of indices: a bitmap to test, a list to visit and to clear.
class alignas(kApart) IndexSet {
 public:
  explicit IndexSet(int64_t n) { words_.assign(Z(n / 64 + 1), 0); }

  void Insert(int32_t i) {
    uint64_t& word = words_[static_cast<size_t>(i) >> 6];
    const uint64_t bit = uint64_t{1} << (i & 63);
    if (word & bit) return;
    word |= bit;
    list_.push_back(i);
  }
  int64_t size() const { return static_cast<int64_t>(list_.size()); }
  int32_t operator[](int64_t p) const { return list_[Z(p)]; }

  // Writes the indices in ascending order.
  void Sorted(int32_t* out) const {
    if (list_.size() < words_.size() / 2) {
      std::copy(list_.begin(), list_.end(), out);
      std::sort(out, out + list_.size());
      return;
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
        *out++ = static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(bits)));
      }
    }
  }
  void Clear() {
    for (const int32_t i : list_) words_[static_cast<size_t>(i) >> 6] = 0;
    list_.clear();
  }

 private:
  Array<uint64_t> words_;
  Array<int32_t> list_;
};

double LargestMagnitude(std::span<const double> values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// Copies what keep(j, row, value, largest) keeps of each column, largest being max |value| of the
// column: counts, sums, then fills; values too where Out has them.
template <class Out, class Keep>
StopReason CopyKept(const CscView& a, const Context& with_progress, const Keep& keep, Out& out) {
  constexpr bool kValues = requires { out.values; };
  Context context = with_progress;
  context.progress = nullptr;  // a step of something else
  out.n_rows = a.n_rows;
  out.n_cols = a.n_cols;
  out.col_ptr.resize(a.col_ptr.size());
  out.col_ptr[0] = 0;
  // use(p) for each entry of column j that is kept, in order.
  const auto visit = [&](int64_t j, const auto& use) {
    const double largest = LargestMagnitude(a.column_values(j));
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
      if (keep(j, a.row_idx[Z(p)], a.values[Z(p)], largest)) use(p);
    }
  };
  StopReason stopped = ParallelFor(a.n_cols, kCopyBatch, context, Stage::kPlan,
                                   [&](int64_t begin, int64_t end, int) {
                                     for (int64_t j = begin; j < end; ++j) {
                                       int64_t count = 0;
                                       visit(j, [&](int64_t) { ++count; });
                                       out.col_ptr[Z(j) + 1] = count;
                                     }
                                   });
  if (stopped != StopReason::kNone) return stopped;
  for (int64_t j = 0; j < a.n_cols; ++j) out.col_ptr[Z(j) + 1] += out.col_ptr[Z(j)];
  const size_t nnz = Z(out.col_ptr[Z(a.n_cols)]);
  out.row_idx.resize(nnz);
  if constexpr (kValues) out.values.resize(nnz);
  return ParallelFor(a.n_cols, kCopyBatch, context, Stage::kPlan,
                     [&](int64_t begin, int64_t end, int) {
                       for (int64_t j = begin; j < end; ++j) {
                         int64_t q = out.col_ptr[Z(j)];
                         visit(j, [&](int64_t p) {
                           out.row_idx[Z(q)] = a.row_idx[Z(p)];
                           if constexpr (kValues) out.values[Z(q)] = a.values[Z(p)];
                           ++q;
                         });
                       }
                     });
}

// What the columns of the result are made of.
struct Recipe {
  PatternView base;  // canonical
  int power = 1;
  const Array<int32_t>* match = nullptr;  // column matched to each row; null: identity
  std::optional<PatternView> rows_of_a;   // for ensure_row
  std::optional<IndexRange> columns;      // the others are left empty

  // J_k. A breadth-first search of depth `power` from the diagonal: (E + |B|)^p holds (i, k)
  // exactly where a path of at most p entries leads from k to i. With a matching the graph is that
  // of the row-permuted matrix, in which entry (i, j) sits in row match[i].
  void Collect(int64_t k, IndexSet& set) const {
    set.Insert(match != nullptr ? (*match)[Z(k)] : static_cast<int32_t>(k));
    int64_t begin = 0;
    for (int level = 0; level < power && begin < set.size() && set.size() < base.n_rows; ++level) {
      const int64_t end = set.size();
      for (int64_t p = begin; p < end; ++p) {
        for (const int32_t i : base.column(set[p])) {
          set.Insert(match != nullptr ? (*match)[Z(i)] : i);
        }
      }
      begin = end;
    }
    if (rows_of_a.has_value()) {
      for (const int32_t j : rows_of_a->column(k)) set.Insert(j);
    }
  }

  bool trivial() const { return power == 1 && match == nullptr && !rows_of_a; }
  int64_t batch() const { return trivial() ? kCopyBatch : kBatch; }
  // The columns of [begin, end) that are made.
  IndexRange Made(int64_t begin, int64_t end) const {
    if (!columns) return {begin, end};
    return {std::max(begin, columns->begin), std::min(end, columns->end)};
  }
};

// Everything that a Recipe borrows.
struct Prepared {
  std::optional<Pattern> threshold;
  Array<int32_t> match;
  Pattern rows_of_a;
  Recipe recipe;
};

Status Check(const PatternView& a, const PatternView* user, const PatternOptions& options) {
  if (Status status = CheckRanges(options); !status.ok()) return status;
  if (user != nullptr && (user->n_rows != a.n_rows || user->n_cols != a.n_cols)) {
    return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                  "the given pattern is " + std::to_string(user->n_rows) + " x " +
                      std::to_string(user->n_cols) + ", the matrix " + std::to_string(a.n_rows) +
                      " x " + std::to_string(a.n_cols) + "; send a pattern of the matrix' size")
        .At("user_pattern");
  }
  return Status();
}

// `base` null: A itself.
Status Prepare(const PatternView& a, const PatternView& base, const PatternOptions& options,
               const Context& context, Prepared& out) {
  out.recipe.base = base;
  out.recipe.power = options.power;
  if (options.row_match) {
    auto match = RowPermutation(a, context);
    if (!match.ok()) return match.status();
    out.match = *std::move(match);
    out.recipe.match = &out.match;
  }
  if (options.ensure_row) {
    auto rows = Transpose(a, context);
    if (!rows.ok()) return rows.status();
    out.rows_of_a = *std::move(rows);
    out.recipe.rows_of_a = out.rows_of_a;
  }
  return {};
}

// Both passes take about as long: each is half of the way that is reported.
class PassProgress : public ProgressSink {
 public:
  PassProgress(ProgressSink* sink, int pass) : sink_(sink), pass_(pass) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    sink_->OnProgress(stage, pass_ * total + done, 2 * total);
  }
  void OnResidual(const ResidualPoint& point) override { sink_->OnResidual(point); }

 private:
  ProgressSink* const sink_;
  const int64_t pass_;
};

// Per-worker sets, made by the worker that needs one.
class Sets {
 public:
  Sets(int64_t n, int threads) : n_(n), sets_(Z(ResolveThreads(threads))) {}
  IndexSet& operator[](int worker) {
    auto& set = sets_[Z(worker)];
    if (!set) set.emplace(n_);
    return *set;
  }

 private:
  int64_t n_;
  std::vector<std::optional<IndexSet>> sets_;
};

// Entries of every column into counts[k] (n of them; null: only the sum). Stops early over `limit`
// (0: none): the answer is then a lower bound that is over it.
Result<int64_t> CountColumns(const Recipe& recipe, int64_t limit, int64_t* counts,
                             const Context& context, Sets& sets) {
  std::atomic<int64_t> total{0};
  const StopReason stopped =
      ParallelFor(recipe.base.n_cols, recipe.batch(), context, Stage::kPlan,
                  [&](int64_t begin, int64_t end, int worker) {
                    int64_t sum = 0;
                    const IndexRange made = recipe.Made(begin, end);
                    if (counts != nullptr) std::fill(counts + begin, counts + end, 0);
                    for (int64_t k = made.begin; k < made.end; ++k) {
                      if (limit > 0 && total.load(std::memory_order_relaxed) + sum > limit) break;
                      // A column of a large power may take long: the batch is no longer the unit of
                      // patience.
                      if (recipe.power > 1 && context.stop.stop_requested()) break;
                      int64_t count = 0;
                      if (recipe.trivial()) {
                        const auto rows = recipe.base.column(k);
                        const bool diagonal =
                            std::binary_search(rows.begin(), rows.end(), static_cast<int32_t>(k));
                        count = static_cast<int64_t>(rows.size()) + (diagonal ? 0 : 1);
                      } else {
                        IndexSet& set = sets[worker];
                        recipe.Collect(k, set);
                        count = set.size();
                        set.Clear();
                      }
                      if (counts != nullptr) counts[k] = count;
                      sum += count;
                    }
                    total.fetch_add(sum, std::memory_order_relaxed);
                  });
  const StopReason reason = stopped != StopReason::kNone ? stopped : context.stop.Poll();
  if (reason != StopReason::kNone) return StopStatus(reason, "the pattern of the preconditioner");
  return total.load();
}

Result<Pattern> Assemble(const Recipe& recipe, const PatternOptions& options,
                         const Context& context) {
  const int64_t n = recipe.base.n_cols;
  Pattern out;
  out.n_rows = recipe.base.n_rows;
  out.n_cols = n;
  out.col_ptr.resize(Z(n) + 1);
  out.col_ptr[0] = 0;

  // What could not be built is refused in words, before it is allocated.
  const PatternLimit limit = LimitPattern(recipe.base, options);
  Sets sets(recipe.base.n_rows, context.threads);
  PassProgress first_half(context.progress, 0), second_half(context.progress, 1);
  Context counting = context, filling = context;
  if (context.progress != nullptr) {
    counting.progress = &first_half;
    filling.progress = &second_half;
  }
  const Result<int64_t> nnz =
      CountColumns(recipe, limit.nnz, out.col_ptr.data() + 1, counting, sets);
  if (!nnz.ok()) return nnz.status();
  if (*nnz > limit.nnz) return PatternTooLarge(*nnz, limit);
  if (recipe.trivial() && !recipe.columns && *nnz == recipe.base.nnz()) {  // with the diagonal
    ParallelCopy(recipe.base.col_ptr, out.col_ptr, context.threads);
    out.row_idx.resize(Z(*nnz));
    ParallelCopy(recipe.base.row_idx, out.row_idx, context.threads);
    return out;
  }
  int64_t before = 0;  // kept in a register: no sum waits for a store
  for (size_t k = 1; k <= Z(n); ++k) out.col_ptr[k] = before += out.col_ptr[k];
  out.row_idx.resize(Z(*nnz));

  const StopReason stopped = ParallelFor(
      n, recipe.batch(), filling, Stage::kPlan, [&](int64_t begin, int64_t end, int worker) {
        const IndexRange made = recipe.Made(begin, end);
        for (int64_t k = made.begin; k < made.end; ++k) {
          if (recipe.power > 1 && context.stop.stop_requested()) return;
          int32_t* to = out.row_idx.data() + out.col_ptr[Z(k)];
          if (recipe.trivial()) {
            const auto rows = recipe.base.column(k);
            const int32_t diagonal = static_cast<int32_t>(k);
            const auto at = std::lower_bound(rows.begin(), rows.end(), diagonal);
            to = std::copy(rows.begin(), at, to);
            if (at == rows.end() || *at != diagonal) *to++ = diagonal;
            std::copy(at, rows.end(), to);
            continue;
          }
          IndexSet& set = sets[worker];
          recipe.Collect(k, set);
          set.Sorted(to);
          set.Clear();
        }
      });
  const StopReason reason = stopped != StopReason::kNone ? stopped : context.stop.Poll();
  if (reason != StopReason::kNone) return StopStatus(reason, "the pattern of the preconditioner");
  return out;
}

}  // namespace

Status CheckPattern(const PatternView& a, const PatternView* user, const PatternOptions& options) {
  return Check(a, user, options);
}

PatternLimit LimitPattern(const PatternView& base, const PatternOptions& options) {
  const bool small = options.power == 1 && !options.row_match && !options.ensure_row &&
                     base.nnz() + base.n_cols <= kAlwaysFits;
  const int64_t fits = small ? kAlwaysFits : UsableMemoryBytes() / kBytesPerPatternEntry;
  const bool own = options.max_nnz > 0 && options.max_nnz <= fits;
  return {own ? options.max_nnz : fits, own};
}

Status PatternTooLarge(int64_t at_least, const PatternLimit& limit) {
  return Status(StatusCode::kResourceExhausted, "PATTERN_TOO_LARGE",
                "the pattern of the preconditioner would have at least " +
                    std::to_string(at_least) + " entries, " +
                    (limit.own ? "the limit is" : "the memory of this machine holds") + " " +
                    std::to_string(limit.nnz) +
                    "; use a lower power, a threshold (keep_tau), or raise the limit");
}

Result<Pattern> BuildPattern(const CscView& a, const PatternView* user,
                             const PatternOptions& options, const Context& context) {
  Status status = Check(a, user, options);
  if (!status.ok()) return status;
  Prepared prepared;
  PatternView base = user != nullptr ? *user : static_cast<const PatternView&>(a);
  if (options.keep_tau && user == nullptr) {
    auto kept = ThresholdPattern(a, *options.keep_tau, /*first=*/0, context);
    if (!kept.ok()) return kept.status();
    base = prepared.threshold.emplace(*std::move(kept));
  }
  status = Prepare(a, base, options, context, prepared);
  if (!status.ok()) return status;
  return Assemble(prepared.recipe, options, context);
}

Result<Pattern> PowerPattern(const PatternView& base, const PatternOptions& options,
                             IndexRange columns, const Context& context) {
  Recipe recipe;
  recipe.base = base;
  recipe.power = options.power;
  recipe.columns = columns;
  return Assemble(recipe, options, context);
}

Result<Pattern> ThresholdPattern(const CscView& a, double tau, int64_t first,
                                 const Context& context) {
  Pattern kept;
  const StopReason stopped = CopyKept(
      a, context,
      [tau, first](int64_t j, int32_t i, double v, double largest) {
        return i == first + j || std::abs(v) > (1 - tau) * largest;
      },
      kept);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the threshold pattern");
  return kept;
}

int64_t LongestColumn(const PatternView& a, int threads) {
  constexpr int64_t kColumnsAtOnce = 1 << 15;
  std::vector<int64_t> parts(static_cast<size_t>((a.n_cols + kColumnsAtOnce - 1) / kColumnsAtOnce));
  ParallelFor(a.n_cols, kColumnsAtOnce, threads, [&](int64_t begin, int64_t end, int) {
    int64_t longest = 0;
    for (int64_t j = begin; j < end; ++j) {
      const auto at = static_cast<size_t>(j);
      longest = std::max(longest, a.col_ptr[at + 1] - a.col_ptr[at]);
    }
    parts[static_cast<size_t>(begin / kColumnsAtOnce)] = longest;
  });
  return parts.empty() ? 0 : *std::max_element(parts.begin(), parts.end());
}

Result<int64_t> CountPattern(const PatternView& a, const PatternView* user,
                             const PatternOptions& options, const Context& context) {
  Status status = Check(a, user, options);
  if (!status.ok()) return status;
  Prepared prepared;
  status = Prepare(a, user != nullptr ? *user : a, options, context, prepared);
  if (!status.ok()) return status;
  Sets sets(a.n_rows, context.threads);
  return CountColumns(prepared.recipe, options.max_nnz, nullptr, context, sets);
}

Array<int32_t> ColumnsOfRows(const Array<int32_t>& row_of_column) {
  const auto n = std::ssize(row_of_column);
  Array<int32_t> column_of_row;
  column_of_row.assign(Z(n), -1);
  for (int64_t j = 0; j < n; ++j) {
    const int32_t i = row_of_column[Z(j)];
    if (i >= 0) column_of_row[Z(i)] = static_cast<int32_t>(j);
  }
  int64_t free_column = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (column_of_row[Z(i)] >= 0) continue;
    while (row_of_column[Z(free_column)] >= 0) ++free_column;
    column_of_row[Z(i)] = static_cast<int32_t>(free_column++);
  }
  return column_of_row;
}

Result<Array<int32_t>> RowPermutation(const PatternView& a, const Context& context) {
  const Result<Array<int32_t>> matched = MaximumMatching(a, context);
  if (!matched.ok()) return matched.status();
  return ColumnsOfRows(*matched);
}

Result<CscMatrix> PostFilter(const CscView& m, double delta, const Context& context) {
  CscMatrix out;
  const StopReason stopped = CopyKept(
      m, context,
      [delta](int64_t j, int32_t i, double v, double largest) {
        // Neither comparison is true of a NaN, which stays.
        const double size = std::abs(v);
        return i == j || !(size < delta * largest || (size == 0 && delta > 0));
      },
      out);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the post-filter");
  return out;
}

CscMatrix PostFilter(const CscView& m, double delta) {
  return *PostFilter(m, delta, Context{.stop = {}, .progress = nullptr, .threads = 1});
}

uint64_t HashPattern(const PatternView& a, int threads) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  const int64_t pointers = (a.n_cols + kPiece) / kPiece;  // pieces of col_ptr
  const int64_t pieces = pointers + (a.nnz() + kPiece - 1) / kPiece;
  Array<uint64_t> hashes(static_cast<size_t>(pieces));
  const auto piece = [](auto array, int64_t i) {
    const auto begin = static_cast<size_t>(i * kPiece);
    return array.subspan(begin, std::min(static_cast<size_t>(kPiece), array.size() - begin));
  };
  ParallelFor(pieces, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      hashes[static_cast<size_t>(i)] = i < pointers ? HashArray(piece(a.col_ptr, i), 0)
                                                    : HashArray(piece(a.row_idx, i - pointers), 0);
    }
  });
  return HashArray(std::span<const uint64_t>(hashes), static_cast<uint64_t>(a.n_rows));
}

Status CheckPlanPattern(const PatternView& a, int64_t n, int64_t nnz, uint64_t hash, int threads) {
  if (a.n_cols == n && a.nnz() == nnz && HashPattern(a, threads) == hash) return {};
  return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                "the matrix does not have the pattern that the plan was made for; make a plan "
                "for this matrix");
}

}  // namespace spaid::kernels
