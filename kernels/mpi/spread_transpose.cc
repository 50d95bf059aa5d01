#include "kernels/mpi/spread_transpose.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_matrix.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr char kTranspose[] = "transpose of a matrix over several ranks";

// An entry on its way from the owner of its major index to that of its minor one.
struct Place {
  int32_t major, minor;
};
struct Entry : Place {
  double value;
};

// Brings items to the owners of their minor index. Each rank posts what it has, and ends; whatever
// comes here meanwhile is given to take(item), an own item at once.
template <class Item, class Take>
class Post {
 public:
  // Rank r owns minor indices [begin[r], begin[r + 1]).
  Post(MPI_Comm comm, const Array<int64_t>& begin, int64_t piece_bytes, const Take& take)
      : comm_(comm), begin_(begin), own_(Z(RankOf(comm))), take_(take), to_(begin.size() - 1) {
    // All may send to one.
    const int64_t items = piece_bytes / static_cast<int64_t>(sizeof(Item));
    most_ = std::max<int64_t>(1, items / std::ssize(to_));
  }

  void Send(const Item& item) {
    if (!Owns(last_, item.minor)) {
      last_ = Z(std::ranges::upper_bound(begin_, item.minor) - begin_.begin() - 1);
    }
    if (last_ == own_) return take_(item);
    to_[last_].push_back(item);
    if (++posted_ == most_) Exchange(true);
  }
  void End() {
    while (Exchange(false)) {
    }
  }

 private:
  bool Owns(size_t rank, int32_t minor) const {
    return begin_[rank] <= minor && minor < begin_[rank + 1];
  }
  // Tells whether any rank has more.
  bool Exchange(bool more) {
    posted_ = 0;
    std::vector<Array<Item>> to(to_.size());
    std::swap(to, to_);
    for (const Array<Item>& come : mpi::Exchange(comm_, std::move(to))) {
      for (const Item& item : come) take_(item);
    }
    return SumOf(comm_, more ? 1 : 0) > 0;
  }

  const MPI_Comm comm_;
  const Array<int64_t>& begin_;
  const size_t own_;
  const Take& take_;
  std::vector<Array<Item>> to_;
  size_t last_ = 0;  // the owner of the item before
  int64_t most_ = 1, posted_ = 0;
};

// `each(use)`: calls use(major, minor, value) for each entry here, all in numbers of the whole.
// `to`: what this rank gets, by its minor indices from the first own one on.
template <class Each, class To>
Status Transpose(MPI_Comm comm, int64_t own, int64_t piece_bytes, const Each& each, To& to) {
  const Array<int64_t> begin = BeginsOf(comm, own);
  const auto first = begin[Z(RankOf(comm))];
  const auto count = [&](const Place& at) { to.Count(at.minor - first, at.major); };
  Post<Place, decltype(count)> places(comm, begin, piece_bytes, count);
  each([&](int32_t major, int32_t minor, double) { places.Send({major, minor}); });
  places.End();
  Status status = Locally(comm, kTranspose, [&]() -> Status {
    to.Open();
    return {};
  });
  if (!status.ok()) return status;
  const auto add = [&](const Entry& entry) {
    to.Add(entry.minor - first, entry.major, entry.value);
  };
  Post<Entry, decltype(add)> entries(comm, begin, piece_bytes, add);
  each([&](int32_t major, int32_t minor, double value) { entries.Send({{major, minor}, value}); });
  entries.End();
  to.Sort();
  return {};
}

// Own columns, filled as RowArrays is.
struct ColumnArrays {
  CscMatrix columns;

  ColumnArrays(int64_t n, int64_t own) : columns{n, own, {}, {}, {}} {
    columns.col_ptr.assign(Z(own) + 1, 0);
  }
  void Count(int64_t column, int32_t) { ++columns.col_ptr[Z(column) + 1]; }
  void Open() {
    columns.row_idx.resize(OpenLists(columns.col_ptr));
    columns.values.resize(columns.row_idx.size());
  }
  void Add(int64_t column, int32_t row, double value) {
    const auto at = Z(columns.col_ptr[Z(column) + 1]++);
    columns.row_idx[at] = row;
    columns.values[at] = value;
  }
  void Sort() { SortLists(columns.col_ptr, columns.row_idx, columns.values); }
};

}  // namespace

Result<CscMatrix> OwnColumns(Mat rows, int64_t piece_bytes) {
  const MPI_Comm comm = PetscObjectComm(reinterpret_cast<PetscObject>(rows));
  PetscInt n = 0, first = 0, end = 0;
  Must(MatGetSize(rows, &n, nullptr));
  Must(MatGetOwnershipRange(rows, &first, &end));
  ColumnArrays to(n, end - first);
  const auto each = [&](const auto& use) {
    EachRow(rows, [&](int64_t i, auto columns, auto values) {
      for (size_t p = 0; p < columns.size(); ++p) {
        use(first + static_cast<int32_t>(i), columns[p], values[p]);
      }
    });
  };
  if (Status status = Transpose(comm, end - first, piece_bytes, each, to); !status.ok()) {
    return status;
  }
  return std::move(to.columns);
}

Result<MatOwner> RowsOf(MPI_Comm comm, const CscView& columns, int64_t piece_bytes) {
  const int64_t first = SumBefore(comm, columns.n_cols);
  RowArrays to({first, first + columns.n_cols});
  const auto each = [&](const auto& use) {
    for (int64_t k = 0; k < columns.n_cols; ++k) {
      const auto rows = columns.column(k);
      const auto values = columns.column_values(k);
      for (size_t p = 0; p < rows.size(); ++p) {
        use(static_cast<int32_t>(first + k), rows[p], values[p]);
      }
    }
  };
  if (Status status = Transpose(comm, columns.n_cols, piece_bytes, each, to); !status.ok()) {
    return status;
  }
  return std::move(to).Make(comm, columns.n_rows);
}

}  // namespace spaid::kernels::mpi
