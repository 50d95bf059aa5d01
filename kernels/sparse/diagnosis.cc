#include "kernels/sparse/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/pattern.h"
#include "kernels/sparse/symmetry.h"

namespace spaid::kernels {
namespace {

constexpr double kZeroSumTolerance = 1e-12;
// Pairs that differ by less look like one value written with too few digits.
constexpr double kNoise = 1e-6;
// Ten decades of values within one matrix: the point from which scaling usually pays.
constexpr double kWideRange = 1e10;
// Row sums of larger values are taken of scaled ones: 2^31 of them could overflow.
constexpr double kHugeValue = 1e290;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

void Note(Occurrence& o, int64_t index) {
  if (o.count++ == 0) o.first = index;
}

std::string S(int64_t i) { return std::to_string(i); }

std::string Number(double v) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", v);
  return text;
}

// "1 row is", "12 rows are", "12 entries are".
std::string Count(const Occurrence& o, const std::string& thing, const char* one,
                  const char* many) {
  if (o.count == 1) return "1 " + thing + " " + one;
  const bool y = thing.back() == 'y';
  return S(o.count) + " " + (y ? thing.substr(0, thing.size() - 1) + "ies" : thing + "s") + " " +
         many;
}

std::string First(const Occurrence& o) { return " (first: " + S(o.first) + ")"; }

int64_t StructuralRank(const CscView& a, int64_t zeros, bool full_diagonal) {
  if (full_diagonal) return a.n_cols;  // it is a matching
  if (a.nnz() > kMatchingLimit) return -1;
  Pattern nonzero;
  PatternView view = a;
  if (zeros > 0) {
    nonzero.n_rows = a.n_rows;
    nonzero.n_cols = a.n_cols;
    nonzero.col_ptr.reserve(Z(a.n_cols) + 1);
    nonzero.col_ptr.push_back(0);
    nonzero.row_idx.reserve(Z(a.nnz() - zeros));
    for (int64_t j = 0; j < a.n_cols; ++j) {
      const auto rows = a.column(j);
      const auto values = a.column_values(j);
      for (size_t p = 0; p < rows.size(); ++p) {
        if (values[p] != 0) nonzero.row_idx.push_back(rows[p]);
      }
      nonzero.col_ptr.push_back(nonzero.nnz());
    }
    view = nonzero;
  }
  const Array<int32_t> row_of_column = MaximumMatching(view);
  return static_cast<int64_t>(row_of_column.size()) -
         std::count(row_of_column.begin(), row_of_column.end(), -1);
}

// One row, scaled. Sums in the order of the columns.
struct RowSum {
  double all = 0;
  double off_diagonal = 0;  // of absolute values
};

// Finite numbers of any size; the sum of 2^31 of them, scaled, is finite, too.
struct Scale {
  explicit Scale(double max_abs_value) : factor(max_abs_value > kHugeValue ? 0x1p-64 : 1) {}

  // |v|; what is not zero stays so.
  double Size(double v) const {
    const double size = std::abs(v);
    if (factor == 1 || size == 0) return size;
    return std::max(factor * size, std::numeric_limits<double>::denorm_min());
  }

  const double factor;
};

template <bool kScaled>
void AddRows(const CscView& a, const Scale& scale, int64_t row_begin, int64_t row_end, RowSum* sums,
             int32_t* entries) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int64_t end = a.col_ptr[Z(j) + 1];
    int64_t p = a.col_ptr[Z(j)];
    if (p == end || a.row_idx[Z(end - 1)] < row_begin) continue;
    if (a.row_idx[Z(p)] < row_begin) {
      const auto rows = a.column(j);
      p += std::lower_bound(rows.begin(), rows.end(), row_begin) - rows.begin();
    }
    for (; p < end; ++p) {
      const int32_t i = a.row_idx[Z(p)];
      if (i >= row_end) break;
      const double v = a.values[Z(p)];
      sums[i].all += kScaled ? scale.factor * v : v;
      sums[i].off_diagonal += i == j ? 0 : kScaled ? scale.Size(v) : std::abs(v);
      ++entries[i];
    }
  }
}

