// How csr.h lays rows out: measured on one NVIDIA H100 80GB HBM3 (docs/decisions/products.md).
#pragma once

#include <cstdint>

namespace spaid::cuda {

struct CsrTuning {
  // Several threads a row where rows have so many entries or more on average, and there are fewer
  // slices of one thread a row than so many a multiprocessor (fewer still where the matrix
  // streams): one thread a row would leave the device idle.
  int32_t many_threads_entries, many_threads_slices;
  // Cost of a row that is stored apart, beside its entries, in entries.
  int32_t apart_cost;
  // Steps of a slice, at most.
  int32_t max_steps;
  // Stored entries for each entry of A, padding included, from which on rows are sorted by length,
  // or, where the matrix streams, cut into tiles (tiles.h); tiles_at < 0: always.
  double order_at, tiles_at;
  // Matrices of so many bytes and more stream through the caches; smaller ones stay in the second
  // level from product to product.
  int64_t stream_bytes;
  // Blocks of a product's grid for each multiprocessor: rows in their own order, or sorted.
  int32_t blocks, ordered_blocks;
  // Long chunks (SliceLoop) where the matrix streams and rows have so many entries or more on
  // average, unless the last round of warps would be nearly empty.
  int32_t long_chunks_entries;
};

namespace tuning {
// Several threads a row, 80 entries a row: 29 us in place of 31 with 2447 slices, equal with 8353.
// Sorted rows, a circuit: 12 us in place of 18 with 300,000 rows, which stay in the cache; with 3
// million 131 us by 15 blocks, 146 by 8. Streaming, 7 points: 9 us in place of 12 where 23 MB stay
// in the cache, 19 in place of 23 where 43 MB stream.
// Long chunks take 0.89 to 1.02 of the time of short ones where rows have 27 to 250 entries, 1.00
// to 1.24 where they have 2 to 16; with 78,300 rows of 76 entries, whose warps are 1.16 times as
// many as are resident at once, 1.10, and 1.15 in fp32.
inline constexpr CsrTuning kCsr{24, 32, 128, 128, 1.15, 1.15, 32'000'000, 8, 15, 32};
}  // namespace tuning

}  // namespace spaid::cuda
