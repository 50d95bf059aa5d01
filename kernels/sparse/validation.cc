#include "kernels/sparse/validation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();

// What a thread looks at in one go.
constexpr int64_t kColumnBatch = 1 << 14;
constexpr int64_t kValueBatch = 1 << 18;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

std::string S(int64_t i) { return std::to_string(i); }

// Names of the arrays and of what they compress, as the sender knows them.
struct Names {
  const char* pointers;
  const char* indices;
  const char* major;  // what a pointer begins
  const char* minor;  // what an index names
};
constexpr Names kCscNames{"col_ptr", "row_idx", "column", "row"};
constexpr Names kCsrNames{"row_ptr", "col_idx", "row", "column"};

Status Bad(const char* reason, std::string message) {
  return Status(StatusCode::kInvalidArgument, reason, std::move(message));
}

Status CheckDimensions(const PatternView& m, bool require_square) {
  if (m.n_rows <= 0 || m.n_cols <= 0) {
    const bool rows = m.n_rows <= 0;
    return Bad("EMPTY_MATRIX", "the matrix is " + S(m.n_rows) + " x " + S(m.n_cols) +
                                   "; it needs at least one row and one column")
        .At(rows ? "n_rows" : "n_cols");
  }
  if (m.n_rows > kMaxDimension || m.n_cols > kMaxDimension) {
    const bool rows = m.n_rows > kMaxDimension;
    return Bad("MATRIX_TOO_LARGE", "the matrix is " + S(m.n_rows) + " x " + S(m.n_cols) +
                                       "; indices are 32 bits wide, so " + S(kMaxDimension) +
                                       " rows and columns are the most")
        .At(rows ? "n_rows" : "n_cols");
  }
  if (require_square && m.n_rows != m.n_cols) {
    return Bad("NOT_SQUARE",
               "the matrix is " + S(m.n_rows) + " x " + S(m.n_cols) + "; it must be square")
        .At("n_cols");
  }
  return Status();
}

// Everything that later loops rely on to stay inside the arrays.
Status CheckPointers(std::span<const int64_t> ptr, int64_t n_major, int64_t nnz,
                     const ValidationOptions& options, const Names& names) {
  const int64_t size = static_cast<int64_t>(ptr.size());
  const int64_t first = options.first_major, before = options.first_entry;
  if (size != n_major + 1) {
    return Bad("BAD_POINTERS", std::string(names.pointers) + " has " + S(size) +
                                   " elements; a matrix of " + S(n_major) + " " + names.major +
                                   "s needs " + S(n_major + 1))
        .At(names.pointers, first + std::min(size, n_major + 1));
  }
  if (ptr[0] != 0) {
    return Bad("BAD_POINTERS", std::string(names.pointers) + "[" + S(first) + "] is " +
                                   S(before + ptr[0]) + "; it must be " + S(before) +
                                   (first == 0 ? " (indices are 0-based)" : ""))
        .At(names.pointers, first);
  }
  for (int64_t i = 1; i <= n_major; ++i) {
    if (ptr[Z(i)] < ptr[Z(i - 1)]) {
      return Bad("BAD_POINTERS", std::string(names.pointers) + "[" + S(first + i) + "] is " +
                                     S(before + ptr[Z(i)]) + ", less than the " +
                                     S(before + ptr[Z(i - 1)]) +
                                     " before it; pointers must not decrease")
          .At(names.pointers, first + i);
    }
    if (ptr[Z(i)] > nnz) {
      return Bad("BAD_POINTERS", std::string(names.pointers) + "[" + S(first + i) + "] is " +
                                     S(before + ptr[Z(i)]) + ", but there are only " +
                                     S(before + nnz) + " indices")
          .At(names.pointers, first + i);
    }
  }
  if (ptr[Z(n_major)] != nnz) {
    return Bad("BAD_POINTERS", std::string(names.pointers) + "[" + S(first + n_major) + "] is " +
                                   S(before + ptr[Z(n_major)]) + ", but there are " +
                                   S(before + nnz) +
                                   " indices; the last pointer must be their number")
        .At(names.pointers, first + n_major);
  }
  return Status();
}

