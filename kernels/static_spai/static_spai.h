// Static SPAI: M minimises ‖A M − E‖_F over matrices with a prescribed pattern, one small dense
// least-squares problem per column (Chu, Wang, Chen, Gao 2023, "GSPAI-Opt"; Grote, Huckle 1997).
//
//   Result<StaticSpaiPlan> plan = PlanStaticSpai(a, nullptr, options, context);  // pattern only
//   Result<StaticSpaiResult> m = BuildStaticSpai(*plan, a, options, context);    // numbers
//   Result<StaticSpaiResult> m2 = BuildStaticSpai(*plan, a2, options, context);  // new values
//
// J_k: pattern of column k of M, n2 = |J_k|. I_k: union of the row sets of A(:, j), j in J_k,
// n1 = |I_k|. Â = A(I_k, J_k).
//
// Columns with equal J are a group and share a factor (group_solver.h). Groups whose local problems
// are shifted copies of one another share a structure, and are solved eight at a time, one in each
// lane of a vector (structure.h, lane_solver.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/base/build_work.h"
#include "kernels/base/context.h"
#include "kernels/base/result_sink.h"
#include "kernels/base/status.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/pattern.h"
#include "kernels/static_spai/local_solver.h"

namespace spaid::kernels {

struct StaticSpaiOptions {
  PatternOptions pattern;
  LocalSolver local_solver = LocalSolver::kAuto;
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;
  double post_filter = 0;           // δ of PostFilter; 0: keep everything
  double gram_pivot_limit = 1e-10;  // scaled pivot (unit diagonal) that sends to QR at once

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    PatternOptions::Fields(self.pattern, visit);
    visit("post_filter", self.post_filter, kFraction);
    visit("local_solver", self.local_solver, UpTo(LocalSolver::kGram));
    visit("thread_strategy", self.thread_strategy, UpTo(ThreadStrategy::kPaper));
    visit("gram_pivot_limit", self.gram_pivot_limit, kBelowOne);
  }
};

// Counted figures of a plan; all 64-bit.
struct StaticSpaiCounts {
  int64_t n = 0;
  int64_t nnz_a = 0;
  int64_t nnz_m = 0;
  int64_t n1_max = 0, n2_max = 0;
  int64_t sum_n1 = 0;
  // The factor is counted once per group of columns with equal J.
  double qr_flops = 0;      // Σ 2 n1 n2² − (2/3) n2³ + 4 n1 n2
  double gram_flops = 0;    // sparse accumulation + Σ n2³/3 + solves and corrected step
  BuildWork work;           // estimates only; by the local solver that the options choose
  int64_t plan_bytes = 0;   // host bytes the plan holds
  int64_t build_bytes = 0;  // upper bound on further host bytes of a build, M included
  // Estimates only: bytes of plan and build on a CUDA device; upper bound with all gather tables at
  // once, and the bytes that suffice with tables in waves and every other saving of memory.
  int64_t device_bytes = 0, device_bytes_min = 0;
};

// The results that depend on the pattern alone. Immutable, thread-safe.
struct StaticSpaiPlan;  // static_spai_plan.h

// Quality of M, from residual columns r_k = A m_k − e_k formed in fp64 after the solve (and after
// the post-filter where there is one).
struct StaticSpaiQuality {
  double residual_frobenius = 0;           // ‖A M − E‖_F
  std::vector<double> residual_quantiles;  // ‖r_k‖₂ at 0, 10, 25, 50, 75, 90, 99, 100 %
  int64_t worst_column = -1;
  double density = 0;  // nnz(M) / nnz(A)
  // Each column is solved by one of three: Gram path, QR, CGLS (local problems too large for a
  // dense factor, static_spai_tuning.h).
  int64_t gram_columns = 0, qr_columns = 0;
  int64_t iterative_columns = 0, first_iterative = -1;
  int64_t not_converged_columns = 0, first_not_converged = -1;  // CGLS reached its iteration limit
  int64_t rescued_columns = 0, first_rescued = -1;  // Gram gave up, QR (or CGLS) took over
  int64_t rank_deficient_columns = 0, first_rank_deficient = -1;
  int64_t zero_columns = 0, first_zero_column = -1;       // m_k = 0: k not in I_k
  int64_t non_finite_columns = 0, first_non_finite = -1;  // set to 0 and counted
  double min_scaled_pivot = 1;
  // kConstant or kVariable, as chosen, if a CUDA device solved by QR; else kAuto.
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;

  // visit(name, figure), by the names that clients know.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("residual_frobenius", residual_frobenius);
    visit("residual_quantiles", residual_quantiles);
    visit("worst_column", worst_column);
    visit("density", density);
    visit("gram_columns", gram_columns);
    visit("qr_columns", qr_columns);
    visit("iterative_columns", Occurrence{iterative_columns, first_iterative});
    visit("not_converged_columns", Occurrence{not_converged_columns, first_not_converged});
    visit("rescued_columns", Occurrence{rescued_columns, first_rescued});
    visit("rank_deficient_columns", Occurrence{rank_deficient_columns, first_rank_deficient});
    visit("zero_columns", Occurrence{zero_columns, first_zero_column});
    visit("non_finite_columns", Occurrence{non_finite_columns, first_non_finite});
    visit("min_scaled_pivot", min_scaled_pivot);
    if (thread_strategy != ThreadStrategy::kAuto) visit("thread_strategy", thread_strategy);
  }
};

struct StaticSpaiResult {
  CscMatrix m;  // canonical
  StaticSpaiQuality quality;
  Array<double> residual_norms;     // ‖r_k‖₂ per column
  Array<double> min_scaled_pivots;  // per column; 1 where QR was used from the start
  // Shows m to context.result; belongs to m, and is moved and kept together with it.
  ShownResult shown;
};

// Symbolic phase. `a` canonical and square; its values are read only for keep_tau. `user_pattern`
// may be null. Errors: those of BuildPattern; INVALID_ARGUMENT/NOT_SQUARE, /BAD_POST_FILTER,
// /BAD_GRAM_PIVOT_LIMIT; FAILED_PRECONDITION/ZERO_COLUMN where a column of A has no entry at all
// (each column is in some J_k). A column whose stored values are all zero is no error: the local
// problems that hold it are rank-deficient, and counted.
Result<std::shared_ptr<const StaticSpaiPlan>> PlanStaticSpai(const CscView& a,
                                                             const PatternView* user_pattern,
                                                             const StaticSpaiOptions& options,
                                                             const Context& context);
const StaticSpaiCounts& Counts(const StaticSpaiPlan& plan);

// Counts without building the plan's index sets, in bounded memory and time; upper bounds all but
// the work. Pattern alone: with keep_tau or row_match the bound is that of the full pattern.
Result<StaticSpaiCounts> EstimateStaticSpai(const PatternView& a, const PatternView* user_pattern,
                                            const StaticSpaiOptions& options,
                                            const Context& context);

// Numeric phase: `a` must have the plan's pattern (INVALID_ARGUMENT/PLAN_MISMATCH). Progress is
// reported, and the stop token honoured, per batch of columns. Deterministic for any thread count.
// context.result is shown M from before its first column on, or, where there is a post-filter,
// which decides the sizes, in the end.
Result<StaticSpaiResult> BuildStaticSpai(const StaticSpaiPlan& plan, const CscView& a,
                                         const StaticSpaiOptions& options, const Context& context);

}  // namespace spaid::kernels
