#include "kernels/static_spai/local_kernels.h"

#include <algorithm>
#include <cstring>

#include "kernels/dense/simd.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

constexpr int kColumnsAtOnce = 4;

template <int Rows, int Columns>
SPAID_INLINE void AddToColumns(const int32_t* columns, const double* const (&values)[Rows],
                               int64_t entry, int64_t ld, double* b, const Vec8* spread,
                               const int32_t* segment, int64_t from, int64_t segments) {
  Vec8* target[Columns];
  double factor[Columns][Rows];
  for (int c = 0; c < Columns; ++c) {
    target[c] = reinterpret_cast<Vec8*>(b + columns[c] * ld);
    for (int r = 0; r < Rows; ++r) factor[c][r] = values[r][entry + c];
  }
  for (int64_t s = from; s < segments; ++s) {
    const int32_t at = segment[s];
    Vec8 sum[Columns];
    for (int c = 0; c < Columns; ++c) sum[c] = target[c][at];
    for (int r = 0; r < Rows; ++r) {
      const Vec8 row = spread[s * Rows + r];
      for (int c = 0; c < Columns; ++c) sum[c] += row * factor[c][r];
    }
    for (int c = 0; c < Columns; ++c) target[c][at] = sum[c];
  }
}

// Rank-`Rows` update of b by `Rows` rows of Â with one common pattern: each row is spread over the
// 8-aligned segments of [0, n_cols) that it touches, zeros between, and multiplied by whole
// vectors.
template <int Rows>
SPAID_INLINE void AddRows(const LocalProblem& problem, int64_t first, int64_t count, int64_t ld,
                          double* b, double* scratch) {
  const int32_t* columns = problem.row_col + problem.row_ptr[first];
  const double* values[Rows];
  for (int r = 0; r < Rows; ++r) values[r] = problem.row_value + problem.row_ptr[first + r];
  auto* spread = reinterpret_cast<Vec8*>(scratch);  // [segment][row]
  auto* segment = reinterpret_cast<int32_t*>(scratch + PadToLanes(problem.n_cols) * 4);
  int64_t segments = 0;
  int32_t last = -1;
  for (int64_t e = 0; e < count; ++e) {
    const int32_t s = columns[e] / kLanes;
    if (s != last) {
      last = s;
      for (int r = 0; r < Rows; ++r) spread[segments * Rows + r] = Vec8{};
      segment[segments++] = s;
    }
    double* lane = scratch + (segments - 1) * Rows * kLanes + columns[e] % kLanes;
    for (int r = 0; r < Rows; ++r) lane[r * kLanes] = values[r][e];
  }
  // Several columns of b at once share the loads of the spread rows. They start at the segment of
  // the first: what the others get above their diagonal block is never read.
  int64_t from = 0, e = 0;
  const auto advance = [&] {
    while (segment[from] != columns[e] / kLanes) ++from;
  };
  for (; e + kColumnsAtOnce <= count; e += kColumnsAtOnce) {
    advance();
    AddToColumns<Rows, kColumnsAtOnce>(columns + e, values, e, ld, b, spread, segment, from,
                                       segments);
  }
  for (; e < count; ++e) {
    advance();
    AddToColumns<Rows, 1>(columns + e, values, e, ld, b, spread, segment, from, segments);
  }
}

template <int Segments>
SPAID_INLINE void GramOfDenseRows(const LocalProblem& problem, int64_t ld, double* b,
                                  double* rows) {
  constexpr int64_t kStride = Segments * kLanes;
  std::fill(rows, rows + problem.n_rows * kStride, 0.0);
  for (int64_t q = 0; q < problem.n_cols; ++q) {
    for (int64_t p = problem.col_begin[q]; p < problem.col_end[q]; ++p) {
      rows[problem.col_row[p] * kStride + q] = problem.col_value[p];
    }
  }
  for (int64_t q = 0; q < problem.n_cols; ++q) {
    Vec8 even[Segments] = {}, odd[Segments] = {};
    int64_t p = problem.col_begin[q];
    const int64_t end = problem.col_end[q];
    for (; p + 1 < end; p += 2) {
      const auto* row0 = reinterpret_cast<const Vec8*>(rows + problem.col_row[p] * kStride);
      const auto* row1 = reinterpret_cast<const Vec8*>(rows + problem.col_row[p + 1] * kStride);
      for (int s = 0; s < Segments; ++s) {
        even[s] += row0[s] * problem.col_value[p];
        odd[s] += row1[s] * problem.col_value[p + 1];
      }
    }
    if (p < end) {
      const auto* row = reinterpret_cast<const Vec8*>(rows + problem.col_row[p] * kStride);
      for (int s = 0; s < Segments; ++s) even[s] += row[s] * problem.col_value[p];
    }
    auto* column = reinterpret_cast<Vec8*>(b + q * ld);
    for (int s = 0; s < Segments; ++s) column[s] = even[s] + odd[s];
  }
  for (int64_t q = problem.n_cols; q < kStride; ++q) {
    std::fill(b + q * ld, b + q * ld + kStride, 0.0);
  }
}

