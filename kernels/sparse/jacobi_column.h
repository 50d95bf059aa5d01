// Jacobi column by column: shared by who holds A whole (kernels/engine) and by ranks (kernels/mpi).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Returns the entry in `row` of column k of canonical `a`; 0 where none is stored.
inline double EntryOf(const CscView& a, int64_t k, int64_t row) {
  const auto rows = a.column(k);
  const auto at = std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(row));
  if (at == rows.end() || *at != row) return 0;
  return a.column_values(k)[static_cast<size_t>(at - rows.begin())];
}

// Returns ‖A(:, k) m − e‖₂, e the unit vector of `row`; entries can be huge against the diagonal,
// so the squares are scaled.
inline double JacobiResidual(const CscView& a, int64_t k, int64_t row, double m) {
  const auto rows = a.column(k);
  const auto values = a.column_values(k);
  double largest = 0;
  for (size_t p = 0; p < rows.size(); ++p) {
    const double r = values[p] * m - (rows[p] == row ? 1.0 : 0.0);
    largest = std::max(largest, std::abs(r));
  }
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;
  for (size_t p = 0; p < rows.size(); ++p) {
    const double r = (values[p] * m - (rows[p] == row ? 1.0 : 0.0)) / largest;
    sum += r * r;
  }
  return largest * std::sqrt(sum);
}

// FAILED_PRECONDITION/ZERO_DIAGONAL: `count` of n entries cannot be inverted, from column `first`
// on.
inline Status ZeroDiagonal(int64_t count, int64_t n, int64_t first) {
  return Status(StatusCode::kFailedPrecondition, "ZERO_DIAGONAL",
                std::to_string(count) + " of " + std::to_string(n) +
                    " diagonal entries are zero, not stored, or too small to invert, the first in "
                    "column " +
                    std::to_string(first) +
                    ": Jacobi cannot divide by them; use static SPAI with row_match or ensure_row")
      .At("values", first);
}

}  // namespace spaid::kernels
