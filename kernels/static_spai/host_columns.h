// Solves on the CPU the columns of M that another backend has left to it. Internal to this room.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// Solves the columns whose flags are 0: fills their values in result.m (whose pattern is there),
// their residual norms, pivots and flags. Returns the reason of a stop.
StopReason SolveLeftColumns(const CscView& a, const StaticSpaiOptions& options,
                            const Context& context, StaticSpaiResult& result,
                            Array<uint8_t>& flags);

}  // namespace spaid::kernels
