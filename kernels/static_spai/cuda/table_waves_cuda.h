// The tables of a plan that has no room for them (StaticSpaiPlan::in_waves): those of some groups
// at a time, made for a wave of a build and dropped after it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/static_spai/cuda/gram_cuda.h"
#include "kernels/static_spai/cuda/plan_cuda.h"

namespace spaid::cuda {

class TableWaves {
 public:
  // Takes what is left of the arena: made when all else of a build is there. Waits for the device.
  TableWaves(Context& context, const StaticSpaiPlan& plan, const Matrix& a);

  // How many of groups [begin, begin + count) of plan.order, from the first on, have room for their
  // tables at once: one or more. Throws kSpaidCudaOutOfMemory where the first has none.
  int32_t Count(int32_t begin, int32_t count) const;

  // Makes the tables of groups [begin, begin + count) of plan.order, in place of those of the wave
  // before. Waits for the device.
  void Make(int32_t begin, int32_t count, GramArgs& args);

 private:
  Context& context_;
  const StaticSpaiPlan& plan_;
  const Matrix& a_;
  Buffer<Structure> structures_;
  Buffer<int32_t> wave_of_;  // the last wave that has the structure
  int32_t wave_ = 0;
  std::vector<int64_t> bytes_;  // of the groups before each one in plan.order, without sharing
  int64_t room_ = 0;
  Buffer<uint32_t> tables_;
};

}  // namespace spaid::cuda
