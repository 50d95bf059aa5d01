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

#include "kernels/sparse/pattern.h"
#include "kernels/sparse/transpose.h"

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

// One walk over A and Aᵀ, column by column, as over two sorted lists.
// Returns the largest difference of a pair relative to the pair.
double CompareWithTranspose(const CscView& a, const CscMatrix& t, Diagnosis& d) {
  std::vector<double> root_of_diagonal(Z(a.n_cols));
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
      if (a.row_idx[Z(p)] == j) root_of_diagonal[Z(j)] = std::sqrt(std::abs(a.values[Z(p)]));
    }
  }
  d.structurally_symmetric = true;
  d.numerically_symmetric = true;
  int64_t structural_row = -1, structural_column = -1;
  double largest_relative = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    int64_t p = a.col_ptr[Z(j)], q = t.col_ptr[Z(j)];
    const int64_t p_end = a.col_ptr[Z(j) + 1], q_end = t.col_ptr[Z(j) + 1];
    while (p < p_end || q < q_end) {
      const int64_t i = p < p_end ? int64_t{a.row_idx[Z(p)]} : a.n_rows;
      const int64_t k = q < q_end ? int64_t{t.row_idx[Z(q)]} : a.n_rows;
      const int64_t row = std::min(i, k);
      const double v = i == row ? a.values[Z(p++)] : 0;
      const double w = k == row ? t.values[Z(q++)] : 0;
      if (i != k && d.structurally_symmetric) {
        d.structurally_symmetric = false;
        structural_row = row;
        structural_column = j;
      }
      if (v == w) continue;
      // Quotients first: the difference of two huge values may overflow.
      const double size = std::max(std::abs(v), std::abs(w));
      const double relative = std::abs(v / size - w / size);
      largest_relative = std::max(largest_relative, relative);
      d.max_asymmetry = std::max(d.max_asymmetry, relative * (size / d.max_abs_value));
      const double noise = kAssemblyNoise * root_of_diagonal[Z(row)] * root_of_diagonal[Z(j)];
      if (relative > kSymmetryTolerance && relative * size > noise && d.numerically_symmetric) {
        d.numerically_symmetric = false;
        d.asymmetry_row = row;
        d.asymmetry_column = j;
      }
    }
  }
  if (d.numerically_symmetric && !d.structurally_symmetric) {
    d.asymmetry_row = structural_row;
    d.asymmetry_column = structural_column;
  }
  return largest_relative;
}

int64_t StructuralRank(const CscView& a, int64_t zeros) {
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

}  // namespace

Diagnosis Diagnose(const CscView& a) {
  Diagnosis d;
  d.n = a.n_cols;
  d.nnz = a.nnz();
  const size_t n = Z(d.n);
  double smallest = std::numeric_limits<double>::infinity();
  struct Row {
    double sum = 0, off_diagonal = 0, diagonal = 0;
    int64_t entries = 0;
    bool nonzero = false;
  };
  Array<Row> rows;
  rows.assign(n, Row());
  Array<int64_t> column_entries;
  column_entries.resize(n);
  for (const double v : a.values) d.max_abs_value = std::max(d.max_abs_value, std::abs(v));
  const double scale = d.max_abs_value > kHugeValue ? 0x1p-64 : 1;
  for (int64_t j = 0; j < d.n; ++j) {
    const auto indices = a.column(j);
    const auto values = a.column_values(j);
    bool nonzero = false, stored_diagonal = false;
    double diagonal = 0;
    for (size_t p = 0; p < indices.size(); ++p) {
      const double v = values[p], size = std::abs(v);
      Row& row = rows[static_cast<size_t>(indices[p])];
      ++row.entries;
      row.sum += scale * v;
      if (indices[p] == j) {
        stored_diagonal = true;
        diagonal = v;
        row.diagonal = scale * size;
      } else {
        row.off_diagonal += scale * size;
      }
      if (v == 0) {
        ++d.explicit_zeros;
        continue;
      }
      nonzero = row.nonzero = true;
      smallest = std::min(smallest, size);
    }
    column_entries[Z(j)] = static_cast<int64_t>(indices.size());
    if (!nonzero) Note(d.empty_columns, j);
    if (!stored_diagonal) Note(d.missing_diagonal, j);
    if (diagonal == 0) Note(d.zero_diagonal, j);
    if (diagonal < 0) Note(d.negative_diagonal, j);
    d.max_column_entries = std::max(d.max_column_entries, column_entries[Z(j)]);
  }
  d.min_abs_value = std::isfinite(smallest) ? smallest : 0;
  const double mean = static_cast<double>(d.nnz) / static_cast<double>(d.n);
  const double dense = std::max({64.0, 10 * mean, 0.05 * static_cast<double>(d.n)});
  for (int64_t i = 0; i < d.n; ++i) {
    const Row& row = rows[Z(i)];
    d.max_row_entries = std::max(d.max_row_entries, row.entries);
    if (!row.nonzero) {
      Note(d.empty_rows, i);
    } else if (std::abs(row.sum) <= kZeroSumTolerance * (row.off_diagonal + row.diagonal)) {
      Note(d.zero_sum_rows, i);
    }
    if (row.diagonal < row.off_diagonal) Note(d.not_dominant_rows, i);
    if (static_cast<double>(row.entries) > dense) Note(d.dense_rows, i);
    if (static_cast<double>(column_entries[Z(i)]) > dense) Note(d.dense_columns, i);
  }
  d.constants_in_null_space =
      d.zero_sum_rows.count > 0 && d.zero_sum_rows.count + d.empty_rows.count == d.n;
  const double pair_asymmetry = CompareWithTranspose(a, Transpose(a), d);
  d.structural_rank = StructuralRank(a, d.explicit_zeros);
  Explain(pair_asymmetry, d);
  return d;
}

}  // namespace spaid::kernels
