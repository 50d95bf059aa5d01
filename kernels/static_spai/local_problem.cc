#include "kernels/static_spai/local_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// Exponent of |x| > 0, by its bits where it is normal.
int Exponent(double x) {
  const auto field = static_cast<int>((std::bit_cast<uint64_t>(x) >> 52) & 0x7ff);
  return field != 0 ? field - 1023 : std::ilogb(x);
}

// 2^e for -1000 <= e <= 1000.
double PowerOfTwo(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

double ScaleOf(std::span<const double> values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  if (largest == 0) return 1;
  const double coarse = PowerOfTwo(-std::clamp(Exponent(largest), -1000, 1000));
  double squared = 0;
  for (const double v : values) squared += (v * coarse) * (v * coarse);
  const int fine = (Exponent(squared) + 1) / 2;
  return PowerOfTwo(std::clamp(Exponent(coarse) - fine, -1000, 1000));
}

// A buffer for scratch: grows without keeping its contents.
template <class T>
void Grow(Array<T>& buffer, int64_t n) {
  if (static_cast<int64_t>(buffer.size()) < n) {
    Array<T>().swap(buffer);
    buffer.resize(static_cast<size_t>(n));
  }
}

// How many of `columns` from q on have the rows of column q; not past `stop`, at most kMaxRun.
constexpr int64_t kMaxRun = 8;
int64_t EqualRun(std::span<const uint8_t> equal_columns, std::span<const int32_t> columns,
                 int64_t q, int64_t stop) {
  const int32_t first = columns[static_cast<size_t>(q)];
  int64_t run = 1;
  while (run < kMaxRun && q + run < stop && columns[static_cast<size_t>(q + run)] == first + run &&
         equal_columns[static_cast<size_t>(first + run)] != 0) {
    ++run;
  }
  return run;
}

}  // namespace

LocalCounts LargestProblem(const PatternView& a, int64_t columns) {
  std::vector<int64_t> lengths;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    lengths.push_back(static_cast<int64_t>(a.column(j).size()));
  }
  const auto last = lengths.begin() + std::min(columns, a.n_cols);
  std::partial_sort(lengths.begin(), last, lengths.end(), std::greater<>());
  LocalCounts largest;
  for (auto it = lengths.begin(); it != last; ++it) largest.entries += *it;
  largest.n1 = largest.rows = std::min(a.n_cols, largest.entries);
  return largest;
}

void LocalCounts::TakeLargest(const LocalCounts& other) {
  n1 = std::max(n1, other.n1);
  rows = std::max(rows, other.rows);
  entries = std::max(entries, other.entries);
  gram_pairs = std::max(gram_pairs, other.gram_pairs);
}

ColumnScales ScaleColumns(const CscView& a, std::span<const LongPair> pairs, int threads) {
  ColumnScales scales;
  scales.scale.resize(static_cast<size_t>(a.n_cols));
  ParallelFor(a.n_cols, 4096, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      scales.scale[static_cast<size_t>(j)] = ScaleOf(a.column_values(j));
    }
  });
  scales.dots = LongDots(a, scales.scale, pairs, threads);
  return scales;
}

Array<uint8_t> FindEqualColumns(const PatternView& a, int threads) {
  Array<uint8_t> equal(static_cast<size_t>(a.n_cols));
  ParallelFor(a.n_cols, 4096, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      equal[static_cast<size_t>(j)] = j > 0 && std::ranges::equal(a.column(j - 1), a.column(j));
    }
  });
  return equal;
}

