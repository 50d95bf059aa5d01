// Aggregates on a device: those of kernels/amg/aggregation.h.
//
//   Aggregates of = Aggregate(context, graph, /*level=*/0);
#pragma once

#include <cstdint>

#include "kernels/amg/cuda/strength.h"
#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// kernels::Aggregates, on the device.
struct Aggregates {
  int64_t count = 0, isolated = 0;
  Buffer<int32_t> of_node;
  bool boxes = false;
};

// Finds them in the host's rounds: all rounds of a phase in one launch, whose blocks wait for one
// another. Scratch: 28 bytes a node. Waits for the device once. Throws Failure.
Aggregates Aggregate(Context& context, const StrongGraph& graph, int level);

}  // namespace spaid::cuda
