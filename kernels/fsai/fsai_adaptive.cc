#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_build.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/growing.h"
#include "kernels/fsai/post_filter.h"
#include "kernels/fsai/row_batches.h"

namespace spaid::kernels {
namespace {

using Clock = std::chrono::steady_clock;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Growth under a time budget is tried several times: what is told never falls, and goes on being
// told, as a sign of life.
class RisingProgress final : public ProgressSink {
 public:
  explicit RisingProgress(ProgressSink* sink) : sink_(sink) {}
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    // The last row is told when the result is there.
    most_ = std::max(most_, std::min(done, total - 1));
    sink_->OnProgress(stage, most_, total);
  }
  void OnResidual(const ResidualPoint&) override {}

 private:
  ProgressSink* const sink_;
  int64_t most_ = 0;
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
                      FsaiQuality& quality, std::optional<GrownRows>& grown) {
  const auto deadline =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(
                  std::min(options.time_budget_ms, 1e12)));
  quality.steps = 0;
  StopReason stopped = growing.Pass(0, std::nullopt, grown);
  // Only a pass with steps tells what a step takes.
  int next = std::min(1, options.k_max);
  while (stopped == StopReason::kNone && next > quality.steps) {
    std::optional<GrownRows> pass;
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
  Growing growing(a->a, a->diagonal.values, 0, initial, RulesOf(options), options.repeat_hash_bits,
                  context);
  std::optional<GrownRows> grown;
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
  stopped = FinishGrown(*a, given.nnz(), options, context, tally, result);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");
  if (with_progress.progress != nullptr) {
    with_progress.progress->OnProgress(Stage::kBuild, given.n_cols, given.n_cols);
  }
  return Result<FsaiResult>(std::move(result));
}

}  // namespace

StopReason FinishGrown(const SymmetricMatrix& a, int64_t nnz_a, const FsaiOptions& options,
                       const Context& context, RowTally tally, FsaiResult& result) {
  if (options.post_filter > 0) {
    const StopReason stopped = FilterRows(a, options, context, tally, result);
    if (stopped != StopReason::kNone) return stopped;
  }
  Summarise(tally, nnz_a, context.threads, result);
  return StopReason::kNone;
}

Result<FsaiResult> BuildFsai(const CscView& a, const PatternView* initial,
                             const FsaiOptions& options, const Context& context) {
  if (options.adaptive) {
    return GuardMemory("build of FSAI", [&] { return Adaptive(a, initial, options, context); });
  }
  return BuildStaticFsai(a, initial, options, context);
}

}  // namespace spaid::kernels
