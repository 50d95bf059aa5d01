// Checks the structure of untrusted matrices and brings them into canonical CSC.
#pragma once

#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/scan.h"

namespace spaid::kernels {

enum class Layout { kCsc, kCsr };

struct ValidationOptions {
  // Accept unsorted indices and duplicates: sort each column, sum duplicates (in input order).
  // Without it they are refused with the place.
  bool sort_and_sum = false;
  // The matrix must be square (every engine needs it).
  bool require_square = true;
  // There are no values: `values` is empty and stays so.
  bool pattern_only = false;
  int threads = 1;  // as in Context; for the checks
  // What is known of exactly these arrays is not looked at again.
  KnownOfArrays known = {};
};

// Validates `input` (arrays as they came off the wire: by columns, or, for kCsr, by rows: then
// `col_ptr` holds n_rows + 1 row pointers and `row_idx` column indices) and returns it in canonical
// CSC. Takes the arrays over; CSC input that is already canonical is not copied. O(nnz) time.
// Errors, all INVALID_ARGUMENT, with field and first index: NOT_SQUARE, BAD_POINTERS (first not 0,
// decreasing, last not nnz, wrong length), INDEX_OUT_OF_RANGE, UNSORTED_INDICES, DUPLICATE_ENTRY,
// NON_FINITE_VALUE (also after summing), EMPTY_MATRIX (n = 0), MATRIX_TOO_LARGE (n over 2^31 - 1).
Result<CscMatrix> Canonicalize(CscMatrix input, Layout layout, const ValidationOptions& options);

}  // namespace spaid::kernels
