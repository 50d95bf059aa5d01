// Columns of M in groups with equal J, over several ranks, and in classes of groups that are
// shifted copies of one another: what kernels/static_spai finds on one machine, by the same rules
// and by the numbers of the whole, so that each column is solved together with the same others on
// any number of ranks. All is collective. Internal to this room.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/status.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/structure.h"

namespace spaid::kernels::mpi {

// The groups of this rank: consecutive ones in the order of all.
struct SpreadGroups {
  Array<int64_t> begin;       // rank r has groups [begin[r], begin[r + 1])
  Array<int64_t> member_ptr;  // of each group here, into members
  Array<int32_t> members;     // columns of M, ascending in a group
  Array<int64_t> j_ptr;       // of each group here, into j
  Array<int32_t> j;

  int64_t size() const { return static_cast<int64_t>(member_ptr.size()) - 1; }
  std::span<const int32_t> group(int64_t g) const;
  std::span<const int32_t> columns(int64_t g) const;
};

// Bytes of a halo that may be fetched, and those that were.
struct HaloBudget {
  int64_t limit = 0;
  int64_t fetched = 0;

  // CheckHalo with the bytes of `halo`, which are then counted as fetched.
  Status Take(MPI_Comm comm, const Halo& halo, int64_t entry_bytes);
};

// Groups the columns of M, by about equal predicted work and entries of M on a rank. `pattern`:
// M's, the columns that this rank owns.
Result<SpreadGroups> GroupColumns(const SpreadMatrix& a, const Pattern& pattern,
                                  const StaticSpaiOptions& options, int threads,
                                  HaloBudget& budget);

// The class of each column of A that this rank owns (ShiftClasses::of).
Result<Array<int32_t>> ClassifyColumns(const SpreadMatrix& a, int threads, HaloBudget& budget);

// The classes of the groups here. class_of[p]: that of column groups.j[p]. `first` is -1 for a
// class that has no group here.
Result<ShiftClasses> ClassifyGroups(MPI_Comm comm, const SpreadGroups& groups,
                                    std::span<const int32_t> class_of, int threads,
                                    HaloBudget& budget);

}  // namespace spaid::kernels::mpi
