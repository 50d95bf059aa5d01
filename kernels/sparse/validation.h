// Checks the structure of untrusted matrices and brings them into canonical CSC.
#pragma once

#include <cstdint>
#include <span>

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
  // The arrays are a block of a larger matrix: errors count its columns (rows, for kCsr) and its
  // entries from these on.
  int64_t first_major = 0, first_entry = 0;
};

// Validates `input` (arrays as they came off the wire: by columns, or, for kCsr, by rows: then
// `col_ptr` holds n_rows + 1 row pointers and `row_idx` column indices) and returns it in canonical
// CSC. Takes the arrays over; CSC input that is already canonical is not copied. O(nnz) time.
// Errors, all INVALID_ARGUMENT, with field and first index: NOT_SQUARE, BAD_POINTERS (first not 0,
// decreasing, last not nnz, wrong length), INDEX_OUT_OF_RANGE, UNSORTED_INDICES, DUPLICATE_ENTRY,
// NON_FINITE_VALUE (also after summing), EMPTY_MATRIX (n = 0), MATRIX_TOO_LARGE (n over 2^31 - 1).
Result<CscMatrix> Canonicalize(CscMatrix input, Layout layout, const ValidationOptions& options);

// The same for a block of consecutive columns of a matrix, or of rows for kCsr: these stay rows, of
// which the result holds the column indices (read by columns it is the block's transpose).
// `options.require_square` is not read; a block may have no columns (rows).
Result<CscMatrix> CanonicalizeBlock(CscMatrix input, Layout layout,
                                    const ValidationOptions& options);

// Checks the n + 1 pointers of a layout for themselves, as Canonicalize does: INVALID_ARGUMENT/
// BAD_POINTERS.
Status CheckPointers(std::span<const int64_t> pointers, int64_t n, int64_t nnz, Layout layout);

// Validates the pattern of a square matrix that came by rows (`rows.col_ptr` are row pointers), as
// Canonicalize does. Returns false where its rows are not sorted, or have duplicates, and
// options.sort_and_sum takes that. `options.pattern_only` is not read.
Result<bool> CheckRows(const PatternView& rows, const ValidationOptions& options);

// Returns Canonicalize's NON_FINITE_VALUE, or OK, for `values` of a canonical pattern. `to`: empty,
// or the values came by rows, number p of them is values[to[p]] (TurnedRows).
Status CheckFinite(const CscView& a, std::span<const int32_t> to, int threads);

}  // namespace spaid::kernels
