// Times the parts of which a set-up of multigrid on a device would be made, each alone: sparse
// products, independent sets at distance two, barriers of a grid.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda_device.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// Medians of a few runs, milliseconds by the device's clock, without the copies.
struct ProductTimes {
  double count_ms = 0, values_ms = 0;  // entries of each row; then columns, sorted, and values
  int64_t products = 0, entries = 0;
  bool fits = true;  // false: some row needs a larger table than shared memory holds
};

// C = A B, all by rows, in fp64, by tables in shared memory: a few lanes have a row of C, and take
// one entry of A's row after another, each lane entries of B's row, so that sums are in the order
// of A's columns. `c` gets C, for which the caller knows the truth.
Result<ProductTimes> TimeSparseProduct(CudaDevice& device, const CscView& a, const CscView& b,
                                       CscMatrix* c);

struct SetTimes {
  double ms = 0;
  int rounds = 0;
  int64_t roots = 0;
};

// The independent set at distance two, by hashed keys, of a graph by rows without its diagonal.
Result<SetTimes> TimeIndependentSet(CudaDevice& device, const PatternView& graph);

// Microseconds of a barrier of one block a multiprocessor.
Result<double> TimeGridBarrier(CudaDevice& device);

}  // namespace spaid::kernels::bench
