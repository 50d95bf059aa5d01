#include "kernels/sparse/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
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

// Meets each pair (a_ij, a_ji), i > j, once, without a copy of A: `next[i]` is the first entry of
// column i above the diagonal whose mirror has not been met. Columns come in ascending order, so
// what stands before row j there has none.
class SymmetryWalk {
 public:
  SymmetryWalk(const CscView& a, Diagnosis& d) : a_(a), d_(d) {}

  // Returns the largest difference of a pair relative to the pair.
  double Run() {
    d_.structurally_symmetric = true;
    d_.numerically_symmetric = true;
    next_.assign(Z(a_.n_cols), 0);
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      SkipLonely(j, j);
      const int64_t end = a_.col_ptr[Z(j) + 1];
      for (int64_t p = Next(j); p < end; ++p) {
        const int64_t i = a_.row_idx[Z(p)];
        if (i == j) continue;
        SkipLonely(i, j);
        const int64_t q = Next(i);
        if (q < a_.col_ptr[Z(i) + 1] && a_.row_idx[Z(q)] == j) {
          ++next_[Z(i)];
          Differ(i, j, a_.values[Z(p)], a_.values[Z(q)]);
        } else {
          Lonely(i, j);
          Differ(i, j, a_.values[Z(p)], 0);
        }
      }
    }
    if (d_.numerically_symmetric) {
      d_.asymmetry_row = structure_.row;
      d_.asymmetry_column = structure_.column;
    } else {
      d_.asymmetry_row = values_.row;
      d_.asymmetry_column = values_.column;
    }
    return largest_relative_;
  }

 private:
  // The first in column-major order of those met so far.
  struct First {
    bool After(int64_t i, int64_t j) const {
      return column < 0 || column > j || (column == j && row > i);
    }
    int64_t row = -1, column = -1;
  };

  int64_t Next(int64_t i) const { return a_.col_ptr[Z(i)] + next_[Z(i)]; }

  // The entries of column i above row `row` have no mirror.
  void SkipLonely(int64_t i, int64_t row) {
    for (int64_t q = Next(i); q < a_.col_ptr[Z(i) + 1] && a_.row_idx[Z(q)] < row; ++q) {
      Lonely(i, a_.row_idx[Z(q)]);
      Differ(i, a_.row_idx[Z(q)], 0, a_.values[Z(q)]);
      ++next_[Z(i)];
    }
  }

  void Lonely(int64_t i, int64_t j) {
    d_.structurally_symmetric = false;
    if (structure_.After(i, j)) structure_ = {i, j};
  }

  void Differ(int64_t i, int64_t j, double v, double w) {
    if (v == w) return;
    // Quotients first: the difference of two huge values may overflow.
    const double size = std::max(std::abs(v), std::abs(w));
    const double relative = std::abs(v / size - w / size);
    largest_relative_ = std::max(largest_relative_, relative);
    d_.max_asymmetry = std::max(d_.max_asymmetry, relative * (size / d_.max_abs_value));
    if (relative <= kSymmetryTolerance || !values_.After(i, j)) return;
    const double noise = kAssemblyNoise * std::sqrt(std::abs(DiagonalOf(a_, i))) *
                         std::sqrt(std::abs(DiagonalOf(a_, j)));
    if (relative * size <= noise) return;
    d_.numerically_symmetric = false;
    values_ = {i, j};
  }

  const CscView& a_;
  Diagnosis& d_;
  Array<int32_t> next_;  // counted from the column's first entry
  First structure_, values_;
  double largest_relative_ = 0;
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

