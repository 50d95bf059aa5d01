// What the Gram kernels share: products of 8 x 8 tiles, chunks of Â, and the numbers of the checks.
#pragma once

#include <cstdint>

#include "kernels/static_spai/cuda/gram_cuda.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::cuda {

namespace checks = kernels::static_spai_tuning;

inline constexpr unsigned kAllLanes = ~0u;

// c += A B on the fp64 tensor cores, A 8 x 4, B 4 x 8, one warp. Lane l holds A[l / 4][l % 4],
// B[l % 4][l / 4], and c0, c1 of C[l / 4][2 (l % 4) + 0, 1].
__device__ inline void MultiplyTiles(double a, double b, double& c0, double& c1) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c0), "+d"(c1)
      : "d"(a), "d"(b));
}

// Where row r and column a of a chunk stand (PackEntry's order) when there are 8 `tiles` columns.
__device__ inline int ChunkPlace(int tiles, uint32_t r, uint32_t a) {
  return static_cast<int>(((r >> 2) * static_cast<uint32_t>(tiles) + (a >> 3)) * 32 +
                          ((a & 7) << 2) + (r & 3));
}

__device__ inline double WarpSum(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
__device__ inline double WarpMin(double value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmin(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
__device__ inline double WarpMax(double value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmax(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
__device__ inline double WarpProduct(double value) {
  for (int step = 16; step > 0; step /= 2) value *= __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// A group and its structure, as all threads that solve it see it.
struct LocalGroup {
  __device__ LocalGroup(const GramArgs& args, int32_t g) {
    const int32_t begin = args.group_ptr[g];
    members = args.members + begin;
    width = args.group_ptr[g + 1] - begin;
    const int32_t k = members[0];
    j = args.m_idx + args.m_ptr[k];
    n2 = static_cast<int>(args.m_ptr[k + 1] - args.m_ptr[k]);
    const Structure& structure = args.structures[args.structure_of[g]];
    n1 = structure.n1;
    chunks = structure.chunks;
    starts = args.tables + structure.table;
    list = starts + chunks + 1;
    targets = list + structure.entries;
  }
  const int32_t* members;  // width
  const int32_t* j;        // n2
  int width, n2, n1, chunks;
  const uint32_t* starts;   // chunks + 1
  const uint32_t* list;     // PackEntry
  const uint32_t* targets;  // width
};

// Where inverse iteration starts: signs without a pattern (gram_checks.h).
__device__ inline double StartSign(int q) {
  uint32_t word = static_cast<uint32_t>(q) * 0x9e3779b9u;
  word = (word ^ (word >> 15)) * 0x85ebca6bu;
  return (word ^ (word >> 13)) & 1 ? 1.0 : -1.0;
}

}  // namespace spaid::cuda
