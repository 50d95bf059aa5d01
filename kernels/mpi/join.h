// How the processes of a job come together: MPI and PETSc started, versions and options compared,
// cores and memory of each host shared, a heartbeat between them. Internal to this room.
#pragma once

#include "kernels/base/status.h"
#include "kernels/mpi/ranks_device.h"

namespace spaid::kernels::mpi {

// MpiEntry::join.
Result<Joined> Join(const JoinTerms& terms);

}  // namespace spaid::kernels::mpi
