// The cycle on a device, as kernels/amg/cycle.h has it on the host.
#pragma once

#include <memory>

#include "kernels/amg/cuda/set_up.h"
#include "kernels/amg/cycle_parts.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/applied.h"
#include "kernels/sparse/cuda/reorder.h"

namespace spaid::cuda {

// Uploads `parts`, which are read no more afterwards. `bytes`: that one application moves at the
// least. `order`: that of the vectors it is applied to; null: the parts' own. Throws Failure, and
// Refusal where `host` stops it. Value: float, double.
template <class Value>
std::unique_ptr<const Applied> MakeCycle(Context& context, const kernels::CycleParts<Value>& parts,
                                         int64_t bytes, const UnknownOrder* order,
                                         const kernels::Context& host);

// The same of one that is there, in its precision.
std::unique_ptr<const Applied> MakeCycle(Context& context, const Hierarchy& made, int64_t bytes,
                                         const UnknownOrder* order, const kernels::Context& host);

}  // namespace spaid::cuda
