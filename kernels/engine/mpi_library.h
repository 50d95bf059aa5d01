// Finds libspaid_mpi.so, and the ranks by it. Programs do not link MPI.
#pragma once

#include "kernels/base/status.h"
#include "kernels/mpi/ranks_device.h"

namespace spaid::kernels {

// Opens the library with the first call, and gives it what the program has once (threads, freed
// memory). Errors: UNAVAILABLE/RANKS_UNAVAILABLE, with what was looked for and what is wrong.
Result<const MpiEntry*> LoadMpi();

}  // namespace spaid::kernels
