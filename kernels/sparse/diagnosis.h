// What a numerical analyst would look at first in a matrix somebody sent.
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
  Occurrence not_dominant_rows;          // |a_ii| < Σ_{j≠i} |a_ij|
  Occurrence zero_sum_rows;              // |Σ_j a_ij| ≤ 1e-12 Σ_j |a_ij|, row not empty
  bool constants_in_null_space = false;  // every row sums to zero (or is empty; A is not 0)
  Occurrence dense_rows;                 // over max(64, 10 × mean) entries and over 5 % of n
  Occurrence dense_columns;
  int64_t max_row_entries = 0;
  int64_t max_column_entries = 0;
  double min_abs_value = 0;  // over nonzero values
  double max_abs_value = 0;
  // One sentence a finding, for people: what it is, what it does to a solve, what helps.
  std::vector<std::string> findings;
};

// Square canonical `a`; `threads` as in Context, eight help at most; `range`: of its values, where
// it is known already. The same for any number of threads. O(nnz) time and at most 24 n bytes of
// scratch where the diagonal is full; else, for the structural rank, O(√n nnz) and 28 n bytes, with
// explicit zeros 4 nnz more. Thread-safe.
Diagnosis Diagnose(const CscView& a, int threads = 1, const ValueRange* range = nullptr);

}  // namespace spaid::kernels
