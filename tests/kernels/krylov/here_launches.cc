// Small matrices as large ones are: by diagonals and nodes, and a launch for each step.
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/here_device.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels::krylov_test {

const SpaidCudaInterface& InterfaceHere() { return WithRowsBytes<0>(); }

int64_t LateHere() { return 20; }  // two graphs

int64_t AtOnceHere() { return kSpaidCudaMostColumns; }

}  // namespace spaid::kernels::krylov_test
