// Sparse products by rows: Gustavson's algorithm (ACM TOMS 4 (1978) 250), a row of the result at a
// time.
//
//   Result<CscMatrix> c = Multiply(a, b, context);               // C = A B, its pattern and values
//   Status again = MultiplyOn(*c, a2, b2, context, c->values);   // other values, the same patterns
//
// All matrices are by rows: column i of a view is row i of the matrix. For matrices by columns, C =
// A B is Multiply(b, a).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// C = A B. `a` and `b` canonical; the result is canonical, too, and stores an entry wherever a
// product of two stored ones falls, whatever their values. Each entry is summed with fma in
// ascending order of the inner index, from 0: the same bits for any number of threads. Scratch: for
// each thread 4 bytes for each column of B, and once more the entries of C. Rows of A one after the
// other with the same columns are summed together. Errors: INVALID_ARGUMENT/SIZE_MISMATCH; stop
// statuses; RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe. `b` may have unsorted rows; so has the
// result with kAsFound, which spares their sorting where it is but the right factor of another
// product.
enum class RowOrder { kAscending, kAsFound };
Result<CscMatrix> Multiply(const CscView& a, const CscView& b, const Context& context,
                           RowOrder order = RowOrder::kAscending);

// The same where C has no more than so many entries; nothing where it has more, and then little
// more of it is made.
Result<std::optional<CscMatrix>> MultiplyUpTo(int64_t most_entries, const CscView& a,
                                              const CscView& b, const Context& context,
                                              RowOrder order = RowOrder::kAscending);

// The values of C = A B on its pattern `c`, which Multiply found for matrices of these patterns.
// `values`: those of c. As Multiply otherwise, bit for bit. Scratch: for each thread 8 bytes for
// each column of B, and 32 more where rows of A one after the other have the same columns.
Status MultiplyOn(const PatternView& c, const CscView& a, const CscView& b, const Context& context,
                  std::span<double> values);

// Σ over the entries (i, k) of A of the entries in row k of B: the products that C is the sum of.
int64_t ProductsOf(const PatternView& a, const PatternView& b, int threads);

}  // namespace spaid::kernels
