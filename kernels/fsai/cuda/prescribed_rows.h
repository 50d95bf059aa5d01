// Rows of G on a pattern, by dense systems: Q the pattern of a row with its diagonal, A[Q,Q] = L
// Lᵀ, and the row is the last one of L⁻¹. Rows whose patterns are nested, each the one before and
// its own diagonal (the unknowns of a node), are rows of one L⁻¹.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// The systems that a launch is made for.
struct PrescribedRows {
  int32_t entries = 0;  // entries of a row, at most; 0: rows are too long
  int32_t node = 1;     // rows that may share a factor, the first of them a multiple of it
};

// Measures what most of a pattern's n rows need, at most `longest` entries. Waits for the device.
PrescribedRows MeasurePrescribedRows(Context& context, const int64_t* ptr, const int32_t* idx,
                                     int64_t n, int32_t longest);

// Makes rows [work.first, work.first + work.count) on the pattern work.initial_*. Those that are
// longer than prescribed.entries, or where A is not positive definite, go to work.overflow.
// work.post_filter must be 0; work.queue, .rows and .shape are not read.
template <class Real>
void LaunchPrescribedRows(Context& context, const Work<Real>& work,
                          const PrescribedRows& prescribed);

}  // namespace spaid::cuda::fsai
