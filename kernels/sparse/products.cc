#include "kernels/sparse/products.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/hot_kernel.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/row_runs.h"

namespace spaid::kernels {
namespace {

// Rows that one thread takes at a time; their part of the result waits in one piece.
constexpr int64_t kRowsPerBatch = 512;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Status SizeMismatch(const PatternView& a, const PatternView& b) {
  return Status(StatusCode::kInvalidArgument, "SIZE_MISMATCH",
                "a product takes a right factor of as many rows as the left one has columns; they "
                "are " +
                    std::to_string(b.n_cols) + " and " + std::to_string(a.n_rows))
      .At("b");
}

// No run of rows goes beyond it.
int64_t EndOfBatch(int64_t i, int64_t n) {
  return std::min(n, (i / kRowsPerBatch + 1) * kRowsPerBatch);
}

// A sum of nothing. Not +0: a first product of -0 stays.
constexpr double kNothing = -0.0;

// The row that is being made: columns in the order in which they came up, their sums, and where in
// that order a column is. Rows leave `place` and `sum` as they found them.
struct Row {
  explicit Row(int64_t columns) : place(Z(columns), -1) {}
  void Reserve(int64_t entries) {
    if (static_cast<int64_t>(column.size()) >= entries) return;
    column.resize(Z(entries + entries / 2));
    sum.assign(column.size(), kNothing);
  }
  Array<int32_t> place;   // -1: not in the row
  Array<int32_t> column;  // room for the largest row so far
  Array<double> sum;      // kNothing

  // Rows [begin, end), of the same columns, are summed, and wait: kMostRun sums for each column.
  void ReserveRun() {
    if (run_sum.size() < kMostRun * column.size())
      run_sum.assign(kMostRun * column.size(), kNothing);
  }
  Array<double> run_sum;
  int64_t begin = 0, end = 0, run_entries = 0;
};

// One for each thread, made where it is first used, so that its pages are that thread's.
class Rows {
 public:
  Rows(int threads, int64_t columns) : columns_(columns), rows_(static_cast<size_t>(threads)) {}
  Row& Of(int worker) {
    std::unique_ptr<Row>& row = rows_[static_cast<size_t>(worker)];
    if (row == nullptr) row = std::make_unique<Row>(columns_);
    return *row;
  }

 private:
  int64_t columns_;
  std::vector<std::unique_ptr<Row>> rows_;
};

// Products of row i, at the most as many as C has columns: room for its entries.
int64_t MostEntries(const PatternView& a, const PatternView& b, int64_t i) {
  int64_t products = 0;
  for (const int32_t k : a.column(i)) products += b.col_ptr[Z(k) + 1] - b.col_ptr[Z(k)];
  return std::min(products, b.n_rows);
}

// One entry of each row of a run, `stride` apart.
class LeftOfRun {
 public:
  SPAID_INLINE LeftOfRun(const double* values, int64_t stride, int length)
      : left_{values[0], values[stride], length > 2 ? values[2 * stride] : 0,
              length > 3 ? values[3 * stride] : 0} {}
  SPAID_INLINE void Add(double right, double* sums) const {
    double own[kMostRun];
    std::memcpy(own, sums, sizeof(own));
#pragma GCC unroll 1  // else it is not one instruction
    for (int t = 0; t < kMostRun; ++t) own[t] = std::fma(left_[t], right, own[t]);
    std::memcpy(sums, own, sizeof(own));
  }