LocalCounts LocalCounter::Count(const PatternView& a, std::span<const uint8_t> equal_columns,
                                std::span<const int32_t> columns) {
  LocalCounts counts;
  longs_ = FindLongColumns(a, columns);
  int32_t* const found_rows = rows_.data();
  int64_t n_rows = 0;
  const auto n_cols = static_cast<int64_t>(columns.size());
  int next_long = 0;
  for (int64_t q = 0, run = 1; q < n_cols; q += run) {
    const int64_t stop = next_long < longs_.count ? longs_.at[next_long] : n_cols;
    run = 1;
    if (q == stop) {
      ++next_long;
      continue;
    }
    run = EqualRun(equal_columns, columns, q, stop);
    const std::span<const int32_t> rows = a.column(columns[static_cast<size_t>(q)]);
    counts.entries += run * static_cast<int64_t>(rows.size());
    int64_t seen_before = 0;
    for (const int32_t r : rows) {
      const int32_t seen = visits_[static_cast<size_t>(r)];
      visits_[static_cast<size_t>(r)] = seen + static_cast<int32_t>(run);
      found_rows[n_rows] = r;
      n_rows += seen == 0;  // without a branch: it cannot be predicted
      seen_before += seen;
    }
    // Σ over rows of (seen + 1) + ... + (seen + run).
    counts.gram_pairs +=
        run * seen_before + static_cast<int64_t>(rows.size()) * (run * (run + 1) / 2);
  }
  counts.rows = n_rows;
  const std::span<const int32_t> all_rows(found_rows, static_cast<size_t>(n_rows));
  counts.n1 = counts.rows;
  if (longs_.count > 0) {
    const int64_t t = longs_.count;
    int64_t touched = 0;  // rows of both kinds of columns
    for (const int32_t r : all_rows) {
      int64_t found = 0;
      for (int i = 0; i < longs_.count; ++i) {
        const auto rows = a.column(columns[static_cast<size_t>(longs_.at[i])]);
        found += std::binary_search(rows.begin(), rows.end(), r);
      }
      touched += found > 0;
      counts.entries += found;
      counts.gram_pairs += visits_[static_cast<size_t>(r)] * found + found * (found + 1) / 2;
    }
    counts.n1 += unions_.Get(a, longs_, columns) - touched;
    counts.rows += t;
    for (int64_t length = 1; length <= t; ++length) {  // rows of the triangle
      counts.entries += length;
      counts.gram_pairs += length * (length + 1) / 2;
    }
  }
  for (const int32_t r : all_rows) visits_[static_cast<size_t>(r)] = 0;
  return counts;
}

int64_t LocalAssembler::Bytes(int64_t n, int64_t entries, int64_t columns, int64_t targets) {
  const int64_t all_rows = std::min(entries, n) + targets + kMaxLongColumns;
  const int64_t all_entries = entries + all_rows;
  return n * 4 + all_rows * (4 + 4 + 8) + columns * 20 + all_entries * 24 + targets * 4 + 4096;
}

void LocalAssembler::Reserve(int64_t entries, int64_t columns, int64_t targets) {
  const int64_t n = static_cast<int64_t>(marker_.size());
  const int64_t all_rows = std::min(entries, n) + targets + kMaxLongColumns;
  const int64_t all_entries = entries + all_rows;
  Grow(rows_, all_rows);
  Grow(count_, all_rows);
  Grow(col_begin_, columns);
  Grow(col_end_, columns);
  Grow(run_, columns);
  Grow(col_row_, all_entries);
  Grow(col_value_, all_entries);
  Grow(row_ptr_, all_rows + 1);
  Grow(row_col_, all_entries);
  Grow(row_value_, all_entries);
  Grow(target_row_, targets);
}

