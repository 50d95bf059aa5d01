// The diagnosis of a matrix (kernels/sparse/diagnosis.h), found by all ranks together.
// Internal to this room.
#pragma once

#include "kernels/base/status.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/sparse/diagnosis.h"

namespace spaid::kernels::mpi {

// Collective; the same on all ranks. All figures but the structural rank, which is known where the
// diagonal is full alone. Errors: RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<Diagnosis> DiagnoseSpread(const SpreadMatrix& a);

}  // namespace spaid::kernels::mpi
