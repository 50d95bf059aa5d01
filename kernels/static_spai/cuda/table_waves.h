// The tables of a plan that has no room for them (StaticSpaiPlan::in_waves): those of some groups
// at a time, made for a wave of a build and dropped after it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/static_spai/cuda/gram.h"
#include "kernels/static_spai/cuda/plan.h"

namespace spaid::cuda {

class TableWaves {
 public:
  TableWaves(Context& context, const StaticSpaiPlan& plan, const Matrix& a);

  // `groups`: those whose tables will be asked for, `count` of them; must stay. Waits for the
  // device.
  void Follow(const int32_t* groups, int32_t count);

  // Makes the tables of groups [begin, begin + k), k from 1 to `count`, as many as there is room
  // for now, in place of those of the wave before; k. Waits for the device. Throws
  // CudaFault::kOutOfMemory where not even one has room.
  int32_t Make(int32_t begin, int32_t count, GramArgs& args);

 private:
  int32_t Fit(int32_t begin, int32_t count) const;

  Context& context_;
  const StaticSpaiPlan& plan_;
  const Matrix& a_;
  Buffer<Structure> structures_;  // the plan's, with the places of the tables that there are
  Buffer<int32_t> wave_of_;       // the last wave that has the structure
  int32_t wave_ = 0;
  const int32_t* groups_ = nullptr;
  std::vector<int64_t> bytes_;  // of the groups before each one, as if they shared no structure
  Buffer<uint32_t> tables_;
};

}  // namespace spaid::cuda
