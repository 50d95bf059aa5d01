// Dynamic SPAI: M minimises ‖A M − E‖_F, and its pattern grows with it, column by column, to where
// the residual asks for it (Grote, Huckle, SIAM J. Sci. Comput. 18 (1997) 838-853, "[GH]"; worked
// out in Kierkegaard, Willén, BSc thesis, Copenhagen 2023).
//
//   Result<DynamicSpaiPattern> grown = GrowDynamicSpai(a, nullptr, options, context);
//   ... static SPAI on grown->m makes the numbers: of these values, or of new ones ...
//
// Column k: from J = {k}, or that and a given pattern; m̂ solves min ‖A(:, J) m̂ − e_k‖₂, r = A(:, J)
// m̂ − e_k; of all j that are not in J and have an a_lj ≠ 0 with r_l ≠ 0 or l = k, the `per_step`
// with the smallest ρ_j² = ‖r‖² − (rᵀ A e_j)² / ‖A e_j‖² join J (ties: the lower index); again,
// until ‖r‖ <= tol, or there have been max_steps, or the column is full, or no j lowers ‖r‖² by
// more than noise.
//
// In the Gram path (engines.md's name; B = AᵀA, B(J, J) m̂ = A(k, J)ᵀ): with columns scaled to
// ‖A e_j‖ = 1 that is the growth of a row of an adaptive FSAI (kernels/fsai), of the matrix
// [B, −A(k, :)ᵀ; ·, 1], whose ψ is ‖r‖². So it is grown by the same code. Noise is 16 u, u the
// roundoff 2⁻⁵³ or 2⁻²⁴ of growth: a ‖r‖² as small counts as that, and the column has converged.
//
// AᵀA is all in memory, 12 bytes an entry: of a row of A with m entries there are m² of it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/build_work.h"
#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/precision.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

inline constexpr int kMaxDynamicSpaiSteps = 512;
inline constexpr int kMaxDynamicSpaiPerStep = 32;

// The defaults are measured (docs/decisions/dynamic-spai.md): of most matrices nnz(M) is one to two
// times nnz(A). A tol of 0.4 halves that, one of 0.2 doubles it. Fewer entries a step are chosen
// better, and take longer to as many; steps beyond ten are seldom taken.
struct DynamicSpaiOptions {
  double tol = 0.3;    // 0 <= tol < 1: a column ends where ‖A m_k − e_k‖₂ <= tol
  int max_steps = 10;  // 0 .. kMaxDynamicSpaiSteps; 0: the initial pattern stays
  int per_step = 5;    // s: 1 .. kMaxDynamicSpaiPerStep
  // Entries of a column at the most, an initial pattern's apart, which may have more; 0: what the
  // steps add.
  int max_column_nnz = 0;
  // Scores and factors of growth: with kFp32 another pattern where scores nearly tie; the
  // numbers on it are fp64 all the same.
  Precision growth_precision = Precision::kFp64;
  // As of static SPAI, for the numbers on the grown pattern.
  double post_filter = 0;
  LocalSolver local_solver = LocalSolver::kAuto;
  // Columns that repeat another one, as A does, are copied from it: the same pattern, sooner. They
  // are looked for by so many bits of a hash, 1 .. 64, and compared; 0: every column is grown.
  int repeat_hash_bits = 64;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("tol", self.tol, kBelowOne);
    visit("max_steps", self.max_steps, OptionRange{0, kMaxDynamicSpaiSteps});
    visit("step_size", self.per_step, OptionRange{1, kMaxDynamicSpaiPerStep});
    visit("max_column_nnz", self.max_column_nnz, OptionRange{0});
    visit("growth_precision", self.growth_precision, OptionRange{1, 2});
    visit("post_filter", self.post_filter, kFraction);
    visit("local_solver", self.local_solver, UpTo(LocalSolver::kGram));
    visit("repeat_hash_bits", self.repeat_hash_bits, OptionRange{0, 64});
  }
};

