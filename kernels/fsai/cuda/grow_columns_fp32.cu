#include "kernels/fsai/cuda/rows_launch.h"

namespace spaid::cuda::fsai {
template void LaunchRows<float, Form::kColumn>(Context&, const Work<float>&, Team, bool, int);
}  // namespace spaid::cuda::fsai
