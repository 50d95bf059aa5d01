// A matrix over the ranks that goes to rank 0 piece by piece, as clients download it. Internal to
// this room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::mpi {

// One for each rank and output. All is collective. Not thread-safe.
class SpreadOutput {
 public:
  // `own`: the columns (or rows) that this rank has, those of lower ranks before them. `made_for`:
  // for this output, else they lie there anyway.
  SpreadOutput(MPI_Comm comm, std::shared_ptr<const CscMatrix> own, bool made_for);

  int64_t nnz() const { return begin_.back(); }  // of the whole
  int64_t bytes() const { return bytes_; }       // on this rank

  // Bring elements [first, first + to.size()) to rank 0; `count`: to.size() there, on all ranks.
  // The spans are empty elsewhere.
  void SendPointers(int64_t first, int64_t count, std::span<int64_t> to) const;
  void SendIndices(int64_t first, int64_t count, std::span<int32_t> to) const;
  void SendValues(int64_t first, int64_t count, std::span<double> to) const;

 private:
  const MPI_Comm comm_;
  const std::shared_ptr<const CscMatrix> own_;
  Array<int64_t> begin_;     // rank r has entries [begin_[r], begin_[r + 1])
  Array<int64_t> pointer_;   // and so of the pointers, of which the last rank has one more
  Array<int64_t> pointers_;  // own ones, of the whole
  int64_t bytes_ = 0;
};

}  // namespace spaid::kernels::mpi
