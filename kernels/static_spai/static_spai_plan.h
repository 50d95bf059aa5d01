// The contents of a static SPAI plan. Internal to this room and its tests.
//
// The sets I_k are stored once for all columns that share a structure; elsewhere finding them again
// costs less than reading them back from memory. Beside them: the pattern of M, which columns share
// their J (and so one factor), and batches of about equal predicted work.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/local_problem.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/structure.h"

namespace spaid::kernels {

struct StaticSpaiPlan {
  Pattern pattern;           // M's
  Array<int32_t> members;    // columns of M, group by group; ascending in a group, all with one J
  Array<int32_t> group_ptr;  // n_groups + 1, into members
  std::vector<Structure> structures;
  Array<int32_t> structure_of;   // the structure of each group, -1: none
  Array<int32_t> batch_ptr;      // n_batches + 1, into groups
  Array<int32_t> batch_order;    // batches by falling predicted work; equal ones in order
  Array<uint8_t> equal_columns;  // FindEqualColumns of A
  Array<LongPair> long_pairs;    // ascending: the pairs of columns whose dot products a build needs
  LocalCounts largest;           // the largest of each count over all groups
  uint64_t pattern_hash = 0;     // A's
  StaticSpaiCounts counts;

  int64_t n_batches() const { return static_cast<int64_t>(batch_ptr.size()) - 1; }
  GroupsView groups() const { return {pattern, members, group_ptr}; }
};

// INVALID_ARGUMENT/NOT_SQUARE, /BAD_POST_FILTER, /BAD_GRAM_PIVOT_LIMIT.
Status CheckOptions(const PatternView& a, const StaticSpaiOptions& options);

// FAILED_PRECONDITION/ZERO_COLUMN where a column of A has no entry: every pattern needs each
// column. `a` may be a block of columns, of which [0] is column `first` of the whole.
Status CheckColumns(const PatternView& a, int threads, int64_t first = 0);

// Fills what follows from a finished survey of the plan's groups: batches and counts. `a`: its n
// and entries are those of the plan.
class GroupSurvey;
void CompletePlan(const PatternView& a, const GroupSurvey& survey, const StaticSpaiOptions& options,
                  int threads, StaticSpaiPlan& plan);

// Flops of one group of `columns` columns with equal J.
double QrFlops(const LocalCounts& counts, int64_t n2, int64_t columns);
double GramFlops(const LocalCounts& counts, int64_t n2, int64_t columns);

// Entries of all structures of a plan, at most.
constexpr int64_t MaxStructureEntries(int64_t nnz_m) { return nnz_m / 8; }

// Bytes of a plan (at most) and of a build on `threads` threads (an upper bound). INT64_MAX where
// that many cannot be counted.
int64_t PlanBytes(int64_t n, int64_t nnz_m, int64_t long_pairs);
int64_t BuildBytes(int64_t n, int64_t nnz_m, int64_t long_pairs, const LocalCounts& largest,
                   int64_t n2_max, int threads, bool post_filter);

// Sums over the local problems of all columns.
struct DeviceProblems {
  double words = 0;  // words of their gather tables
  double most = 0;   // entries of the largest one

  void Add(double entries, double columns = 1);
};
// Fills the device bytes of `counts`, of which n, nnz_a, nnz_m and n2_max are there, as if each
// column were a group and a structure of its own. `pattern_bytes`: while the pattern of M is made.
void BoundDeviceBytes(const DeviceProblems& problems, double pattern_bytes,
                      const StaticSpaiOptions& options, StaticSpaiCounts& counts);

}  // namespace spaid::kernels
