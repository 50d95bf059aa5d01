// The one symbol of libspaid_mpi.so.
#include "kernels/base/build_id.h"
#include "kernels/base/memory.h"
#include "kernels/base/parallel.h"
#include "kernels/mpi/join.h"
#include "kernels/mpi/ranks_device.h"

namespace spaid::kernels {
namespace {

void Adopt(const ProcessState& program) {
  ThePool() = program.pool;
  TheFreedBlocks() = program.freed;
}

}  // namespace
}  // namespace spaid::kernels

extern "C" __attribute__((visibility("default"))) const spaid::kernels::MpiEntry spaid_mpi_entry = {
    SPAID_BUILD_ID, &spaid::kernels::Adopt, &spaid::kernels::mpi::Join};