// The sums of all rows: one scan in the order of storage, of as many ranges of rows at once as
// there are parts.
class RowSums {
 public:
  RowSums(const CscView& a, const Scale& scale, int64_t parts, int threads)
      : sums_(Z(a.n_cols)), entries_(Z(a.n_cols)) {
    const int64_t batch = (a.n_cols + parts - 1) / parts;
    ParallelFor(a.n_cols, batch, threads, [&](int64_t begin, int64_t end, int) {
      std::fill(sums_.begin() + begin, sums_.begin() + end, RowSum{});
      std::fill(entries_.begin() + begin, entries_.begin() + end, 0);
      if (scale.factor == 1) {
        AddRows<false>(a, scale, begin, end, sums_.data(), entries_.data());
      } else {
        AddRows<true>(a, scale, begin, end, sums_.data(), entries_.data());
      }
    });
  }

  const RowSum& of(int64_t i) const { return sums_[Z(i)]; }
  int64_t entries(int64_t i) const { return entries_[Z(i)]; }

 private:
  Array<RowSum> sums_;
  Array<int32_t> entries_;
};

// The column's as if it were a row: that of a matrix which equals its transpose. `from_diagonal`:
// its first entry on or below the diagonal.
RowSum SumColumn(const CscView& a, const Scale& scale, int64_t j, int64_t from_diagonal) {
  RowSum sum;
  const double* const values = a.values.data();
  const int64_t end = a.col_ptr[Z(j) + 1];
  const auto add = [&](int64_t p, int64_t to) {
    if (scale.factor == 1) {
      for (; p < to; ++p) {
        sum.all += values[p];
        sum.off_diagonal += std::abs(values[p]);
      }
    } else {
      for (; p < to; ++p) {
        sum.all += scale.factor * values[p];
        sum.off_diagonal += scale.Size(values[p]);
      }
    }
  };
  add(a.col_ptr[Z(j)], from_diagonal);
  if (from_diagonal < end && a.row_idx[Z(from_diagonal)] == j) {
    sum.all += scale.factor * values[from_diagonal];
    ++from_diagonal;
  }
  add(from_diagonal, end);
  return sum;
}

// What there is to say of a row beside the number of its entries.
enum : uint8_t { kEmptyRow = 1, kZeroSumRow = 2, kNotDominantRow = 4 };

// `diagonal`: a_ii, 0 where it is not stored.
uint8_t LookAtRow(const RowSum& sum, double diagonal, const Scale& scale) {
  const double size = scale.factor * std::abs(diagonal);
  uint8_t says = size < sum.off_diagonal ? kNotDominantRow : 0;
  if (sum.off_diagonal == 0 && diagonal == 0) {
    says |= kEmptyRow;
  } else if (std::abs(sum.all) <= kZeroSumTolerance * (sum.off_diagonal + size)) {
    says |= kZeroSumRow;
  }
  return says;
}

void TellRow(int64_t i, uint8_t says, int64_t entries, double dense, Diagnosis& d) {
  d.max_row_entries = std::max(d.max_row_entries, entries);
  if ((says & kEmptyRow) != 0) Note(d.empty_rows, i);
  if ((says & kZeroSumRow) != 0) Note(d.zero_sum_rows, i);
  if ((says & kNotDominantRow) != 0) Note(d.not_dominant_rows, i);
  if (static_cast<double>(entries) > dense) Note(d.dense_rows, i);
}

// `from_diagonal`: the column's first entry on or below the diagonal. Returns a_jj, or 0.
double LookAtColumn(const CscView& a, int64_t j, int64_t from_diagonal, double dense,
                    Diagnosis& d) {
  const bool stored = from_diagonal < a.col_ptr[Z(j) + 1] && a.row_idx[Z(from_diagonal)] == j;
  const double diagonal = stored ? a.values[Z(from_diagonal)] : 0;
  const auto values = a.column_values(j);
  // Where no value is zero, no value need be looked at.
  const bool empty = d.explicit_zeros == 0 ? values.empty()
                                           : std::all_of(values.begin(), values.end(),
                                                         [](double v) { return v == 0; });
  if (empty) Note(d.empty_columns, j);
  if (!stored) Note(d.missing_diagonal, j);
  if (diagonal == 0) Note(d.zero_diagonal, j);
  if (diagonal < 0) Note(d.negative_diagonal, j);
  const auto entries = static_cast<int64_t>(values.size());
  d.max_column_entries = std::max(d.max_column_entries, entries);
  if (static_cast<double>(entries) > dense) Note(d.dense_columns, j);
  return diagonal;
}

