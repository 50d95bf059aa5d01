#include "kernels/dynamic_spai/gram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/dynamic_spai/dynamic_spai_tuning.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/sparse/hash.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

namespace tuning = dynamic_spai_tuning;

constexpr double kCountShare = 0.3;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Brings values, of which one is not zero, to norm 1. Neither overflow nor underflow: they are
// brought near 1 by a power of two.
UnitScale ScaleOf(std::span<const double> values, double largest) {
  const int exponent = std::ilogb(largest);
  double squares = 0;
  for (const double v : values) {
    const double scaled = std::ldexp(v, -exponent);
    squares += scaled * scaled;
  }
  const int half = exponent / 2;
  return {std::ldexp(1.0, -half), std::ldexp(1 / std::sqrt(squares), half - exponent)};
}

double Largest(std::span<const double> values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

Status TooLarge(int64_t at_least, int64_t limit, const RowLengths& rows) {
  return Status(StatusCode::kResourceExhausted, "GRAM_TOO_LARGE",
                "growth works with the products of all pairs of columns of A that share a row, of "
                "which there would be at least " +
                    std::to_string(at_least) + ", and memory holds " + std::to_string(limit) +
                    "; row " + std::to_string(rows.row) + " of A alone, the longest, with " +
                    std::to_string(rows.longest) + " entries, makes " +
                    std::to_string(rows.longest * rows.longest) +
                    "; drop its small entries, eliminate that equation before, or use static SPAI")
      .At("row_idx", rows.row);
}

// What one thread needs to find the rows of a column of B̂.
class ColumnFinder {
 public:
  explicit ColumnFinder(int64_t n) : seen_(Z(n)), bits_(Z(n / 64 + 1)), sums_(Z(n)) {
    std::fill(seen_.begin(), seen_.end(), -1);
    std::fill(bits_.begin(), bits_.end(), 0);
  }

  // How many column j of B̂ has.
  int64_t Count(const PatternView& a, const PatternView& rows, int64_t j) {
    Find(a, rows, j, static_cast<int32_t>(j));
    return static_cast<int64_t>(found_.size());
  }

  // Those of column j in ascending order.
  std::span<const int32_t> Sorted(const PatternView& a, const PatternView& rows, int64_t j) {
    Find(a, rows, j, static_cast<int32_t>(-2 - j));
    if (found_.empty()) return found_;
    const auto [least, most] = std::minmax_element(found_.begin(), found_.end());
    const int64_t first = *least / 64, last = *most / 64;
    if (last - first >= tuning::kWordsPerEntry * static_cast<int64_t>(found_.size())) {
      std::sort(found_.begin(), found_.end());
      return found_;
    }
    for (const int32_t i : found_) bits_[Z(i / 64)] |= uint64_t{1} << (i % 64);
    size_t at = 0;
    for (int64_t w = first; w <= last; ++w) {
      for (uint64_t word = bits_[Z(w)]; word != 0; word &= word - 1) {
        found_[at++] = static_cast<int32_t>(64 * w + std::countr_zero(word));
      }
      bits_[Z(w)] = 0;
    }
    return found_;
  }

  double* sums() { return sums_.data(); }  // one for each row; the caller's

 private:
  void Find(const PatternView& a, const PatternView& rows, int64_t j, int32_t name) {
    found_.clear();
    for (const int32_t l : a.column(j)) {
      for (const int32_t i : rows.column(l)) {
        if (seen_[Z(i)] == name) continue;
        seen_[Z(i)] = name;
        found_.push_back(i);
      }
    }
  }

  Array<int32_t> seen_;  // the name of the last search that found the row
  Array<uint64_t> bits_;
  Array<double> sums_;
  std::vector<int32_t> found_;
};

class Finders {
 public:
  Finders(int64_t n, int threads) : n_(n), all_(Z(ResolveThreads(threads))) {}
  ColumnFinder& operator[](int worker) {
    std::unique_ptr<ColumnFinder>& own = all_[Z(worker)];
    if (!own) own = std::make_unique<ColumnFinder>(n_);
    return *own;
  }

 private:
  const int64_t n_;
  std::vector<std::unique_ptr<ColumnFinder>> all_;
};

// Whether column j of B̂ has the rows of the one before, as unknowns of one node do.
bool LikeTheOneBefore(const PatternView& a, int64_t j, int64_t begin) {
  return j > begin && std::ranges::equal(a.column(j), a.column(j - 1));
}

// Column j of B̂; `rows`: its own, ascending; `entry(q)`: the q-th entry of column j of Â;
// `minus_row(l)`: row l of −Â. Returns the products that it took.
template <class Entry, class MinusRow>
double FillColumn(const PatternView& a, int64_t j, std::span<const int32_t> rows,
                  const Entry& entry, const MinusRow& minus_row, double* sums, double* values) {
  for (const int32_t i : rows) sums[i] = 0;
  int64_t products = 0;
  const auto column = a.column(j);
  for (size_t q = 0; q < column.size(); ++q) {
    const GrowthColumn of_row = minus_row(column[q]);
    const double scaled = -entry(q);
    const int32_t* const at = of_row.rows.data();
    const double* const v = of_row.values.data();
    const auto size = static_cast<int64_t>(of_row.rows.size());
    for (int64_t p = 0; p < size; ++p) sums[at[p]] += scaled * v[p];
    products += size;
  }
  for (size_t p = 0; p < rows.size(); ++p) values[p] = rows[p] == j ? 1.0 : sums[rows[p]];
  return static_cast<double>(products);
}

}  // namespace

