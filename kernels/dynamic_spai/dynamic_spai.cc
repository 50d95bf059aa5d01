#include "kernels/dynamic_spai/dynamic_spai.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/dynamic_spai/gram.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/fsai/growing.h"
#include "kernels/fsai/row_batches.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr double kGramShare = 0.25;  // of the time, about

Result<DynamicSpaiPattern> Grow(const CscView& a, const PatternView* initial,
                                const DynamicSpaiOptions& options, const Context& with_progress) {
  if (Status status = CheckDynamicSpai(a, initial, options); !status.ok()) return status;
  const int64_t n = a.n_cols;
  Context context = with_progress;
  StepProgress progress(with_progress.progress, Stage::kBuild, n);
  if (with_progress.progress != nullptr) context.progress = &progress;
  progress.NextStep(kGramShare);
  auto gram = MakeGram(a, GramLimit(), context);
  if (!gram.ok()) return gram.status();

  progress.NextStep(1);
  const Pattern start = DynamicStarts(initial, n);
  const PatternView starts = start;
  Growing growing(gram->columns, gram->diagonal, n, &starts, DynamicRules(options),
                  options.repeat_hash_bits, context);
  std::optional<GrownRows> grown;
  const StopReason stopped = growing.Pass(options.max_steps, std::nullopt, grown);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "growth of dynamic SPAI");

  DynamicSpaiPattern out;
  std::vector<double> log_by_step(Z(options.max_steps) + 1);
  RowTally tally;
  for (const RowBatch& batch : grown->batches) {
    tally.Add(batch.tally);
    for (size_t t = 0; t < batch.log_by_step.size(); ++t) {
      log_by_step[t] += batch.log_by_step[t];
    }
  }
  out.quality = SummariseGrowth(tally, std::move(log_by_step), n,
                                *std::max_element(grown->counts.begin() + 1, grown->counts.end()),
                                gram->nnz, gram->flops);
  CscMatrix m = PutTogether(grown->batches, std::move(grown->counts), context.threads);
  out.m = {
      .n_rows = n, .n_cols = n, .col_ptr = std::move(m.col_ptr), .row_idx = std::move(m.row_idx)};
  return Result<DynamicSpaiPattern>(std::move(out));
}

}  // namespace

StaticSpaiOptions NumbersOf(const DynamicSpaiOptions& options) {
  StaticSpaiOptions numbers;
  numbers.local_solver = options.local_solver;
  numbers.post_filter = options.post_filter;
  return numbers;
}

Result<DynamicSpaiPattern> GrowDynamicSpai(const CscView& a, const PatternView* initial,
                                           const DynamicSpaiOptions& options,
                                           const Context& context) {
  return GuardMemory("growth of dynamic SPAI", [&] { return Grow(a, initial, options, context); });
}

}  // namespace spaid::kernels
