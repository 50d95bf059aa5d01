// The smoother M of static SPAI on a device: by the engine there (kernels/static_spai/cuda), as the
// host's MakeSmoother takes the host's.
//
//   std::optional<SmootherFactor> made = MakeSpai(context, a, symmetric, finest, keeps, caller);
#pragma once

#include <optional>

#include "kernels/amg/cuda/factors.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Makes M of A by rows, in `g`, and Mᵀ by rows where A is symmetric, in `gt`. `finest`: A is that
// of level 0, whose pattern M has; else M's is the host's of a coarse level. Values are the host's
// to rounding. Gather tables take kernels::SpaiTableBytes at the most. Nothing where that is the
// host's work: of columns without entries, or some that the device's kernels leave to the host.
// Waits for the device. Throws Failure, and Refusal where `caller` stops it.
std::optional<SmootherFactor> MakeSpai(Context& context, const RowMatrix& a, bool symmetric,
                                       bool finest, bool keeps, const Caller& caller);
// The same on the pattern of an M that was made before.
std::optional<SmootherFactor> MakeSpaiOn(Context& context, const RowMatrix& a, bool symmetric,
                                         const KeptFactor& known, const Caller& caller);

}  // namespace spaid::cuda