const LocalProblem& LocalAssembler::Assemble(const CscView& a, const ColumnScales& scales,
                                             std::span<const uint8_t> equal_columns,
                                             std::span<const int32_t> columns,
                                             std::span<const int32_t> targets) {
  const LongColumns longs = FindLongColumns(a, columns);
  const auto n_cols = static_cast<int64_t>(columns.size());
  int64_t entries = 0;  // entries of the other columns
  for (const int32_t j : columns) entries += a.col_ptr[j + 1] - a.col_ptr[j];
  for (int i = 0; i < longs.count; ++i) {
    const int32_t j = columns[static_cast<size_t>(longs.at[i])];
    entries -= a.col_ptr[j + 1] - a.col_ptr[j];
  }
  const int64_t max_rows =
      std::min(entries, a.n_rows) + static_cast<int64_t>(targets.size()) + kMaxLongColumns;
  Grow(rows_, max_rows);
  Grow(count_, max_rows);
  Grow(col_begin_, n_cols);
  Grow(col_end_, n_cols);
  Grow(run_, n_cols);
  Grow(col_row_, entries + max_rows);
  Grow(col_value_, entries + max_rows);
  Grow(target_row_, static_cast<int64_t>(targets.size()));

  int32_t n_rows = 0;
  int64_t position = 0;
  int32_t* const marker = marker_.data();
  int32_t* const count = count_.data();
  int next_long = 0;
  for (int64_t q = 0, run = 1; q < n_cols; q += run) {
    const int64_t stop = next_long < longs.count ? longs.at[next_long] : n_cols;
    run = 1;
    run_[static_cast<size_t>(q)] = 1;
    if (q == stop) {
      ++next_long;
      continue;
    }
    run = EqualRun(equal_columns, columns, q, stop);
    run_[static_cast<size_t>(q)] = static_cast<int32_t>(run);
    const int32_t j = columns[static_cast<size_t>(q)];
    const double scale = scales.scale[static_cast<size_t>(j)];
    const int64_t begin = position;
    col_begin_[static_cast<size_t>(q)] = position;
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int32_t r = a.row_idx[static_cast<size_t>(p)];
      int32_t id = marker[r];
      if (id < 0) {
        id = n_rows++;
        marker[r] = id;
        rows_[static_cast<size_t>(id)] = r;
        count[id] = 0;
      }
      count[id] += static_cast<int32_t>(run);
      col_row_[static_cast<size_t>(position)] = id;
      col_value_[static_cast<size_t>(position)] = a.values[static_cast<size_t>(p)] * scale;
      ++position;
    }
    col_end_[static_cast<size_t>(q)] = position;
    const int64_t length = position - begin;
    for (int64_t i = 1; i < run; ++i) {
      const int32_t same = columns[static_cast<size_t>(q + i)];
      const double own_scale = scales.scale[static_cast<size_t>(same)];
      const double* values = a.values.data() + a.col_ptr[static_cast<size_t>(same)];
      col_begin_[static_cast<size_t>(q + i)] = position;
      std::copy_n(col_row_.data() + begin, length, col_row_.data() + position);
      for (int64_t e = 0; e < length; ++e) {
        col_value_[static_cast<size_t>(position + e)] = values[e] * own_scale;
      }
      position += length;
      col_end_[static_cast<size_t>(q + i)] = position;
    }
  }
  for (size_t t = 0; t < targets.size(); ++t) {
    int32_t id = marker[targets[t]];
    if (id < 0) {
      id = n_rows++;
      marker[targets[t]] = id;
      rows_[static_cast<size_t>(id)] = targets[t];
      count[id] = 0;
    }
    target_row_[t] = id;
  }
  for (int32_t id = 0; id < n_rows; ++id) marker[rows_[static_cast<size_t>(id)]] = -1;

  problem_.n_rows = n_rows;
  problem_.n_cols = n_cols;
  problem_.n_entries = position;
  if (longs.count > 0) AppendLongColumns(a, scales, longs, columns);

  int64_t pairs = 0;
  for (int64_t id = 0; id < problem_.n_rows; ++id) {
    const int64_t c = count[id];
    pairs += c * (c + 1) / 2;
  }
  problem_.gram_pairs = pairs;
  problem_.col_begin = col_begin_.data();
  problem_.col_end = col_end_.data();
  problem_.col_row = col_row_.data();
  problem_.col_value = col_value_.data();
  problem_.row_ptr = nullptr;
  return problem_;
}

