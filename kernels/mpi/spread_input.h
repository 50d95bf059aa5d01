// A matrix that comes piece by piece from rank 0, each piece to the ranks that own its rows, or
// columns. Internal to this room.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/validation.h"

namespace spaid::kernels::mpi {

// One for each rank and matrix. All but the constructor is collective. Not thread-safe.
class SpreadInput {
 public:
  SpreadInput(MPI_Comm comm, int64_t n, int64_t nnz, Layout layout, bool sort_and_sum)
      : comm_(comm), n_(n), nnz_(nnz), layout_(layout), sort_and_sum_(sort_and_sum) {}

  // Divides rows (kCsr) or columns by about as many entries and rows to a rank, and takes room for
  // each part. `pointers`: n + 1, on rank 0; empty elsewhere. Errors, the same on all ranks:
  // INVALID_ARGUMENT/BAD_POINTERS with the index; RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
  Status Begin(std::span<const int64_t> pointers);
  // The same for values alone, on the pattern of a matrix with as many entries, divided as that is.
  // Errors: OUT_OF_MEMORY.
  Status Begin(const SpreadMatrix& like);

  // Entries [first, first + count) come from rank 0, in any order of arrays and pieces, each once.
  // The spans are empty elsewhere.
  void TakeIndices(int64_t first, int64_t count, std::span<const int32_t> indices) {
    Take(first, count, indices, block_.row_idx);
  }
  void TakeValues(int64_t first, int64_t count, std::span<const double> values) {
    Take(first, count, values, block_.values);
  }

  // The matrix, once all has come. Errors: those of SpreadBlocks.
  Result<SpreadMatrix> Finish(const Context& context);

 private:
  template <class T>
  void Take(int64_t first, int64_t count, std::span<const T> from, Array<T>& to);

  const MPI_Comm comm_;
  const int64_t n_, nnz_;
  const Layout layout_;
  const bool sort_and_sum_;
  CscMatrix block_;
  Array<int64_t> entries_;  // rank r has entries [entries_[r], entries_[r + 1])
};

}  // namespace spaid::kernels::mpi
