// A square matrix of which each rank owns a range of consecutive rows, and the columns of the same
// numbers.
//
//   Result<SpreadMatrix> a = SpreadBlocks(comm, block, Layout::kCsr, {}, context);   // on all
//   ranks MatMult(a->rows.get(), x, y);
//
// All functions are collective. PETSc is initialised by the caller, and all calls are on one
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

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

// Bytes of an entry: its index and its value.
inline constexpr int64_t kEntryBytes = sizeof(int32_t) + sizeof(double);
// Bytes that an entry may take on a rank while its matrix is spread and looked at: by columns and
// by rows, and half as much again, of which SharesOf makes what it counts by.
inline constexpr int64_t kSpreadEntry = 3 * kEntryBytes;

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

// Calls use(i, columns, values) for each row of an MPIAIJ that this rank owns. i: counted from the
// first of them; columns: ascending numbers of the whole.
template <class Use>
void EachRow(Mat of, const Use& use) {
  PetscInt begin = 0, end = 0;
  Must(MatGetOwnershipRange(of, &begin, &end));
  for (PetscInt i = begin; i < end; ++i) {
    PetscInt count = 0;
    const PetscInt* columns = nullptr;
    const PetscScalar* values = nullptr;
    Must(MatGetRow(of, i, &count, &columns, &values));
    use(int64_t{i - begin}, std::span(columns, static_cast<size_t>(count)),
        std::span(values, static_cast<size_t>(count)));
    Must(MatRestoreRow(of, i, &count, &columns, &values));
  }
}

// The rows that this rank owns, as columns of the transpose.
CscMatrix OwnRows(Mat of);

// Turns lengths of lists, ptr[i + 1] that of list i, into places to fill: entries of list i go to
// ptr[i + 1]++, after which ptr points as usual. Returns the number of entries.
template <class Pointer>
size_t OpenLists(Array<Pointer>& ptr) {
  Pointer sum = 0;
  for (size_t i = 1; i < ptr.size(); ++i) sum += std::exchange(ptr[i], sum);
  return static_cast<size_t>(sum);
}

// Brings each list into ascending order, which most have.
template <class Pointer>
void SortLists(const Array<Pointer>& ptr, Array<int32_t>& indices, Array<double>& values) {
  std::vector<std::pair<int32_t, double>> list;
  for (size_t i = 0; i + 1 < ptr.size(); ++i) {
    const auto begin = static_cast<size_t>(ptr[i]), end = static_cast<size_t>(ptr[i + 1]);
    if (std::is_sorted(indices.data() + begin, indices.data() + end)) continue;
    list.clear();
    for (size_t p = begin; p < end; ++p) list.emplace_back(indices[p], values[p]);
    std::ranges::sort(list, {}, &std::pair<int32_t, double>::first);
    for (size_t p = begin; p < end; ++p) std::tie(indices[p], values[p]) = list[p - begin];
  }
}

// The entries of an MPIAIJ on one rank, as PETSc reads them: of own columns, which are numbered
// from the first own one, and of others' columns. Each entry is counted, then added, those of a row
// by ascending columns, or sorted at the end. For this room.
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
    const auto at = static_cast<size_t>(to.ptr[At(row) + 1]++);
    to.columns[at] = mine ? column - static_cast<PetscInt>(range_.begin) : column;
    to.values[at] = value;
  }
  void Sort() { SortLists(other_.ptr, other_.columns, other_.values); }
  // Counts, opens and adds all of them, read by columns, in the memory of five thirds of `rows`.
  void Take(CscMatrix rows);
  // Collective. Square, with its columns owned as its rows are.
  MatOwner Make(MPI_Comm comm, int64_t n) &&;

 private:
  struct Entries {
    Array<PetscInt> ptr, columns;
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
MatOwner MakeRows(MPI_Comm comm, CscMatrix rows);

}  // namespace spaid::kernels::mpi