void LookAtColumns(const CscView& a, Diagnosis& d) {
  double smallest = std::numeric_limits<double>::infinity();
  const double dense = DenseFrom(d);
  for (int64_t j = 0; j < d.n; ++j) {
    bool nonzero = false, stored_diagonal = false;
    double diagonal = 0;
    const auto rows = a.column(j);
    const auto values = a.column_values(j);
    for (size_t p = 0; p < rows.size(); ++p) {
      if (rows[p] == j) {
        stored_diagonal = true;
        diagonal = values[p];
      }
      if (values[p] == 0) {
        ++d.explicit_zeros;
        continue;
      }
      nonzero = true;
      smallest = std::min(smallest, std::abs(values[p]));
    }
    if (!nonzero) Note(d.empty_columns, j);
    if (!stored_diagonal) Note(d.missing_diagonal, j);
    if (diagonal == 0) Note(d.zero_diagonal, j);
    if (diagonal < 0) Note(d.negative_diagonal, j);
    const auto entries = static_cast<int64_t>(rows.size());
    d.max_column_entries = std::max(d.max_column_entries, entries);
    if (static_cast<double>(entries) > dense) Note(d.dense_columns, j);
  }
  d.min_abs_value = std::isfinite(smallest) ? smallest : 0;
}

void LookAtRows(const CscView& a, Diagnosis& d) {
  const double scale = d.max_abs_value > kHugeValue ? 0x1p-64 : 1;
  Array<double> sums, off_diagonals;  // off_diagonals: of the absolute values
  Array<int32_t> entries;             // −1 − entries where all of them are zero
  sums.assign(Z(d.n), 0);
  off_diagonals.assign(Z(d.n), 0);
  entries.assign(Z(d.n), -1);
  for (int64_t j = 0; j < d.n; ++j) {
    const auto rows = a.column(j);
    const auto values = a.column_values(j);
    for (size_t p = 0; p < rows.size(); ++p) {
      const auto i = static_cast<size_t>(rows[p]);
      const double v = scale * values[p];
      sums[i] += v;
      if (rows[p] != j) off_diagonals[i] += std::abs(v);
      if (values[p] == 0) {
        entries[i] += entries[i] < 0 ? -1 : 1;
      } else {
        entries[i] = entries[i] < 0 ? -entries[i] : entries[i] + 1;
      }
    }
  }
  const double dense = DenseFrom(d);
  for (int64_t i = 0; i < d.n; ++i) {
    const bool nonzero = entries[Z(i)] >= 0;
    const int64_t stored = nonzero ? entries[Z(i)] : -1 - int64_t{entries[Z(i)]};
    const double diagonal = scale * std::abs(DiagonalOf(a, i));
    const double off_diagonal = off_diagonals[Z(i)];
    d.max_row_entries = std::max(d.max_row_entries, stored);
    if (!nonzero) {
      Note(d.empty_rows, i);
    } else if (std::abs(sums[Z(i)]) <= kZeroSumTolerance * (off_diagonal + diagonal)) {
      Note(d.zero_sum_rows, i);
    }
    if (diagonal < off_diagonal) Note(d.not_dominant_rows, i);
    if (static_cast<double>(stored) > dense) Note(d.dense_rows, i);
  }
  d.constants_in_null_space =
      d.zero_sum_rows.count > 0 && d.zero_sum_rows.count + d.empty_rows.count == d.n;
}

}  // namespace

Diagnosis Diagnose(const CscView& a, int threads) {
  Diagnosis d;
  d.n = a.n_cols;
  d.nnz = a.nnz();
  for (const double v : a.values) d.max_abs_value = std::max(d.max_abs_value, std::abs(v));
  // Each writes fields of its own; the longest goes first.
  double pair_asymmetry = 0;
  ParallelFor(3, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t look = begin; look < end; ++look) {
      if (look == 0) pair_asymmetry = SymmetryWalk(a, d).Run();
      if (look == 1) LookAtRows(a, d);
      if (look == 2) LookAtColumns(a, d);
    }
  });
  d.structural_rank = StructuralRank(a, d.explicit_zeros, d.zero_diagonal.count == 0);
  Explain(pair_asymmetry, d);
  return d;
}

}  // namespace spaid::kernels
