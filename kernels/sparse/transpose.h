// Transposes by counting sort: O(nnz + n), sorted output.
#pragma once

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// `a` canonical, or with unsorted columns; duplicates stay. The result has sorted columns. It is
// also `a` in CSR, read by columns.
CscMatrix Transpose(const CscView& a);
Pattern Transpose(const PatternView& a);

}  // namespace spaid::kernels
