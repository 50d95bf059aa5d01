// Growth of many rows, by any number of threads: rows that repeat others are copied, the others
// grown. Internal to this room, to kernels/dynamic_spai and kernels/mpi.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/fsai/repeats.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/fsai/row_growth.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// The part of a matrix that is here, of one that lies over several processes (kernels/mpi).
struct GrowthPart {
  std::span<const uint8_t> grow;  // of the rows; 0: it is not grown, and stays without entries
  std::span<const uint8_t> here;  // LackedColumns::here
};

// Rows as PutTogether wants them; their numbers are counted from the first one on.
struct GrownRows {
  std::vector<RowStore> stores;
  std::vector<RowBatch> batches;
  Array<int64_t> counts;  // row i's number of entries is at i + 1
  Array<double> psi_ratio;
  // For a part: not 0 where a row has asked for columns that are elsewhere (RowBatch::lacked): it
  // stays without entries and is in no count.
  Array<uint8_t> lacking;
};

class Growing {
 public:
  // Grows rows [first_row, a.n_cols), at least one: all rows of G, or those of least-squares
  // problems. `initial`: for each of these the rows of `a` that it begins with, in the order in
  // which they join, up to the first that is not below it; may be null: none. `a` and `diagonal` as
  // for MakeRowGrower. `part`: null where `a` is the whole. All of them are borrowed.
  Growing(const CscView& a, std::span<const double> diagonal, int64_t first_row,
          const PatternView* initial, const GrowthRules& rules, int repeat_hash_bits,
          const Context& context, const GrowthPart* part = nullptr);

  // One pass over all rows, from the initial pattern, with at most `k_max` steps. kNone and nothing
  // in `grown`: the deadline came first. Reports progress in rows. Throws std::bad_alloc.
  using Clock = std::chrono::steady_clock;
  StopReason Pass(int k_max, const std::optional<Clock::time_point>& deadline,
                  std::optional<GrownRows>& grown);

 private:
  // One for each thread.
  struct Worker {
    LackedColumns lacked;
    std::unique_ptr<RowGrower> grower;
  };
  Worker& OfThread(int worker);
  void Grow(Worker& worker, int k_max, GrownRow& row) const;
  void FillBatch(Worker& worker, const RepeatedRows& repeats, int64_t begin, int64_t end, int k_max,
                 GrownRows& pass, RowStore& store, RowBatch& batch) const;
  // Fills `lacked` of a copy of `row` that is `by` rows further.
  void FindLacked(const GrownRow& row, int32_t by, std::vector<int32_t>& lacked) const;
  std::span<const int32_t> Start(int64_t i) const {
    return StartOfRow(initial_, i, first_row_ + i);
  }

  const CscView a_;
  const std::span<const double> diagonal_;
  const int64_t first_row_, rows_;
  const PatternView* const initial_;
  const GrowthPart* const part_;
  GrowthRules of_pass_;  // k_max is that of the pass
  const Context& context_;
  Array<int32_t> like_;  // LikeRows, or empty
  std::vector<Worker> workers_;
};

}  // namespace spaid::kernels
