#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/base/parallel.h"
#include "kernels/dense/inverse.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/options.h"

namespace spaid::kernels {
namespace {

static_assert(kMaxBlockSize == kMaxInverse);
constexpr int64_t kColumnsPerBatch = 1024;

// Columns [first, first + size) of A, row by row: use(row, its elements), for rows that any of them
// stores.
template <class Use>
void ForRows(const CscView& a, int64_t first, int64_t size, const Use& use) {
  int64_t at[kMaxInverse], end[kMaxInverse];
  double values[kMaxInverse];
  const auto rows = a.column(first);
  bool same = true;
  for (int64_t j = 0; j < size; ++j) {
    at[j] = a.col_ptr[first + j];
    end[j] = a.col_ptr[first + j + 1];
    same = same && std::ranges::equal(a.column(first + j), rows);
  }
  if (same) {  // the unknowns of a node: nothing to merge
    for (const int32_t row : rows) {
      for (int64_t j = 0; j < size; ++j) values[j] = a.values[at[j]++];
      use(row, values);
    }
    return;
  }
  for (;;) {
    int32_t row = std::numeric_limits<int32_t>::max();
    for (int64_t j = 0; j < size; ++j) {
      if (at[j] < end[j]) row = std::min(row, a.row_idx[at[j]]);
    }
    if (row == std::numeric_limits<int32_t>::max()) return;
    for (int64_t j = 0; j < size; ++j) {
      const bool here = at[j] < end[j] && a.row_idx[at[j]] == row;
      values[j] = here ? a.values[at[j]++] : 0;
    }
    use(row, values);
  }
}

// ‖A m_k − e_k‖₂ of a block's columns; `m`: its inverse. Every row of the block is some column's,
// else it would be singular.
void ResidualNorms(const CscView& a, int64_t first, int64_t size, const double* m, double* norms) {
  const auto residual = [=](int32_t row, const double* values, int64_t k) {
    double r = row == first + k ? -1.0 : 0.0;
    for (int64_t j = 0; j < size; ++j) r += values[j] * m[j + k * size];
    return r;
  };
  double largest[kMaxInverse] = {}, sum[kMaxInverse] = {};
  ForRows(a, first, size, [&](int32_t row, const double* values) {
    for (int64_t k = 0; k < size; ++k) {
      const double r = residual(row, values, k);
      largest[k] = std::max(largest[k], std::abs(r));
      sum[k] += r * r;
    }
  });
  // Where squares leave the range of fp64: once more, scaled.
  const auto in_range = [](double v) { return v == 0 || (v > 1e-140 && v < 1e140); };
  if (!std::all_of(largest, largest + size, in_range)) {
    std::fill_n(sum, size, 0.0);
    ForRows(a, first, size, [&](int32_t row, const double* values) {
      for (int64_t k = 0; k < size; ++k) {
        if (largest[k] == 0) continue;
        const double r = residual(row, values, k) / largest[k];
        sum[k] += r * r;
      }
    });
    for (int64_t k = 0; k < size; ++k) sum[k] = std::sqrt(sum[k]) * largest[k];
  } else {
    for (int64_t k = 0; k < size; ++k) sum[k] = std::sqrt(sum[k]);
  }
  std::copy_n(sum, size, norms);
}

// The block's inverse in `m`. Its condition number; infinite where some element has no place in
// fp64.
double InvertBlock(const CscView& a, int64_t first, int64_t size, double* m) {
  std::fill_n(m, size * size, 0.0);
  for (int64_t j = 0; j < size; ++j) {
    const auto rows = a.column(first + j);
    const auto values = a.column_values(first + j);
    auto at = static_cast<size_t>(
        std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(first)) - rows.begin());
    for (; at < rows.size() && rows[at] < first + size; ++at) {
      m[rows[at] - first + j * size] = values[at];
    }
  }
  const double kappa = InvertInPlace(size, m);
  const bool finite = std::all_of(m, m + size * size, [](double v) { return std::isfinite(v); });
  return finite ? kappa : std::numeric_limits<double>::infinity();
}

Status SingularBlock(int64_t n, int64_t b, const Array<double>& kappa, const Occurrence& bad) {
  const int64_t first = bad.first * b, last = std::min(first + b, n) - 1;
  const double condition = kappa[bad.first];
  return Status(StatusCode::kFailedPrecondition, "SINGULAR_BLOCK",
                std::to_string(bad.count) + " of " + std::to_string(kappa.size()) +
                    " diagonal blocks of " + std::to_string(b) +
                    " cannot be inverted, the first is block " + std::to_string(bad.first) +
                    " (rows and columns " + std::to_string(first) + " to " + std::to_string(last) +
                    "): " +
                    (std::isfinite(condition)
                         ? "its condition number " + Figure(condition) +
                               " leaves its inverse no correct digit"
                         : "it is singular, or its inverse leaves the range of fp64") +
                    "; use another block_size, or static SPAI with row_match or ensure_row")
      .At("values", bad.first);
}

}  // namespace

int64_t BlockJacobiEntries(int64_t n, int block_size) {
  const int64_t last = n % block_size;
  return (n - last) * block_size + last * last;
}

Result<JacobiResult> BuildBlockJacobi(const CscView& a, int block_size, const Context& context) {
  const int64_t n = a.n_cols, b = block_size, blocks = (n + b - 1) / b;
  const int64_t nnz = BlockJacobiEntries(n, block_size);
  JacobiResult result;
  CscMatrix& m = result.m;
  m.n_rows = m.n_cols = n;
  m.col_ptr.resize(static_cast<size_t>(n) + 1);
  m.row_idx.resize(static_cast<size_t>(nnz));
  m.values.resize(static_cast<size_t>(nnz));
  Array<double> norms(static_cast<size_t>(n)), kappa(static_cast<size_t>(blocks));
  m.col_ptr[0] = 0;
  const StopReason stop = ParallelFor(
      blocks, std::max<int64_t>(1, kColumnsPerBatch / b), context, Stage::kBuild,
      [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * b, size = std::min(b, n - first), at = first * b;
          for (int64_t k = 0; k < size; ++k) {
            m.col_ptr[first + k + 1] = at + (k + 1) * size;
            for (int64_t i = 0; i < size; ++i) {
              m.row_idx[at + k * size + i] = static_cast<int32_t>(first + i);
            }
          }
          double* const inverse = m.values.data() + at;
          kappa[block] = InvertBlock(a, first, size, inverse);
          ResidualNorms(a, first, size, inverse, norms.data() + first);
        }
      });
  if (stop != StopReason::kNone) return StopStatus(stop, "the block Jacobi build");

  Occurrence bad;
  for (int64_t block = 0; block < blocks; ++block) {
    // NaN is bad, too.
    if (!(kappa[block] < 1 / std::numeric_limits<double>::epsilon()) && bad.count++ == 0) {
      bad.first = block;
    }
  }
  if (bad.count > 0) return SingularBlock(n, b, kappa, bad);
  result.quality = JacobiQuality(a, norms, nnz, context);
  return result;
}

}  // namespace spaid::kernels