// To what is known of the columns and rows before.
void AddColumns(const Diagnosis& later, Diagnosis& d) {
  for (Occurrence Diagnosis::*field :
       {&Diagnosis::missing_diagonal, &Diagnosis::zero_diagonal, &Diagnosis::negative_diagonal,
        &Diagnosis::empty_rows, &Diagnosis::empty_columns, &Diagnosis::not_dominant_rows,
        &Diagnosis::zero_sum_rows, &Diagnosis::zero_sum_columns, &Diagnosis::dense_rows,
        &Diagnosis::dense_columns}) {
    Occurrence& o = d.*field;
    if (o.count == 0) o.first = (later.*field).first;
    o.count += (later.*field).count;
  }
  d.max_row_entries = std::max(d.max_row_entries, later.max_row_entries);
  d.max_column_entries = std::max(d.max_column_entries, later.max_column_entries);
}

ValueRange RangeOfAll(std::span<const double> values, int threads) {
  constexpr int64_t kBatch = 1 << 18;
  const auto size = static_cast<int64_t>(values.size());
  std::mutex mutex;
  ValueRange range;
  ParallelFor(size, kBatch, threads, [&](int64_t begin, int64_t end, int) {
    const ValueRange part = RangeOf(values.subspan(Z(begin), Z(end - begin)));
    const std::lock_guard lock(mutex);
    range.Add(part);
  });
  return range;
}

// A range of columns, and what is to be said of them and of the rows of the same numbers.
struct Part {
  Part(const CscView& a, const Diagnosis& d, int64_t begin, int64_t end)
      : walk(a, d.max_abs_value, begin, end), found(d) {}

  SymmetryWalk walk;
  Diagnosis found;
};

// As many columns each: that bounds the scratch, which a part has for all columns behind its
// first.
std::vector<Part> Divide(const CscView& a, const Diagnosis& d, int threads) {
  constexpr int64_t kMaxParts = 8, kMinEntries = 1 << 15;
  const int64_t most = std::min<int64_t>(kMaxParts, ResolveThreads(threads));
  const int64_t count = std::clamp<int64_t>(d.nnz / kMinEntries, 1, std::min(most, d.n));
  std::vector<Part> parts;
  parts.reserve(Z(count));
  for (int64_t k = 0; k < count; ++k) {
    parts.emplace_back(a, d, d.n * k / count, d.n * (k + 1) / count);
  }
  return parts;
}

using Odd = SymmetryWalk::Odd;

// A row that does not equal its column.
struct OddRow {
  int64_t row;
  int64_t entries;
  uint8_t says;
};

// All of `odd` is about `row`. Entries of the row are where the column has mirrors of them, or in
// `odd`.
OddRow LookAtOddRow(const CscView& a, const Scale& scale, int64_t row, std::span<const Odd> odd) {
  std::vector<std::pair<int32_t, double>> entries;
  for (const int32_t j : a.column(row)) {
    const auto rows = a.column(j);
    const auto found = std::lower_bound(rows.begin(), rows.end(), row);
    if (found == rows.end() || *found != row) continue;
    entries.emplace_back(j, a.column_values(j)[Z(found - rows.begin())]);
  }
  for (const Odd& o : odd) {
    if (o.column >= 0) entries.emplace_back(o.column, o.value);
  }
  std::sort(entries.begin(), entries.end());
  RowSum sum;
  double diagonal = 0;
  for (const auto& [j, v] : entries) {
    sum.all += scale.factor * v;
    if (j == row) {
      diagonal = v;
    } else {
      sum.off_diagonal += scale.Size(v);
    }
  }
  return {row, std::ssize(entries), LookAtRow(sum, diagonal, scale)};
}

