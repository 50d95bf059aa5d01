// The quality figures of a finished M. Internal to this room.
#pragma once

#include <cstdint>

#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// Fills result.quality from the columns' residual norms, pivots and flags (ColumnFlag).
void Summarise(const Array<uint8_t>& flags, int64_t nnz_a, int threads, StaticSpaiResult& result);

}  // namespace spaid::kernels
