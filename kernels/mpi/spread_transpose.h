// The transpose of a matrix over several ranks. Entries go to the ranks that own their other index
// piece by piece, so that a rank takes what it has, what it gets, and little more. Collective.
// Internal to this room.
#pragma once

#include <cstdint>

#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::mpi {

// Entries that come to a rank at once take so many bytes at the most, and those that leave it no
// more.
inline constexpr int64_t kTransposePieceBytes = int64_t{4} << 20;

// Returns the columns that this rank owns of a matrix by rows, as MPIAIJ is; canonical. Errors, the
// same on all ranks: RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<CscMatrix> OwnColumns(Mat rows, int64_t piece_bytes = kTransposePieceBytes);

// Returns the rows, as MPIAIJ, of a square matrix of which each rank has the next columns,
// canonical. Errors: the same.
Result<MatOwner> RowsOf(MPI_Comm comm, const CscView& columns,
                        int64_t piece_bytes = kTransposePieceBytes);

}  // namespace spaid::kernels::mpi
