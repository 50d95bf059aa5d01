// A square matrix of which each rank owns a range of consecutive rows, and the columns of the same
// numbers.
//
//   Result<SpreadMatrix> a = SpreadBlocks(comm, block, Layout::kCsr, {}, context);   // on all
//   ranks MatMult(a->rows.get(), x, y);
//
// All functions are collective. PETSc is initialised by the caller, and all calls are on one
// thread.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/split.h"
#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/validation.h"

namespace spaid::kernels::mpi {

struct [[gnu::visibility("default")]] SpreadMatrix {
  MPI_Comm comm = MPI_COMM_NULL;
  int64_t n = 0, nnz = 0;  // of the whole
  Array<int64_t> begin;    // rank r owns rows and columns [begin[r], begin[r + 1])
  CscMatrix columns;       // those of this rank, n rows, canonical: what HybridSPAI reads
  MatOwner rows;           // the whole as MPIAIJ: what products read

  IndexRange own() const;
};

// A pattern of the same columns.
using SpreadPattern = Pattern;  // n rows, the columns of this rank

// Spreads a matrix of which each rank has the next block: of columns (kCsc: `block.n_rows` is n on
// all ranks, `block.n_cols` how many are here, perhaps none), or of rows (kCsr: `block.n_cols` is
// n, `block.col_ptr` are row pointers). `options`: sort_and_sum and threads are read. Errors, found
// on whatever rank and told on all, with numbers of the whole: those of Canonicalize, but of
// several kinds the first block's; RESOURCE_EXHAUSTED/OUT_OF_MEMORY. A matrix that PETSc's 32-bit
// indices cannot hold is MATRIX_TOO_LARGE.
[[gnu::visibility("default")]] Result<SpreadMatrix> SpreadBlocks(MPI_Comm comm, CscMatrix block,
                                                                 Layout layout,
                                                                 const ValidationOptions& options,
                                                                 const Context& context);

// The same from the whole matrix on rank 0, canonical, by blocks of about equal numbers of columns;
// null on all other ranks. Memory on rank 0 beside it: its own block, and 8 bytes a column.
[[gnu::visibility("default")]] Result<SpreadMatrix> SpreadWhole(MPI_Comm comm, const CscView* whole,
                                                                const Context& context);

// Spreads a pattern over the ranks as `like` is: each rank gives the columns that it owns.
[[gnu::visibility("default")]] Result<SpreadPattern> SpreadBlocks(const SpreadMatrix& like,
                                                                  Pattern block);
[[gnu::visibility("default")]] Result<SpreadPattern> SpreadWhole(const SpreadMatrix& like,
                                                                 const PatternView* whole);

// The share of a rank in `n` columns that SpreadWhole divides.
IndexRange ShareOf(int64_t n, int rank, int ranks);

// The rows that this rank owns, as columns of the transpose.
CscMatrix OwnRows(Mat of);

// The entries of an MPIAIJ on one rank, as PETSc reads them: of own columns, which are numbered
// from the first own one, and of others' columns. Each entry is counted, then added, those of a row
// by ascending columns. For this room.
//
//   RowArrays arrays(own);  ... arrays.Count(row, column) ...  arrays.Open();
//   ... arrays.Add(row, column, value) ...  m = std::move(arrays).Make(comm, n);
class RowArrays {
 public:
  // `own`: rows, and columns, of this rank.
  explicit RowArrays(IndexRange own);

  // `row`: counted from the first own one.
  void Count(int64_t row, int32_t column) { ++(IsOwn(column) ? own_ : other_).ptr[At(row) + 1]; }
  void Open();
  void Add(int64_t row, int32_t column, double value) {
    const bool mine = IsOwn(column);
    Entries& to = mine ? own_ : other_;
    const auto at = static_cast<size_t>(to.next[At(row)]++);
    to.columns[at] = mine ? column - static_cast<PetscInt>(range_.begin) : column;
    to.values[at] = value;
  }
  // Collective. Square, with its columns owned as its rows are.
  MatOwner Make(MPI_Comm comm, int64_t n) &&;

 private:
  struct Entries {
    Array<PetscInt> ptr, next, columns;
    Array<PetscScalar> values;
  };
  static size_t At(int64_t row) { return static_cast<size_t>(row); }
  bool IsOwn(int32_t column) const { return column >= range_.begin && column < range_.end; }
  static PetscErrorCode Free(void* arrays);

  IndexRange range_;
  Entries own_, other_;
};

// An MPIAIJ of the rows that each rank has, canonical and read by columns: rows.n_rows is n. For
// this room.
MatOwner MakeRows(MPI_Comm comm, const CscView& rows);

}  // namespace spaid::kernels::mpi