// `check(begin, end)` over batches of [0, n): true of all of them. What is wrong where it is not, a
// second, slower look tells.
template <class Check>
bool AllOf(int64_t n, int64_t batch, int threads, Check check) {
  std::atomic<bool> all = true;
  ParallelFor(n, batch, threads, [&](int64_t begin, int64_t end, int) {
    if (!check(begin, end)) all = false;
  });
  return all;
}

// Range, and, where `strict`, strictly increasing order. `sorted` tells the latter in either case.
Status CheckIndices(const PatternView& m, int64_t n_major, int64_t n_minor,
                    const ValidationOptions& options, const Names& names, bool& sorted) {
  sorted = true;
  const bool strict = !options.sort_and_sum;
  if (options.known.canonical_indices) return Status();
  const std::span<const int64_t> pointers = m.col_ptr;
  if (AllOf(n_major, kColumnBatch, options.threads, [&](int64_t begin, int64_t end) {
        OrderScan scan(n_minor);
        scan.Add(pointers.subspan(Z(begin), Z(end - begin)), m.row_idx.data(), pointers[Z(begin)],
                 pointers[Z(end)]);
        return scan.canonical();
      })) {
    return Status();
  }
  for (int64_t j = 0; j < n_major; ++j) {
    int64_t previous = -1;
    for (int64_t p = m.col_ptr[Z(j)]; p < m.col_ptr[Z(j + 1)]; ++p) {
      const int64_t i = m.row_idx[Z(p)];
      if (i < 0 || i >= n_minor) {
        return Bad("INDEX_OUT_OF_RANGE",
                   std::string(names.indices) + "[" + S(options.first_entry + p) + "] in " +
                       names.major + " " + S(options.first_major + j) + " names " + names.minor +
                       " " + S(i) + "; " + names.minor + "s are 0 to " + S(n_minor - 1) +
                       (i == n_minor ? " (are the indices 1-based?)" : ""))
            .At(names.indices, options.first_entry + p);
      }
      if (i <= previous) {
        if (strict) {
          const bool twice = i == previous;
          return Bad(twice ? "DUPLICATE_ENTRY" : "UNSORTED_INDICES",
                     std::string(names.indices) + "[" + S(options.first_entry + p) + "] in " +
                         names.major + " " + S(options.first_major + j) + " names " + names.minor +
                         " " + S(i) +
                         (twice ? " a second time"
                                : " after " + std::string(names.minor) + " " + S(previous)) +
                         "; send each " + names.major +
                         " sorted and without duplicates, or ask for "
                         "sort_and_sum")
              .At(names.indices, options.first_entry + p);
        }
        sorted = false;
      }
      previous = i;
    }
  }
  return Status();
}

bool AllFinite(std::span<const double> values, int threads) {
  return AllOf(static_cast<int64_t>(values.size()), kValueBatch, threads,
               [&](int64_t begin, int64_t end) {
                 return RangeOf(values.subspan(Z(begin), Z(end - begin))).finite;
               });
}

// Value number p as it came is `value`, at that place.
Status NotFinite(int64_t p, double value, const Names& names, int64_t major, int64_t minor) {
  return Bad("NON_FINITE_VALUE", "values[" + S(p) + "] (" + names.major + " " + S(major) + ", " +
                                     names.minor + " " + S(minor) + ") is " +
                                     (std::isnan(value) ? "NaN" : "infinite") +
                                     "; every value must be finite")
      .At("values", p);
}

Status CheckValues(const CscMatrix& m, int64_t n_major, const ValidationOptions& options,
                   const Names& names) {
  const bool pattern_only = options.pattern_only;
  const int64_t size = static_cast<int64_t>(m.values.size());
  const int64_t expected = pattern_only ? 0 : m.nnz();
  if (size != expected) {
    return Bad("BAD_POINTERS", "there are " + S(size) + " values for " + S(m.nnz()) + " indices; " +
                                   (pattern_only ? "a pattern has none" : "each index needs one"))
        .At("values", options.first_entry + std::min(size, expected));
  }
  if (options.known.range && options.known.range->finite) return Status();
  if (AllFinite(m.values, options.threads)) return Status();
  for (int64_t p = 0; p < size; ++p) {
    if (std::isfinite(m.values[Z(p)])) continue;
    const auto after = std::upper_bound(m.col_ptr.begin(), m.col_ptr.begin() + n_major + 1, p);
    const int64_t j = after - m.col_ptr.begin() - 1;
    return NotFinite(options.first_entry + p, m.values[Z(p)], names, options.first_major + j,
                     m.row_idx[Z(p)]);
  }
  return Status();
}

