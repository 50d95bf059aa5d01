#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_build.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/post_filter.h"
#include "kernels/fsai/repeats.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {
namespace {

using Clock = std::chrono::steady_clock;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Growth under a time budget is tried several times: what is done of a later try is told only
// where it is more.
class RisingProgress final : public ProgressSink {
 public:
  explicit RisingProgress(ProgressSink* sink) : sink_(sink) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (done <= most_) return;
    most_ = done;
    // The last row is told when the result is there.
    if (done < total) sink_->OnProgress(stage, done, total);
  }
  void OnResidual(const ResidualPoint&) override {}

 private:
  ProgressSink* const sink_;
  int64_t most_ = 0;
};

struct Grown {
  std::vector<RowStore> stores;
  std::vector<RowBatch> batches;
  Array<int64_t> counts;
  Array<double> psi_ratio;
};

// One pass over all rows, from the initial pattern, with at most `k_max` steps.
class Growing {
 public:
  Growing(const SymmetricMatrix& a, const PatternView* initial, const FsaiOptions& options,
          const Context& context)
      : a_(a),
        initial_(initial),
        of_pass_(options),
        context_(context),
        growers_(Z(ResolveThreads(context.threads))) {
    if (options.repeat_hash_bits > 0) {
      like_ = LikeRows(a, options.repeat_hash_bits, context.threads);
    }
  }

