// Compressed sparse matrices. Pointers and counts are int64, indices int32 and 0-based, values
// fp64.
//
//   CscMatrix a = ...;              // owns its arrays
//   CscView view = a;               // borrows them; cheap to copy
//   for (int64_t p = view.col_ptr[j]; p < view.col_ptr[j + 1]; ++p) use(view.row_idx[p]);
//
// Everything below (unless it says otherwise) wants *canonical* form: col_ptr[0] = 0,
// non-decreasing, col_ptr[n_cols] = nnz, row indices strictly increasing in each column and in [0,
// n_rows). `validation.h` checks that and brings other input into this form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/memory.h"

namespace spaid::kernels {

// std::vector that leaves new elements uninitialised, so that a large array that is about to be
// overwritten touches each page once; large ones stand on huge pages.
template <class T>
struct DefaultInitAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = DefaultInitAllocator<U>;
  };
  T* allocate(size_t n) {
    if (n < kLargeBytes / sizeof(T)) return std::allocator<T>::allocate(n);
    if (n > static_cast<size_t>(PTRDIFF_MAX) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(AllocateLarge(n * sizeof(T)));
  }
  void deallocate(T* p, size_t n) {
    if (n < kLargeBytes / sizeof(T)) return std::allocator<T>::deallocate(p, n);
    FreeLarge(p, n * sizeof(T));
  }
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};
template <class T>
using Array = std::vector<T, DefaultInitAllocator<T>>;

// A sparsity pattern by columns; borrowed.
struct PatternView {
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  std::span<const int64_t> col_ptr;  // n_cols + 1
  std::span<const int32_t> row_idx;  // nnz

  int64_t nnz() const { return static_cast<int64_t>(row_idx.size()); }
  std::span<const int32_t> column(int64_t j) const {
    return row_idx.subspan(static_cast<size_t>(col_ptr[j]),
                           static_cast<size_t>(col_ptr[j + 1] - col_ptr[j]));
  }
};

// A matrix by columns (CSC); borrowed. Read as CSR it is the transpose.
struct CscView : PatternView {
  std::span<const double> values;  // nnz

  std::span<const double> column_values(int64_t j) const {
    return values.subspan(static_cast<size_t>(col_ptr[j]),
                          static_cast<size_t>(col_ptr[j + 1] - col_ptr[j]));
  }
};

struct Pattern {
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  Array<int64_t> col_ptr;
  Array<int32_t> row_idx;

  int64_t nnz() const { return static_cast<int64_t>(row_idx.size()); }
  operator PatternView() const { return {n_rows, n_cols, col_ptr, row_idx}; }  // NOLINT
};

struct CscMatrix {
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  Array<int64_t> col_ptr;
  Array<int32_t> row_idx;
  Array<double> values;

  int64_t nnz() const { return static_cast<int64_t>(row_idx.size()); }
  int64_t bytes() const {
    return static_cast<int64_t>(col_ptr.size() * sizeof(int64_t) +
                                row_idx.size() * sizeof(int32_t) + values.size() * sizeof(double));
  }
  operator CscView() const {  // NOLINT
    return {{n_rows, n_cols, col_ptr, row_idx}, values};
  }
  PatternView pattern() const { return {n_rows, n_cols, col_ptr, row_idx}; }
};

}  // namespace spaid::kernels
