// A finished M: its quality figures, and its showing. Internal to this room.
#pragma once

#include <cstdint>

#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// Shows result.m, whose sizes and pattern are there, to context.result.
inline void ShowM(const Context& context, StaticSpaiResult& result) {
  result.shown.Show(context.result, result.m.col_ptr, result.m.row_idx, result.m.values);
}

// Fills result.quality from the columns' residual norms, pivots and flags (ColumnFlag).
void Summarise(const Array<uint8_t>& flags, int64_t nnz_a, int threads, StaticSpaiResult& result);

}  // namespace spaid::kernels
