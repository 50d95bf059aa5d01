#include "kernels/dynamic_spai/dynamic_spai.h"

#include <algorithm>
#include <cmath>
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
  DynamicSpaiQuality& quality = out.quality;
  quality.residual_by_step.assign(Z(options.max_steps) + 1, 0.0);
  RowTally tally;
  for (const RowBatch& batch : grown->batches) {
    tally.Add(batch.tally);
    for (size_t t = 0; t < batch.log_by_step.size(); ++t) {
      quality.residual_by_step[t] += batch.log_by_step[t];
    }
  }
  for (double& r : quality.residual_by_step) r = std::exp(r / static_cast<double>(2 * n));
  quality.nnz_column_max = *std::max_element(grown->counts.begin() + 1, grown->counts.end());
  quality.converged_columns = tally.converged;
  quality.copied_columns = tally.copied;
  quality.dependent_columns = tally.not_spd;
  quality.first_dependent = tally.first_not_spd;
  quality.gram_nnz = gram->nnz;
  quality.flops = gram->flops + tally.flops;
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
