// LaunchRows in one precision.
#pragma once

#include <algorithm>

#include "kernels/fsai/cuda/rows_kernel_cuda.h"

namespace spaid::cuda::fsai {

template <class Real>
int64_t RoomBytes(const Shape& shape, int32_t per_step, Team team) {
  return team == Team::kGlobal
             ? LayOut<Real, uint32_t>(shape, per_step, false).bytes
             : LayOut<Real, uint16_t>(shape, per_step, team == Team::kWarp && shape.pivots <= 32)
                   .bytes;
}

template <class Real, Team kTeam, bool kFew, bool kGrow>
void LaunchRowsAs(Context& context, const Work<Real>& work, int blocks) {
  const auto kernel = FsaiRowsKernel<Real, kTeam, kFew, kGrow>;
  const int64_t room = RoomBytes<Real>(work.shape, work.per_step, kTeam);
  int threads = kBlockThreads, bytes = 0;
  if (kTeam != Team::kGlobal) {
    int most = 0;
    Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
          "cudaDeviceGetAttribute");
    cudaFuncAttributes attributes{};
    Check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
    most -= static_cast<int>(attributes.sharedSizeBytes);
    Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
          "cudaFuncSetAttribute");
    // As many rows at once as there is room for.
    int best = 0;
    for (int warps = kTeam == Team::kWarp ? 1 : kBlockWarps; warps <= kBlockWarps; warps *= 2) {
      const int64_t own = kTeam == Team::kWarp ? room * warps : room;
      if (own > most) break;
      int resident = 0;
      Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * warps,
                                                          static_cast<size_t>(own)),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
      if (resident * warps <= best) continue;
      best = resident * warps;
      blocks = resident * context.multiprocessors;
      threads = 32 * warps;
      bytes = static_cast<int>(own);
    }
    if (best == 0) throw Failure(kSpaidCudaError, "a row of FSAI has no room on this device");
    const int rows = kTeam == Team::kWarp ? threads / 32 : 1;
    blocks = std::min(blocks, (work.count + rows - 1) / rows);
  }
  kernel<<<blocks, threads, bytes, context.stream>>>(work, room);
  CheckLaunch("FsaiRowsKernel");
}

template <class Real>
void LaunchRows(Context& context, const Work<Real>& work, Team team, bool grow, int blocks) {
  if (work.count == 0) return;
  const auto launch = [&](auto kernel_of) { kernel_of(context, work, blocks); };
  const bool few = work.shape.pivots <= 32;
  switch (team) {
    case Team::kWarp:
      if (grow) {
        launch(few ? LaunchRowsAs<Real, Team::kWarp, true, true>
                   : LaunchRowsAs<Real, Team::kWarp, false, true>);
      } else {
        launch(few ? LaunchRowsAs<Real, Team::kWarp, true, false>
                   : LaunchRowsAs<Real, Team::kWarp, false, false>);
      }
      return;
    case Team::kBlock:
      launch(grow ? LaunchRowsAs<Real, Team::kBlock, false, true>
                  : LaunchRowsAs<Real, Team::kBlock, false, false>);
      return;
    case Team::kGlobal:
      launch(grow ? LaunchRowsAs<Real, Team::kGlobal, false, true>
                  : LaunchRowsAs<Real, Team::kGlobal, false, false>);
      return;
  }
}

}  // namespace spaid::cuda::fsai
