// How dia.h lays matrices out: measured on one NVIDIA H100 80GB HBM3
// (docs/decisions/products.md).
#pragma once

#include <cstdint>

namespace spaid::cuda {

struct DiaTuning {
  // Least time of a product with half of a symmetric matrix stored, relative to one with all of it:
  // each value comes twice from the second-level cache.
  double half;
  // Least entries of a node for each of the warps that share its diagonals.
  int32_t group_entries;
  // Values of so many bytes and more stream through the caches; smaller ones stay in the second
  // level from product to product.
  int64_t stream_bytes;
  // Blocks of a product's grid for each multiprocessor: as many as are resident, so that they go
  // through the matrix side by side, and find in the cache what another has read.
  int32_t blocks;
};

namespace tuning {
// 27 points: 55 us by half, 80 by all; 7 points: 40 and 54. Sharing nodes among warps changes
// little (2 % with 81 entries a row); fewer nodes at a time find more of a half in the cache.
inline constexpr DiaTuning kDia{0.7, 16, 32'000'000, 4};
}  // namespace tuning

}  // namespace spaid::cuda