StopReason CountGram(const PatternView& a, const PatternView& rows, int64_t limit,
                     const Context& context, GramCounts& counts) {
  counts.columns.resize(Z(a.n_cols) + 1);
  counts.columns[0] = 0;
  Finders finders(a.n_cols, context.threads);
  std::atomic<int64_t> sum{0};
  const StopReason stopped = ParallelFor(a.n_cols, tuning::kGramBatch, context, Stage::kBuild,
                                         [&](int64_t begin, int64_t end, int worker) {
                                           ColumnFinder& finder = finders[worker];
                                           for (int64_t j = begin; j < end; ++j) {
                                             if (sum.load(std::memory_order_relaxed) > limit)
                                               return;
                                             const int64_t count = LikeTheOneBefore(a, j, begin)
                                                                       ? counts.columns[Z(j)]
                                                                       : finder.Count(a, rows, j);
                                             counts.columns[Z(j) + 1] = count;
                                             sum.fetch_add(count, std::memory_order_relaxed);
                                           }
                                         });
  counts.nnz = sum;
  return stopped;
}

int64_t GramLimit() { return UsableMemoryBytes() / tuning::kMemoryPerGramEntry; }

RowLengths CountRows(const PatternView& a) {
  Array<int64_t> lengths;
  lengths.assign(Z(a.n_rows), 0);
  for (const int32_t i : a.row_idx) ++lengths[Z(i)];
  RowLengths rows;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const auto length = static_cast<double>(lengths[Z(i)]);
    rows.squares += length * length;
    if (lengths[Z(i)] > rows.longest) {
      rows.longest = lengths[Z(i)];
      rows.row = i;
    }
  }
  return rows;
}

Array<UnitScale> FindScales(const CscView& a, int threads) {
  Array<UnitScale> scales(Z(a.n_cols));
  ParallelFor(a.n_cols, 1 << 14, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto values = a.column_values(j);
      scales[Z(j)] = values.empty() ? UnitScale() : ScaleOf(values, Largest(values));
    }
  });
  return scales;
}

