// Aggregates of nodes: what a coarse node stands for.
//
//   Result<Aggregates> of = Aggregate(graph, level, context);
//
// By a maximal independent set of distance two, found in rounds (Bell, Dalton, Olson, SISC 34
// (2012); Kelley, Rajamanickam, arXiv 2204.02934), of keys that are a hash of node and level: the
// same for any number of threads, on any device.
#pragma once

#include <cstdint>

#include "kernels/amg/strength.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct Aggregates {
  int64_t count = 0;
  Array<int32_t> of_node;  // n; -1: isolated, of no aggregate. Numbered by their smallest nodes.
  int64_t isolated = 0;
  bool boxes = false;  // of a grid (boxes.h)
};

// The order in which nodes become roots: smallest key first, a hash of node and level over the
// node. No two nodes of a level have the same. `node` below 2^31.
uint64_t AggregationKey(int64_t node, int level);

// (a) Roots are the greedy set, in the order of the keys, of which no two are within distance two;
// they take their neighbours. (b) The same among what is left, of nodes of which at least two, and
// two thirds, of the neighbours are left, too. (c) Others join the aggregate of their strongest
// couplings (the largest sum; ties: that with the lower root), then nodes without one that of their
// leader. Nodes without strong couplings and leader are isolated. Errors: stop statuses,
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe.
Result<Aggregates> Aggregate(const StrongGraph& graph, int level, const Context& context);

}  // namespace spaid::kernels