// Nothing where they are so many, or so long, that a scan of all rows costs less.
std::optional<std::vector<OddRow>> LookAtOddRows(const CscView& a, const Scale& scale, int threads,
                                                 const std::vector<Part>& parts) {
  std::vector<Odd> odd;
  for (const Part& part : parts) {
    if (part.walk.many()) return std::nullopt;
    odd.insert(odd.end(), part.walk.oddities().begin(), part.walk.oddities().end());
  }
  std::sort(odd.begin(), odd.end(), [](const Odd& x, const Odd& y) { return x.row < y.row; });
  std::vector<size_t> begins;  // of each row in `odd`
  int64_t entries = 0;
  for (size_t k = 0; k < odd.size(); ++k) {
    if (k > 0 && odd[k].row == odd[k - 1].row) continue;
    begins.push_back(k);
    entries += std::ssize(a.column(odd[k].row));
  }
  if (entries > 1024 + a.nnz() / 64) return std::nullopt;
  std::vector<OddRow> rows(begins.size());
  begins.push_back(odd.size());
  ParallelFor(std::ssize(rows), 64, threads, [&](int64_t begin, int64_t end, int) {
    for (size_t k = Z(begin); k < Z(end); ++k) {
      rows[k] = LookAtOddRow(a, scale, odd[begins[k]].row,
                             std::span(odd).subspan(begins[k], begins[k + 1] - begins[k]));
    }
  });
  return rows;
}

// Where nearly every row equals its column, one walk tells all: false where that is not so. Then
// the walks are at their ends nevertheless.
bool LookAtOnce(const CscView& a, const Scale& scale, double dense, int threads,
                std::vector<Part>& parts) {
  Array<uint8_t> says(Z(a.n_cols));
  ParallelFor(std::ssize(parts), 1, threads, [&](int64_t k, int64_t, int) {
    Diagnosis& found = parts[Z(k)].found;
    parts[Z(k)].walk.Run([&](int64_t j, int64_t from_diagonal) {
      const double diagonal = LookAtColumn(a, j, from_diagonal, dense, found);
      says[Z(j)] = LookAtRow(SumColumn(a, scale, j, from_diagonal), diagonal, scale);
      if ((says[Z(j)] & kZeroSumRow) != 0) Note(found.zero_sum_columns, j);
    });
  });
  const auto odd_rows = LookAtOddRows(a, scale, threads, parts);
  if (!odd_rows) return false;
  ParallelFor(std::ssize(parts), 1, threads, [&](int64_t k, int64_t, int) {
    const SymmetryWalk& walk = parts[Z(k)].walk;
    auto odd = std::lower_bound(odd_rows->begin(), odd_rows->end(), walk.begin(),
                                [](const OddRow& o, int64_t row) { return o.row < row; });
    for (int64_t i = walk.begin(); i < walk.end(); ++i) {
      if (odd != odd_rows->end() && odd->row == i) {
        TellRow(i, odd->says, odd->entries, dense, parts[Z(k)].found);
        ++odd;
      } else {
        TellRow(i, says[Z(i)], std::ssize(a.column(i)), dense, parts[Z(k)].found);
      }
    }
  });
  return true;
}

// Any other matrix, after the walks: two more scans.
void LookAtRows(const CscView& a, const Scale& scale, double dense, int threads,
                std::vector<Part>& parts) {
  for (Part& part : parts) part.walk.Trim();
  const RowSums rows(a, scale, std::ssize(parts), threads);
  ParallelFor(std::ssize(parts), 1, threads, [&](int64_t k, int64_t, int) {
    const SymmetryWalk& walk = parts[Z(k)].walk;
    Diagnosis& found = parts[Z(k)].found;
    for (int64_t j = walk.begin(); j < walk.end(); ++j) {
      const auto soon =
          Z(std::min(walk.FromDiagonal(std::min(j + kAhead, walk.end() - 1)), a.nnz()));
      __builtin_prefetch(a.row_idx.data() + soon);
      __builtin_prefetch(a.values.data() + soon);
      const double diagonal = LookAtColumn(a, j, walk.FromDiagonal(j), dense, found);
      const RowSum column = SumColumn(a, scale, j, walk.FromDiagonal(j));
      if ((LookAtRow(column, diagonal, scale) & kZeroSumRow) != 0) Note(found.zero_sum_columns, j);
      TellRow(j, LookAtRow(rows.of(j), diagonal, scale), rows.entries(j), dense, found);
    }
  });
}

}  // namespace

