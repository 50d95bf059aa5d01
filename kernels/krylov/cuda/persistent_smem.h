// Device memory through which the blocks of a persistent solve within shared memory
// (persistent_smem_block.h) exchange sums and vector elements.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/persistent_smem_csr.h"

namespace spaid::cuda {

inline constexpr int kSmemMostSums = 3;

// A block's message to all others at a grid barrier.
struct alignas(32) BarrierWord {
  double sums[kSmemMostSums];
  uint64_t barrier;  // number of the barrier, counted over all of a solve
};

// The exchange of one launch, as kernels see it.
struct SmemExchange {
  BarrierWord* words;    // two for each block, used by turns; 0 before the first launch
  double* published[2];  // elements of products, by place (SmemCsrRef)
  uint64_t barriers;     // barriers before this launch
};

// Owns the memory of an exchange, for all launches of a solve.
class SmemExchangeBuffers {
 public:
  SmemExchangeBuffers(Context& context, const SmemCsr& rows, int64_t n)
      : words_(context, 2 * rows.blocks()), published_(context, 2 * n) {
    words_.Fill(0);
  }
  // The exchange for a launch of at most so many barriers.
  SmemExchange Next(int64_t barriers) {
    const auto before = static_cast<uint64_t>(barriers_);
    barriers_ += barriers;
    const int64_t n = published_.size() / 2;
    return {words_.get(), {published_.get(), published_.get() + n}, before};
  }

 private:
  Buffer<BarrierWord> words_;
  Buffer<double> published_;
  int64_t barriers_ = 0;
};

}  // namespace spaid::cuda
