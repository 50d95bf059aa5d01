// Sizes of the workspace in which a row is made: one for a sample of rows, then what most rows
// need, then larger and larger ones; and which team of threads makes a row there.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// The data that the sizes depend on.
struct WorkspaceNeeds {
  int64_t n = 0;
  bool grow = false;
  int32_t k_max = 0;  // 0 where nothing grows
  int32_t per_step = 1;
  int64_t most = 0;             // Work::most
  int32_t longest = 0;          // row of A
  int32_t longest_initial = 1;  // longest initial row
  bool has_initial = false;     // else rows begin with the diagonal
};

template <class Real, Form kForm>
class WorkspaceSizes {
  static constexpr bool kColumn = kForm == Form::kColumn;
  static constexpr int kSize = 16 / static_cast<int>(sizeof(Real));

 public:
  // `context` must outlive it.
  WorkspaceSizes(const Context& context, const WorkspaceNeeds& needs)
      : context_(context), needs_(needs) {}

  // Entries that growth may add to a row, its first one included.
  int64_t Added() const;

  Shape OnPattern(int64_t pivots) const;
  Shape ForGrowth(int64_t slots, int64_t tiles) const;
  // The largest workspace; rows that need more are left to the host.
  Shape Largest() const;
  // The largest that a block's shared memory holds, or less if no row needs that.
  Shape Sample() const;
  // The next larger one.
  Shape Next(const Shape& shape, const Shape& largest) const;

  // `sample`: a warp may take any size that shared memory holds.
  Team TeamOf(const Shape& shape, bool sample = false) const;

 private:
  int64_t MostPivots() const;
  Shape LargestOfAll() const;

  const Context& context_;
  const WorkspaceNeeds needs_;
};

}  // namespace spaid::cuda::fsai
