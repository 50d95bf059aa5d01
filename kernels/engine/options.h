// Range checks of a spec, with the names of the fields as clients know them.
#pragma once

#include "kernels/base/status.h"
#include "kernels/engine/spec.h"

namespace spaid::kernels {

inline constexpr int kMaxPatternPower = 16;
inline constexpr int kMaxBlockSize = 32;

// INVALID_ARGUMENT/BAD_ENGINE, /BAD_BLOCK_SIZE, and for kStaticSpai and kAuto /BAD_PATTERN_POWER,
// /BAD_KEEP_TAU, /BAD_POST_FILTER, /BAD_LOCAL_SOLVER, /BAD_THREAD_STRATEGY, /BAD_GRAM_PIVOT_LIMIT,
// /BAD_MAX_NNZ; of other engines those of their Check
// (PreconditionerEngine).
Status CheckSpec(const PreconditionerSpec& spec);

// As above, for steps that want a spec as Resolve returns it: kAuto is INVALID_ARGUMENT/
// ENGINE_NOT_RESOLVED.
Status CheckResolved(const PreconditionerSpec& spec);

// The part of it that is static SPAI's.
Status CheckStaticSpai(const StaticSpaiOptions& options);

}  // namespace spaid::kernels