template <class Block>
SPAID_INLINE void MultiplyRows(const LocalProblem& problem, const double* x, double* r) {
  const auto* from = reinterpret_cast<const Block*>(x);
  auto* to = reinterpret_cast<Block*>(r);
  for (int64_t i = 0; i < problem.n_rows; ++i) {
    Block sum = to[i];
    for (int64_t p = problem.row_ptr[i]; p < problem.row_ptr[i + 1]; ++p) {
      sum += from[problem.row_col[p]] * problem.row_value[p];
    }
    to[i] = sum;
  }
}

template <class Block>
SPAID_INLINE void MultiplyTransposed(const LocalProblem& problem, const double* r, double* g) {
  const auto* from = reinterpret_cast<const Block*>(r);
  auto* to = reinterpret_cast<Block*>(g);
  for (int64_t q = 0; q < problem.n_cols; ++q) {
    Block sum0 = {}, sum1 = {};
    int64_t p = problem.col_begin[q];
    const int64_t end = problem.col_end[q];
    for (; p + 1 < end; p += 2) {
      sum0 -= from[problem.col_row[p]] * problem.col_value[p];
      sum1 -= from[problem.col_row[p + 1]] * problem.col_value[p + 1];
    }
    if (p < end) sum0 -= from[problem.col_row[p]] * problem.col_value[p];
    to[q] = sum0 + sum1;
  }
}

template <class Block, int W>
SPAID_INLINE void SumSquares(int64_t n_rows, const double* r, double* squared) {
  const auto* from = reinterpret_cast<const Block*>(r);
  Block sum = {};
  for (int64_t i = 0; i < n_rows; ++i) sum += from[i] * from[i];
  for (int w = 0; w < W; ++w) squared[w] = sum[w];
}

}  // namespace

int64_t GramScratch(int64_t n_cols) { return PadToLanes(n_cols) * 5; }

SPAID_HOT_KERNEL
void AccumulateGram(const LocalProblem& problem, int64_t ld, double* b, double* scratch) {
  const int64_t* row_ptr = problem.row_ptr;
  const int32_t* row_col = problem.row_col;
  const double* row_value = problem.row_value;
  int64_t i = 0;
  while (i < problem.n_rows) {
    const int64_t begin = row_ptr[i], count = row_ptr[i + 1] - begin;
    if (count < static_spai_tuning::kVectorRow) {
      for (int64_t e = begin; e < begin + count; ++e) {
        double* column = b + row_col[e] * ld;
        for (int64_t f = e; f < begin + count; ++f) {
          column[row_col[f]] += row_value[e] * row_value[f];
        }
      }
      ++i;
      continue;
    }
    int64_t rows = 1;
    while (rows < 4 && i + rows < problem.n_rows &&
           row_ptr[i + rows + 1] - row_ptr[i + rows] == count &&
           std::memcmp(row_col + begin, row_col + row_ptr[i + rows],
                       static_cast<size_t>(count) * sizeof(int32_t)) == 0) {
      ++rows;
    }
    switch (rows) {
      case 1:
        AddRows<1>(problem, i, count, ld, b, scratch);
        break;
      case 2:
        AddRows<2>(problem, i, count, ld, b, scratch);
        break;
      case 3:
        AddRows<3>(problem, i, count, ld, b, scratch);
        break;
      default:
        AddRows<4>(problem, i, count, ld, b, scratch);
        break;
    }
    i += rows;
  }
}

SPAID_HOT_KERNEL
void SmallGram(const LocalProblem& problem, int64_t ld, double* b, double* rows) {
  switch (PadToLanes(problem.n_cols) / kLanes) {
    case 1:
      return GramOfDenseRows<1>(problem, ld, b, rows);
    case 2:
      return GramOfDenseRows<2>(problem, ld, b, rows);
    case 3:
      return GramOfDenseRows<3>(problem, ld, b, rows);
    default:
      return GramOfDenseRows<4>(problem, ld, b, rows);
  }
}

SPAID_HOT_KERNEL
void MultiplyAdd(const LocalProblem& problem, int width, const double* x, double* r) {
  if (width == 8) {
    MultiplyRows<Vec8>(problem, x, r);
  } else if (width == 4) {
    MultiplyRows<Vec4>(problem, x, r);
  } else {
    for (int64_t q = 0; q < problem.n_cols; ++q) {
      const double factor = x[q];
      for (int64_t p = problem.col_begin[q]; p < problem.col_end[q]; ++p) {
        r[problem.col_row[p]] += problem.col_value[p] * factor;
      }
    }
  }
}

SPAID_HOT_KERNEL
void NegativeTransposeMultiply(const LocalProblem& problem, int width, const double* r, double* g) {
  if (width == 8) {
    MultiplyTransposed<Vec8>(problem, r, g);
  } else if (width == 4) {
    MultiplyTransposed<Vec4>(problem, r, g);
  } else {
    MultiplyTransposed<double>(problem, r, g);
  }
}

SPAID_HOT_KERNEL
void SquaredNorms(int64_t n_rows, int width, const double* r, double* squared) {
  if (width == 8) {
    SumSquares<Vec8, 8>(n_rows, r, squared);
  } else if (width == 4) {
    SumSquares<Vec4, 4>(n_rows, r, squared);
  } else {
    double sum[4] = {};
    int64_t i = 0;
    for (; i + 3 < n_rows; i += 4) {
      for (int k = 0; k < 4; ++k) sum[k] += r[i + k] * r[i + k];
    }
    for (; i < n_rows; ++i) sum[0] += r[i] * r[i];
    squared[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
}

}  // namespace spaid::kernels
