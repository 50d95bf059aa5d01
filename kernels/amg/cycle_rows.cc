#include "kernels/amg/cycle_rows.h"

#include <atomic>
#include <cmath>
#include <utility>

#include "kernels/base/hot_kernel.h"
#include "kernels/sparse/row_runs.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A row of A times x.
template <class Value>
SPAID_INLINE Value RowProduct(const int64_t* ptr, const int32_t* column, const Value* value,
                              int64_t i, const Value* x) {
  const int64_t end = ptr[i + 1];
  Value s0 = 0, s1 = 0;
  int64_t p = ptr[i];
  for (; p + 2 <= end; p += 2) {
    s0 += value[p] * x[column[p]];
    s1 += value[p + 1] * x[column[p + 1]];
  }
  if (p < end) s0 += value[p] * x[column[p]];
  return s0 + s1;
}

SPAID_HOT_KERNEL void Multiply(const int64_t* ptr, const int32_t* column, const float* value,
                               const uint8_t* runs, int64_t begin, int64_t end, const float* x,
                               float* y) {
  if (runs != nullptr) {
    MultiplyRuns<8>(ptr, column, value, runs, begin, end, x,
                    [&](int64_t i, float sum) { y[i] = sum; });
    return;
  }
  for (int64_t i = begin; i < end; ++i) y[i] = RowProduct(ptr, column, value, i, x);
}
SPAID_HOT_KERNEL void Multiply(const int64_t* ptr, const int32_t* column, const double* value,
                               const uint8_t* runs, int64_t begin, int64_t end, const double* x,
                               double* y) {
  if (runs != nullptr) {
    MultiplyRuns<4>(ptr, column, value, runs, begin, end, x,
                    [&](int64_t i, double sum) { y[i] = sum; });
    return;
  }
  for (int64_t i = begin; i < end; ++i) y[i] = RowProduct(ptr, column, value, i, x);
}
SPAID_HOT_KERNEL void Subtract(const int64_t* ptr, const int32_t* column, const float* value,
                               const uint8_t* runs, int64_t begin, int64_t end, const float* r,
                               const float* x, float* y) {
  if (runs != nullptr) {
    MultiplyRuns<8>(ptr, column, value, runs, begin, end, x,
                    [&](int64_t i, float sum) { y[i] = r[i] - sum; });
    return;
  }
  for (int64_t i = begin; i < end; ++i) y[i] = r[i] - RowProduct(ptr, column, value, i, x);
}
SPAID_HOT_KERNEL void Subtract(const int64_t* ptr, const int32_t* column, const double* value,
                               const uint8_t* runs, int64_t begin, int64_t end, const double* r,
                               const double* x, double* y) {
  if (runs != nullptr) {
    MultiplyRuns<4>(ptr, column, value, runs, begin, end, x,
                    [&](int64_t i, double sum) { y[i] = r[i] - sum; });
    return;
  }
  for (int64_t i = begin; i < end; ++i) y[i] = r[i] - RowProduct(ptr, column, value, i, x);
}

}  // namespace

template <class Value>
Rows<Value> LayOut(SharedMatrix from, const Array<double>& left, const Array<double>& right,
                   int threads) {
  Rows<Value> rows;
  if (from.pattern == nullptr) return rows;
  rows.n = from.n();
  rows.pattern = std::move(from.pattern);
  rows.value.resize(from.values.size());
  const Pattern& pattern = *rows.pattern;
  ParallelFor(rows.n, kRowsOfOneThread, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t p = pattern.col_ptr[Z(i)]; p < pattern.col_ptr[Z(i) + 1]; ++p) {
        double value = from.values[Z(p)];
        if (!left.empty()) value *= left[Z(i)];
        if (!right.empty()) value *= right[Z(pattern.row_idx[Z(p)])];
        rows.value[Z(p)] = static_cast<Value>(value);
      }
    }
  });
  rows.runs = FindRowRuns(pattern, threads);
  rows.block.push_back(0);
  int64_t work = 0;
  for (int64_t i = 0; i < rows.n; ++i) {
    work += 1 + pattern.col_ptr[Z(i) + 1] - pattern.col_ptr[Z(i)];
    const bool ends_run = i + 1 == rows.n || rows.runs.empty() || rows.runs[Z(i + 1)] > 0;
    if (ends_run && (work >= kBlockWork || i + 1 == rows.n)) {
      rows.block.push_back(i + 1);
      work = 0;
    }
  }
  return rows;
}
template Rows<float> LayOut(SharedMatrix, const Array<double>&, const Array<double>&, int);
template Rows<double> LayOut(SharedMatrix, const Array<double>&, const Array<double>&, int);

template <class Value>
bool AllFinite(const Rows<Value>& rows, int threads) {
  std::atomic<bool> finite{true};
  ParallelFor(rows.nnz(), kBlockWork, threads, [&](int64_t begin, int64_t end, int) {
    // Zeros, or else a NaN.
    Value sum = 0;
    for (int64_t p = begin; p < end; ++p) sum += 0 * rows.value[Z(p)];
    if (sum != 0) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}
template bool AllFinite(const Rows<float>&, int);
template bool AllFinite(const Rows<double>&, int);

void Product(const Rows<float>& a, int64_t begin, int64_t end, const float* x, float* y) {
  Multiply(a.pattern->col_ptr.data(), a.pattern->row_idx.data(), a.value.data(),
           a.runs.empty() ? nullptr : a.runs.data(), begin, end, x, y);
}
void Product(const Rows<double>& a, int64_t begin, int64_t end, const double* x, double* y) {
  Multiply(a.pattern->col_ptr.data(), a.pattern->row_idx.data(), a.value.data(),
           a.runs.empty() ? nullptr : a.runs.data(), begin, end, x, y);
}
void Residual(const Rows<float>& a, int64_t begin, int64_t end, const float* r, const float* x,
              float* y) {
  Subtract(a.pattern->col_ptr.data(), a.pattern->row_idx.data(), a.value.data(),
           a.runs.empty() ? nullptr : a.runs.data(), begin, end, r, x, y);
}
void Residual(const Rows<double>& a, int64_t begin, int64_t end, const double* r, const double* x,
              double* y) {
  Subtract(a.pattern->col_ptr.data(), a.pattern->row_idx.data(), a.value.data(),
           a.runs.empty() ? nullptr : a.runs.data(), begin, end, r, x, y);
}

template <class Value>
CscMatrix Columns(const Rows<Value>& rows, int64_t columns, const Array<Value>& left,
                  const Array<Value>& right) {
  Array<double> values(rows.value.size());
  const Pattern& pattern = *rows.pattern;
  for (int64_t i = 0; i < rows.n; ++i) {
    for (int64_t p = pattern.col_ptr[Z(i)]; p < pattern.col_ptr[Z(i) + 1]; ++p) {
      auto value = static_cast<double>(rows.value[Z(p)]);
      if (!left.empty()) value /= static_cast<double>(left[Z(i)]);
      if (!right.empty()) value /= static_cast<double>(right[Z(pattern.row_idx[Z(p)])]);
      values[Z(p)] = value;
    }
  }
  PatternView view = pattern;
  view.n_rows = columns;
  return Transpose(CscView{view, values});
}
template CscMatrix Columns(const Rows<float>&, int64_t, const Array<float>&, const Array<float>&);
template CscMatrix Columns(const Rows<double>&, int64_t, const Array<double>&,
                           const Array<double>&);

}  // namespace spaid::kernels
