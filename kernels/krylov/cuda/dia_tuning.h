// How dia.h lays matrices out: measured on one NVIDIA H100 80GB HBM3
// (docs/decisions/products.md).
#pragma once

#include <cstdint>

namespace spaid::cuda {

struct DiaTuning {
  // What a product by half of a matrix takes at the least, of one by all of it: each value comes
  // twice from the second-level cache.
  double half;
  // Of a node's entries on its diagonals, at least so many for each warp that shares them.
  int32_t group_entries;
  // Values of so many bytes and more stream through the caches: the others stay in the second level
  // from product to product.
  int64_t stream_bytes;
  // Of a product's grid, for each multiprocessor: those that are there at once, so that they go
  // through the matrix side by side, and find what another has read.
  int32_t blocks;
};

namespace tuning {
// 27 points: 55 us by half, 80 by all; 7 points: 40 and 54. Warps that share nodes change little: 2
// % of 81 entries a row; a half is in the cache again the sooner, the fewer nodes are under way.
inline constexpr DiaTuning kDia{0.7, 16, 32'000'000, 4};
}  // namespace tuning

}  // namespace spaid::cuda
