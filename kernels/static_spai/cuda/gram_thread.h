// One thread a group, for small local problems that many groups share as shifted copies: the 32
// threads of a warp do the same arithmetic for 32 groups of one structure, with Gram matrix and
// factor in registers (the CPU's lane_solver.h, on a device).
#pragma once

#include <cstdint>

#include "kernels/static_spai/cuda/gram.h"
#include "kernels/static_spai/cuda/plan.h"

namespace spaid::cuda {

// Fills the table of each lane structure: that of structure_of_lane, of which `representative`
// names a group.
void MakeLaneTables(Context& context, const Matrix& a, const int32_t* structure_of_lane,
                    const int32_t* representative, StaticSpaiPlan& plan);

// Solves the groups of all lane structures with |J| = n2.
void LaunchLanes(const Context& context, int n2, const StaticSpaiPlan& plan, const GramArgs& args);

}  // namespace spaid::cuda
