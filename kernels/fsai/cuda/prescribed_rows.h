// Rows of G on a pattern, by dense systems: Q the pattern of a row with its diagonal, A[Q,Q] = L
// Lᵀ, and the row is the last one of L⁻¹. Rows whose patterns are nested, each the one before and
// its own diagonal (the unknowns of a node), are rows of one L⁻¹.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// What a launch is made for.
struct Chains {
  int32_t entries = 0;  // of a row, at most; 0: rows are too long
  int32_t node = 1;     // rows that may share a factor, the first of them a multiple of it
};

// Of a pattern of n rows: what most of them need, at most `longest` entries. Waits.
Chains MeasureChains(Context& context, const int64_t* ptr, const int32_t* idx, int64_t n,
                     int32_t longest);

// Makes rows [work.first, work.first + work.count) on the pattern work.initial_*. Those that are
// longer than chains.entries, or of which A is not positive definite, go to work.overflow.
// work.post_filter must be 0; work.queue, .rows and .shape are not read.
template <class Real>
void LaunchChains(Context& context, const Work<Real>& work, const Chains& chains);

}  // namespace spaid::cuda::fsai
