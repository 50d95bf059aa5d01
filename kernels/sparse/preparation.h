// Brings an untrusted matrix into form and diagnoses it.
#pragma once

#include <cstdint>

#include "kernels/sparse/validation.h"

namespace spaid::kernels {

// Host bytes that Canonicalize takes at its peak beside the arrays of the input, at most; of
// `options` sort_and_sum and pattern_only are read.
int64_t CanonicalizeBytes(int64_t n, int64_t nnz, Layout layout, const ValidationOptions& options);

// Host bytes that Diagnose takes at its peak, at most, of a matrix of that size.
int64_t DiagnoseBytes(int64_t n, int64_t nnz);

}  // namespace spaid::kernels
