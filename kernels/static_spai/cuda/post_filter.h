// The post-filter of a built M on a device.
#pragma once

#include <cstdint>

#include "kernels/static_spai/cuda/build.h"

namespace spaid::cuda {

// Number of columns of `result` that are left to the host. Waits for the device.
int64_t CountHostColumns(Context& context, const StaticSpaiResult& result);

// Drops the entries that PostFilter (kernels/sparse/pattern.h) drops: `result` becomes a CSC matrix
// of its own (m_ptr, m_idx), in place of values in the plan's pattern. Every column must be solved:
// none may be left to the host. False, and `result` unchanged: the arena does not hold M twice.
bool CompactM(Context& context, const StaticSpaiPlan& plan, double delta, StaticSpaiResult& result);

}  // namespace spaid::cuda
