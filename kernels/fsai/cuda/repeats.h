// Rows of G that repeat another one, on a CUDA device: as kernels/fsai/repeats.h, which explains
// why. Rows of A are compared as they are packed: in the precision of the set-up.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// As LikeRows of kernels/fsai/repeats.h, but of rows that are alike any one stands for them, the
// same in every run; of size 0 where too little repeats to be worth a search, or the arena has no
// memory for one. Waits for the device.
template <class Real>
Buffer<int32_t> LikeRows(Context& context, const Rows<Real>& a, int64_t n, int hash_bits);

// Arrays of a wave's rows (Work), and the counters.
struct MadeRows {
  int64_t first, count;
  int64_t out_stride;
  const int64_t* initial_ptr;
  const int32_t *initial_idx, *out_idx;
  int32_t* out_count;
  double* psi_ratio;
  int32_t k_max;
  int64_t* log_sums;
  unsigned long long* products;
  uint32_t* converged_count;
};

struct RepeatedRows {
  // For each row of the wave the row to copy, possibly itself; -1: it is to be grown.
  Buffer<int32_t> source;
  Buffer<int32_t> rest;  // the rows that are to be grown
  int32_t rest_count = 0;
  int64_t grown = 0, copied = 0;
};

// Grows some rows of the wave, without a post-filter, and finds those that repeat them. `like`:
// LikeRows of the rows of A that are picked, `own`: of those that grow. `grow`: makes these rows,
// so many, with their records of Work. Rows to be copied have their counts, ψ and parts of the sums
// afterwards; their entries are those of their sources. Waits for the device.
using GrowRows = std::function<void(const int32_t* rows, int32_t count, int64_t* records,
                                    const int32_t* record_of)>;
RepeatedRows FindRepeats(Context& context, const Buffer<int32_t>& like, const Buffer<int32_t>& own,
                         const MadeRows& made, const GrowRows& grow);

}  // namespace spaid::cuda::fsai
