// Parts of the growth of dynamic SPAI that all devices share. Internal to this room and its tests.
#pragma once

#include <cstdint>

#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {

// Where it begins: of each column first itself, then the other rows of `initial`, which may be
// null, ascending.
Pattern DynamicStarts(const PatternView* initial, int64_t n);

GrowthRules DynamicRules(const DynamicSpaiOptions& options);

// FAILED_PRECONDITION/ZERO_COLUMN where all values of a column are zero, or there are none (index:
// the first).
Status CheckColumnValues(const CscView& a, int threads);

// Grows the columns of grown.m whose only row is −1, which a device has left to the host, and adds
// them to its figures, in which they have no part yet. How many there were. Errors: those of
// GrowDynamicSpai. Throws std::bad_alloc.
Result<int64_t> GrowLeftColumns(const CscView& a, const PatternView* initial,
                                const DynamicSpaiOptions& options, const Context& context,
                                DynamicSpaiPattern& grown);

}  // namespace spaid::kernels
