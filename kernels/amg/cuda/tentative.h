// The tentative prolongation on a device: kernels/amg/tentative.h for one unknown a node and one
// near-null vector, with the host's bits.
#pragma once

#include "kernels/amg/cuda/aggregation.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/kept_patterns.h"

namespace spaid::cuda {

struct Tentative {
  RowMatrix p;            // P0
  Buffer<double> coarse;  // P0 coarse = the near-null vector; empty: ones
};

// Nodes by their aggregates, ascending.
struct Members {
  Buffer<int32_t> begin;  // of each aggregate
  Buffer<int32_t> node;   // n, those of no aggregate last; empty: not found yet
};

// Makes P0 of a near-null vector (empty: ones). `kept`: receives what it has found where the vector
// is not of ones; may be null. Scratch: 20 bytes a node there. Waits for the device, but of ones.
// Throws Failure.
Tentative MakeTentative(Context& context, const Aggregates& aggregates,
                        const Buffer<double>& near_null, Members* kept = nullptr);

// The same of another vector, on the pattern of P0; *other, on the device, becomes 1 where that has
// zeros elsewhere, and the values are of no use then. `known` may be empty. Does not wait.
Tentative TentativeOn(Context& context, const Aggregates& aggregates, const Members& known,
                      const RowMatrix& pattern, const Buffer<double>& near_null, int32_t* other);

}  // namespace spaid::cuda
