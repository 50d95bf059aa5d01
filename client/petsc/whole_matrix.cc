#include "client/petsc/whole_matrix.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace spaid::petsc {
namespace {

// Whether the entries can be had: a MATSHELL would be multiplied by every unit vector.
PetscErrorCode CheckEntries(Mat a) {
  PetscFunctionBegin;
  PetscBool shell = PETSC_FALSE, composed = PETSC_FALSE, rows = PETSC_FALSE;
  MatType type = nullptr;
  PetscCall(MatGetType(a, &type));
  PetscCall(
      PetscObjectTypeCompareAny(reinterpret_cast<PetscObject>(a), &shell, MATSHELL, MATMFFD, ""));
  PetscCall(PetscObjectTypeCompareAny(reinterpret_cast<PetscObject>(a), &composed, MATNEST, MATIS,
                                      MATSEQSELL, MATMPISELL, ""));
  PetscCall(MatHasOperation(a, MATOP_GET_ROW, &rows));
  PetscCheck(
      !shell && (composed || rows), PetscObjectComm(reinterpret_cast<PetscObject>(a)),
      PETSC_ERR_SUP,
      "spaid: the daemon needs the entries of the matrix, and one of type %s has none; pass an "
      "assembled matrix as Pmat (KSPSetOperators, -snes_mf_operator)",
      type);
  PetscInt m = 0, n = 0;
  PetscCall(MatGetSize(a, &m, &n));
  PetscCheck(m == n && m > 0 && static_cast<int64_t>(m) <= std::numeric_limits<int32_t>::max(),
             PetscObjectComm(reinterpret_cast<PetscObject>(a)), PETSC_ERR_ARG_SIZ,
             "spaid: the matrix has %" PetscInt_FMT " rows and %" PetscInt_FMT
             " columns; a square one of 1 to 2147483647 rows is needed",
             m, n);
  PetscFunctionReturn(kOk);
}

bool Sorted(const CscView& a) {
  const auto begin = [&](int64_t row) {
    return a.col_ptr_32.empty() ? a.col_ptr[static_cast<size_t>(row)]
                                : int64_t{a.col_ptr_32[static_cast<size_t>(row)]};
  };
  for (int64_t row = 0; row < a.n; ++row) {
    const auto columns = a.row_idx.subspan(static_cast<size_t>(begin(row)),
                                           static_cast<size_t>(begin(row + 1) - begin(row)));
    if (std::adjacent_find(columns.begin(), columns.end(), std::greater_equal<>()) !=
        columns.end()) {
      return false;
    }
  }
  return true;
}

}  // namespace

WholeMatrix::~WholeMatrix() { (void)Reset(); }

PetscErrorCode WholeMatrix::Reset() {
  PetscFunctionBegin;
  PetscCall(MatDestroy(&whole_));
  if (gathered_ != nullptr) PetscCall(MatDestroySubMatrices(1, &gathered_));
  narrow_.clear();
  view_ = {.by_rows = true};
  id_ = 0;
  PetscFunctionReturn(kOk);
}

PetscErrorCode WholeMatrix::Compare(Mat a, Change* change) const {
  PetscFunctionBegin;
  PetscObjectId id = 0;
  PetscObjectState state = 0, nonzero_state = 0;
  PetscCall(PetscObjectGetId(reinterpret_cast<PetscObject>(a), &id));
  PetscCall(PetscObjectStateGet(reinterpret_cast<PetscObject>(a), &state));
  PetscCall(MatGetNonzeroState(a, &nonzero_state));
  *change = id != id_ || nonzero_state != nonzero_state_ ? Change::kAll
            : state != state_                            ? Change::kValues
                                                         : Change::kNothing;
  PetscFunctionReturn(kOk);
}

