// Where rows_cuda.h cuts rows.
#pragma once

#include <cstdint>

namespace spaid::cuda {

struct RowsTuning {
  // Threads a row (1, 2, 4, 8): the first whose mean steps, and the steps of whose longest slices,
  // stay under these. 0 is chosen so.
  int32_t threads_a_row;
  // What a row that stands apart costs beside its entries, in entries.
  int32_t apart_cost;
  // Steps of a slice, at most.
  int32_t max_steps;
};

namespace tuning {
inline constexpr RowsTuning kRows{0, 128, 128};
}  // namespace tuning

}  // namespace spaid::cuda