// Sorts one column of any length in O(n_minor) scratch and sums duplicates in input order.
class ColumnSorter {
 public:
  ColumnSorter(int64_t n_minor, bool pattern_only)
      : n_minor_(n_minor), pattern_only_(pattern_only) {}

  // Column p0..p1 of `m` goes to position `to` (<= p0) on; returns the end. -1: the sum overflowed
  // when the entry at `overflow` was added.
  int64_t Move(CscMatrix& m, int64_t p0, int64_t p1, int64_t to, int64_t& overflow) {
    // A column longer than there are rows is mostly duplicates: a dense sum costs less, and the
    // scratch stays O(n_minor) for any input.
    return p1 - p0 > n_minor_ ? MoveDense(m, p0, p1, to, overflow)
                              : MoveSorted(m, p0, p1, to, overflow);
  }

 private:
  int64_t MoveSorted(CscMatrix& m, int64_t p0, int64_t p1, int64_t to, int64_t& overflow) {
    keys_.clear();
    copy_.clear();
    keys_.reserve(Z(p1 - p0));
    if (!pattern_only_) copy_.reserve(Z(p1 - p0));
    for (int64_t p = p0; p < p1; ++p) {
      // Row and place in one key: the order among equal rows stays that of the input.
      keys_.push_back((static_cast<uint64_t>(m.row_idx[Z(p)]) << 32) |
                      static_cast<uint64_t>(p - p0));
      if (!pattern_only_) copy_.push_back(m.values[Z(p)]);
    }
    std::sort(keys_.begin(), keys_.end());
    int64_t first_overflow = -1;
    const int64_t begin = to;
    for (const uint64_t key : keys_) {
      const int32_t i = static_cast<int32_t>(key >> 32);
      const int64_t at = static_cast<int64_t>(key & 0xffffffffu);
      const bool same = to > begin && m.row_idx[Z(to - 1)] == i;
      if (!same) m.row_idx[Z(to++)] = i;
      if (pattern_only_) continue;
      double& v = m.values[Z(to - 1)];
      const bool was_finite = !same || std::isfinite(v);
      v = same ? v + copy_[Z(at)] : copy_[Z(at)];
      if (was_finite && !std::isfinite(v) && (first_overflow < 0 || p0 + at < first_overflow)) {
        first_overflow = p0 + at;
      }
    }
    overflow = first_overflow;
    return first_overflow < 0 ? to : -1;
  }

  int64_t MoveDense(CscMatrix& m, int64_t p0, int64_t p1, int64_t to, int64_t& overflow) {
    if (present_.empty()) {
      present_.assign(Z(n_minor_), 0);
      sums_.assign(pattern_only_ ? 0 : Z(n_minor_), 0.0);
    }
    for (int64_t p = p0; p < p1; ++p) {
      const size_t i = static_cast<size_t>(m.row_idx[Z(p)]);
      if (!pattern_only_) {
        // Not 0 + v for the first: that would lose the sign of -0.
        sums_[i] = present_[i] ? sums_[i] + m.values[Z(p)] : m.values[Z(p)];
        if (!std::isfinite(sums_[i])) {
          overflow = p;
          return -1;
        }
      }
      present_[i] = 1;
    }
    for (size_t i = 0; i < Z(n_minor_); ++i) {
      if (!present_[i]) continue;
      m.row_idx[Z(to)] = static_cast<int32_t>(i);
      if (!pattern_only_) m.values[Z(to)] = sums_[i];
      present_[i] = 0;
      ++to;
    }
    return to;
  }

  const int64_t n_minor_;
  const bool pattern_only_;
  Array<uint64_t> keys_;
  Array<double> copy_;
  Array<uint8_t> present_;
  Array<double> sums_;
};