Result<GramMatrix> MakeGram(const CscView& a, int64_t limit, const Context& context) {
  if (Status status = CheckColumnValues(a, context.threads); !status.ok()) return status;
  const Array<UnitScale> scales = FindScales(a, context.threads);
  const RowLengths lengths = CountRows(a);
  if (const int64_t alone = lengths.longest * lengths.longest; alone > limit) {
    return TooLarge(alone, limit, lengths);
  }
  Context quiet = context;  // a small part of it all
  quiet.progress = nullptr;
  auto rows = Transpose(a, quiet);
  if (!rows.ok()) return rows.status();
  ParallelFor(a.nnz(), 1 << 16, context.threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t q = begin; q < end; ++q) {
      rows->values[Z(q)] = -scales[Z(rows->row_idx[Z(q)])](rows->values[Z(q)]);
    }
  });
  return MakeGramOf(a, scales, *std::move(rows), lengths, limit, context);
}

Result<GramMatrix> MakeGramOf(const CscView& a, std::span<const UnitScale> scales,
                              CscMatrix minus_rows_of_a, const RowLengths& lengths, int64_t limit,
                              const Context& with_progress) {
  const int64_t n = a.n_cols;
  Context context = with_progress;
  StepProgress progress(with_progress.progress, Stage::kBuild, n);
  if (with_progress.progress != nullptr) context.progress = &progress;
  GramMatrix gram;
  CscMatrix& k = gram.columns;
  k.n_rows = n;
  k.n_cols = 2 * n;
  const auto stop = [](StopReason reason) { return StopStatus(reason, "growth of dynamic SPAI"); };
  progress.NextStep(kCountShare);
  GramCounts counts;
  StopReason stopped = CountGram(a, minus_rows_of_a.pattern(), limit, context, counts);
  if (stopped != StopReason::kNone) return stop(stopped);
  gram.nnz = counts.nnz;
  if (gram.nnz > limit) return TooLarge(gram.nnz, limit, lengths);

  k.col_ptr = std::move(counts.columns);
  k.col_ptr.resize(Z(2 * n) + 1);
  for (size_t j = 1; j <= Z(n); ++j) k.col_ptr[j] += k.col_ptr[j - 1];
  for (size_t j = 1; j <= Z(n); ++j) k.col_ptr[Z(n) + j] = gram.nnz + minus_rows_of_a.col_ptr[j];
  const int64_t of_rows = minus_rows_of_a.nnz(), all = gram.nnz + of_rows;
  k.row_idx.resize(Z(all));
  k.values.resize(Z(all));
  ParallelFor(of_rows, 1 << 16, context.threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t q = begin; q < end; ++q) {
      k.row_idx[Z(gram.nnz + q)] = minus_rows_of_a.row_idx[Z(q)];
      k.values[Z(gram.nnz + q)] = minus_rows_of_a.values[Z(q)];
    }
  });
  minus_rows_of_a = CscMatrix();  // its memory
  CscView minus_rows;
  minus_rows.n_rows = minus_rows.n_cols = n;
  minus_rows.col_ptr = std::span<const int64_t>(k.col_ptr).subspan(Z(n));
  minus_rows.row_idx = k.row_idx;
  minus_rows.values = k.values;

  progress.NextStep(1);
  Finders finders(n, context.threads);
  std::vector<double> products(Z((n - 1) / tuning::kGramBatch + 1));
  stopped = ParallelFor(
      n, tuning::kGramBatch, context, Stage::kBuild, [&](int64_t begin, int64_t end, int worker) {
        ColumnFinder& finder = finders[worker];
        std::span<const int32_t> rows;
        double own = 0;
        for (int64_t j = begin; j < end; ++j) {
          if (!LikeTheOneBefore(a, j, begin)) rows = finder.Sorted(a, minus_rows, j);
          std::copy(rows.begin(), rows.end(), k.row_idx.begin() + k.col_ptr[Z(j)]);
          const double* const of_a = a.column_values(j).data();
          own += FillColumn(
              a, j, rows, [&, scale = scales[Z(j)]](size_t q) { return scale(of_a[q]); },
              [&](int32_t l) {
                return GrowthColumn{minus_rows.column(l), minus_rows.column_values(l)};
              },
              finder.sums(), k.values.data() + k.col_ptr[Z(j)]);
        }
        products[Z(begin / tuning::kGramBatch)] = own;
      });
  if (stopped != StopReason::kNone) return stop(stopped);
  for (const double own : products) gram.flops += 2 * own;
  gram.diagonal.assign(Z(2 * n), 1.0);
  return Result<GramMatrix>(std::move(gram));
}