void TellFindings(double pair_asymmetry, Diagnosis& d) {
  const auto say = [&](std::string sentence) { d.findings.push_back(std::move(sentence)); };
  if (d.empty_rows.count > 0) {
    say(Count(d.empty_rows, "row", "has", "have") + " no nonzero entry" + First(d.empty_rows) +
        ": the matrix is singular, and a right-hand side that is not zero there has no solution; "
        "remove the unknowns, or put a 1 on their diagonal.");
  }
  if (d.empty_columns.count > 0) {
    say(Count(d.empty_columns, "column", "has", "have") + " no nonzero entry" +
        First(d.empty_columns) +
        ": the matrix is singular, those unknowns can take any value, and a sparse approximate "
        "inverse cannot be built there; remove them, or put a 1 on their diagonal.");
  }
  if (d.structural_rank >= 0 && d.structural_rank < d.n && d.empty_rows.count == 0 &&
      d.empty_columns.count == 0) {
    say("The structural rank is " + S(d.structural_rank) + " of " + S(d.n) +
        ": the matrix is singular whatever its values are; look for equations that share too few "
        "unknowns, or for a missing coupling.");
  }
  if (d.constants_in_null_space) {
    say("Every row sums to zero: constant vectors are in the null space, the matrix is singular "
        "(as with pure Neumann conditions); a solve projects them out and says what of the "
        "right-hand side the matrix cannot reach, or fix one unknown.");
  } else if (d.constants_in_left_null_space) {
    say("Every column sums to zero: the matrix is singular, and reaches right-hand sides alone "
        "that "
        "sum to zero; a solve projects that out and says what it cannot reach, or give a sum of "
        "the unknowns in place of one equation.");
  } else if (d.zero_sum_rows.count > 0 && 2 * d.zero_sum_rows.count > d.n) {
    say(Count(d.zero_sum_rows, "row", "sums", "sum") + " to zero" + First(d.zero_sum_rows) +
        ": usual for interior nodes of a diffusion problem; the boundary rows alone keep it "
        "regular, so convergence slows as the mesh is refined; expect many iterations without a "
        "preconditioner.");
  }
  if (d.missing_diagonal.count > 0) {
    say(Count(d.missing_diagonal, "diagonal entry", "is", "are") + " not stored" +
        First(d.missing_diagonal) +
        ": Jacobi cannot be used, and columns of a sparse approximate inverse may come out zero; "
        "ask for ensure_row or row_match.");
  }
  if (d.zero_diagonal.count > d.missing_diagonal.count) {
    Occurrence stored;
    stored.count = d.zero_diagonal.count - d.missing_diagonal.count;
    say(Count(stored, "diagonal entry", "is", "are") +
        " stored as zero (first zero or missing one: " + S(d.zero_diagonal.first) +
        "): Jacobi cannot be used, as in a saddle-point problem the matrix is not positive "
        "definite; "
        "ask for ensure_row or row_match, and use BiCGSTAB or GMRES.");
  }
  if (d.negative_diagonal.count > 0 && d.negative_diagonal.count < d.n) {
    say(Count(d.negative_diagonal, "diagonal entry", "is", "are") + " negative" +
        First(d.negative_diagonal) +
        (d.numerically_symmetric ? ": the matrix is not positive definite, CG may break down; use "
                                   "MINRES, GMRES or BiCGSTAB."
                                 : ": check the sign of those equations; multiplying a row by -1 "
                                   "changes no solution."));
  } else if (d.negative_diagonal.count == d.n) {
    say(std::string("All diagonal entries are negative: the matrix may be negative definite; ") +
        "solve with -A and -b to use CG.");
  }
  if (!d.structurally_symmetric) {
    say("The pattern is not symmetric (first at row " + S(d.asymmetry_row) + ", column " +
        S(d.asymmetry_column) + "): CG cannot be used; use BiCGSTAB or GMRES.");
  } else if (!d.numerically_symmetric) {
    say("The pattern is symmetric, the values are not (first at row " + S(d.asymmetry_row) +
        ", column " + S(d.asymmetry_column) + "; largest difference " + Number(d.max_asymmetry) +
        " of the largest entry): CG cannot be used" +
        (pair_asymmetry < kNoise
             ? "; the difference is small, symmetrise (A + Aᵀ)/2 if it is noise."
             : "; use BiCGSTAB or GMRES."));
  }
  if (d.not_dominant_rows.count == d.n) {
    say("No row is diagonally dominant: Jacobi alone may not help; a sparse approximate inverse "
        "does not need dominance.");
  }
  if (d.dense_rows.count > 0) {
    say(Count(d.dense_rows, "row", "is", "are") + " nearly dense" + First(d.dense_rows) +
        ", the longest with " + S(d.max_row_entries) +
        " entries: a power of the pattern fills up, "
        "and the build may take much memory; use pattern power 1 or a threshold (keep_tau).");
  }
  if (d.dense_columns.count > 0) {
    say(Count(d.dense_columns, "column", "is", "are") + " nearly dense" + First(d.dense_columns) +
        ", the longest with " + S(d.max_column_entries) +
        " entries: that column of a sparse approximate inverse is a large least-squares problem, "
        "and a "
        "power of the pattern fills up; use pattern power 1 or a threshold (keep_tau).");
  }
  if (d.explicit_zeros > 0) {
    say(S(d.explicit_zeros) + (d.explicit_zeros == 1 ? " stored entry is" : " stored entries are") +
        " zero: harmless for the answer, but they cost time and enter the pattern of the "
        "preconditioner; drop them unless later values fill them.");
  }
  if (d.min_abs_value > 0 && d.max_abs_value / d.min_abs_value > kWideRange) {
    say("The absolute values reach from " + Number(d.min_abs_value) + " to " +
        Number(d.max_abs_value) +
        ": unknowns or equations of very different units; scaling rows and columns usually helps, "
        "and a small residual need not mean a small error.");
  }
  if (d.max_abs_value == 0) {
    say("Every entry is zero: there is nothing to solve.");
  }
}

