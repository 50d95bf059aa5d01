// Internal to this room.
#pragma once

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/fsai/fsai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// FsaiPattern of options that are checked. `diagonal`: of A, where drop_tol > 0. `symmetric`: A's
// pattern is known to be.
Result<Pattern> LowerPattern(const CscView& a, const PatternView* user,
                             std::span<const double> diagonal, bool symmetric,
                             const FsaiOptions& options, const Context& context);

}  // namespace spaid::kernels