 private:
  double left_[kMostRun];
};

// Sums row i; returns its entries. Whether a column is there already cannot be foretold, so there
// is no branch on it: half of the time.
SPAID_HOT_KERNEL
int64_t SumRow(const CscView& a, const CscView& b, int64_t i, int32_t* place, int32_t* column,
               double* sum) {
  int32_t entries = 0;
  for (int64_t p = a.col_ptr[Z(i)]; p < a.col_ptr[Z(i) + 1]; ++p) {
    const double left = a.values[Z(p)];
    const int32_t k = a.row_idx[Z(p)];
    const int64_t end = b.col_ptr[Z(k) + 1];
    for (int64_t q = b.col_ptr[Z(k)]; q < end; ++q) {
      const int32_t j = b.row_idx[Z(q)];
      const int32_t before = place[j];
      const int32_t at = before < 0 ? entries : before;
      entries += before < 0;
      place[j] = at;
      column[at] = j;
      sum[at] = std::fma(left, b.values[Z(q)], sum[at]);
    }
  }
  return entries;
}

// The same of a run of `length` rows, kMostRun sums for each column.
SPAID_HOT_KERNEL
int64_t SumRun(const CscView& a, const CscView& b, int64_t i, int length, int32_t* place,
               int32_t* column, double* sum) {
  int32_t entries = 0;
  const int64_t count = a.col_ptr[Z(i) + 1] - a.col_ptr[Z(i)];
  const int32_t* const inner = a.row_idx.data() + a.col_ptr[Z(i)];
  const double* const values = a.values.data() + a.col_ptr[Z(i)];
  for (int64_t p = 0; p < count; ++p) {
    const LeftOfRun left(values + p, count, length);
    const int64_t end = b.col_ptr[Z(inner[p]) + 1];
    for (int64_t q = b.col_ptr[Z(inner[p])]; q < end; ++q) {
      const int32_t j = b.row_idx[Z(q)];
      const int32_t before = place[j];
      const int32_t at = before < 0 ? entries : before;
      entries += before < 0;
      place[j] = at;
      column[at] = j;
      left.Add(b.values[Z(q)], sum + int64_t{kMostRun} * at);
    }
  }
  return entries;
}

// Into the values of `length` rows whose columns are known; `sum` has kMostRun places for each
// column of C.
SPAID_HOT_KERNEL
void SumKnownRun(const CscView& a, const CscView& b, int64_t i, int length,
                 std::span<const int32_t> columns, double* sum, double* values) {
  for (const int32_t j : columns) {
    for (int64_t t = 0; t < kMostRun; ++t) sum[kMostRun * int64_t{j} + t] = kNothing;
  }
  const int64_t count = a.col_ptr[Z(i) + 1] - a.col_ptr[Z(i)];
  const int32_t* const inner = a.row_idx.data() + a.col_ptr[Z(i)];
  const double* const of_a = a.values.data() + a.col_ptr[Z(i)];
  for (int64_t p = 0; p < count; ++p) {
    const LeftOfRun left(of_a + p, count, length);
    const int64_t end = b.col_ptr[Z(inner[p]) + 1];
    for (int64_t q = b.col_ptr[Z(inner[p])]; q < end; ++q) {
      left.Add(b.values[Z(q)], sum + kMostRun * int64_t{b.row_idx[Z(q)]});
    }
  }
  for (size_t p = 0; p < columns.size(); ++p) {
    for (int t = 0; t < length; ++t) {
      values[static_cast<size_t>(t) * columns.size() + p] = sum[kMostRun * int64_t{columns[p]} + t];
    }
  }
}

// The same of a row whose columns are known, into `sum`, which has a place for each column of C.
SPAID_HOT_KERNEL
void SumKnownRow(const CscView& a, const CscView& b, int64_t i, std::span<const int32_t> columns,
                 double* sum, double* values) {
  for (const int32_t j : columns) sum[j] = kNothing;
  for (int64_t p = a.col_ptr[Z(i)]; p < a.col_ptr[Z(i) + 1]; ++p) {
    const double left = a.values[Z(p)];
    const int32_t k = a.row_idx[Z(p)];
    const int64_t end = b.col_ptr[Z(k) + 1];
    for (int64_t q = b.col_ptr[Z(k)]; q < end; ++q) {
      double& to = sum[b.row_idx[Z(q)]];
      to = std::fma(left, b.values[Z(q)], to);
    }
  }
  for (size_t p = 0; p < columns.size(); ++p) values[p] = sum[columns[p]];
}

// Rows are short: quicker than std::sort up to some dozens.
void Sort(int32_t* columns, int64_t count) {
  if (count > 48) return std::sort(columns, columns + count);
  for (int64_t p = 1; p < count; ++p) {
    const int32_t column = columns[p];
    int64_t q = p;
    for (; q > 0 && columns[q - 1] > column; --q) columns[q] = columns[q - 1];
    columns[q] = column;
  }
}

// Hands over the next row of the run.
void GiveOfRun(Row& row, int64_t i, RowSink& sink) {
  const bool last = i + 1 == row.end;
  for (int64_t p = 0; p < row.run_entries; ++p) {
    const int32_t j = row.column[Z(p)];
    double* const sums = row.run_sum.data() + int64_t{kMostRun} * row.place[Z(j)];
    sink.Add(j, sums[i - row.begin]);
    if (!last) continue;
    std::fill_n(sums, kMostRun, kNothing);
    row.place[Z(j)] = -1;
  }
}

// Hands the row over, and takes it out of `place`.
void Give(Row& row, int64_t entries, RowOrder order, RowSink& sink) {
  if (order == RowOrder::kAscending) Sort(row.column.data(), entries);
  for (int64_t p = 0; p < entries; ++p) {
    const int32_t j = row.column[Z(p)];
    const size_t at = Z(std::exchange(row.place[Z(j)], -1));
    sink.Add(j, std::exchange(row.sum[at], kNothing));
  }
}

}  // namespace

Result<std::optional<CscMatrix>> MultiplyUpTo(int64_t most_entries, const CscView& a,
                                              const CscView& b, const Context& context,
                                              RowOrder order) {
  if (a.n_rows != b.n_cols) return SizeMismatch(a, b);
  const bool bounded = most_entries < std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> all_entries{0};
  Rows rows(ResolveThreads(context.threads), b.n_rows);
  auto made = MakeRows(a.n_cols, b.n_rows, context, "a product of sparse matrices",
                       [&](int64_t i, RowSink& sink, int worker) {
                         if (bounded && all_entries.load(std::memory_order_relaxed) > most_entries)
                           return;
                         Row& row = rows.Of(worker);
                         if (i >= row.end || i < row.begin) {
                           row.Reserve(MostEntries(a, b, i));
                           const int run = RowRun(a, i, EndOfBatch(i, a.n_cols));
                           row.begin = i, row.end = i + run;
                           if (run > 1) {
                             row.ReserveRun();
                             row.run_entries = SumRun(a, b, i, run, row.place.data(),
                                                      row.column.data(), row.run_sum.data());
                             if (order == RowOrder::kAscending)
                               Sort(row.column.data(), row.run_entries);
                           }
                         }
                         if (row.end > row.begin + 1) {
                           GiveOfRun(row, i, sink);
                           if (bounded)
                             all_entries.fetch_add(row.run_entries, std::memory_order_relaxed);
                           return;
                         }
                         const int64_t entries =
                             SumRow(a, b, i, row.place.data(), row.column.data(), row.sum.data());
                         Give(row, entries, order, sink);
                         if (bounded) all_entries.fetch_add(entries, std::memory_order_relaxed);
                       });
  if (!made.ok()) return made.status();
  if (all_entries > most_entries) return std::optional<CscMatrix>();
  return std::optional<CscMatrix>(*std::move(made));
}

Result<CscMatrix> Multiply(const CscView& a, const CscView& b, const Context& context,
                           RowOrder order) {
  auto made = MultiplyUpTo(std::numeric_limits<int64_t>::max(), a, b, context, order);
  if (!made.ok()) return made.status();
  return **std::move(made);
}

Status MultiplyOn(const PatternView& c, const CscView& a, const CscView& b,
                  const Context& with_progress, std::span<double> values) {
  if (a.n_rows != b.n_cols) return SizeMismatch(a, b);
  try {
    Context context = with_progress;
    context.progress = nullptr;
    struct Sums {
      Array<double> of_row, of_run;
    };
    std::vector<Sums> sums(static_cast<size_t>(ResolveThreads(context.threads)));
    const auto place = [&](Array<double>& sum, int64_t each) {
      if (sum.empty()) sum.resize(Z(each * b.n_rows));
      return sum.data();
    };
    const StopReason stopped =
        ParallelFor(a.n_cols, kRowsPerBatch, context, Stage::kBuild,
                    [&](int64_t begin, int64_t end, int worker) {
                      Sums& own = sums[static_cast<size_t>(worker)];
                      for (int64_t i = begin; i < end;) {
                        const int run = RowRun(a, i, end);
                        double* const to = values.data() + c.col_ptr[Z(i)];
                        if (run > 1) {
                          SumKnownRun(a, b, i, run, c.column(i), place(own.of_run, kMostRun), to);
                        } else {
                          SumKnownRow(a, b, i, c.column(i), place(own.of_row, 1), to);
                        }
                        i += run;
                      }
                    });
    if (stopped != StopReason::kNone) return StopStatus(stopped, "the product");
    return {};
  } catch (const std::bad_alloc&) {
    return OutOfMemory("a product of sparse matrices");
  }
}

int64_t ProductsOf(const PatternView& a, const PatternView& b, int threads) {
  std::atomic<int64_t> total{0};
  ParallelFor(a.n_cols, 8 * kRowsPerBatch, threads, [&](int64_t begin, int64_t end, int) {
    int64_t products = 0;
    for (int64_t p = a.col_ptr[Z(begin)]; p < a.col_ptr[Z(end)]; ++p) {
      const int32_t k = a.row_idx[Z(p)];
      products += b.col_ptr[Z(k) + 1] - b.col_ptr[Z(k)];
    }
    total.fetch_add(products, std::memory_order_relaxed);
  });
  return total.load();
}

}  // namespace spaid::kernels