double DenseFrom(const Diagnosis& d) {
  const double mean = static_cast<double>(d.nnz) / static_cast<double>(d.n);
  return std::max({64.0, 10 * mean, 0.05 * static_cast<double>(d.n)});
}

Diagnosis Diagnose(const CscView& a, int threads, const ValueRange* known_range,
                   const int64_t* structural_rank) {
  Diagnosis d;
  d.n = a.n_cols;
  d.nnz = a.nnz();
  const ValueRange range = known_range ? *known_range : RangeOfAll(a.values, threads);
  d.max_abs_value = range.largest;
  d.min_abs_value = std::isfinite(range.smallest) ? range.smallest : 0;
  d.explicit_zeros = range.zeros;

  const Scale scale(d.max_abs_value);
  const double dense = DenseFrom(d);
  double largest_relative = 0;
  {
    std::vector<Part> parts = Divide(a, d, threads);
    if (!LookAtOnce(a, scale, dense, threads, parts)) {
      for (Part& part : parts) part.found = d;
      LookAtRows(a, scale, dense, threads, parts);
    }
    for (size_t k = 1; k < parts.size(); ++k) parts[0].walk.Add(parts[k].walk);
    for (const Part& part : parts) AddColumns(part.found, d);
    parts[0].walk.Tell(d);
    largest_relative = parts[0].walk.largest_relative();
  }
  d.constants_in_null_space =
      d.zero_sum_rows.count > 0 && d.zero_sum_rows.count + d.empty_rows.count == d.n;
  d.constants_in_left_null_space =
      d.zero_sum_columns.count > 0 && d.zero_sum_columns.count + d.empty_columns.count == d.n;
  d.structural_rank = structural_rank != nullptr && d.explicit_zeros == 0
                          ? *structural_rank
                          : StructuralRank(a, d.explicit_zeros, d.zero_diagonal.count == 0);
  TellFindings(largest_relative, d);
  return d;
}

}  // namespace spaid::kernels
