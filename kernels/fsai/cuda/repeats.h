// Rows of G that repeat another one, on a CUDA device: as kernels/fsai/repeats.h, which says why.
// Rows of A are compared as the kernels of rows have them: in their precision.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// As LikeRows of repeats.h, but of rows alike any one of them, the same each time; of size 0 where
// what repeats is not worth a search, or the arena has no room for one. Waits.
template <class Real>
Buffer<int32_t> LikeRows(Context& context, const Rows<Real>& a, int64_t n, int hash_bits);

// Where the rows of a wave are made (Work), and what they are counted in.
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
  Buffer<int32_t> source;  // of each row of the wave the row to copy, itself; -1: it is to be grown
  Buffer<int32_t> rest;    // the rows that are to be grown
  int32_t rest_count = 0;
  int64_t grown = 0, copied = 0;
};

// Grows some rows of the wave, none of them filtered afterwards, and finds those that repeat them.
// `like`: of rows that are picked, `own`: of those that grow. `grow`: rows, how many, and where the
// records of Work go. Of a row that is to be copied its count, ψ and part of the sums are there
// afterwards; its entries are those of its source. Waits.
using GrowRows = std::function<void(const int32_t* rows, int32_t count, int64_t* records,
                                    const int32_t* record_of)>;
RepeatedRows FindRepeats(Context& context, const Buffer<int32_t>& like, const Buffer<int32_t>& own,
                         const MadeRows& made, const GrowRows& grow);

}  // namespace spaid::cuda::fsai
