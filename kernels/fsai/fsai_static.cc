#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_build.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/fsai_pattern.h"
#include "kernels/fsai/post_filter.h"
#include "kernels/fsai/prescribed_rows.h"
#include "kernels/fsai/row_batches.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Result<FsaiResult> NumbersOn(Pattern pattern, const SymmetricMatrix& a, int64_t nnz_a,
                             const FsaiOptions& options, const Context& context) {
  const int64_t n = a.a.n_cols, rows = BatchRows(n);
  FsaiResult result;
  CscMatrix& g = result.g_rows;
  g.n_rows = g.n_cols = n;
  g.col_ptr = std::move(pattern.col_ptr);
  g.row_idx = std::move(pattern.row_idx);
  g.values.resize(g.row_idx.size());
  result.psi_ratio.resize(Z(n));
  std::vector<RowTally> tallies(Z((n - 1) / rows + 1));
  std::vector<std::unique_ptr<PrescribedRows>> solvers(Z(ResolveThreads(context.threads)));
  std::atomic<bool> cut_short{false};
  StopReason stopped =
      ParallelFor(n, rows, context, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
        std::unique_ptr<PrescribedRows>& solver = solvers[Z(w)];
        if (!solver) solver = std::make_unique<PrescribedRows>(a, options);
        RowTally& tally = tallies[Z(begin / rows)];
        if (!solver->Solve(g.pattern(), begin, end, context.stop, g.values.data(),
                           result.psi_ratio.data(), tally)) {
          cut_short.store(true, std::memory_order_relaxed);
        }
      });
  if (stopped == StopReason::kNone && cut_short) stopped = context.stop.Poll();
  if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");
  RowTally tally;
  for (const RowTally& part : tallies) tally.Add(part);
  if (options.post_filter > 0) {
    stopped = FilterRows(a, options, context, tally, result);
    if (stopped != StopReason::kNone) return StopStatus(stopped, "build of FSAI");
  }
  Summarise(tally, nnz_a, context.threads, result);
  return Result<FsaiResult>(std::move(result));
}

}  // namespace

Result<FsaiResult> BuildFsaiOn(const PatternView& pattern, const CscView& a,
                               const FsaiOptions& options, const Context& context) {
  return GuardMemory("build of FSAI", [&]() -> Result<FsaiResult> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    if (Status status = CheckLowerPattern(pattern, a.n_cols); !status.ok()) return status;
    const auto symmetric = CheckSymmetric(a, options, context);
    if (!symmetric.ok()) return symmetric.status();
    Pattern own;
    own.n_rows = own.n_cols = pattern.n_cols;
    own.col_ptr.resize(pattern.col_ptr.size());
    own.row_idx.resize(pattern.row_idx.size());
    ParallelCopy(pattern.col_ptr, own.col_ptr, context.threads);
    ParallelCopy(pattern.row_idx, own.row_idx, context.threads);
    return NumbersOn(std::move(own), *symmetric, a.nnz(), options, context);
  });
}

Result<FsaiResult> BuildStaticFsai(const CscView& a, const PatternView* user,
                                   const FsaiOptions& options, const Context& context) {
  return GuardMemory("build of FSAI", [&]() -> Result<FsaiResult> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    const auto symmetric = CheckSymmetric(a, options, context);
    if (!symmetric.ok()) return symmetric.status();
    Context quiet = context;  // progress is that of the rows
    quiet.progress = nullptr;
    auto pattern = LowerPattern(symmetric->a, user, symmetric->diagonal.values,
                                symmetric->symmetric_pattern, options, quiet);
    if (!pattern.ok()) return pattern.status();
    return NumbersOn(*std::move(pattern), *symmetric, a.nnz(), options, context);
  });
}

}  // namespace spaid::kernels
