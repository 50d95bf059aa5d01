// Jacobi of a matrix that lies over the ranks. Internal to this room.
#pragma once

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels::mpi {

struct HybridJacobiResult {
  MatOwner rows;              // M, as A's rows are spread
  Array<double> diagonal;     // of the whole M, on rank 0; empty elsewhere
  StaticSpaiQuality quality;  // on rank 0: that of one process
};

// Collective; a rank reads its own columns alone. Takes 16 bytes a column of the whole on rank 0.
// Errors, the same on all ranks: FAILED_PRECONDITION/ZERO_DIAGONAL with the first index in the
// whole; RESOURCE_EXHAUSTED/OUT_OF_MEMORY; stop statuses.
Result<HybridJacobiResult> BuildHybridJacobi(const SpreadMatrix& a, const Context& context);

}  // namespace spaid::kernels::mpi
