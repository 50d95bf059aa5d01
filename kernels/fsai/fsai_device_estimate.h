// Bytes and time of a build of FSAI on a CUDA device. Internal to this room and its tests.
#pragma once

#include <cstdint>

#include "kernels/fsai/fsai.h"

namespace spaid::kernels {

// Upper bounds on the rows of G.
struct FsaiRowCounts {
  int64_t entries = 0;  // with the diagonal
  int64_t longest = 1;
  double cubes = 0;  // sum over the rows
  // Entries of the initial pattern, and of its longest row; 0 for growth from the diagonal.
  int64_t initial_entries = 0, initial_longest = 0;
};

// Fills device_bytes and device_bytes_min.
void EstimateOnDevice(int64_t n, int64_t nnz_a, int64_t longest_column, const FsaiRowCounts& rows,
                      const FsaiOptions& options, FsaiCounts& counts);

}  // namespace spaid::kernels
