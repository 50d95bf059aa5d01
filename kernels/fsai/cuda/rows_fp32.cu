#include "kernels/fsai/cuda/rows_launch.h"

namespace spaid::cuda::fsai {
template int64_t WorkspaceBytes<float>(const Shape&, int32_t, Team);
template void LaunchRows<float, Form::kRow>(Context&, const Work<float>&, Team, bool, int);
}  // namespace spaid::cuda::fsai
