#include "kernels/dynamic_spai/growth_parts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/dynamic_spai/gram.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

struct LeftColumn {
  int64_t k = 0;
  std::vector<RowEntry> entries;
  std::vector<double> ratios;  // ‖r‖² after each step
  RowOutcome outcome;
};

std::vector<LeftColumn> FindLeft(const PatternView& m) {
  std::vector<LeftColumn> left;
  for (int64_t k = 0; k < m.n_cols; ++k) {
    const auto column = m.column(k);
    if (column.size() == 1 && column[0] == -1) left.emplace_back().k = k;
  }
  return left;
}

// `left` ascending.
void PutIn(const std::vector<LeftColumn>& left, Pattern& m) {
  const Pattern before = std::move(m);
  const PatternView old = before;
  m = {};
  m.n_rows = m.n_cols = old.n_cols;
  m.col_ptr.reserve(before.col_ptr.size());
  auto next = left.begin();
  m.col_ptr.push_back(0);
  for (int64_t k = 0; k < old.n_cols; ++k) {
    if (next != left.end() && next->k == k) {
      for (const RowEntry& entry : next->entries) m.row_idx.push_back(entry.index);
      ++next;
    } else {
      const auto column = old.column(k);
      m.row_idx.insert(m.row_idx.end(), column.begin(), column.end());
    }
    m.col_ptr.push_back(m.nnz());
  }
}

}  // namespace

Pattern DynamicStarts(const PatternView* initial, int64_t n, int64_t first) {
  Pattern start;
  start.n_rows = start.n_cols = n;
  start.col_ptr.resize(Z(n) + 1);
  start.row_idx.reserve(Z(initial != nullptr ? initial->nnz() + n : n));
  for (int64_t k = 0; k < n; ++k) {
    start.col_ptr[Z(k)] = start.nnz();
    start.row_idx.push_back(static_cast<int32_t>(first + k));
    if (initial == nullptr) continue;
    for (const int32_t j : initial->column(k)) {
      if (j != first + k) start.row_idx.push_back(j);
    }
  }
  start.col_ptr[Z(n)] = start.nnz();
  return start;
}

GrowthRules DynamicRules(const DynamicSpaiOptions& options) {
  GrowthRules rules;
  rules.k_max = options.max_steps;
  rules.s = options.per_step;
  rules.epsilon = options.tol * options.tol;  // ψ is ‖r‖²
  rules.fp32 = options.growth_precision == Precision::kFp32;
  rules.least_squares = true;
  if (options.max_column_nnz > 0) rules.max_entries = options.max_column_nnz;
  return rules;
}

Status CheckColumnValues(const CscView& a, int threads, int64_t begin_of_a) {
  std::atomic<int64_t> first{a.n_cols};
  ParallelFor(a.n_cols, 1 << 16, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto values = a.column_values(j);
      if (std::any_of(values.begin(), values.end(), [](double v) { return std::abs(v) > 0; })) {
        continue;
      }
      Lower(first, j);
      return;
    }
  });
  if (first == a.n_cols) return {};
  return Status(StatusCode::kFailedPrecondition, "ZERO_COLUMN",
                "column " + std::to_string(begin_of_a + first) +
                    " of the matrix has no value but zero, so the matrix is singular and no "
                    "approximate inverse exists; remove the unknown or give it an equation")
      .At("column", begin_of_a + first);
}

DynamicSpaiQuality SummariseGrowth(const RowTally& tally, std::vector<double> log_by_step,
                                   int64_t n, int64_t longest, int64_t gram_nnz,
                                   double gram_flops) {
  DynamicSpaiQuality quality;
  for (double& r : log_by_step) r = std::exp(r / static_cast<double>(2 * n));
  quality.residual_by_step = std::move(log_by_step);
  quality.nnz_column_max = longest;
  quality.converged_columns = tally.converged;
  quality.copied_columns = tally.copied;
  quality.dependent_columns = tally.not_spd;
  quality.first_dependent = tally.first_not_spd;
  quality.gram_nnz = gram_nnz;
  quality.flops = gram_flops + tally.flops;
  return quality;
}

Result<int64_t> GrowLeftColumns(const CscView& a, const PatternView* initial,
                                const DynamicSpaiOptions& options, const Context& with_progress,
                                DynamicSpaiPattern& grown) {
  std::vector<LeftColumn> left = FindLeft(grown.m);
  const auto count = static_cast<int64_t>(left.size());
  if (count == 0) return count;
  Context context = with_progress;
  context.progress = nullptr;
  const auto gram = MakeGram(a, GramLimit(), context);
  if (!gram.ok()) return gram.status();
  const int64_t n = a.n_cols;
  const GrowthRules rules = DynamicRules(options);
  std::vector<std::unique_ptr<RowGrower>> growers(Z(ResolveThreads(context.threads)));
  const StopReason stopped =
      ParallelFor(count, 1, context, Stage::kBuild, [&](int64_t begin, int64_t end, int worker) {
        std::unique_ptr<RowGrower>& grower = growers[Z(worker)];
        if (!grower) grower = MakeRowGrower(gram->columns, gram->diagonal, rules);
        for (int64_t t = begin; t < end; ++t) {
          LeftColumn& own = left[Z(t)];
          std::vector<int32_t> start{static_cast<int32_t>(own.k)};
          if (initial != nullptr) {
            for (const int32_t j : initial->column(own.k)) {
              if (j != own.k) start.push_back(j);
            }
          }
          own.outcome = grower->Grow(n + own.k, start, options.max_steps, own.entries, own.ratios);
        }
      });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "growth of dynamic SPAI");
  DynamicSpaiQuality& quality = grown.quality;
  for (const LeftColumn& own : left) {
    const auto entries = static_cast<int64_t>(own.entries.size());
    quality.nnz_column_max = std::max(quality.nnz_column_max, entries);
    quality.converged_columns += own.outcome.converged ? 1 : 0;
    if (own.outcome.not_spd) {
      const int64_t first = quality.dependent_columns == 0 ? n : quality.first_dependent;
      quality.first_dependent = std::min(first, own.k);
      ++quality.dependent_columns;
    }
    quality.flops += own.outcome.flops;
    for (size_t step = 0; step < quality.residual_by_step.size(); ++step) {
      const double ratio = own.ratios[std::min(step, own.ratios.size() - 1)];
      quality.residual_by_step[step] *= std::pow(ratio, 0.5 / static_cast<double>(n));
    }
  }
  PutIn(left, grown.m);
  return count;
}

}  // namespace spaid::kernels
