// Solves one group of columns of M that share J: the Gram path, Householder QR, or CGLS where the
// problem is too large for a dense factor.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/dense/simd.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/local_problem.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

struct ColumnOutcome {
  double residual_norm = 1;
  double min_scaled_pivot = 1;
  uint8_t flags = 0;
};

// Predicted nanoseconds of one group on one thread; `LocalSolver::kAuto` takes the cheaper one.
double PredictGramNs(const LocalCounts& counts, int64_t n2, int64_t columns);
double PredictQrNs(const LocalCounts& counts, int64_t n2, int64_t columns);
// The prediction for the path that `solver` takes.
double PredictNs(LocalSolver solver, const LocalCounts& counts, int64_t n2, int64_t columns);
// The group's share of the plan.
double PredictPlanNs(const LocalCounts& counts, int64_t n2, int64_t columns);
// The same where the group is a shifted copy of another.
double PredictSharedPlanNs(int64_t n2, int64_t columns);

// One per thread.
class GroupSolver {
 public:
  // For groups of at most these sizes without growing (QR's buffers come with the first QR).
  GroupSolver(int64_t n, const LocalCounts& largest, int64_t n2_max);

  // values[t] (|J| each, J ascending) receives column targets[t] of M, outcomes[t] how it went.
  // False: the stop token, which only CGLS polls, cut it short, and the columns are invalid.
  bool Solve(const CscView& a, const ColumnScales& scales, std::span<const uint8_t> equal_columns,
             std::span<const int32_t> columns, std::span<const int32_t> targets,
             const StaticSpaiOptions& options, const StopToken& stop,
             std::span<double* const> values, std::span<ColumnOutcome> outcomes);

  // Upper bound on the bytes held after groups of at most these sizes.
  static int64_t Bytes(int64_t n, const LocalCounts& largest, int64_t n2);

 private:
  struct Job;  // the arguments of one Solve

  // False: the Gram matrix is too ill-conditioned for some of the columns.
  bool SolveGram(const Job& job);
  // Estimates the smallest eigenvalue of the scaled Gram matrix from the last factor, whose scaled
  // determinant is given: at most about that value where it is below kGoodEigenvalue, else anything
  // above that limit.
  double SmallestEigenvalue(int64_t n2, double scaled_determinant);
  // Corrected steps for `here` columns from `first` on until they suffice; false: they do not.
  template <class Substitute>
  bool Correct(const Job& job, size_t first, int here, int width, bool weak,
               const Substitute& solve, double* x, double* g);
  // x[q * width + w] = (Âᵀ e)_q, e the right-hand side of target t; x is zero elsewhere before.
  void GatherTargetRow(const Job& job, size_t t, int width, int w, double* x) const;
  // Whether `count` finished columns from `first` on need no corrected step.
  bool AtMinimum(const Job& job, size_t first, int count, int width, const double* x) const;
  void SolveQr(const Job& job, uint8_t flags);
  void SolveIterative(const Job& job, uint8_t flags);
  // Stores `count` solved columns from `first` on, scaled back, with their residuals. The
  // post-filter comes later (Filter), so that what it drops is never taken for a bad solution.
  void Store(const Job& job, size_t first, int count, int width, const double* x, uint8_t flags);
  // Whether the stored columns are better than zero's: no minimum has a larger residual.
  bool Worthy(const Job& job, size_t first, int count) const;
  // Applies the post-filter to stored columns, and forms their residuals anew.
  void Filter(const Job& job, size_t first, int count, int width, double* x);
  // ‖Â x − e‖² of `count` columns from `first` on.
  void Residuals(const Job& job, size_t first, int count, int width, const double* x,
                 double* squared);
  // -e_k for `count` targets from `first` on, `width` stored together.
  double* NegativeUnits(const Job& job, size_t first, int count, int width);

  bool stopped_ = false;  // CGLS was cut short
  bool small_ = false;    // the last Gram matrix came from dense_rows_, not from the row form
  LocalAssembler assembler_;
  AlignedBuffer matrix_, upper_, inverse_, scratch_, dense_rows_, solution_, gradient_, residual_;
  Array<int64_t> row_end_, permutation_;
};

}  // namespace spaid::kernels
