#include "kernels/fsai/cuda/rows_launch.h"

namespace spaid::cuda::fsai {
template int64_t WorkspaceBytes<double>(const Shape&, int32_t, Team);
template void LaunchRows<double, Form::kRow>(Context&, const Work<double>&, Team, bool, int);
}  // namespace spaid::cuda::fsai