  // kNone and nothing in `grown`: the deadline came first.
  StopReason Pass(int k_max, const std::optional<Clock::time_point>& deadline,
                  std::optional<Grown>& grown) {
    const int64_t n = a_.a.n_cols, rows = BatchRows(n);
    Grown pass{RowStores(n * (1 + int64_t{of_pass_.s} * k_max), context_.threads),
               std::vector<RowBatch>(Z((n - 1) / rows + 1)), Array<int64_t>(Z(n) + 1),
               Array<double>(Z(n))};
    std::atomic<bool> late{false};
    const auto is_late = [&] {
      if (deadline && !late.load(std::memory_order_relaxed) && Clock::now() >= *deadline) {
        late.store(true, std::memory_order_relaxed);
      }
      return late.load(std::memory_order_relaxed);
    };
    for (std::unique_ptr<RowGrower>& grower : growers_) grower.reset();
    of_pass_.k_max = k_max;
    RepeatedRows repeats;
    if (!like_.empty()) {
      const auto grow = [&](GrownRow& row, int w) {
        if (is_late()) return false;
        row.outcome = Grower(w).Grow(row.row, Start(row.row), k_max, row.entries, row.ratios);
        return true;
      };
      const StopReason stopped = FindRepeats(like_, initial_, context_, grow, repeats);
      if (stopped != StopReason::kNone || late) return stopped;
    }
    const StopReason stopped =
        ParallelFor(n, rows, context_, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
          if (is_late()) return;
          FillBatch(Grower(w), repeats, begin, end, k_max, pass, pass.stores[Z(w)],
                    pass.batches[Z(begin / rows)]);
        });
    if (stopped == StopReason::kNone && !late) grown = std::move(pass);
    return stopped;
  }

 private:
  RowGrower& Grower(int worker) {
    std::unique_ptr<RowGrower>& grower = growers_[Z(worker)];
    if (!grower) grower = MakeRowGrower(a_.a, a_.diagonal.values, of_pass_);
    return *grower;
  }

  void FillBatch(RowGrower& grower, const RepeatedRows& repeats, int64_t begin, int64_t end,
                 int k_max, Grown& pass, RowStore& store, RowBatch& batch) const {
    std::vector<LogProduct> products(Z(k_max) + 1);
    GrownRow own;
    for (int64_t i = begin; i < end; ++i) {
      const int32_t source = repeats.source.empty() ? -1 : repeats.source[Z(i)];
      if (source < 0) {
        own.row = static_cast<int32_t>(i);
        own.outcome = grower.Grow(i, Start(i), k_max, own.entries, own.ratios);
      }
      const GrownRow& row = source < 0 ? own : repeats.grown[Z(source)];
      const RowOutcome& outcome = row.outcome;
      const auto by = static_cast<int32_t>(i - row.row);
      batch.tally.copied += by != 0 ? 1 : 0;
      const auto count = static_cast<int64_t>(row.entries.size());
      store.Extend(batch, count);
      int32_t* const row_idx = batch.row_idx + batch.size - count;
      double* const values = batch.values + batch.size - count;
      for (int64_t t = 0; t < count; ++t) {
        row_idx[t] = row.entries[Z(t)].index + by;
        values[t] = row.entries[Z(t)].value;
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

  std::span<const int32_t> Start(int64_t i) const {
    if (initial_ == nullptr) return {};
    const auto row = initial_->column(i);
    return row.first(Z(std::lower_bound(row.begin(), row.end(), i) - row.begin()));
  }

  const SymmetricMatrix& a_;
  const PatternView* const initial_;
  FsaiOptions of_pass_;  // k_max is that of the pass
  const Context& context_;
  Array<int32_t> like_;  // LikeRows, or empty
  std::vector<std::unique_ptr<RowGrower>> growers_;
};

// The steps that a next pass can have: a pass of k steps takes time like k², and this one was
// timed.
int NextSteps(int steps, int k_max, double took, double left) {
  int next = steps;
  while (next < k_max) {
    const double more = (next + 2.0) / (steps + 1.0);
    if (took * more * more > left) break;
    ++next;
  }
  return next;
}

// Passes of more and more steps until the budget is spent: what is returned has the same number
// for every row, and is the very result of that k_max.
StopReason GrowInTime(Growing& growing, const FsaiOptions& options, Clock::time_point begin,
                      FsaiQuality& quality, std::optional<Grown>& grown) {
  const auto deadline =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(
                  std::min(options.time_budget_ms, 1e12)));
  quality.steps = 0;
  StopReason stopped = growing.Pass(0, std::nullopt, grown);
  // Only a pass with steps tells what a step takes.
  int next = std::min(1, options.k_max);
  while (stopped == StopReason::kNone && next > quality.steps) {
    std::optional<Grown> pass;
    const auto from = Clock::now();
    stopped = growing.Pass(next, deadline, pass);
    const auto now = Clock::now();
    if (stopped != StopReason::kNone || !pass) break;
    grown = std::move(pass);
    quality.steps = next;
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    next = NextSteps(next, options.k_max, seconds(now - from), seconds(deadline - now));
  }
  quality.out_of_time = quality.steps < options.k_max;
  return stopped;
}

Result<FsaiResult> Adaptive(const CscView& given, const PatternView* initial,
                            const FsaiOptions& options, const Context& with_progress) {
  const auto begin = Clock::now();
  if (Status status = CheckFsai(given, options); !status.ok()) return status;
  if (initial != nullptr && (initial->n_rows != given.n_rows || initial->n_cols != given.n_cols)) {
    return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                  "the initial pattern and the matrix are of different sizes")
        .At("pattern");
  }
  auto a = CheckSymmetric(given, options, with_progress);
  if (!a.ok()) return a.status();
  Context context = with_progress;
  RisingProgress rising(context.progress);
  if (context.progress != nullptr) context.progress = &rising;
  FsaiResult result;
  FsaiQuality& quality = result.quality;
  Growing growing(*a, initial, options, context);
  std::optional<Grown> grown;
  StopReason stopped;
  if (options.time_budget_ms > 0) {
    stopped = GrowInTime(growing, options, begin, quality, grown);
  } else {
    quality.steps = options.k_max;
    stopped = growing.Pass(options.k_max, std::nullopt, grown);
  }
  if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");

  quality.kaporin_by_step.assign(Z(quality.steps) + 1, 0.0);
  RowTally tally;
  for (const RowBatch& batch : grown->batches) {
    tally.Add(batch.tally);
    for (size_t t = 0; t < batch.log_by_step.size(); ++t) {
      quality.kaporin_by_step[t] += batch.log_by_step[t];
    }
  }
  for (double& k : quality.kaporin_by_step) k = std::exp(k / static_cast<double>(given.n_cols));
  result.psi_ratio = std::move(grown->psi_ratio);
  result.g_rows = PutTogether(grown->batches, std::move(grown->counts), context.threads);
  if (options.post_filter > 0) {
    stopped = FilterRows(*a, options, context, tally, result);
    if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");
  }
  Summarise(tally, given.nnz(), context.threads, result);
  if (with_progress.progress != nullptr) {
    with_progress.progress->OnProgress(Stage::kBuild, given.n_cols, given.n_cols);
  }
  return Result<FsaiResult>(std::move(result));
}

}  // namespace

Result<FsaiResult> BuildFsai(const CscView& a, const PatternView* initial,
                             const FsaiOptions& options, const Context& context) {
  if (options.adaptive) {
    return GuardMemory("build of FSAI", [&] { return Adaptive(a, initial, options, context); });
  }
  return BuildStaticFsai(a, initial, options, context);
}

}  // namespace spaid::kernels
