#include "kernels/fsai/cuda/rows_launch.h"

namespace spaid::cuda::fsai {
template void LaunchRows<double, Form::kColumn>(Context&, const Work<double>&, Team, bool, int);
}  // namespace spaid::cuda::fsai
