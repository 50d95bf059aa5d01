// M as PETSc's own matrix, by rows over all ranks: what a PC applies.
#pragma once

#include <vector>

#include "client/cpp/spaid/client.h"
#include "client/petsc/petsc.h"

namespace spaid::petsc {

class AppliedMatrix {
 public:
  AppliedMatrix() = default;
  ~AppliedMatrix();
  AppliedMatrix(const AppliedMatrix&) = delete;
  AppliedMatrix& operator=(const AppliedMatrix&) = delete;

  // Spreads `m`, which rank 0 has, over the rows of `like`. Collective.
  PetscErrorCode Set(Mat like, const CscMatrix* m);
  PetscErrorCode Reset();
  bool is_set() const { return rows_ != nullptr; }
  bool is_factor() const { return is_factor_; }

  // y = M x, y = Mᵀ x, Y = M X (dense). Collective.
  PetscErrorCode Apply(Vec x, Vec y);
  PetscErrorCode ApplyTranspose(Vec x, Vec y);
  PetscErrorCode Apply(Mat x, Mat y);

 private:
  PetscErrorCode Spread(Mat like, PetscInt rows);

  // M by rows; of M = GᵀG the rows of Gᵀ, which are the columns that came.
  Mat rows_ = nullptr;
  Vec between_ = nullptr;  // G x
  bool is_factor_ = false;
  // This rank's rows, borrowed by rows_ where there is one rank.
  std::vector<PetscInt> ptr_, idx_;
  std::vector<PetscScalar> values_;
};

}  // namespace spaid::petsc
