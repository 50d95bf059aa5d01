#include "client/petsc/applied_matrix.h"

#include <algorithm>
#include <cstdint>

namespace spaid::petsc {
namespace {

// Arrays of any length: at most 2²⁰ elements a message.
constexpr size_t kMessage = size_t{1} << 20;

template <class T>
PetscErrorCode Send(const T* from, size_t count, MPI_Datatype type, int to, int tag,
                    MPI_Comm comm) {
  PetscFunctionBegin;
  for (size_t at = 0; at < count; at += kMessage) {
    const auto part = static_cast<int>(std::min(kMessage, count - at));
    PetscCallMPI(MPI_Send(from + at, part, type, to, tag, comm));
  }
  PetscFunctionReturn(kOk);
}

template <class T>
PetscErrorCode Receive(T* to, size_t count, MPI_Datatype type, int tag, MPI_Comm comm) {
  PetscFunctionBegin;
  for (size_t at = 0; at < count; at += kMessage) {
    const auto part = static_cast<int>(std::min(kMessage, count - at));
    PetscCallMPI(MPI_Recv(to + at, part, type, 0, tag, comm, MPI_STATUS_IGNORE));
  }
  PetscFunctionReturn(kOk);
}

template <class To, class From>
void Copy(const std::vector<From>& from, std::vector<To>* to) {
  to->assign(from.begin(), from.end());
}

// The same matrix by rows.
void Transpose(const CscMatrix& m, std::vector<PetscInt>* ptr, std::vector<PetscInt>* idx,
               std::vector<PetscScalar>* values) {
  const auto n = static_cast<size_t>(m.n);
  ptr->assign(n + 1, 0);
  for (const int32_t row : m.row_idx) ++(*ptr)[static_cast<size_t>(row) + 1];
  for (size_t i = 0; i < n; ++i) (*ptr)[i + 1] += (*ptr)[i];
  std::vector<PetscInt> next(ptr->begin(), ptr->end() - 1);
  idx->resize(m.row_idx.size());
  values->resize(m.row_idx.size());
  for (size_t j = 0; j < n; ++j) {
    for (auto p = static_cast<size_t>(m.col_ptr[j]); p < static_cast<size_t>(m.col_ptr[j + 1]);
         ++p) {
      const auto q = static_cast<size_t>(next[static_cast<size_t>(m.row_idx[p])]++);
      (*idx)[q] = static_cast<PetscInt>(j);
      (*values)[q] = m.values[p];
    }
  }
}

}  // namespace

AppliedMatrix::~AppliedMatrix() { (void)Reset(); }

PetscErrorCode AppliedMatrix::Reset() {
  PetscFunctionBegin;
  PetscCall(MatDestroy(&rows_));
  PetscCall(VecDestroy(&between_));
  ptr_ = {}, idx_ = {}, values_ = {};
  PetscFunctionReturn(kOk);
}

PetscErrorCode AppliedMatrix::Set(Mat like, const CscMatrix* m) {
  PetscFunctionBegin;
  const MPI_Comm comm = PetscObjectComm(reinterpret_cast<PetscObject>(like));
  PetscCall(Reset());
  PetscMPIInt rank = 0, size = 0;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  int factor = rank == 0 && m->is_factor;
  PetscCallMPI(MPI_Bcast(&factor, 1, MPI_INT, 0, comm));
  is_factor_ = factor != 0;
  if (rank == 0) {
    if (is_factor_) {
      Copy(m->col_ptr, &ptr_);
      Copy(m->row_idx, &idx_);
      values_ = m->values;
    } else {
      Transpose(*m, &ptr_, &idx_, &values_);
    }
  }
  PetscInt rows = 0, n = 0;
  PetscCall(MatGetLocalSize(like, &rows, nullptr));
  PetscCall(MatGetSize(like, &n, nullptr));
  if (size > 1) PetscCall(Spread(like, rows));
  if (size == 1) {
    PetscCall(
        MatCreateSeqAIJWithArrays(comm, n, n, ptr_.data(), idx_.data(), values_.data(), &rows_));
  } else {
    PetscCall(MatCreateMPIAIJWithArrays(comm, rows, rows, n, n, ptr_.data(), idx_.data(),
                                        values_.data(), &rows_));
    ptr_ = {}, idx_ = {}, values_ = {};  // it has copies
  }
  if (is_factor_) PetscCall(MatCreateVecs(rows_, &between_, nullptr));
  PetscFunctionReturn(kOk);
}

PetscErrorCode AppliedMatrix::Spread(Mat like, PetscInt rows) {
  PetscFunctionBegin;
  MPI_Comm comm = MPI_COMM_NULL;
  PetscMPIInt rank = 0, size = 0, tag = 0;
  PetscCall(PetscCommDuplicate(PetscObjectComm(reinterpret_cast<PetscObject>(like)), &comm, &tag));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  std::vector<PetscInt> counts(static_cast<size_t>(size));
  PetscCallMPI(MPI_Gather(&rows, 1, MPIU_INT, counts.data(), 1, MPIU_INT, 0, comm));
  if (rank == 0) {
    auto last = static_cast<size_t>(rows);
    for (int to = 1; to < size; ++to) {
      const size_t first = last;
      last += static_cast<size_t>(counts[static_cast<size_t>(to)]);
      const auto at = static_cast<size_t>(ptr_[first]);
      const size_t count = static_cast<size_t>(ptr_[last]) - at;
      PetscCall(Send(&ptr_[first], last - first + 1, MPIU_INT, to, tag, comm));
      PetscCall(Send(idx_.data() + at, count, MPIU_INT, to, tag, comm));
      PetscCall(Send(values_.data() + at, count, MPIU_SCALAR, to, tag, comm));
    }
    ptr_.resize(static_cast<size_t>(rows) + 1);
  } else {
    ptr_.resize(static_cast<size_t>(rows) + 1);
    PetscCall(Receive(ptr_.data(), ptr_.size(), MPIU_INT, tag, comm));
    const PetscInt start = ptr_.front();
    for (PetscInt& p : ptr_) p -= start;
    const auto count = static_cast<size_t>(ptr_.back());
    idx_.resize(count);
    values_.resize(count);
    PetscCall(Receive(idx_.data(), count, MPIU_INT, tag, comm));
    PetscCall(Receive(values_.data(), count, MPIU_SCALAR, tag, comm));
  }
  PetscCall(PetscCommDestroy(&comm));
  PetscFunctionReturn(kOk);
}

PetscErrorCode AppliedMatrix::Apply(Vec x, Vec y) {
  PetscFunctionBegin;
  if (is_factor_) {
    PetscCall(MatMultTranspose(rows_, x, between_));
    PetscCall(MatMult(rows_, between_, y));
  } else {
    PetscCall(MatMult(rows_, x, y));
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode AppliedMatrix::ApplyTranspose(Vec x, Vec y) {
  PetscFunctionBegin;
  if (is_factor_) {
    PetscCall(Apply(x, y));
  } else {
    PetscCall(MatMultTranspose(rows_, x, y));
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode AppliedMatrix::Apply(Mat x, Mat y) {
  PetscFunctionBegin;
  if (is_factor_) {
    Mat between = nullptr;
    PetscCall(MatTransposeMatMult(rows_, x, MAT_INITIAL_MATRIX, PETSC_DEFAULT, &between));
    PetscCall(MatMatMult(rows_, between, MAT_REUSE_MATRIX, PETSC_DEFAULT, &y));
    PetscCall(MatDestroy(&between));
  } else {
    PetscCall(MatMatMult(rows_, x, MAT_REUSE_MATRIX, PETSC_DEFAULT, &y));
  }
  PetscFunctionReturn(kOk);
}

}  // namespace spaid::petsc
