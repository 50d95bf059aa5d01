// Times the parts of which a set-up of multigrid on a device would be made, each alone: sparse
// products, independent sets at distance two, barriers of a grid.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda_device.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/products.h"

namespace spaid::kernels::bench {

// Medians of a few runs, milliseconds by the device's clock, without the copies.
struct ProductTimes {
  double whole_ms = 0, values_ms = 0;  // all of C; the values alone, where its pattern is known
};

// C = A B, all by rows (kernels/sparse/cuda/products.h), timed with its rows in `order`. `c` gets C
// with ascending rows, for which the caller knows the truth.
Result<ProductTimes> TimeSparseProduct(CudaDevice& device, const CscView& a, const CscView& b,
                                       RowOrder order, CscMatrix* c);

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