PetscErrorCode WholeMatrix::Set(Mat a, PetscReal max_bytes) {
  PetscFunctionBegin;
  Change change = Change::kAll;
  PetscCall(Compare(a, &change));
  PetscCall(CheckEntries(a));
  const bool again = change != Change::kAll;
  id_ = 0;  // nothing is known where this fails
  PetscBool is_aij = PETSC_FALSE;
  PetscCall(PetscObjectBaseTypeCompareAny(reinterpret_cast<PetscObject>(a), &is_aij, MATSEQAIJ,
                                          MATMPIAIJ, ""));
  PetscMPIInt size = 0;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm(reinterpret_cast<PetscObject>(a)), &size));
  Mat aij = nullptr;
  if (is_aij) {
    PetscCall(PetscObjectReference(reinterpret_cast<PetscObject>(a)));
    aij = a;
  } else {
    PetscCall(MatConvert(a, size == 1 ? MATSEQAIJ : MATMPIAIJ, MAT_INITIAL_MATRIX, &aij));
  }
  if (size == 1 && again && !is_aij) {
    // The pattern that is borrowed stays where it is.
    PetscCall(MatCopy(aij, whole_, SAME_NONZERO_PATTERN));
    PetscCall(MatDestroy(&aij));
  } else if (size == 1) {
    PetscCall(MatDestroy(&whole_));
    whole_ = aij;
  } else {
    PetscCall(Gather(aij, again, max_bytes));
    PetscCall(MatDestroy(&aij));
  }
  if (whole_ != nullptr) PetscCall(Look(again));
  PetscCall(PetscObjectStateGet(reinterpret_cast<PetscObject>(a), &state_));
  PetscCall(MatGetNonzeroState(a, &nonzero_state_));
  PetscCall(PetscObjectGetId(reinterpret_cast<PetscObject>(a), &id_));
  PetscFunctionReturn(kOk);
}

PetscErrorCode WholeMatrix::Gather(Mat aij, bool again, PetscReal max_bytes) {
  PetscFunctionBegin;
  const MPI_Comm comm = PetscObjectComm(reinterpret_cast<PetscObject>(aij));
  MatInfo info;
  PetscCall(MatGetInfo(aij, MAT_GLOBAL_SUM, &info));
  const PetscReal bytes =
      info.nz_used * static_cast<PetscReal>(sizeof(PetscScalar) + sizeof(PetscInt));
  PetscCheck(bytes <= max_bytes, comm, PETSC_ERR_SUP,
             "spaid: the matrix has %.0f bytes, and rank 0 takes %.0f at the most; raise "
             "-pc_spaid_gather_limit, or let each rank have its own block: -pc_type asm "
             "-sub_pc_type spaid",
             bytes, max_bytes);
  PetscMPIInt rank = 0;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscInt n = 0;
  PetscCall(MatGetSize(aij, &n, nullptr));
  IS all = nullptr;
  PetscCall(ISCreateStride(PETSC_COMM_SELF, rank == 0 ? n : 0, 0, 1, &all));
  if (gathered_ != nullptr && !again) PetscCall(MatDestroySubMatrices(1, &gathered_));
  PetscCall(MatCreateSubMatrices(aij, 1, &all, &all,
                                 gathered_ ? MAT_REUSE_MATRIX : MAT_INITIAL_MATRIX, &gathered_));
  PetscCall(ISDestroy(&all));
  PetscCall(MatDestroy(&whole_));
  if (rank == 0) {
    PetscCall(PetscObjectReference(reinterpret_cast<PetscObject>(gathered_[0])));
    whole_ = gathered_[0];
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode WholeMatrix::Look(bool again) {
  PetscFunctionBegin;
  PetscInt n = 0;
  const PetscInt *ptr = nullptr, *idx = nullptr;
  const PetscScalar* values = nullptr;
  PetscBool done = PETSC_FALSE;
  PetscCall(MatGetRowIJ(whole_, 0, PETSC_FALSE, PETSC_FALSE, &n, &ptr, &idx, &done));
  PetscCall(MatSeqAIJGetArrayRead(whole_, &values));
  const auto rows = static_cast<size_t>(n), count = static_cast<size_t>(ptr[n]);
  view_.n = n;
  if constexpr (sizeof(PetscInt) == sizeof(int32_t)) {
    view_.col_ptr_32 = {reinterpret_cast<const int32_t*>(ptr), rows + 1};
    view_.row_idx = {reinterpret_cast<const int32_t*>(idx), count};
  } else {
    if (!again) narrow_.assign(idx, idx + count);  // n is below 2³¹
    view_.col_ptr = {reinterpret_cast<const int64_t*>(ptr), rows + 1};
    view_.row_idx = narrow_;
  }
  view_.values = {values, count};
  if (!again) view_.sort_and_sum = !Sorted(view_);
  PetscCall(MatSeqAIJRestoreArrayRead(whole_, &values));
  PetscCall(MatRestoreRowIJ(whole_, 0, PETSC_FALSE, PETSC_FALSE, &n, &ptr, &idx, &done));
  PetscFunctionReturn(kOk);
}

}  // namespace spaid::petsc
