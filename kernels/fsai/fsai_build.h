// Internal to this room.
#pragma once

#include "kernels/fsai/fsai.h"

namespace spaid::kernels {

// BuildFsai where options.adaptive is not set.
Result<FsaiResult> BuildStaticFsai(const CscView& a, const PatternView* user,
                                   const FsaiOptions& options, const Context& context);

}  // namespace spaid::kernels
