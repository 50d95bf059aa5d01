#include "kernels/sparse/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {
namespace {

constexpr double kSymmetryTolerance = 1e-12;
// What the assembly of a matrix may leave of an entry that is zero in theory: a few roundings of
// the size of the diagonal entries beside it.
constexpr double kAssemblyNoise = 8 * std::numeric_limits<double>::epsilon();
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

double DiagonalOf(const CscView& a, int64_t j) {
  const auto rows = a.column(j);
  const auto found = std::lower_bound(rows.begin(), rows.end(), j);
  return found == rows.end() || *found != j ? 0 : a.column_values(j)[Z(found - rows.begin())];
}

// Columns ahead of their use: the time that memory takes to answer.
constexpr int64_t kAhead = 8;

// Inlined by force: g++ takes a function that only prefetches for one without effect.
__attribute__((always_inline)) inline void PrefetchColumn(const CscView& a, int64_t j) {
  constexpr int64_t kMaxEntries = 64;  // the processor follows a longer column by itself
  j = std::min(j, a.n_cols - 1);
  const int64_t begin = a.col_ptr[Z(j)];
  const int64_t end = std::min(a.col_ptr[Z(j) + 1], begin + kMaxEntries);
  for (int64_t p = begin; p < end; p += 8) __builtin_prefetch(&a.values[Z(p)]);
  for (int64_t p = begin; p < end; p += 16) __builtin_prefetch(&a.row_idx[Z(p)]);
}

// Meets each pair (a_ij, a_ji), i > j, of the columns j in [begin, end) once, without a copy of A:
// `next[i]` is the first entry of column i above the diagonal, not above row `begin`, whose mirror
// has not been met. Columns come in ascending order, so what stands before row j there has none.
// Ranges of columns are independent of one another, and what they find can be put together in any
// order. Mirrors are read an entry here and an entry there, an order that no hardware foresees:
// those of a column reach as far as its last row, and the columns behind that one are fetched
// ahead.
class SymmetryWalk {
 public:
  SymmetryWalk(const CscView& a, double max_abs_value, int64_t begin, int64_t end)
      : a_(a), max_abs_value_(max_abs_value), begin_(begin), end_(end) {}

  void Run() {
    const int64_t* const col_ptr = a_.col_ptr.data();
    const int32_t* const row_idx = a_.row_idx.data();
    const double* const values = a_.values.data();
    next_.assign(Z(a_.n_cols - begin_), 0);
    int32_t* const next = next_.data() - begin_;
    if (begin_ > 0) SkipRowsBefore(begin_, next);
    for (int64_t j = begin_; j < end_; ++j) {
      SkipLonely(j, j, next[j]);
      const int64_t column_end = col_ptr[j + 1];
      if (column_end > col_ptr[j]) PrefetchColumn(a_, row_idx[column_end - 1] + kAhead);
      int64_t p = col_ptr[j] + next[j];
      if (p < column_end && row_idx[p] == j) ++p;
      for (; p < column_end; ++p) {
        const int64_t i = row_idx[p];
        const int64_t i_end = col_ptr[i + 1];
        int64_t q = col_ptr[i] + next[i];
        if (q < i_end && row_idx[q] < j) {
          SkipLonely(i, j, next[i]);
          q = col_ptr[i] + next[i];
        }
        if (q < i_end && row_idx[q] == j) {
          ++next[i];
          if (values[p] != values[q]) Differ(i, j, values[p], values[q]);
        } else {
          Lonely(i, j, values[p]);
        }
      }
    }
    // What later columns have above the range's end, they have without a mirror.
    for (int64_t i = end_; i < a_.n_cols; ++i) SkipLonely(i, end_, next[i]);
  }

  // Of a column of the range: the first entry on or below the diagonal.
  int64_t FromDiagonal(int64_t j) const { return a_.col_ptr[Z(j)] + next_[Z(j - begin_)]; }

  // What both have found.
  void Add(const SymmetryWalk& other) {
    structure_.Meet(other.structure_);
    values_.Meet(other.values_);
    max_asymmetry_ = std::max(max_asymmetry_, other.max_asymmetry_);
    largest_relative_ = std::max(largest_relative_, other.largest_relative_);
  }
  void Tell(Diagnosis& d) const {
    d.structurally_symmetric = structure_.column < 0;
    d.numerically_symmetric = values_.column < 0;
    const First& first = d.numerically_symmetric ? structure_ : values_;
    d.asymmetry_row = first.row;
    d.asymmetry_column = first.column;
    d.max_asymmetry = max_asymmetry_;
  }
  // The largest difference of a pair relative to the pair.
  double largest_relative() const { return largest_relative_; }

 private:
  // The first in column-major order of those met so far.
  struct First {
    bool After(int64_t i, int64_t j) const {
      return column < 0 || column > j || (column == j && row > i);
    }
    void Meet(const First& other) {
      if (other.column >= 0 && After(other.row, other.column)) *this = other;
    }
    int64_t row = -1, column = -1;
  };

