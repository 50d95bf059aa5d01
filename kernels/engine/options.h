// Range checks of a spec, with the names of the fields as clients know them.
#pragma once

#include <string>

#include "kernels/base/status.h"
#include "kernels/engine/spec.h"

namespace spaid::kernels {

inline constexpr int kMaxBlockSize = 32;

// INVALID_ARGUMENT/BAD_ENGINE, /BAD_BLOCK_SIZE, /BAD_SCALING (one that the engine cannot have), and
// what the Check of the engine named refuses (PreconditionerEngine): of kStaticSpai and kAuto BAD_
// and the name of the field, of kFsai and kAfsai /BAD_FSAI_OPTION, of dynamic SPAI
// /BAD_DYNAMIC_OPTION.
Status CheckSpec(const PreconditionerSpec& spec);

// As above, for steps that want a spec as Resolve returns it: kAuto is INVALID_ARGUMENT/
// ENGINE_NOT_RESOLVED.
Status CheckResolved(const PreconditionerSpec& spec);

// "MATCHING": as messages name it.
std::string WireName(ScalingMode mode);

}  // namespace spaid::kernels
