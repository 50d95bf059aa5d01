// The cycle: z = M r on a hierarchy that is set up.
//
//   auto cycle = MakeCycle(std::move(levels), std::move(inverse), scaled, options, context);
//   cycle->Apply(r, z, threads);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/coarse_inverse.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/smoothers.h"
#include "kernels/amg/tentative.h"

namespace spaid::kernels {

// Matrices and smoother of a level, in fp64, all by rows.
struct AmgLevel {
  SharedMatrix a;
  SharedMatrix p, r;   // to the level above the coarser one, and back; none on the last level
  Smoother smoother;   // none on the last level, where that is inverted
  NearNull near_null;  // of Â
};

// FAILED_PRECONDITION/FLOAT32_OVERFLOW.
Status BeyondPrecision(size_t level);

// Lays out levels in the precision of the options, and drops their values; patterns are shared.
// `inverse` of the last level; of no rows: that is smoothed. `a`: its sign and scale; its matrix is
// the first level's. Errors: FAILED_PRECONDITION/FLOAT32_OVERFLOW;
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<std::shared_ptr<const AmgHierarchy>> MakeCycle(std::vector<AmgLevel> levels,
                                                      CoarseInverse inverse, UnitScaled a,
                                                      const AmgOptions& options,
                                                      const Context& context);

}  // namespace spaid::kernels
