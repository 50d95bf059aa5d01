#include <algorithm>

#include "kernels/fsai/cuda/rows_tuning.h"
#include "kernels/fsai/cuda/workspace.h"

namespace spaid::cuda::fsai {
namespace {

constexpr bool kSample = true;

int32_t RoundUp(int64_t x, int32_t to) { return static_cast<int32_t>((x + to - 1) / to * to); }

int32_t PowerOfTwo(int64_t at_least) {
  int32_t power = 64;
  while (power < at_least) power *= 2;
  return power;
}

}  // namespace

template <class Real, Form kForm>
int64_t WorkspaceSizes<Real, kForm>::Added() const {
  return std::min(
      {int64_t{needs_.k_max} * needs_.per_step, needs_.n - (kColumn ? 0 : 1), needs_.most});
}

template <class Real, Form kForm>
int64_t WorkspaceSizes<Real, kForm>::MostPivots() const {
  if (!kColumn) return std::min(needs_.longest_initial - 1 + Added(), needs_.n - 1);
  const int64_t all = std::min(needs_.longest_initial + Added(), needs_.most);
  return std::min(std::max<int64_t>(all, needs_.longest_initial), needs_.n);
}

template <class Real, Form kForm>
Shape WorkspaceSizes<Real, kForm>::OnPattern(int64_t pivots) const {
  Shape shape;
  shape.pivots = static_cast<int32_t>(std::max<int64_t>(pivots, 1));
  shape.few = shape.pivots <= 32;
  shape.slots = RoundUp(shape.pivots, kPassSlots);
  const int blocks = (shape.pivots - 1 + kSize - 1) / kSize;
  for (int pass = 0; pass * kPassSlots < shape.slots; ++pass) {
    shape.tiles += std::min(blocks, (pass + 1) * kPassSlots / kSize);
  }
  shape.table = PowerOfTwo(int64_t{shape.slots} * 4 / 3);
  return shape;
}

template <class Real, Form kForm>
Shape WorkspaceSizes<Real, kForm>::ForGrowth(int64_t slots, int64_t tiles) const {
  Shape shape;
  shape.pivots = static_cast<int32_t>(std::max<int64_t>(MostPivots(), 1));
  shape.slots = RoundUp(std::max<int64_t>(slots, 1), kPassSlots);
  shape.tiles = std::max(static_cast<int32_t>(tiles), shape.slots / kPassSlots);
  shape.table = PowerOfTwo(int64_t{shape.slots} * 4 / 3);
  shape.steps = needs_.k_max + (kColumn ? 1 : 0);
  return shape;
}

template <class Real, Form kForm>
Shape WorkspaceSizes<Real, kForm>::Largest() const {
  Shape shape = LargestOfAll();
  while (needs_.grow && shape.slots > kPassSlots &&
         WorkspaceBytes<Real>(shape, needs_.per_step, Team::kGlobal) >
             tuning::kFsaiMostWorkspaceBytes) {
    shape = ForGrowth(shape.slots / 8 * 7, shape.tiles / 8 * 7);
  }
  return shape;
}

template <class Real, Form kForm>
Shape WorkspaceSizes<Real, kForm>::LargestOfAll() const {
  if (!needs_.grow) {
    return OnPattern(std::min<int64_t>(needs_.longest_initial - 1, tuning::kFsaiMostPatternRow));
  }
  const int64_t pivots = MostPivots();
  const int64_t slots = std::min(needs_.n, (pivots + 1) * needs_.longest);
  const int64_t passes = (slots + kPassSlots - 1) / kPassSlots;
  return ForGrowth(slots, passes * ((pivots + kSize - 1) / kSize));
}

template <class Real, Form kForm>
Shape WorkspaceSizes<Real, kForm>::Sample() const {
  const int64_t pivots = MostPivots();
  Shape shape;
  for (int64_t slots = tuning::kFsaiSampleSlots; slots > 0; slots -= kPassSlots) {
    // Half of the passes begin after half of the pivots, or later.
    const int64_t blocks = (pivots + kSize - 1) / kSize;
    const int64_t tiles = slots / kPassSlots * (blocks - blocks / 4);
    shape = ForGrowth(slots, tiles);
    if (TeamOf(shape, kSample) != Team::kGlobal) break;
  }
  return shape;
}

template <class Real, Form kForm>
Shape WorkspaceSizes<Real, kForm>::Next(const Shape& shape, const Shape& largest) const {
  Shape next = needs_.grow ? ForGrowth(2 * int64_t{shape.slots}, 2 * int64_t{shape.tiles})
                           : OnPattern(2 * int64_t{shape.pivots});
  if (next.slots > largest.slots) next.slots = largest.slots;
  if (next.tiles > largest.tiles) next.tiles = largest.tiles;
  return next;
}

template <class Real, Form kForm>
Team WorkspaceSizes<Real, kForm>::TeamOf(const Shape& shape, bool sample) const {
  int most = 0;
  Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context_.ordinal),
        "cudaDeviceGetAttribute");
  if (needs_.grow && needs_.k_max + (kColumn ? 1 : 0) <= kGrowSteps && needs_.per_step == 1 &&
      !needs_.has_initial &&
      WorkspaceBytes<Real>(shape, 1, Team::kGrow) <=
          (sample ? most : tuning::kFsaiGrowWorkspaceBytes)) {
    return Team::kGrow;
  }
  const int64_t warp = WorkspaceBytes<Real>(shape, needs_.per_step, Team::kWarp);
  if (warp <= tuning::kFsaiBlockWorkspaceBytes) return Team::kWarp;
  const int64_t block = WorkspaceBytes<Real>(shape, needs_.per_step, Team::kBlock);
  // Slots are 16 bits wide there; and some of it is the block's own.
  return block <= most - 1024 && shape.slots < 0xffff ? Team::kBlock : Team::kGlobal;
}

template class WorkspaceSizes<float, Form::kRow>;
template class WorkspaceSizes<double, Form::kRow>;
template class WorkspaceSizes<float, Form::kColumn>;
template class WorkspaceSizes<double, Form::kColumn>;

}  // namespace spaid::cuda::fsai