struct DynamicSpaiQuality {
  int64_t converged_columns = 0;  // ‖r‖ <= tol, by growth's own arithmetic
  // Geometric mean of ‖r_k‖ after 0, 1, ..., max_steps steps (columns that ended keep theirs), each
  // 4 √u at the least.
  std::vector<double> residual_by_step;
  int64_t nnz_column_max = 0;
  int64_t copied_columns = 0;  // that repeat another one, and were not grown themselves
  int64_t slow_columns = 0;    // that outgrew a device's fast path; 0 on the CPU
  // A column's growth met a pivot of B(J, J) that is not positive but for rounding: A(:, J) is
  // rank-deficient, or nearly; it keeps what it had before, and ends. -1: none.
  int64_t dependent_columns = 0, first_dependent = -1;
  int64_t gram_nnz = 0;  // entries of AᵀA
  double flops = 0;      // of growth, counted; of columns that were copied, too

  // visit(name, figure), by the names that clients know.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("converged_columns", converged_columns);
    visit("residual_by_step", residual_by_step);
    visit("nnz_column_max", nnz_column_max);
    visit("copied_columns", copied_columns);
    visit("slow_columns", slow_columns);
    visit("dependent_columns", Occurrence{dependent_columns, first_dependent});
    visit("gram_nnz", gram_nnz);
  }
};

struct DynamicSpaiPattern {
  Pattern m;  // by columns, ascending, with its diagonal
  DynamicSpaiQuality quality;
};

// `a` canonical and square; `initial`: may be null, else columns begin with all its entries and the
// diagonal. Reports progress in columns, honours the stop token per batch of columns. Deterministic
// for any number of threads. Thread-safe. Errors: INVALID_ARGUMENT/NOT_SQUARE, /BAD_DYNAMIC_OPTION
// (the field named), /PATTERN_SIZE_MISMATCH; FAILED_PRECONDITION/ZERO_COLUMN where all values of a
// column of A are zero, or there are none (index: the column); RESOURCE_EXHAUSTED/OUT_OF_MEMORY,
// /GRAM_TOO_LARGE where AᵀA would have more entries than a half of the machine's memory holds
// (index: the longest row of A); stop statuses.
Result<DynamicSpaiPattern> GrowDynamicSpai(const CscView& a, const PatternView* initial,
                                           const DynamicSpaiOptions& options,
                                           const Context& context);

// INVALID_ARGUMENT/BAD_DYNAMIC_OPTION: the field as the wire's DynamicSpaiSpec names it.
Status CheckDynamicOptions(const DynamicSpaiOptions& options);
// That, /NOT_SQUARE, and /PATTERN_SIZE_MISMATCH; `initial` may be null.
Status CheckDynamicSpai(const PatternView& a, const PatternView* initial,
                        const DynamicSpaiOptions& options);

// Static SPAI on a grown pattern: its options.
StaticSpaiOptions NumbersOf(const DynamicSpaiOptions& options);

struct DynamicSpaiCounts {
  int64_t nnz_m = 0;  // upper bound: n (1 + per_step max_steps), or with the initial pattern
  // Entries of AᵀA, exact where they can be counted in a second, about; else an upper bound: Σ of
  // squares of the row lengths of A, but at most n in a column.
  int64_t gram_nnz = 0;
  int64_t host_bytes = 0;  // upper bound: growth, plan, numbers and result
  BuildWork work;          // where every column grows as far as it may, and none repeats another
  // On a CUDA device: bounds on all that is there at once, as of StaticSpaiCounts.
  int64_t device_bytes = 0, device_bytes_min = 0;
};
// From the pattern alone, in bounded time and memory. The same for any number of threads. Errors:
// those of GrowDynamicSpai that the pattern shows, but for GRAM_TOO_LARGE.
Result<DynamicSpaiCounts> EstimateDynamicSpai(const CscView& a, const PatternView* initial,
                                              const DynamicSpaiOptions& options,
                                              const Context& context);

}  // namespace spaid::kernels
