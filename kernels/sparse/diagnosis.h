// Properties that a numerical analyst would look at first in a matrix somebody sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/sparse/matrix.h"
#include "kernels/sparse/scan.h"

namespace spaid::kernels {

// Counts with the first index at which the thing happens (-1: nowhere).
struct Occurrence {
  int64_t count = 0;
  int64_t first = -1;
};

// A diagnosis must stay cheap beside the transfer of the matrix.
inline constexpr int64_t kMatchingLimit = 50'000'000;

struct Diagnosis {
  int64_t n = 0;
  int64_t nnz = 0;
  int64_t explicit_zeros = 0;
  bool structurally_symmetric = false;
  // Everywhere |a_ij − a_ji| ≤ 1e-12 max(|a_ij|, |a_ji|), or ≤ 8 ε √|a_ii a_jj|: what rounding
  // leaves where a symmetric matrix is assembled. The second does not change where A is scaled to D
  // A D.
  bool numerically_symmetric = false;
  // First place in column-major order where the values, or else only the pattern, are not
  // symmetric.
  int64_t asymmetry_row = -1;
  int64_t asymmetry_column = -1;
  double max_asymmetry = 0;      // max |a_ij − a_ji| / max|a|
  Occurrence missing_diagonal;   // not stored
  Occurrence zero_diagonal;      // stored and zero, or not stored
  Occurrence negative_diagonal;  // of those stored
  Occurrence empty_rows;         // no stored nonzero value
  Occurrence empty_columns;
  // Size of a maximum matching of the entries that are not zero; -1: not computed, over
  // kMatchingLimit entries.
  int64_t structural_rank = -1;
  Occurrence not_dominant_rows;               // |a_ii| < Σ_{j≠i} |a_ij|
  Occurrence zero_sum_rows;                   // |Σ_j a_ij| ≤ 1e-12 Σ_j |a_ij|, row not empty
  bool constants_in_null_space = false;       // every row sums to zero (or is empty; A is not 0)
  Occurrence zero_sum_columns;                // the same of columns
  bool constants_in_left_null_space = false;  // every column sums to zero (or is empty; A is not 0)
  Occurrence dense_rows;                      // over max(64, 10 × mean) entries and over 5 % of n
  Occurrence dense_columns;
  int64_t max_row_entries = 0;
  int64_t max_column_entries = 0;
  double min_abs_value = 0;  // over nonzero values
  double max_abs_value = 0;
  // One sentence a finding, for people: what it is, what it does to a solve, what helps.
  std::vector<std::string> findings;

  // visit(name, figure), by the names that clients know; all but n, nnz and findings.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("explicit_zeros", explicit_zeros);
    visit("structurally_symmetric", structurally_symmetric);
    visit("numerically_symmetric", numerically_symmetric);
    visit("asymmetry_row", asymmetry_row);
    visit("asymmetry_column", asymmetry_column);
    visit("max_asymmetry", max_asymmetry);
    visit("missing_diagonal", missing_diagonal);
    visit("zero_diagonal", zero_diagonal);
    visit("negative_diagonal", negative_diagonal);
    visit("empty_rows", empty_rows);
    visit("empty_columns", empty_columns);
    visit("structural_rank", structural_rank);
    visit("not_dominant_rows", not_dominant_rows);
    visit("zero_sum_rows", zero_sum_rows);
    visit("constants_in_null_space", constants_in_null_space);
    visit("zero_sum_columns", zero_sum_columns);
    visit("constants_in_left_null_space", constants_in_left_null_space);
    visit("dense_rows", dense_rows);
    visit("dense_columns", dense_columns);
    visit("max_row_entries", max_row_entries);
    visit("max_column_entries", max_column_entries);
    visit("min_abs_value", min_abs_value);
    visit("max_abs_value", max_abs_value);
  }
};

// Square canonical `a`; `threads` as in Context, eight help at most; `range`: of its values, where
// it is known already; `structural_rank`: that of the pattern, or null, taken where no value is
// zero. The same for any number of threads. O(nnz) time and at most 24 n bytes of scratch where the
// diagonal is full; else, for the structural rank, O(√n nnz) and 28 n bytes, with explicit zeros 4
// nnz more. Thread-safe.
Diagnosis Diagnose(const CscView& a, int threads = 1, const ValueRange* range = nullptr,
                   const int64_t* structural_rank = nullptr);

// For those that diagnose parts of a matrix elsewhere (kernels/mpi):
// Says in `findings` what the figures mean. `pair_asymmetry`: the largest difference of an entry
// from its mirror relative to the larger of the two.
void TellFindings(double pair_asymmetry, Diagnosis& d);
// Over this many entries a row or column is called dense. Reads n and nnz.
double DenseFrom(const Diagnosis& d);

}  // namespace spaid::kernels
