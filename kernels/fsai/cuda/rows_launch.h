// LaunchRows in one precision.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/fsai/cuda/grow_kernel.h"
#include "kernels/fsai/cuda/grow_pool_kernel.h"
#include "kernels/fsai/cuda/rows_kernel.h"
#include "kernels/fsai/cuda/rows_tuning.h"

namespace spaid::cuda::fsai {

template <class Real>
int64_t WorkspaceBytes(const Shape& shape, int32_t per_step, Team team) {
  if (team == Team::kGrow) {
    if (shape.slots > kMostPoolSlots) return std::numeric_limits<int64_t>::max();
    const int64_t by_pool = TilePool::Bytes(shape.tiles) + LayOutPool<Real>(shape).bytes;
    return std::max(LayOutGrow<Real>(shape).bytes, by_pool);
  }
  if (team == Team::kGlobal) return LayOut<Real, uint32_t>(shape, per_step, false).bytes;
  return LayOut<Real, uint16_t>(shape, per_step, team == Team::kWarp && shape.few).bytes;
}

// The most dynamic shared memory that a block can have; allows the kernel to use it.
template <class Kernel>
int MostShared(Context& context, Kernel kernel) {
  int most = 0;
  Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
        "cudaDeviceGetAttribute");
  cudaFuncAttributes attributes{};
  Check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  most -= static_cast<int>(attributes.sharedSizeBytes);
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
        "cudaFuncSetAttribute");
  return most;
}

// `workspace`: bytes of one. `blocks`: for kGlobal.
template <class Real, class Kernel>
void LaunchRowsBy(Context& context, const Work<Real>& work, Team team, int64_t workspace,
                  int blocks, Kernel kernel) {
  const bool warps_alone = team == Team::kGrow || team == Team::kWarp;
  int threads = kBlockThreads, bytes = 0;
  if (team != Team::kGlobal) {
    const int most = MostShared(context, kernel);
    // As many rows at once as shared memory holds.
    int best = 0;
    for (int warps = warps_alone ? 1 : kBlockWarps; warps <= kBlockWarps; ++warps) {
      const int64_t own = warps_alone ? workspace * warps : workspace;
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
    if (best == 0) throw Failure(CudaFault::kError, "a row of FSAI has no room on this device");
    const int rows = warps_alone ? threads / 32 : 1;
    blocks = std::min(blocks, (work.count + rows - 1) / rows);
  }
  kernel<<<blocks, threads, bytes, context.stream>>>(work, workspace);
  CheckLaunch("FsaiRowsKernel");
}

// One block a multiprocessor, with as many rows as shared memory holds on average.
template <Form kForm, class Real, class Kernel>
void LaunchByPool(Context& context, const Work<Real>& work, Kernel kernel) {
  constexpr double kShare =
      kForm == Form::kColumn ? tuning::kColumnPoolShare : tuning::kFsaiPoolShare;
  const int64_t workspace = LayOutPool<Real>(work.shape).bytes, most = MostShared(context, kernel);
  const auto usual = static_cast<int64_t>(kShare * work.shape.tiles * TilePool::kTileBytes);
  const int64_t rows = (work.count + context.multiprocessors - 1) / context.multiprocessors;
  int64_t warps = std::min<int64_t>({kPoolWarps<Real>, rows, most / (workspace + usual)});
  int tiles = 0;
  for (warps = std::max<int64_t>(warps, 1);; --warps) {
    tiles = static_cast<int>((most - warps * workspace) / TilePool::kTileBytes);
    while (tiles > 0 && TilePool::Bytes(tiles) + warps * workspace > most) --tiles;
    if (tiles >= work.shape.tiles) break;
    if (warps == 1) throw Failure(CudaFault::kError, "a row of FSAI has no room on this device");
  }
  const auto bytes = static_cast<size_t>(TilePool::Bytes(tiles) + warps * workspace);
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(context.multiprocessors, (work.count + warps - 1) / warps));
  kernel<<<blocks, static_cast<unsigned>(32 * warps), bytes, context.stream>>>(work, workspace,
                                                                               tiles);
  CheckLaunch("FsaiPoolKernel");
}

template <class Real, bool kStride, Form kForm>
void LaunchGrow(Context& context, const Work<Real>& work) {
  // The kernel reads all passes that it could hold.
  const GrowLayout layout = LayOutGrow<Real>(work.shape);
  const auto launch = [&](auto kernel, int held) {
    const int64_t workspace = std::max(layout.bytes, layout.index + int64_t{4} * kPassSlots * held);
    LaunchRowsBy<Real>(context, work, Team::kGrow, workspace, 0, kernel);
  };
  const int passes = work.shape.slots / kPassSlots;
  if (!kStride || work.a.stride <= 32) {
    if (kStride && passes <= 2) return launch(FsaiGrowKernel<Real, 2, true, kForm>, 2);
    if (kStride && passes <= 3) return launch(FsaiGrowKernel<Real, 3, true, kForm>, 3);
    if (passes <= 4) return launch(FsaiGrowKernel<Real, 4, kStride, kForm>, 4);
  }
  if (work.shape.slots <= kGrowHeldSlots) {
    return LaunchByPool<kForm>(context, work, FsaiPoolKernel<Real, 12, kStride, kForm>);
  }
  LaunchByPool<kForm>(context, work, FsaiPoolKernel<Real, 0, kStride, kForm>);
}

template <class Real, Form kForm>
void LaunchRows(Context& context, const Work<Real>& work, Team team, bool grow, int blocks) {
  if (work.count == 0) return;
  const int64_t workspace = WorkspaceBytes<Real>(work.shape, work.per_step, team);
  const auto launch = [&](auto kernel) {
    LaunchRowsBy<Real>(context, work, team, workspace, blocks, kernel);
  };
  if (team == Team::kGrow) {
    if constexpr (kForm == Form::kRow) {
      if (work.a.stride > 0) return LaunchGrow<Real, true, kForm>(context, work);
    }
    return LaunchGrow<Real, false, kForm>(context, work);
  }
  const auto by = [&](auto team_of) {
    constexpr Team kTeam = decltype(team_of)::value;
    if constexpr (kForm == Form::kRow) {
      if (!grow && kTeam == Team::kWarp && work.shape.few) {
        return launch(FsaiRowsKernel<Real, Team::kWarp, true, false, kForm>);
      }
      if (!grow) return launch(FsaiRowsKernel<Real, kTeam, false, false, kForm>);
    }
    launch(FsaiRowsKernel<Real, kTeam, false, true, kForm>);
  };
  switch (team) {
    case Team::kGrow:
      break;
    case Team::kWarp:
      return by(std::integral_constant<Team, Team::kWarp>());
    case Team::kBlock:
      return by(std::integral_constant<Team, Team::kBlock>());
    case Team::kGlobal:
      return by(std::integral_constant<Team, Team::kGlobal>());
  }
}

}  // namespace spaid::cuda::fsai