  void SkipRowsBefore(int64_t row, int32_t* next) const {
    for (int64_t i = begin_; i < a_.n_cols; ++i) {
      const auto rows = a_.column(i);
      next[i] =
          static_cast<int32_t>(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
    }
  }

  // The entries of column i above row `row`, from `next` on, have no mirror.
  void SkipLonely(int64_t i, int64_t row, int32_t& next) {
    const auto rows = a_.column(i);
    for (; Z(next) < rows.size() && rows[Z(next)] < row; ++next) {
      Lonely(i, rows[Z(next)], a_.column_values(i)[Z(next)]);
    }
  }

  void Lonely(int64_t i, int64_t j, double v) {
    if (structure_.After(i, j)) structure_ = {i, j};
    if (v != 0) Differ(i, j, v, 0);
  }

  void Differ(int64_t i, int64_t j, double v, double w) {
    // Quotients first: the difference of two huge values may overflow.
    const double size = std::max(std::abs(v), std::abs(w));
    const double relative = std::abs(v / size - w / size);
    largest_relative_ = std::max(largest_relative_, relative);
    max_asymmetry_ = std::max(max_asymmetry_, relative * (size / max_abs_value_));
    if (relative <= kSymmetryTolerance || !values_.After(i, j)) return;
    const double noise = kAssemblyNoise * std::sqrt(std::abs(DiagonalOf(a_, i))) *
                         std::sqrt(std::abs(DiagonalOf(a_, j)));
    if (relative * size <= noise) return;
    values_ = {i, j};
  }

  const CscView a_;
  const double max_abs_value_;
  const int64_t begin_, end_;
  Array<int32_t> next_;  // of the columns from begin_ on; counted from the column's first entry
  First structure_, values_;
  double max_asymmetry_ = 0, largest_relative_ = 0;
};

int64_t StructuralRank(const CscView& a, int64_t zeros, bool full_diagonal) {
  if (full_diagonal) return a.n_cols;  // it is a matching
  if (a.nnz() > kMatchingLimit) return -1;
  Pattern nonzero;
  PatternView view = a;
  if (zeros > 0) {
    nonzero.n_rows = a.n_rows;
    nonzero.n_cols = a.n_cols;
    nonzero.col_ptr.assign(1, 0);
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

void Explain(double pair_asymmetry, Diagnosis& d) {
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
        "(as with pure Neumann conditions); fix one unknown, or use a right-hand side that the "
        "matrix "
        "can reach.");
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
                                   "GMRES or BiCGSTAB."
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

// Over this many entries a row or column is called dense.
double DenseFrom(const Diagnosis& d) {
  const double mean = static_cast<double>(d.nnz) / static_cast<double>(d.n);
  return std::max({64.0, 10 * mean, 0.05 * static_cast<double>(d.n)});
}

// Largest and smallest absolute value of those that are not zero, and how many are zero.
struct ValueRange {
  double largest = 0;
  double smallest = std::numeric_limits<double>::infinity();
  int64_t zeros = 0;

  void Add(const ValueRange& other) {
    largest = std::max(largest, other.largest);
    smallest = std::min(smallest, other.smallest);
    zeros += other.zeros;
  }
};

ValueRange RangeOf(std::span<const double> values) {
  typedef double Vec __attribute__((vector_size(16)));
  typedef int64_t Mask __attribute__((vector_size(16)));
  constexpr size_t kWidth = 2, kVectors = 4;  // as many at once as hide an addition's latency
  const Vec infinity = Vec{} + std::numeric_limits<double>::infinity();
  const Mask no_sign = Mask{} + std::numeric_limits<int64_t>::max();
  Vec largest[kVectors] = {}, smallest[kVectors];
  Mask zeros[kVectors] = {};
  std::fill(smallest, smallest + kVectors, infinity);
  constexpr size_t kStep = kWidth * kVectors;
  const size_t whole = values.size() / kStep * kStep;
  for (size_t p = 0; p < whole; p += kStep) {
    for (size_t l = 0; l < kVectors; ++l) {
      Mask bits;
      std::memcpy(&bits, &values[p + kWidth * l], sizeof(bits));
      const Vec v = (Vec)(bits & no_sign);
      const Mask zero = v == Vec{};
      const Vec nonzero = (Vec)((Mask)v | (zero & (Mask)infinity));
      largest[l] = v > largest[l] ? v : largest[l];
      smallest[l] = nonzero < smallest[l] ? nonzero : smallest[l];
      zeros[l] -= zero;
    }
  }
  ValueRange range;
  for (size_t l = 0; l < kVectors; ++l) {
    for (size_t k = 0; k < kWidth; ++k) range.Add({largest[l][k], smallest[l][k], zeros[l][k]});
  }
  for (size_t p = whole; p < values.size(); ++p) {
    const double v = std::abs(values[p]);
    range.Add({v, v == 0 ? infinity[0] : v, v == 0 ? 1 : 0});
  }
  return range;
}

// Of one row, scaled. Sums in the order of the columns.
struct RowSum {
  double all = 0;
  double off_diagonal = 0;  // of absolute values
};

template <bool kScaled>
void AddRows(const CscView& a, double scale, RowSum* sums, int32_t* entries) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int64_t end = a.col_ptr[Z(j) + 1];
    for (int64_t p = a.col_ptr[Z(j)]; p < end; ++p) {
      const int32_t i = a.row_idx[Z(p)];
      double v = a.values[Z(p)];
      double size = std::abs(v);
      if (kScaled) {
        v *= scale;
        // What is not zero stays so.
        if (size != 0) size = std::max(scale * size, std::numeric_limits<double>::denorm_min());
      }
      sums[i].all += v;
      sums[i].off_diagonal += i == j ? 0 : size;
      ++entries[i];
    }
  }
}

// What is to be found in rows: one scan in the order of storage, then one by rows.
class RowLook {
 public:
  explicit RowLook(const CscView& a, double max_abs_value)
      : a_(a), scale_(max_abs_value > kHugeValue ? 0x1p-64 : 1) {}

