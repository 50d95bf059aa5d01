// A Mat as one CSR in the memory of rank 0, as it goes to the daemon.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cpp/spaid/client.h"
#include "client/petsc/petsc.h"

namespace spaid::petsc {

// Tells what of a Mat differs from that of the call before.
enum class Change { kNothing, kValues, kAll };

class WholeMatrix {
 public:
  WholeMatrix() = default;
  ~WholeMatrix();
  WholeMatrix(const WholeMatrix&) = delete;
  WholeMatrix& operator=(const WholeMatrix&) = delete;

  // Tells what Set of `a` would find, without doing it.
  PetscErrorCode Compare(Mat a, Change* change) const;
  // Brings the rows of `a` together on rank 0. AIJ is borrowed where one rank has it, other types
  // are converted. PETSC_ERR_SUP: no entries to be had (MATSHELL), or more than `max_bytes` of them
  // on several ranks; PETSC_ERR_ARG_SIZ: not square, or over 2³¹ - 1 rows. Collective.
  PetscErrorCode Set(Mat a, PetscReal max_bytes);
  PetscErrorCode Reset();

  // Rank 0: the rows, which live until the Mat is changed, or until the next Set; their pattern
  // until one that finds more than other values.
  const CscView& view() const { return view_; }

 private:
  PetscErrorCode Gather(Mat aij, bool again, PetscReal max_bytes);
  PetscErrorCode Look(bool again);

  Mat whole_ = nullptr;          // rank 0: SEQAIJ; ours, or another reference to the caller's
  Mat* gathered_ = nullptr;      // several ranks: what MatCreateSubMatrices made, again and again
  std::vector<int32_t> narrow_;  // column indices, where a PetscInt has 64 bits
  CscView view_ = {.by_rows = true};
  PetscObjectId id_ = 0;
  PetscObjectState state_ = -1, nonzero_state_ = -1;
};

}  // namespace spaid::petsc