struct GramColumns::State {
  explicit State(int64_t n) : finder(n), scales(Z(n)) {
    for (Array<int32_t>* places : {&columns, &rows}) places->assign(Z(n), -1);
    scaled.assign(Z(n), 0);
  }

  ColumnFinder finder;
  Array<int32_t> columns, rows;  // of those that are made: where
  Array<UnitScale> scales;
  Array<uint8_t> scaled;  // whether there is one
  std::vector<double> values;
};

namespace {

double Varying(int64_t i, int64_t j, int64_t entries) {
  if (i == j) return std::max(1.0, static_cast<double>(entries - 1));
  uint64_t hash = HashMix(static_cast<uint64_t>(std::min(i, j)), 0x6a09e667f3bcc909u);
  hash = HashMix(hash, static_cast<uint64_t>(std::max(i, j)));
  return -0.5 - 0x1.0p-53 * static_cast<double>(hash >> 11);
}

}  // namespace

GramColumns::GramColumns(const CscView& a, const PatternView& rows, double limit)
    : a_(a), rows_(rows), limit_(limit), state_(std::make_unique<State>(a.n_cols)) {}
GramColumns::~GramColumns() = default;

// The q-th entry of column j of Â.
double GramColumns::Scaled(int64_t q, int64_t j) {
  const auto column = a_.column(j);
  const auto size = static_cast<int64_t>(column.size());
  const auto value = [&](int64_t p) {
    return a_.values.empty() ? Varying(column[Z(p)], j, size) : a_.column_values(j)[Z(p)];
  };
  UnitScale& scale = state_->scales[Z(j)];
  if (state_->scaled[Z(j)] == 0) {
    state_->values.clear();
    for (int64_t p = 0; p < size; ++p) state_->values.push_back(value(p));
    const double largest = Largest(state_->values);
    scale = largest > 0 ? ScaleOf(state_->values, largest) : UnitScale();
    state_->scaled[Z(j)] = 1;
    steps_ += static_cast<double>(size);
  }
  return scale(value(q));
}

GrowthColumn GramColumns::Row(int64_t l) {
  const auto row = rows_.column(l);
  int32_t& place = state_->rows[Z(l)];
  if (place < 0) {
    place = static_cast<int32_t>(made_rows_.size());
    std::vector<double>& values = made_rows_.emplace_back();
    values.reserve(row.size());
    for (const int32_t j : row) {
      const auto column = a_.column(j);
      const auto at = std::lower_bound(column.begin(), column.end(), l) - column.begin();
      values.push_back(-Scaled(at, j));
      steps_ += std::bit_width(column.size());
    }
  }
  return {row, made_rows_[Z(place)]};
}

GrowthColumn GramColumns::Column(int64_t j) {
  if (j >= a_.n_cols) return Row(j - a_.n_cols);
  int32_t& place = state_->columns[Z(j)];
  if (place < 0) {
    for (const int32_t l : a_.column(j)) steps_ += 2 * static_cast<double>(rows_.column(l).size());
    passed_ = passed_ || steps_ > limit_;
    if (passed_) return {};
    const auto rows = state_->finder.Sorted(a_, rows_, j);
    std::vector<double> values(rows.size());
    FillColumn(
        a_, j, rows, [&](size_t q) { return Scaled(static_cast<int64_t>(q), j); },
        [&](int32_t l) { return Row(l); }, state_->finder.sums(), values.data());
    place = static_cast<int32_t>(made_.size());
    made_.push_back({{rows.begin(), rows.end()}, std::move(values)});
  }
  return {made_[Z(place)].rows, made_[Z(place)].values};
}

}  // namespace spaid::kernels