  void Scan() {
    sums_.assign(Z(a_.n_cols), {});
    entries_.assign(Z(a_.n_cols), 0);
    if (scale_ == 1) {
      AddRows<false>(a_, 1, sums_.data(), entries_.data());
    } else {
      AddRows<true>(a_, scale_, sums_.data(), entries_.data());
    }
  }

  // `diagonal`: a_ii, 0 where it is not stored.
  void Tell(int64_t i, double diagonal, double dense, Diagnosis& d) const {
    const RowSum& sum = sums_[Z(i)];
    const int64_t entries = entries_[Z(i)];
    const double size = scale_ * std::abs(diagonal);
    d.max_row_entries = std::max(d.max_row_entries, entries);
    if (sum.off_diagonal == 0 && diagonal == 0) {
      Note(d.empty_rows, i);
    } else if (std::abs(sum.all) <= kZeroSumTolerance * (sum.off_diagonal + size)) {
      Note(d.zero_sum_rows, i);
    }
    if (size < sum.off_diagonal) Note(d.not_dominant_rows, i);
    if (static_cast<double>(entries) > dense) Note(d.dense_rows, i);
  }

 private:
  const CscView a_;
  const double scale_;
  Array<RowSum> sums_;
  Array<int32_t> entries_;
};

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
        &Diagnosis::zero_sum_rows, &Diagnosis::dense_rows, &Diagnosis::dense_columns}) {
    Occurrence& o = d.*field;
    if (o.count == 0) o.first = (later.*field).first;
    o.count += (later.*field).count;
  }
  d.max_row_entries = std::max(d.max_row_entries, later.max_row_entries);
  d.max_column_entries = std::max(d.max_column_entries, later.max_column_entries);
}

ValueRange RangeOf(std::span<const double> values, int threads) {
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

}  // namespace

Diagnosis Diagnose(const CscView& a, int threads) {
  Diagnosis d;
  d.n = a.n_cols;
  d.nnz = a.nnz();
  const ValueRange range = RangeOf(a.values, threads);
  d.max_abs_value = range.largest;
  d.min_abs_value = std::isfinite(range.smallest) ? range.smallest : 0;
  d.explicit_zeros = range.zeros;

  // The two scans of everything that are left, the longer one in two parts.
  const int64_t middle = d.n / 2;
  SymmetryWalk walk(a, d.max_abs_value, 0, middle);
  SymmetryWalk second_walk(a, d.max_abs_value, middle, d.n);
  RowLook rows(a, d.max_abs_value);
  ParallelFor(3, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t look = begin; look < end; ++look) {
      if (look == 0) rows.Scan();
      if (look == 1) walk.Run();
      if (look == 2) second_walk.Run();
    }
  });

  // Row and column j are told together, each half by itself, too.
  const auto tell = [&](const SymmetryWalk& half, int64_t begin, int64_t end, Diagnosis& part) {
    const double dense = DenseFrom(d);
    for (int64_t j = begin; j < end; ++j) {
      const auto soon = Z(std::min(half.FromDiagonal(std::min(j + kAhead, end - 1)), d.nnz));
      __builtin_prefetch(a.row_idx.data() + soon);
      __builtin_prefetch(a.values.data() + soon);
      rows.Tell(j, LookAtColumn(a, j, half.FromDiagonal(j), dense, part), dense, part);
    }
  };
  Diagnosis second = d;
  ParallelFor(2, 1, threads, [&](int64_t begin, int64_t end, int) {
    if (begin == 0) tell(walk, 0, middle, d);
    if (end == 2) tell(second_walk, middle, d.n, second);
  });
  AddColumns(second, d);
  d.constants_in_null_space =
      d.zero_sum_rows.count > 0 && d.zero_sum_rows.count + d.empty_rows.count == d.n;
  walk.Add(second_walk);
  walk.Tell(d);
  d.structural_rank = StructuralRank(a, d.explicit_zeros, d.zero_diagonal.count == 0);
  Explain(walk.largest_relative(), d);
  return d;
}

}  // namespace spaid::kernels
