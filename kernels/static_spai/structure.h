// Local problems that are shifted copies of one another: on a regular grid most columns of M have
// the same J and I up to a shift. Such groups share a structure, which is found and laid out once,
// in the plan; what a build does with it is arithmetic alone, for several groups at once
// (lane_solver.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/sparse/hash.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Members of a list that are equal up to a shift.
struct ShiftClasses {
  Array<int32_t> of;           // class of each member, -1: none (too many classes, or a rare one)
  std::vector<int32_t> first;  // the lowest member of each class
  std::vector<int32_t> uses;   // how many members each has

  int64_t size() const { return static_cast<int64_t>(first.size()); }
};

inline constexpr uint64_t kNoClass = 0;  // a hash that puts a member in no class

// Members [begin, ...) of one hash, up to the next run.
struct HashRun {
  uint64_t hash;
  int32_t begin;
  int32_t id = -1;  // of its class
};

// Names the classes of a list by the hashes of its members, in order. At most kMaxClasses: what
// comes after those has no class, so that a matrix without repetition does not pay for a table of
// its columns.
class ClassNames {
 public:
  ClassNames();
  // Continues where another one, which has named these, was left.
  explicit ClassNames(std::span<const uint64_t> hashes);

  // The class of a hash, which is new where `member` is its first; -1: none.
  int32_t Name(uint64_t hash, int32_t member);
  int64_t size() const { return static_cast<int64_t>(hashes_.size()); }
  const std::vector<uint64_t>& hashes() const { return hashes_; }
  const std::vector<int32_t>& first() const { return first_; }  // of those that were new here

 private:
  struct Slot {
    uint64_t hash = kNoClass;
    int32_t id = -1;
  };
  Slot& Find(uint64_t hash);
  std::vector<Slot> table_;  // open addressing; at most half full
  std::vector<uint64_t> hashes_;
  std::vector<int32_t> first_;
};

// The hash of column j of A, equal for shifted columns; never kNoClass.
inline uint64_t HashShifted(std::span<const int32_t> rows, int32_t j) {
  return HashArray(rows, 0, j) | 1;
}
// Whether x and y, less their origins, are equal.
bool EqualShifted(std::span<const int32_t> x, int64_t x0, std::span<const int32_t> y, int64_t y0);

// The hash of a group with `members` and `columns` = J, equal for shifted groups. class_of(q): that
// of column J[q] of A. kNoClass where one of them has none.
template <class ClassOf>
uint64_t HashGroup(std::span<const int32_t> members, std::span<const int32_t> columns,
                   const ClassOf& class_of) {
  uint64_t of_classes = 0;  // a sum: no term waits for the one before it
  for (size_t q = 0; q < columns.size(); ++q) {
    const int32_t c = class_of(q);
    if (c < 0) return kNoClass;
    of_classes += HashMix(static_cast<uint64_t>(c), q << 32);
  }
  return HashArray(members, HashArray(columns, of_classes, members[0]), members[0]) | 1;
}

// Classifies the columns of `a`: j and l are equal where the row sets, less j and less l, are.
// Both poll the stop token of the context, and return its reason.
StopReason ClassifyColumns(const PatternView& a, const Context& context, ShiftClasses& classes);

// Groups of columns of M that share their J: group g holds members[group_ptr[g]] and following.
struct GroupsView {
  PatternView m;
  std::span<const int32_t> members;
  std::span<const int32_t> group_ptr;

  int64_t size() const { return static_cast<int64_t>(group_ptr.size()) - 1; }
  std::span<const int32_t> group(int64_t g) const {
    const auto begin = static_cast<size_t>(group_ptr[static_cast<size_t>(g)]);
    return members.subspan(begin,
                           static_cast<size_t>(group_ptr[static_cast<size_t>(g) + 1]) - begin);
  }
  std::span<const int32_t> columns(int64_t g) const { return m.column(group(g)[0]); }
};

// Classifies groups whose members, J and columns A(:, j) are equal up to a shift: their local
// problems have one structure.
StopReason ClassifyGroups(const GroupsView& groups, const ShiftClasses& columns_of_a,
                          const Context& context, ShiftClasses& classes);

// The structure of a local problem, laid out for products by rows. Rows of Â with the same columns
// stand together in runs of at most kMaxRows; [begin + i * rows + r] is the value of row r at its
// i-th column.
struct Structure {
  static constexpr int kMaxRows = 4;
  struct Run {
    int32_t rows = 0;
    int32_t count = 0;       // columns of each row
    int32_t columns = 0;     // offset of these in run_columns
    int32_t begin = 0;       // offset of the values
    int32_t has_target = 0;  // whether a row of it is one of `targets`
  };
  struct Target {  // the row k of a right-hand side e_k: which one of which run
    int32_t run = 0;
    int32_t row = 0;
  };

  int64_t n_cols = 0;            // |J|
  int64_t n_entries = 0;         // entries of Â
  std::vector<int32_t> lengths;  // entries of each column of Â
  std::vector<int32_t> places;   // offset of each entry's value, column by column
  std::vector<Run> runs;
  std::vector<int32_t> run_columns;  // local, ascending in each run
  std::vector<Target> targets;

  // Blocks of columns that have the rows of their neighbours (the unknowns of one node), if most
  // columns of Â are such: block i is [block_begin[i], block_begin[i + 1]), of at most kMaxBlock
  // columns; and for each pair of blocks (i, j), j <= i, at i (i + 1) / 2 + j, the runs that both
  // are in. Else empty.
  static constexpr int kMaxBlock = 3;
  struct BlockPair {
    int32_t left = 0, right = 0;  // offsets of the values of block i and of block j
    int32_t rows = 0;
  };
  std::vector<int32_t> block_begin;
  std::vector<int32_t> pair_begin;
  std::vector<BlockPair> pairs;
};

// Makes the structure of the local problem of `columns` = J with `targets`, which must have no
// compressed columns and an entry in the row of each target.
Structure MakeStructure(const PatternView& a, std::span<const int32_t> columns,
                        std::span<const int32_t> targets);

}  // namespace spaid::kernels
