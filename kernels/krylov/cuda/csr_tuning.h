// How csr.h lays rows out: measured on one NVIDIA H100 80GB HBM3 (docs/decisions/products.md).
#pragma once

#include <cstdint>

namespace spaid::cuda {

struct RowsTuning {
  // Several threads a row where rows have so many entries or more on average, and there are fewer
  // slices of one thread a row than so many a multiprocessor (of a matrix that streams, fewer
  // still): threads are then too few.
  int32_t many_threads_entries, many_threads_slices;
  // What a row that stands apart costs beside its entries, in entries.
  int32_t apart_cost;
  // Steps of a slice, at most.
  int32_t max_steps;
  // Where slices would hold more than this, for each entry, rows are ordered by length, or, of a
  // matrix that streams, cut into tiles (tiles.h); tiles_at < 0: whatever its rows.
  double order_at, tiles_at;
  // Matrices of so many bytes and more stream through the caches: the others stay in the second
  // level from product to product.
  int64_t stream_bytes;
  // Of a product's grid, for each multiprocessor: as rows are, or ordered by length.
  int32_t blocks, ordered_blocks;
  // Of what streams, long chunks (SliceLoop) where rows have so many entries or more on average,
  // unless the last of their warps would be few.
  int32_t long_chunks_entries;
};

// When the chunks of a matrix that streams are chosen by time (choice.h).
struct ChoiceTuning {
  // Of so many bytes and more, whose products take long beside what it takes to time two of them.
  int64_t bytes;
  // And of so many entries a row or more on average: in shorter rows short chunks are ahead.
  int32_t entries;
  // The other chunks are taken where they need less than this of the time of the rule's.
  double below;
};

namespace tuning {
// 80 entries a row: 29 for 31 us with 2447 slices, the same with 8353. 300,000 rows of a circuit:
// 12 for 18 us, by their order and by staying in the cache; 3 million: 131 us by 15 blocks, 146
// by 8. 7 points: 9 us for 12 where 23 MB stay in the cache, 19 for 23 where 43 MB stream.
inline constexpr RowsTuning kRows{24, 32, 128, 128, 1.15, 1.15, 32'000'000, 8, 15, 32};
// Long chunks take 0.89 to 1.02 of the time of short ones where rows have 27 to 250 entries, 1.00
// to 1.24 where they have 2 to 16; of 78,300 rows of 76 entries, 1.16 times what is there at
// once, 1.10 and, in fp32, 1.15.
inline constexpr ChoiceTuning kChoice{64'000'000, 24, 0.97};
}  // namespace tuning

}  // namespace spaid::cuda
