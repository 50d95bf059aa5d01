// What a solve that lives on the chip (persistent_smem_block.h) has on the device beside its
// vectors.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/persistent_smem_csr.h"

namespace spaid::cuda {

inline constexpr int kChipMostSums = 3;

// What a block says to all others when it meets them.
struct alignas(32) ChipWord {
  double sums[kChipMostSums];
  uint64_t meeting;  // its number, of all meetings of a solve
};

// Of a solve, on the device.
struct ChipSpace {
  ChipWord* words;    // two for each block, by turns; 0 before the first launch
  double* told[2];    // products, by place
  uint64_t meetings;  // that were before this launch
};

class ChipMemory {
 public:
  ChipMemory(Context& context, const ChipRows& rows, int64_t n)
      : words_(context, 2 * rows.blocks()), told_(context, 2 * n) {
    words_.Fill(0);
  }
  // For a launch of at most so many meetings.
  ChipSpace Next(int64_t meetings) {
    const auto before = static_cast<uint64_t>(meetings_);
    meetings_ += meetings;
    const int64_t n = told_.size() / 2;
    return {words_.get(), {told_.get(), told_.get() + n}, before};
  }

 private:
  Buffer<ChipWord> words_;
  Buffer<double> told_;
  int64_t meetings_ = 0;
};

}  // namespace spaid::cuda
