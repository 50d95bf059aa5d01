// Growth of rows (kernels/fsai/growing.h) over several ranks, in rounds. Each rank grows the rows
// that it owns by the columns that are there: its own ones, and what it has fetched. A row that
// asks for another column is put off; the columns that rows have asked for are fetched, and these
// rows begin anew, until none asks any more. So a row has read what it reads on one machine, and is
// the same bit for bit: the depth of the halo is that to which rows grow, and nothing is cut off.
// All is collective. Internal to this room.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/fsai/row_growth.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/spread_groups.h"
#include "kernels/mpi/spread_matrix.h"

namespace spaid::kernels::mpi {

// Rows to grow, one for each number that this rank owns. All indices are numbers of the whole.
struct SpreadRows {
  CscView columns;  // those that may join and are this rank's
  // Their diagonal entries, for rows of G; empty: least-squares problems, all ones.
  std::span<const double> diagonal;
  CscView problems;  // of least squares: A(:, i) of each row (GrowthRules); else no columns
  // That each row begins with, in the order in which they join. No columns: nothing.
  PatternView initial;
  GrowthRules rules;
  int repeat_hash_bits = 0;
};

struct SpreadGrown {
  CscMatrix rows;  // as columns, indices ascending; without values of least squares
  Array<double> psi_ratio;
  RowTally tally;                   // of the own rows, with numbers of the whole
  std::vector<double> log_by_step;  // RowBatch::log_by_step, of the own rows
  int64_t rounds = 0;
  // The columns that this rank has come to have, its own and others', ascending numbers, with all
  // their entries. Others have no entries.
  Array<int32_t> numbers;
  Array<int64_t> ptr;
  Array<int32_t> row_idx;
  Array<double> values;
};

// Grows them. Reports progress in rows of the whole on ranks that have a sink. `what`: for
// messages. Errors, the same on all ranks: RESOURCE_EXHAUSTED/HALO_TOO_LARGE before more is fetched
// than `budget` allows, /OUT_OF_MEMORY; stop statuses.
Result<SpreadGrown> GrowSpread(const SpreadMatrix& a, const SpreadRows& rows, HaloBudget& budget,
                               const Context& context, std::string_view what);

}  // namespace spaid::kernels::mpi
