// Local problems that are shifted copies of one another: on a regular grid most columns of M have
// the same J and I up to a shift. Such groups share a structure, which is found and laid out once,
// in the plan; what a build does with it is arithmetic alone, for several groups at once
// (lane_solver.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Members of a list that are equal up to a shift.
struct ShiftClasses {
  Array<int32_t> of;           // class of each member, -1: none (too many classes, or a rare one)
  std::vector<int32_t> first;  // the lowest member of each class
  std::vector<int32_t> uses;   // how many members each has

  int64_t size() const { return static_cast<int64_t>(first.size()); }
};

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
