// Batches of rows of G, made by any thread, and put together into one matrix in the order of the
// rows, so that nothing depends on which thread made them. Internal to this room, to
// kernels/dynamic_spai and kernels/mpi.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/row_growth.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Rows of a batch, of n rows in all.
int64_t BatchRows(int64_t n);

// Counts over rows.
struct RowTally {
  int64_t not_spd = 0, first_not_spd = -1;
  int64_t converged = 0;
  int64_t copied = 0;
  int64_t slow = 0;
  int64_t not_converged = 0, first_not_converged = -1;
  double flops = 0;

  // Rows that come after those counted so far.
  void Add(const RowTally& later);
};

// Products of many ratios in (1e-100, 1], by their logarithms.
class LogProduct {
 public:
  void Multiply(double ratio) {
    product_ *= ratio;
    if (product_ < 1e-200) Fold();
  }
  double Log() {
    Fold();
    return log_;
  }

 private:
  void Fold() {
    log_ += std::log(product_);
    product_ = 1;
  }
  double product_ = 1, log_ = 0;
};

struct RowBatch {
  // Its entries, in a RowStore.
  int32_t* row_idx = nullptr;
  double* values = nullptr;  // null where the store has none
  int64_t size = 0;
  RowTally tally;
  std::vector<double> log_by_step;  // Σ ln(ψ_i / a_ii) over its rows
  std::vector<int32_t> lacked;      // columns that its rows lack (GrownRows::lacking)
};

// One thread's memory for the entries of its batches: few large blocks, on huge pages where they
// are large enough.
class alignas(kApart) RowStore {
 public:
  // `expected`: entries of all batches to come, roughly, or more; `with_values`: they have values.
  RowStore(int64_t expected, bool with_values)
      : with_values_(with_values),
        piece_(std::clamp<int64_t>(expected, int64_t{1} << 12, int64_t{1} << 20)) {}

  // Appends so many entries to `batch`, for the caller to write; batches are filled one after the
  // other. The batch's arrays may move. Throws std::bad_alloc.
  void Extend(RowBatch& batch, int64_t count);

 private:
  struct Piece {
    Array<int32_t> row_idx;
    Array<double> values;
  };
  const bool with_values_;
  const int64_t piece_;
  std::vector<Piece> pieces_;
  int64_t used_ = 0;  // elements of the last piece
};

// Makes one store a thread, for `entries` in all.
std::vector<RowStore> RowStores(int64_t entries, bool with_values, int threads);

// The rows as columns of a square matrix; without values where the batches have none. `col_ptr`: of
// each row i its entries at i + 1; becomes pointers.
CscMatrix PutTogether(const std::vector<RowBatch>& batches, Array<int64_t> col_ptr, int threads);

// The figures of a result whose g_rows and psi_ratio are final.
void Summarise(const RowTally& tally, int64_t nnz_a, int threads, FsaiResult& result);

}  // namespace spaid::kernels
