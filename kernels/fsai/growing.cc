#include "kernels/fsai/growing.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

Growing::Growing(const CscView& a, std::span<const double> diagonal, int64_t first_row,
                 const PatternView* initial, const GrowthRules& rules, int repeat_hash_bits,
                 const Context& context, const GrowthPart* part)
    : a_(a),
      diagonal_(diagonal),
      first_row_(first_row),
      rows_(a.n_cols - first_row),
      initial_(initial),
      part_(part),
      of_pass_(rules),
      context_(context),
      workers_(Z(ResolveThreads(context.threads))) {
  if (repeat_hash_bits > 0) like_ = LikeRows(a, diagonal, repeat_hash_bits, context.threads);
}

StopReason Growing::Pass(int k_max, const std::optional<Clock::time_point>& deadline,
                         std::optional<GrownRows>& grown) {
  const int64_t batch_rows = BatchRows(rows_);
  GrownRows pass{RowStores(rows_ * (1 + int64_t{of_pass_.s} * k_max), !of_pass_.least_squares,
                           context_.threads),
                 std::vector<RowBatch>(Z((rows_ - 1) / batch_rows + 1)),
                 Array<int64_t>(Z(rows_) + 1), Array<double>(Z(rows_)), Array<uint8_t>()};
  if (part_ != nullptr) pass.lacking.assign(Z(rows_), 0);
  std::atomic<bool> late{false};
  const auto is_late = [&] {
    if (deadline && !late.load(std::memory_order_relaxed) && Clock::now() >= *deadline) {
      late.store(true, std::memory_order_relaxed);
    }
    return late.load(std::memory_order_relaxed);
  };
  for (Worker& worker : workers_) worker.grower.reset();
  of_pass_.k_max = k_max;
  RepeatedRows repeats;
  if (!like_.empty()) {
    const auto grow = [&](GrownRow& row, int w) {
      if (is_late()) return false;
      Grow(OfThread(w), k_max, row);
      return true;
    };
    const std::span<const uint8_t> wanted =
        part_ != nullptr ? part_->grow : std::span<const uint8_t>();
    const StopReason stopped =
        FindRepeats(like_, first_row_, wanted, initial_, context_, grow, repeats);
    if (stopped != StopReason::kNone || late) return stopped;
  }
  const StopReason stopped = ParallelFor(
      rows_, batch_rows, context_, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
        if (is_late()) return;
        FillBatch(OfThread(w), repeats, begin, end, k_max, pass, pass.stores[Z(w)],
                  pass.batches[Z(begin / batch_rows)]);
      });
  if (stopped == StopReason::kNone && !late) grown = std::move(pass);
  return stopped;
}

Growing::Worker& Growing::OfThread(int worker) {
  Worker& own = workers_[Z(worker)];
  if (part_ != nullptr) own.lacked.here = part_->here;
  if (!own.grower) {
    own.grower = MakeRowGrower(a_, diagonal_, of_pass_, part_ != nullptr ? &own.lacked : nullptr);
  }
  return own;
}

void Growing::Grow(Worker& worker, int k_max, GrownRow& row) const {
  worker.lacked.asked.clear();
  row.outcome =
      worker.grower->Grow(first_row_ + row.row, Start(row.row), k_max, row.entries, row.ratios);
  row.lacked = worker.lacked.asked;
}

// A row that others are copied from has read the columns of its entries, and no others.
void Growing::FindLacked(const GrownRow& row, int32_t by, std::vector<int32_t>& lacked) const {
  lacked.clear();
  if (by == 0) {
    lacked = row.lacked;
    return;
  }
  for (const RowEntry& entry : row.entries) {
    if (part_->here[Z(entry.index + by)] == 0) lacked.push_back(entry.index + by);
  }
}

void Growing::FillBatch(Worker& worker, const RepeatedRows& repeats, int64_t begin, int64_t end,
                        int k_max, GrownRows& pass, RowStore& store, RowBatch& batch) const {
  std::vector<LogProduct> products(Z(k_max) + 1);
  GrownRow own;
  std::vector<int32_t> lacked;
  for (int64_t i = begin; i < end; ++i) {
    if (part_ != nullptr && part_->grow[Z(i)] == 0) {
      pass.counts[Z(i) + 1] = 0;
      pass.psi_ratio[Z(i)] = 1;
      continue;
    }
    const int32_t source = repeats.source.empty() ? -1 : repeats.source[Z(i)];
    if (source < 0) {
      own.row = static_cast<int32_t>(i);
      Grow(worker, k_max, own);
    }
    const GrownRow& row = source < 0 ? own : repeats.grown[Z(source)];
    const RowOutcome& outcome = row.outcome;
    const auto by = static_cast<int32_t>(i - row.row);
    if (part_ != nullptr) {
      FindLacked(row, by, lacked);
      if (!lacked.empty()) {
        batch.lacked.insert(batch.lacked.end(), lacked.begin(), lacked.end());
        pass.lacking[Z(i)] = 1;
        pass.counts[Z(i) + 1] = 0;
        pass.psi_ratio[Z(i)] = 1;
        continue;
      }
    }
    batch.tally.copied += by != 0 ? 1 : 0;
    const auto count = static_cast<int64_t>(row.entries.size());
    store.Extend(batch, count);
    int32_t* const row_idx = batch.row_idx + batch.size - count;
    for (int64_t t = 0; t < count; ++t) row_idx[t] = row.entries[Z(t)].index + by;
    if (batch.values != nullptr) {
      double* const values = batch.values + batch.size - count;
      for (int64_t t = 0; t < count; ++t) values[t] = row.entries[Z(t)].value;
    }
    pass.counts[Z(i) + 1] = count;
    pass.psi_ratio[Z(i)] = outcome.psi_ratio;
    for (size_t t = 0; t < products.size(); ++t) {
      products[t].Multiply(row.ratios[std::min(t, row.ratios.size() - 1)]);
    }
    if (outcome.not_spd && batch.tally.not_spd++ == 0) batch.tally.first_not_spd = i;
    batch.tally.converged += outcome.converged ? 1 : 0;
    batch.tally.flops += outcome.flops;
  }
  for (LogProduct& product : products) batch.log_by_step.push_back(product.Log());
}

}  // namespace spaid::kernels
