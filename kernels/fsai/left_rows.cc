#include "kernels/fsai/left_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/post_filter.h"
#include "kernels/fsai/prescribed_rows.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A row as it was made.
struct Made {
  std::vector<int32_t> row_idx;
  std::vector<double> values;
  std::vector<double> ratios;  // after each step
  RowTally tally;
};

std::vector<int64_t> EmptyRows(const CscMatrix& g) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < g.n_cols; ++i) {
    if (g.col_ptr[Z(i)] == g.col_ptr[Z(i) + 1]) rows.push_back(i);
  }
  return rows;
}

void Grow(RowGrower& grower, int64_t i, const PatternView* pattern, int k_max, double* psi_ratio,
          Made& made) {
  std::span<const int32_t> start;
  if (pattern != nullptr) start = pattern->column(i).first(pattern->column(i).size() - 1);
  std::vector<RowEntry> entries;
  const RowOutcome outcome = grower.Grow(i, start, k_max, entries, made.ratios);
  for (const RowEntry& entry : entries) {
    made.row_idx.push_back(entry.index);
    made.values.push_back(entry.value);
  }
  psi_ratio[i] = outcome.psi_ratio;
  made.tally.not_spd = outcome.not_spd ? 1 : 0;
  made.tally.first_not_spd = outcome.not_spd ? i : -1;
  made.tally.converged = outcome.converged ? 1 : 0;
  made.tally.flops = outcome.flops;
}

// The rows of `rows`, and no entries elsewhere.
CscMatrix Alone(const std::vector<int64_t>& rows, const std::vector<Made>& made, int64_t n) {
  CscMatrix g;
  g.n_rows = g.n_cols = n;
  g.col_ptr.assign(Z(n) + 1, 0);
  for (size_t r = 0; r < rows.size(); ++r) {
    g.col_ptr[Z(rows[r]) + 1] = static_cast<int64_t>(made[r].row_idx.size());
  }
  for (int64_t i = 0; i < n; ++i) g.col_ptr[Z(i) + 1] += g.col_ptr[Z(i)];
  g.row_idx.resize(Z(g.col_ptr.back()));
  g.values.resize(g.row_idx.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto at = g.col_ptr[Z(rows[r])];
    std::copy(made[r].row_idx.begin(), made[r].row_idx.end(), g.row_idx.begin() + at);
    std::copy(made[r].values.begin(), made[r].values.end(), g.values.begin() + at);
  }
  return g;
}

// Each row of the one that has it.
CscMatrix Merged(const CscMatrix& x, const CscMatrix& y, int threads) {
  CscMatrix g;
  const int64_t n = g.n_rows = g.n_cols = x.n_cols;
  g.col_ptr.resize(Z(n) + 1);
  for (size_t i = 0; i < g.col_ptr.size(); ++i) g.col_ptr[i] = x.col_ptr[i] + y.col_ptr[i];
  g.row_idx.resize(Z(g.col_ptr.back()));
  g.values.resize(g.row_idx.size());
  ParallelFor(n, BatchRows(n), threads, [&](int64_t begin, int64_t end, int) {
    for (const CscMatrix* from : {&x, &y}) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = from->col_ptr[Z(i)], count = from->col_ptr[Z(i) + 1] - at;
        std::copy_n(from->row_idx.begin() + at, count, g.row_idx.begin() + g.col_ptr[Z(i)]);
        std::copy_n(from->values.begin() + at, count, g.values.begin() + g.col_ptr[Z(i)]);
      }
    }
  });
  return g;
}

void AddFigures(const RowTally& tally, FsaiQuality& quality) {
  const auto first = [](int64_t x, int64_t y) { return x < 0 ? y : y < 0 ? x : std::min(x, y); };
  quality.not_spd_rows += tally.not_spd;
  quality.first_not_spd = first(quality.first_not_spd, tally.first_not_spd);
  quality.not_converged_rows += tally.not_converged;
  quality.first_not_converged = first(quality.first_not_converged, tally.first_not_converged);
  quality.converged_rows += tally.converged;
  quality.flops += tally.flops;
}

}  // namespace

Result<int64_t> MakeLeftRows(const CscView& a, const PatternView* pattern, bool grow,
                             const FsaiOptions& options, const Context& with_progress,
                             FsaiResult& result) {
  const std::vector<int64_t> rows = EmptyRows(result.g_rows);
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return count;
  Context context = with_progress;
  context.progress = nullptr;
  const auto symmetric = CheckSymmetric(a, options, context);
  if (!symmetric.ok()) return symmetric.status();
  const int64_t n = a.n_cols;
  FsaiQuality& quality = result.quality;

  std::vector<Made> made(rows.size());
  FsaiResult alone;
  if (!grow) {
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto indices = pattern->column(rows[r]);
      made[r].row_idx.assign(indices.begin(), indices.end());
      made[r].values.resize(indices.size());
    }
    alone.g_rows = Alone(rows, made, n);
  }
  FsaiOptions grown = options;
  grown.k_max = quality.steps;
  const auto workers = Z(ResolveThreads(context.threads));
  std::vector<std::unique_ptr<RowGrower>> growers(workers);
  std::vector<std::unique_ptr<PrescribedRows>> solvers(workers);
  std::atomic<bool> cut_short{false};
  StopReason stopped =
      ParallelFor(count, 1, context, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t i = rows[Z(r)];
          Made& own = made[Z(r)];
          if (grow) {
            std::unique_ptr<RowGrower>& grower = growers[Z(w)];
            if (!grower) {
              grower = MakeRowGrower(symmetric->a, symmetric->diagonal.values, RulesOf(grown));
            }
            Grow(*grower, i, pattern, quality.steps, result.psi_ratio.data(), own);
            continue;
          }
          std::unique_ptr<PrescribedRows>& solver = solvers[Z(w)];
          if (!solver) solver = std::make_unique<PrescribedRows>(*symmetric, options);
          if (!solver->Solve(alone.g_rows.pattern(), i, i + 1, context.stop,
                             alone.g_rows.values.data(), result.psi_ratio.data(), own.tally)) {
            cut_short.store(true, std::memory_order_relaxed);
          }
        }
      });
  if (stopped == StopReason::kNone && cut_short) stopped = context.stop.Poll();
  if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");

  RowTally tally;
  std::vector<double> logs(quality.kaporin_by_step.size(), 0.0);
  for (const Made& own : made) {
    tally.Add(own.tally);
    for (size_t t = 0; t < logs.size(); ++t) {
      logs[t] += std::log(own.ratios[std::min(t, own.ratios.size() - 1)]);
    }
  }
  for (size_t t = 0; t < logs.size(); ++t) {
    quality.kaporin_by_step[t] *= std::exp(logs[t] / static_cast<double>(n));
  }
  if (grow) alone.g_rows = Alone(rows, made, n);
  alone.psi_ratio = std::move(result.psi_ratio);
  if (options.post_filter > 0) {
    stopped = FilterRows(*symmetric, options, context, tally, alone);
    if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");
  }
  result.psi_ratio = std::move(alone.psi_ratio);
  AddFigures(tally, quality);
  double log = 0;
  for (const int64_t i : rows) {
    log += std::log(result.psi_ratio[Z(i)]);
    quality.nnz_row_max =
        std::max(quality.nnz_row_max, alone.g_rows.col_ptr[Z(i) + 1] - alone.g_rows.col_ptr[Z(i)]);
  }
  quality.kaporin *= std::exp(log / static_cast<double>(n));
  result.g_rows = Merged(result.g_rows, alone.g_rows, context.threads);
  return count;
}

}  // namespace spaid::kernels
