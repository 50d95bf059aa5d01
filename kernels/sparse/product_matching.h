// A maximum matching of rows and columns whose entries have the largest product, with scalings that
// make them 1 and all others at most 1. (A matching of the pattern alone: pattern.h.)
//
//   auto m = MaximumProductMatching(a, {}, context);
//   // column m->column_of_row[k] goes to place k: large entries stand on the diagonal
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct ProductMatchingOptions {
  // Entries that the searches may look at, in all; over it RESOURCE_EXHAUSTED/MATCHING_TOO_LONG. 0:
  // 200 for each entry of A and 10^7 more, which takes seconds for a million entries. Matrices from
  // applications take less than ten looks an entry, random sparse ones up to a hundred.
  int64_t max_work = 0;
};

// A matching of the entries that are neither zero nor infinite.
struct ProductMatching {
  Array<int32_t> row_of_column;  // row matched to each column, -1: none
  // Q: column matched to each row. Rows and columns that are left over are paired in ascending
  // order.
  Array<int32_t> column_of_row;
  int64_t size = 0;  // of the matching: the structural rank
  // u and v, logarithms of base two of the factors of rows and of columns, by their numbers in A:
  // |a_ij| 2^(u_i + v_j) is 1 on matched entries and at most 1 elsewhere, both within 1e-12 + 1e-15
  // (|u_i| + |v_j|). Every row and column with an entry has one of size 1. Not bounded by the
  // exponents of fp64: entries that differ much along a chain of rows take factors beyond. 0 where
  // a row or column has no entry.
  Array<double> row_log2;
  Array<double> column_log2;
  int64_t work = 0;  // entries that the searches looked at
};

// `a`: square, canonical. Where the matching is perfect, its product Π |a_ij| is the largest of all
// perfect ones, and scaled rows and columns have the same one; where A is structurally singular,
// the matching has the largest size, and its product is a good one only. Shortest augmenting paths
// over reduced costs −log |a_ij| (Duff, Koster, SIAM J. Matrix Anal. Appl. 20 (1999) 889 and 22
// (2001) 973; MC64, job 5), after a cheap start and an augmenting row reduction, and from all
// columns at once while that finds many; rows that a failed search has reached are left out of all
// later ones. O(nnz) time as a rule, O(n (nnz + n log n)) at worst; scratch: 8 bytes an entry and
// 108 a row. The searches take one thread; the result is the same for any number. Reports no
// progress. Thread-safe. Errors: RESOURCE_EXHAUSTED/MATCHING_TOO_LONG; stop statuses.
Result<ProductMatching> MaximumProductMatching(const CscView& a,
                                               const ProductMatchingOptions& options,
                                               const Context& context);

}  // namespace spaid::kernels
