#include "kernels/fsai/cuda/rows_launch_cuda.h"

namespace spaid::cuda::fsai {
template void LaunchRows<double, Form::kColumn>(Context&, const Work<double>&, Team, bool, int);
}  // namespace spaid::cuda::fsai
