// Transposes by counting sort: O(nnz + n), sorted output.
//
//   Result<CscMatrix> t = Transpose(a, context);
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// `a` canonical, or with unsorted columns; duplicates stay, in their order. The result has sorted
// columns. It is also `a` in CSR, read by columns. Runs on context.threads; the result is the same
// for any number. Scratch: a counter for each row, of 4 bytes (8 from 2^31 entries on), and as many
// again for each further thread that takes part, in all no more than a counter for each entry.
// Reports no progress. Thread-safe. Errors: stop statuses.
Result<CscMatrix> Transpose(const CscView& a, const Context& context);
Result<Pattern> Transpose(const PatternView& a, const Context& context);

// A pattern by columns, and where the entries went that came by rows.
struct TurnedRows {
  Pattern columns;    // canonical
  Array<int32_t> to;  // entry p by rows is entry to[p] by columns
};

// Turns a square, canonical pattern by rows (`rows.col_ptr` are row pointers, `row_idx` column
// indices), of fewer than 2^31 entries. Takes its arrays over: the indices' memory becomes `to`, so
// that at no time more is held than both patterns. Otherwise as Transpose.
Result<TurnedRows> TurnRows(Pattern rows, const Context& context);
// Returns `to` alone of the pattern `columns`, of fewer than 2^31 entries: 4 bytes an entry.
Result<Array<int32_t>> PlacesByRows(const PatternView& columns, const Context& context);

// The same on the calling thread, without a stop.
CscMatrix Transpose(const CscView& a);
Pattern Transpose(const PatternView& a);

}  // namespace spaid::kernels
