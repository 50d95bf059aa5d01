#include "kernels/mpi/spread_matrix.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_transpose.h"

namespace spaid::kernels::mpi {
namespace {

constexpr char kSpread[] = "matrix over several ranks";
constexpr int64_t kMostIndices = std::numeric_limits<PetscInt>::max();

Status Invalid(const char* reason, std::string message, const char* field) {
  return Status(StatusCode::kInvalidArgument, reason, std::move(message)).At(field);
}

// All ranks must mean one square matrix. `n`, `own`: as this rank says. Fills `begin`.
Status CheckSizes(MPI_Comm comm, int64_t n, int64_t own, const char* n_field, const char* own_field,
                  Array<int64_t>& begin) {
  int64_t sizes[2] = {n, -n};
  Must(MPI_Allreduce(MPI_IN_PLACE, sizes, 2, MPI_INT64_T, MPI_MAX, comm));
  const int64_t most = sizes[0], least = -sizes[1];
  Status status;
  if (n != least) {  // rank by rank, so that one of them says it
    status = Invalid("SIZE_MISMATCH",
                     std::string(n_field) + " is " + std::to_string(n) + " on rank " +
                         std::to_string(RankOf(comm)) + " and " + std::to_string(least) +
                         " on another; all must name the size of the whole matrix",
                     n_field);
  } else if (least <= 0) {
    status = Invalid("EMPTY_MATRIX", "the matrix has " + std::to_string(n) + " rows; it needs one",
                     n_field);
  } else if (most > kMostIndices) {
    status =
        Invalid("MATRIX_TOO_LARGE",
                "the matrix has " + std::to_string(n) + " rows; indices are 32 bits wide", n_field);
  } else if (own < 0) {
    status = Invalid("BAD_POINTERS", "a block cannot have " + std::to_string(own) + " of them",
                     own_field);
  }
  if (Status agreed = Agree(comm, status); !agreed.ok()) return agreed;
  begin = BeginsOf(comm, own);
  if (begin.back() == n) return {};
  return Invalid("NOT_SQUARE",
                 "the blocks of all ranks have " + std::to_string(begin.back()) + " together, " +
                     n_field + " is " + std::to_string(n) + "; the matrix must be square",
                 own_field);
}

}  // namespace

IndexRange ShareOf(int64_t n, int rank, int ranks) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

CscMatrix OwnRows(Mat of) {
  PetscInt n = 0, own = 0;
  Must(MatGetSize(of, nullptr, &n));
  Must(MatGetLocalSize(of, &own, nullptr));
  CscMatrix out{n, own, {}, {}, {}};
  MatInfo info;
  Must(MatGetInfo(of, MAT_LOCAL, &info));
  out.row_idx.reserve(static_cast<size_t>(info.nz_used));
  out.values.reserve(out.row_idx.capacity());
  out.col_ptr.reserve(static_cast<size_t>(out.n_cols) + 1);
  out.col_ptr.push_back(0);
  EachRow(of, [&](int64_t, auto columns, auto values) {
    out.row_idx.insert(out.row_idx.end(), columns.begin(), columns.end());
    out.values.insert(out.values.end(), values.begin(), values.end());
    out.col_ptr.push_back(out.nnz());
  });
  return out;
}

IndexRange SpreadMatrix::own() const {
  const auto rank = static_cast<size_t>(RankOf(comm));
  return {begin[rank], begin[rank + 1]};
}

RowArrays::RowArrays(IndexRange own) : range_(own) {
  for (Entries* of : {&own_, &other_}) of->ptr.assign(At(own.size()) + 1, 0);
}

void RowArrays::Open() {
  for (Entries* of : {&own_, &other_}) {
    of->columns.resize(OpenLists(of->ptr));
    of->values.resize(of->columns.size());
  }
}

void RowArrays::Take(CscMatrix rows) {
  const CscView view = rows;
  for (int64_t i = 0; i < rows.n_cols; ++i) {
    for (const int32_t j : view.column(i)) Count(i, j);
  }
  for (Entries* of : {&own_, &other_}) {
    for (size_t i = 1; i < of->ptr.size(); ++i) of->ptr[i] += of->ptr[i - 1];
  }
  // Both are laid out in the order of the rows. The values go before the columns, by which they are
  // told apart.
  const auto part = [&]<class T>(Array<T>& from, Array<T> Entries::*to, T first_own) {
    size_t mine = 0, others = 0;
    for (Entries* of : {&own_, &other_}) (of->*to).resize(At(of->ptr.back()));
    for (size_t p = 0; p < from.size(); ++p) {
      if (IsOwn(rows.row_idx[p])) {
        (own_.*to)[mine++] = from[p] - first_own;
      } else {
        (other_.*to)[others++] = from[p];
      }
    }
    from = Array<T>();
  };
  part(rows.values, &Entries::values, 0.0);
  part(rows.row_idx, &Entries::columns, static_cast<PetscInt>(range_.begin));
}

PetscErrorCode RowArrays::Free(void* arrays) {
  delete static_cast<RowArrays*>(arrays);
  return static_cast<PetscErrorCode>(0);
}

// MatCreateMPIAIJWithArrays would insert row by row. These arrays are kept as long as the matrix.
MatOwner RowArrays::Make(MPI_Comm comm, int64_t n) && {
  auto* const kept = new RowArrays(std::move(*this));
  const auto count = static_cast<PetscInt>(kept->range_.size());
  Mat made = nullptr;
  Must(MatCreateMPIAIJWithSplitArrays(
      comm, count, count, static_cast<PetscInt>(n), static_cast<PetscInt>(n), kept->own_.ptr.data(),
      kept->own_.columns.data(), kept->own_.values.data(), kept->other_.ptr.data(),
      kept->other_.columns.data(), kept->other_.values.data(), &made));
  PetscContainer keeper = nullptr;
  Must(PetscContainerCreate(comm, &keeper));
  Must(PetscContainerSetPointer(keeper, kept));
  Must(PetscContainerSetUserDestroy(keeper, Free));
  Must(PetscObjectCompose(reinterpret_cast<PetscObject>(made), "spaid_rows",
                          reinterpret_cast<PetscObject>(keeper)));
  Must(PetscContainerDestroy(&keeper));
  return MatOwner(made);
}

MatOwner MakeRows(MPI_Comm comm, CscMatrix rows) {
  const int64_t n = rows.n_rows, first = SumBefore(comm, rows.n_cols);
  RowArrays arrays({first, first + rows.n_cols});
  arrays.Take(std::move(rows));
  return std::move(arrays).Make(comm, n);
}

Result<SpreadMatrix> SpreadBlocks(MPI_Comm comm, CscMatrix block, Layout layout,
                                  const ValidationOptions& options, const Context& context) {
  const bool by_rows = layout == Layout::kCsr;
  SpreadMatrix spread;
  spread.comm = comm;
  spread.n = by_rows ? block.n_cols : block.n_rows;
  if (Status status =
          CheckSizes(comm, spread.n, by_rows ? block.n_rows : block.n_cols,
                     by_rows ? "n_cols" : "n_rows", by_rows ? "n_rows" : "n_cols", spread.begin);
      !status.ok()) {
    return status;
  }
  const int64_t n = spread.n;
  ValidationOptions own = options;
  own.pattern_only = false;
  own.first_major = spread.own().begin;
  own.first_entry = SumBefore(comm, block.nnz());
  Status status = Locally(comm, kSpread, [&]() -> Status {
    Result<CscMatrix> canonical = CanonicalizeBlock(std::move(block), layout, own);
    if (!canonical.ok()) return canonical.status();
    spread.columns = *std::move(canonical);
    if (spread.columns.nnz() <= kMostIndices) return {};
    return Invalid("MATRIX_TOO_LARGE",
                   "a rank would hold " + std::to_string(spread.columns.nnz()) +
                       " entries, which PETSc's 32-bit indices cannot count; take more ranks",
                   by_rows ? "row_ptr" : "col_ptr");
  });
  if (!status.ok()) return status;
  spread.nnz = SumOf(comm, spread.columns.nnz());
  if (status = AgreeStop(comm, context.stop, kSpread); !status.ok()) {
    return status;
  }
  // Either form is the transpose of the other, and each rank has its block of one.
  if (by_rows) {
    RowArrays rows(spread.own());
    spread.columns.n_rows = n;  // read by columns
    spread.columns.n_cols = spread.own().size();
    status = Locally(comm, kSpread, [&]() -> Status {
      rows.Take(std::move(spread.columns));
      return {};
    });
    if (!status.ok()) return status;
    spread.rows = std::move(rows).Make(comm, n);
    Result<CscMatrix> columns = OwnColumns(spread.rows.get());
    if (!columns.ok()) return columns.status();
    spread.columns = *std::move(columns);
  } else {
    Result<MatOwner> rows = RowsOf(comm, spread.columns);
    if (!rows.ok()) return rows.status();
    spread.rows = *std::move(rows);
  }
  return spread;
}

Result<SpreadMatrix> SpreadWhole(MPI_Comm comm, const CscView* whole, const Context& context) {
  const int rank = RankOf(comm), ranks = RanksOf(comm);
  int64_t n = whole != nullptr ? whole->n_cols : 0;
  Must(MPI_Bcast(&n, 1, MPI_INT64_T, 0, comm));
  Array<int64_t> lengths;
  std::vector<std::span<const int64_t>> lengths_of;
  std::vector<std::span<const int32_t>> rows_of;
  std::vector<std::span<const double>> values_of;
  CscMatrix block;
  Status status = Locally(comm, kSpread, [&]() -> Status {
    if (whole != nullptr && whole->n_rows != n) {
      return Invalid("NOT_SQUARE",
                     "the matrix has " + std::to_string(whole->n_rows) + " rows and " +
                         std::to_string(n) + " columns; it must be square",
                     "n_cols");
    }
    for (int64_t j = 0; whole != nullptr && j < n; ++j) {
      lengths.push_back(std::ssize(whole->column(j)));
    }
    return {};
  });
  if (!status.ok()) return status;
  for (int r = 0; whole != nullptr && r < ranks; ++r) {
    const auto [begin, end] = ShareOf(n, r, ranks);
    const auto first = static_cast<size_t>(whole->col_ptr[static_cast<size_t>(begin)]);
    const auto count = static_cast<size_t>(whole->col_ptr[static_cast<size_t>(end)]) - first;
    lengths_of.push_back(std::span<const int64_t>(lengths).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    rows_of.push_back(whole->row_idx.subspan(first, count));
    values_of.push_back(whole->values.subspan(first, count));
  }
  block.n_rows = n;
  block.n_cols = ShareOf(n, rank, ranks).size();
  block.col_ptr.push_back(0);
  for (const int64_t length : TakeShare(comm, lengths_of)) {
    block.col_ptr.push_back(block.col_ptr.back() + length);
  }
  block.row_idx = TakeShare(comm, rows_of);
  block.values = TakeShare(comm, values_of);
  return SpreadBlocks(comm, std::move(block), Layout::kCsc, {.threads = context.threads}, context);
}

Result<SpreadPattern> SpreadBlocks(const SpreadMatrix& like, Pattern block) {
  const IndexRange own = like.own();
  ValidationOptions options{.pattern_only = true};
  options.first_major = own.begin;
  options.first_entry = SumBefore(like.comm, block.nnz());
  SpreadPattern pattern;
  Status status = Locally(like.comm, "pattern over several ranks", [&]() -> Status {
    if (block.n_rows != like.n || block.n_cols != own.size()) {
      return Invalid("PATTERN_SIZE_MISMATCH",
                     "the block of the pattern on rank " + std::to_string(RankOf(like.comm)) +
                         " is " + std::to_string(block.n_rows) + " x " +
                         std::to_string(block.n_cols) + ", that of the matrix " +
                         std::to_string(like.n) + " x " + std::to_string(own.size()) +
                         "; send a pattern of the matrix' size",
                     "user_pattern");
    }
    Result<CscMatrix> canonical = CanonicalizeBlock(
        CscMatrix{
            block.n_rows, block.n_cols, std::move(block.col_ptr), std::move(block.row_idx), {}},
        Layout::kCsc, options);
    if (!canonical.ok()) return canonical.status();
    pattern = {like.n, own.size(), std::move(canonical->col_ptr), std::move(canonical->row_idx)};
    return {};
  });
  if (!status.ok()) return status;
  return pattern;
}

Result<SpreadPattern> SpreadWhole(const SpreadMatrix& like, const PatternView* whole) {
  const auto ranks = static_cast<size_t>(RanksOf(like.comm));
  Status status;
  if (whole != nullptr && (whole->n_rows != like.n || whole->n_cols != like.n)) {
    status = Invalid("PATTERN_SIZE_MISMATCH", "send a pattern of the matrix' size", "user_pattern");
  }
  if (Status agreed = Agree(like.comm, status); !agreed.ok()) return agreed;
  std::vector<Array<int64_t>> lengths(ranks);
  std::vector<Array<int32_t>> rows(ranks);
  for (size_t r = 0; whole != nullptr && r < ranks; ++r) {
    for (int64_t j = like.begin[r]; j < like.begin[r + 1]; ++j) {
      const auto column = whole->column(j);
      lengths[r].push_back(std::ssize(column));
      rows[r].insert(rows[r].end(), column.begin(), column.end());
    }
  }
  Pattern block{like.n, like.own().size(), {0}, {}};
  for (const int64_t length : ExchangeAll(like.comm, std::move(lengths))) {
    block.col_ptr.push_back(block.col_ptr.back() + length);
  }
  block.row_idx = ExchangeAll(like.comm, std::move(rows));
  return SpreadBlocks(like, std::move(block));
}

}  // namespace spaid::kernels::mpi
