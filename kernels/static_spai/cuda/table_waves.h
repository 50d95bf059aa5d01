// The tables of a plan that does not hold them (StaticSpaiPlan::in_waves): those of some groups at
// a time, made for a wave of a build and freed after it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/static_spai/cuda/gram.h"
#include "kernels/static_spai/cuda/plan.h"

namespace spaid::cuda {

class TableWaves {
 public:
  TableWaves(Context& context, const StaticSpaiPlan& plan, const Matrix& a);

  // `groups`: the `count` groups whose tables will be asked for; must outlive this. Waits for the
  // device.
  void Follow(const int32_t* groups, int32_t count);

  // Makes the tables of groups [begin, begin + k), k from 1 to `count`, as many as memory suffices
  // for, in place of those of the wave before; returns k. Waits for the device. Throws
  // CudaFault::kOutOfMemory if not even one fits.
  int32_t Make(int32_t begin, int32_t count, GramArgs& args);

 private:
  int32_t Fit(int32_t begin, int32_t count) const;

  Context& context_;
  const StaticSpaiPlan& plan_;
  const Matrix& a_;
  Buffer<Structure> structures_;  // the plan's, with the offsets of the tables of the wave
  Buffer<int32_t> wave_of_;       // the last wave that has the structure
  int32_t wave_ = 0;
  const int32_t* groups_ = nullptr;
  std::vector<int64_t> bytes_;  // sums over the groups before each, as if none shared a structure
  Buffer<uint32_t> tables_;
};

}  // namespace spaid::cuda
