// How rows_cuda.h lays rows out: measured on one NVIDIA H100 80GB HBM3.
#pragma once

#include <cstdint>

namespace spaid::cuda {

struct RowsTuning {
  // Several threads a row where rows have so many entries or more on average, and there are fewer
  // slices of one thread a row than so many a multiprocessor.
  int32_t many_threads_entries, many_threads_slices;
  // What a row that stands apart costs beside its entries, in entries.
  int32_t apart_cost;
  // Steps of a slice, at most.
  int32_t max_steps;
  // Rows are ordered by length where slices would else hold more than this, for each entry.
  double order_at;
  // Matrices of so many bytes and more stream through the caches.
  int64_t stream_bytes;
  // Of a product's grid, for each multiprocessor.
  int32_t blocks;
};

namespace tuning {
inline constexpr RowsTuning kRows{24, 32, 128, 128, 1.15, 40'000'000, 8};
}  // namespace tuning

}  // namespace spaid::cuda
