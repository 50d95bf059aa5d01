// How much room rows get in which they are made: some for a sample, then as much as most need, then
// more and more; and who makes them there.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// What rooms go by.
struct RoomNeeds {
  int64_t n = 0;
  bool grow = false;
  int32_t k_max = 0;  // 0 where nothing grows
  int32_t per_step = 1;
  int64_t most = 0;             // Work::most
  int32_t longest = 0;          // row of A
  int32_t longest_initial = 1;  // of what rows begin with
  bool has_initial = false;     // else that is the diagonal
};

template <class Real, Form kForm>
class RoomSizes {
  static constexpr bool kColumn = kForm == Form::kColumn;
  static constexpr int kSize = 16 / static_cast<int>(sizeof(Real));

 public:
  // `context` must outlive it.
  RoomSizes(const Context& context, const RoomNeeds& needs) : context_(context), needs_(needs) {}

  // Entries that growth may add to a row, its first one included.
  int64_t Added() const;

  Shape OnPattern(int64_t pivots) const;
  Shape ForGrowth(int64_t slots, int64_t tiles) const;
  // The most that any row can take that is not left to the host.
  Shape Largest() const;
  // The largest that a block has room for, if no row needs more.
  Shape Sample() const;
  // The next larger room.
  Shape Next(const Shape& shape, const Shape& largest) const;

  // `sample`: no room is too large for a warp.
  Team TeamOf(const Shape& shape, bool sample = false) const;

 private:
  int64_t MostPivots() const;
  Shape LargestOfAll() const;

  const Context& context_;
  const RoomNeeds needs_;
};

}  // namespace spaid::cuda::fsai
