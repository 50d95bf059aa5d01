// What growth of dynamic SPAI on a CUDA device gives (CudaMatrix::GrowDynamicSpai).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/sparse/cuda_matrix.h"

namespace spaid::kernels {

struct CudaGrowthFigures {
  // Counts of the columns grown; without residual_by_step.
  DynamicSpaiQuality quality;
  // Means of ln ‖r‖² after 0 .. max_steps steps; of a range the sums over its columns by the number
  // of all.
  std::vector<double> log_ratios;
  double ms = 0;       // by the device's clock
  double gram_ms = 0;  // of those, for AᵀA
  int64_t peak_bytes = 0;
  int64_t nnz = 0;           // of the columns grown
  int waves = 0;             // of columns, as memory allows
  int64_t host_columns = 0;  // whose only row is −1: the host's
};

struct CudaGrowth {
  std::unique_ptr<CudaPattern> pattern;
  CudaGrowthFigures figures;
};

}  // namespace spaid::kernels
