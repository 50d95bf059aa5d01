// The tentative prolongation on a device: kernels/amg/tentative.h, with the host's bits.
#pragma once

#include "kernels/amg/cuda/aggregation.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

struct Tentative {
  RowMatrix p;            // P0; of no entries: not made yet
  Buffer<double> coarse;  // P0 coarse = the near-null vectors, by columns; empty: ones
  // Rows of P0 with their zeros, `count` elements each; empty where there are ones alone.
  Buffer<double> rows;
};

// Nodes by their aggregates, ascending.
struct Members {
  Buffer<int32_t> begin;  // of each aggregate
  Buffer<int32_t> node;   // all nodes, those of no aggregate last; empty: not found yet
};

// Makes P0 of `count` near-null vectors, by columns (empty: one of ones), of nodes of `block`
// unknowns. `kept`: receives what it has found where they are not ones; may be null. Scratch: 16
// bytes a node and 16 for each element of the vectors. Waits for the device. Throws Failure.
Tentative MakeTentative(Context& context, const Aggregates& aggregates,
                        const Buffer<double>& near_null, int count = 1, int block = 1,
                        Members* kept = nullptr);
// The same in two steps: all but P0 itself, which does not wait, and then that. `known`: what was
// kept before, or null.
Tentative BeginTentative(Context& context, const Aggregates& aggregates,
                         const Buffer<double>& near_null, int count, int block, Members* kept,
                         const Members* known = nullptr);
void FinishTentative(Context& context, const Aggregates& aggregates, int count, int block,
                     Tentative& made);

// The same of another vector, one for nodes of one unknown, on the pattern of P0; *other, on the
// device, becomes 1 where that has zeros elsewhere, and the values are of no use then. `known` may
// be empty. Does not wait.
Tentative TentativeOn(Context& context, const Aggregates& aggregates, const Members& known,
                      const RowMatrix& pattern, const Buffer<double>& near_null, int32_t* other);

}  // namespace spaid::cuda