void LocalAssembler::AppendLongColumns(const CscView& a, const ColumnScales& scales,
                                       const LongColumns& longs, std::span<const int32_t> columns) {
  const int count = longs.count;
  const int64_t explicit_rows = problem_.n_rows;
  DoubleDouble gram[kMaxLongColumns * kMaxLongColumns];
  double full[kMaxLongColumns], triangle[kMaxLongColumns * kMaxLongColumns];
  const auto column = [&](int i) { return columns[static_cast<size_t>(longs.at[i])]; };
  for (int i = 0; i < count; ++i) {
    for (int j = i; j < count; ++j) {
      const LongPair pair{column(i), column(j)};
      gram[i * count + j] =
          std::lower_bound(scales.dots.begin(), scales.dots.end(), pair,
                           [](const LongDot& x, const LongPair& y) { return x.pair < y; })
              ->value;
    }
    full[i] = gram[i * count + i].value();
  }
  // Reserve() has allocated all of it; without a call of it arrays grow here.
  int64_t position = problem_.n_entries;
  const auto append = [&](int32_t row, double value) {
    if (position == static_cast<int64_t>(col_row_.size())) {
      col_row_.resize(col_row_.size() * 2 + 64);
      col_value_.resize(col_row_.size());
    }
    col_row_[static_cast<size_t>(position)] = row;
    col_value_[static_cast<size_t>(position)] = value;
    ++count_[static_cast<size_t>(row)];
    ++position;
  };
  for (int i = 0; i < count; ++i) {
    const std::span<const int32_t> rows = a.column(column(i));
    const std::span<const double> values = a.column_values(column(i));
    const double scale = scales.scale[static_cast<size_t>(column(i))];
    const auto q = static_cast<size_t>(longs.at[i]);
    col_begin_[q] = position;
    for (int64_t id = 0; id < explicit_rows; ++id) {
      const int32_t row = rows_[static_cast<size_t>(id)];
      const auto at = std::lower_bound(rows.begin(), rows.end(), row);
      if (at == rows.end() || *at != row) continue;
      append(static_cast<int32_t>(id), values[static_cast<size_t>(at - rows.begin())] * scale);
    }
    col_end_[q] = position;
    for (int j = 0; j <= i; ++j) {  // the explicit rows' share of the dot products
      const auto other = static_cast<size_t>(longs.at[j]);
      for (int64_t p = col_begin_[q], s = col_begin_[other];
           p < col_end_[q] && s < col_end_[other];) {
        const int32_t row0 = col_row_[static_cast<size_t>(p)];
        const int32_t row1 = col_row_[static_cast<size_t>(s)];
        if (row0 == row1) {
          gram[j * count + i].AddProduct(col_value_[static_cast<size_t>(p)],
                                         col_value_[static_cast<size_t>(s)], -1);
        }
        p += row0 <= row1;
        s += row1 <= row0;
      }
    }
    // Its column of the triangle, whose values come last.
    for (int j = 0; j <= i; ++j) {
      const auto row = static_cast<size_t>(explicit_rows + j);
      if (j == i) count_[row] = 0;
      append(static_cast<int32_t>(row), 0);
    }
  }
  LongTriangle(count, gram, full, triangle);
  for (int i = 0; i < count; ++i) {
    const auto q = static_cast<size_t>(longs.at[i]);
    for (int j = 0; j <= i; ++j) {
      col_value_[static_cast<size_t>(col_end_[q] + j)] = triangle[j * count + i];
    }
    col_end_[q] += i + 1;
  }
  problem_.n_rows = explicit_rows + count;
  problem_.n_entries = position;
}

const LocalProblem& LocalAssembler::BuildRows() {
  Grow(row_ptr_, problem_.n_rows + 1);
  Grow(row_col_, problem_.n_entries);
  Grow(row_value_, problem_.n_entries);
  int64_t* const next = row_ptr_.data();
  int64_t position = 0;
  for (int64_t id = 0; id < problem_.n_rows; ++id) {
    next[id] = position;
    position += count_[static_cast<size_t>(id)];
  }
  for (int64_t q = 0, run = 1; q < problem_.n_cols; q += run) {
    run = run_[static_cast<size_t>(q)];
    const int64_t length = problem_.col_end[q] - problem_.col_begin[q];
    const int32_t* rows = problem_.col_row + problem_.col_begin[q];
    const double* values = problem_.col_value + problem_.col_begin[q];
    for (int64_t e = 0; e < length; ++e) {
      const int64_t to = next[rows[e]];
      next[rows[e]] = to + run;
      // The columns of a run follow each other in memory.
      for (int64_t i = 0; i < run; ++i) {
        row_col_[static_cast<size_t>(to + i)] = static_cast<int32_t>(q + i);
        row_value_[static_cast<size_t>(to + i)] = values[i * length + e];
      }
    }
  }
  // next[id] is now the end of row id, the start of the one after it.
  for (int64_t id = problem_.n_rows; id > 0; --id) next[id] = next[id - 1];
  next[0] = 0;
  problem_.row_ptr = row_ptr_.data();
  problem_.row_col = row_col_.data();
  problem_.row_value = row_value_.data();
  return problem_;
}

}  // namespace spaid::kernels