Status SortAndSum(CscMatrix& m, int64_t n_major, int64_t n_minor, const ValidationOptions& options,
                  const Names& names) {
  const bool pattern_only = options.pattern_only;
  ColumnSorter sorter(n_minor, pattern_only);
  int64_t to = 0, p0 = 0;
  for (int64_t j = 0; j < n_major; ++j) {
    const int64_t p1 = m.col_ptr[Z(j + 1)];
    int64_t overflow = -1;
    to = sorter.Move(m, p0, p1, to, overflow);
    if (to < 0) {
      overflow += options.first_entry;
      return Bad("NON_FINITE_VALUE", "the duplicates in " + std::string(names.major) + " " +
                                         S(options.first_major + j) +
                                         " sum to more than a double holds: values[" + S(overflow) +
                                         "] is the first that makes it infinite")
          .At("values", overflow);
    }
    m.col_ptr[Z(j + 1)] = to;
    p0 = p1;
  }
  m.row_idx.resize(Z(to));
  if (!pattern_only) m.values.resize(Z(to));
  return Status();
}

}  // namespace

Result<CscMatrix> CanonicalizeBlock(CscMatrix input, Layout layout,
                                    const ValidationOptions& options) {
  const bool csr = layout == Layout::kCsr;
  const Names& names = csr ? kCsrNames : kCscNames;
  const int64_t n_major = csr ? input.n_rows : input.n_cols;
  const int64_t n_minor = csr ? input.n_cols : input.n_rows;
  Status status = CheckPointers(input.col_ptr, n_major, input.nnz(), options, names);
  if (!status.ok()) return status;
  bool sorted = true;
  status = CheckIndices(input.pattern(), n_major, n_minor, options, names, sorted);
  if (!status.ok()) return status;
  status = CheckValues(input, n_major, options, names);
  if (!status.ok()) return status;
  if (!sorted) {
    status = SortAndSum(input, n_major, n_minor, options, names);
    if (!status.ok()) return status;
    // What summed duplicates stood in goes back: it may be nearly all.
    input.row_idx.shrink_to_fit();
    input.values.shrink_to_fit();
  }
  return input;
}

Result<CscMatrix> Canonicalize(CscMatrix input, Layout layout, const ValidationOptions& options) {
  if (Status status = CheckDimensions(input.pattern(), options.require_square); !status.ok()) {
    return status;
  }
  Result<CscMatrix> canonical = CanonicalizeBlock(std::move(input), layout, options);
  if (!canonical.ok() || layout == Layout::kCsc) return canonical;
  // Its rows are the columns of the transpose.
  const PatternView rows{canonical->n_cols, canonical->n_rows, canonical->col_ptr,
                         canonical->row_idx};
  if (options.pattern_only) {
    Pattern t = Transpose(rows);
    return CscMatrix{t.n_rows, t.n_cols, std::move(t.col_ptr), std::move(t.row_idx), {}};
  }
  return Transpose(CscView{rows, canonical->values});
}

Status CheckPointers(std::span<const int64_t> pointers, int64_t n, int64_t nnz, Layout layout) {
  return CheckPointers(pointers, n, nnz, {}, layout == Layout::kCsr ? kCsrNames : kCscNames);
}

Result<bool> CheckRows(const PatternView& rows, const ValidationOptions& options) {
  Status status = CheckDimensions(rows, /*require_square=*/true);
  if (!status.ok()) return status;
  status = CheckPointers(rows.col_ptr, rows.n_rows, rows.nnz(), options, kCsrNames);
  if (!status.ok()) return status;
  bool sorted = true;
  status = CheckIndices(rows, rows.n_rows, rows.n_cols, options, kCsrNames, sorted);
  if (!status.ok()) return status;
  return sorted;
}

Status CheckFinite(const CscView& a, std::span<const int32_t> to, int threads) {
  if (AllFinite(a.values, threads)) return Status();
  const bool by_rows = !to.empty();
  for (int64_t p = 0; p < a.nnz(); ++p) {
    const int64_t q = by_rows ? to[Z(p)] : p;
    if (std::isfinite(a.values[Z(q)])) continue;
    const auto after = std::upper_bound(a.col_ptr.begin(), a.col_ptr.end(), q);
    const int64_t column = after - a.col_ptr.begin() - 1, row = a.row_idx[Z(q)];
    return by_rows ? NotFinite(p, a.values[Z(q)], kCsrNames, row, column)
                   : NotFinite(p, a.values[Z(q)], kCscNames, column, row);
  }
  return Status();
}

}  // namespace spaid::kernels
