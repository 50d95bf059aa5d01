// Upper bounds on the memory of a rank, before anything is there but the pattern of A on rank 0.
// Internal to this room.
#pragma once

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/ranks_device.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::mpi {

struct RanksShape {
  int ranks = 1;
  int threads = 1;         // of the rank with most
  int64_t halo_limit = 0;  // of the rank with most (DefaultHaloBytes)
};

// RanksDevice::Bound, for ranks of this shape. Communicates nothing. A is spread as SpreadWhole
// does; columns of M as spread_groups.h does, rows of G and columns that grow with A's. Nothing is
// known of which columns a rank fetches, but that they are others', each once, and that these are
// no more than the limit: a rank may have to hold all of A, and it may own the rows of M that have
// all entries, where the pattern does not say which rows these are.
Result<RanksDevice::RankBytes> BoundRankBytes(const PatternView& a,
                                              const RanksDevice::BuildToBound& build,
                                              const RanksShape& shape);

// The same of a matrix that lies over the ranks, by what they own of it.
Result<RanksDevice::RankBytes> BoundRankBytes(const RanksDevice::Shares& a,
                                              const RanksDevice::BuildToBound& build,
                                              const RanksShape& shape);

// Collective; the same on all ranks. The entries of AᵀA are counted, where that takes neither more
// memory than A took while it came, nor more steps than some tens for each entry of A; a column
// that is not has at most the sum of the lengths of its rows. Errors:
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<RanksDevice::Shares> SharesOf(const SpreadMatrix& a, int threads);

}  // namespace spaid::kernels::mpi
