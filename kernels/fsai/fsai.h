// FSAI: M = GᵀG ≈ A⁻¹ of a symmetric positive definite A, G lower triangular, each row the solution
// of one small dense SPD system. Static: on a prescribed pattern. Adaptive (aFSAI): the pattern
// grows row by row (Bernaschi, Carrozzo, Franceschini, Janna, SIAM J. Sci. Comput. 41 (2019) C139,
// "[aFSAI]"; Janna, Ferronato, Sartoretto, Gambolati, ACM TOMS 41 (2015), FSAIPACK, "[JFSG]").
//
//   Result<FsaiResult> grown = BuildFsai(a, nullptr, options, context);
//   // New values, the same pattern:
//   Result<FsaiResult> again = BuildFsaiOn(grown->g_rows.pattern(), a2, options, context);
//
// Row i: P̄_i ⊂ {j < i}; A[P̄,P̄] g̃ = −A[P̄,i]; ψ_i = a_ii + g̃ᵀ A[P̄,i]; row i of G is (g̃, 1) / √ψ_i,
// so that diag(G A Gᵀ) = 1 ([aFSAI] eq. 10 misses the root).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/build_work.h"
#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/precision.h"
#include "kernels/base/status.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {

inline constexpr int kMaxFsaiSteps = 512;
inline constexpr int kMaxFsaiPerStep = 32;

struct FsaiOptions {
  bool adaptive = true;
  // Adaptive: at most `k_max` steps, each of which adds the `s` indices of the largest gradient
  // (in absolute value; ties: the lower index), ∇_j / 2 = y_j = (A g̃)_j with g̃_i = 1; a row ends
  // where ψ_i <= epsilon ψ_i of the diagonal alone, or nothing is left to add. Gradients that are
  // equal but for rounding may be told apart differently by another k_max. Indices of which y_j
  // is rounding noise, y_j² <= (8 u)² a_ii a_jj with u the roundoff 2⁻⁵³ or 2⁻²⁴ of the precision,
  // are not added: what they can gain is noise, too, and so would be the choice.
  int k_max = 30;         // 0 .. kMaxFsaiSteps; 0: Jacobi
  int s = 1;              // 1 .. kMaxFsaiPerStep
  double epsilon = 1e-3;  // 0 <= epsilon < 1
  // Adaptive: a step that lowers a row's ψ by less than this share of it is the row's last: entries
  // go where they gain. 0: no such end.
  double min_gain = 0;  // 0 <= min_gain < 1
  // Static: the lower triangle of (E + |Ã|)^power; Ã: A without entries |a_ij| < drop_tol √(a_ii
  // a_jj).
  double drop_tol = 0;  // τ: 0 <= drop_tol < 1
  int power = 1;        // k: 1 .. kMaxPatternPower
  // Both: entries |g_ij| < post_filter ‖g_i‖₂ are dropped, the diagonal kept, and the row scaled
  // again so that diag(G A Gᵀ) = 1. 0: none.
  double post_filter = 0;  // δ: 0 <= post_filter < 1
  // Precision of the set-up: values of G have its bits, and the final ψ is formed in fp64 from g̃ as
  // it is in that precision. On the CPU a prescribed pattern is always solved in fp64, and G
  // rounded.
  Precision precision = Precision::kFp64;  // kFp64 or kFp32
  // A is symmetric where |a_ij − a_ji| <= tolerance · √(a_ii a_jj), or, for tolerances of 1e-12 and
  // more, where a diagnosis finds it so (diagnosis.h). Which of the two is used is not defined.
  double symmetry_tolerance = 1e-10;
  // Adaptive: milliseconds after which growth ends, with as many steps for every row (or its own
  // end): the result is that of a k_max of quality.steps, bit for bit. 0: none.
  double time_budget_ms = 0;
  // Adaptive: rows of G that repeat another one, as A does, are copied from it: the same bits,
  // sooner. They are looked for by so many bits of a hash, 1 .. 64, and compared (fewer: to test
  // that); 0: every row is grown.
  int repeat_hash_bits = 64;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("k_max", self.k_max, OptionRange{0, kMaxFsaiSteps});
    visit("step_size", self.s, OptionRange{1, kMaxFsaiPerStep});
    visit("epsilon", self.epsilon, kBelowOne);
    visit("min_gain", self.min_gain, kBelowOne);
    visit("drop_tol", self.drop_tol, kBelowOne);
    visit("pattern_power", self.power, OptionRange{1, kMaxPatternPower});
    visit("post_filter", self.post_filter, kBelowOne);
    visit("precision", self.precision, OptionRange{1, 2});
    visit("symmetry_tolerance", self.symmetry_tolerance, kBelowOne);
    visit("time_budget", self.time_budget_ms, OptionRange{0});
    visit("repeat_hash_bits", self.repeat_hash_bits, OptionRange{0, 64});
  }
};

// INVALID_ARGUMENT/BAD_FSAI_OPTION, with the field as clients know it.
Status CheckFsaiOptions(const FsaiOptions& options);

struct FsaiQuality {
  // exp((1/n) Σ ln(ψ_i / a_ii)): the Kaporin number of G A Gᵀ over that of A scaled by its
  // diagonal.
  double kaporin = 1;
  // The same after 0, 1, ..., `steps` steps (adaptive, before a post-filter; rows that ended keep
  // their ψ); [0] is 1 from the diagonal, else that of the initial pattern.
  std::vector<double> kaporin_by_step;
  double density = 0;  // nnz(G) / nnz(A)
  int64_t nnz_row_max = 0;
  // Rows whose growth, or factor, met a pivot that is not positive, or a ψ_i (A is not positive
  // definite, or not so in this precision): they keep the entries they had before it; a prescribed
  // pattern is solved by its leading columns then, and what is left of it is stored as zeros. Not
  // positive: at most 16 u times the diagonal entry. -1: none.
  int64_t not_spd_rows = 0, first_not_spd = -1;
  int64_t converged_rows = 0;  // ψ_i <= epsilon ψ_i of the diagonal
  int64_t copied_rows = 0;     // copied from a row that they repeat
  int64_t slow_rows = 0;       // outgrew the fast path (CPU: solved by CG, not by a factor)
  // Slow rows at which CG met its limit of iterations before its tolerance; their ψ is what they
  // reached.
  int64_t not_converged_rows = 0, first_not_converged = -1;
  // The steps asked for; where a time budget ended growth, the steps that every row had (or its own
  // end before).
  int steps = 0;
  bool out_of_time = false;
  double flops = 0;  // counted, of gradients and local solves; of rows that were copied, too

  // visit(name, figure), by the names that clients know; `density` is told as M's.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("kaporin", kaporin);
    visit("kaporin_by_step", kaporin_by_step);
    visit("converged_rows", converged_rows);
    visit("not_spd_rows", Occurrence{not_spd_rows, first_not_spd});
    visit("nnz_row_max", nnz_row_max);
    visit("slow_rows", slow_rows);
    visit("not_converged_rows", Occurrence{not_converged_rows, first_not_converged});
    visit("steps", steps);
    visit("out_of_time", out_of_time);
    visit("copied_rows", copied_rows);
  }
};

struct FsaiResult {
  // Row i of G as column i, that is Gᵀ in CSC: canonical, upper triangular, the diagonal last in
  // each column.
  CscMatrix g_rows;
  FsaiQuality quality;
  Array<double> psi_ratio;  // ψ_i / a_ii, n
};

// Static FSAI's pattern: the lower triangle of (E + |Ã|)^power, with the diagonal; by rows, as
// g_rows. Or where `user` is not null that of `user`, by rows too (column i of the view: the
// indices of row i; those over i are left out). Reads values only where drop_tol > 0. Errors: those
// of BuildPattern; INVALID_ARGUMENT/NOT_SQUARE, /BAD_FSAI_OPTION;
// FAILED_PRECONDITION/NOT_POSITIVE_DEFINITE where values are read.
Result<Pattern> FsaiPattern(const CscView& a, const PatternView* user, const FsaiOptions& options,
                            const Context& context);

// Numbers on a pattern (as FsaiPattern or an earlier g_rows has it): static FSAI, or new values on
// a grown pattern. `a` canonical and square. Errors: INVALID_ARGUMENT/NOT_SQUARE, /BAD_FSAI_OPTION
// (the field named), /PATTERN_SIZE_MISMATCH, /PATTERN_NOT_LOWER (index: the row);
// FAILED_PRECONDITION/NOT_POSITIVE_DEFINITE (index: the first row whose diagonal entry is not
// positive, or missing), /NOT_SYMMETRIC (the first place, row and column in the text, index: the
// column); stop statuses. Deterministic for any number of threads.
Result<FsaiResult> BuildFsaiOn(const PatternView& pattern, const CscView& a,
                               const FsaiOptions& options, const Context& context);

// options.adaptive: grows from `initial` (by rows, as `user` above; null: the diagonal); else
// FsaiPattern and BuildFsaiOn. Reports progress in rows, honours the stop token per batch of rows.
// Errors: those of both; RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<FsaiResult> BuildFsai(const CscView& a, const PatternView* initial,
                             const FsaiOptions& options, const Context& context);

struct FsaiCounts {
  int64_t nnz_g = 0;       // upper bound
  int64_t host_bytes = 0;  // upper bound: build and result
  BuildWork work;          // where no row repeats another, and grows as far as it may
  // On a CUDA device: bounds on all that is there at once, of a build and of those with new values,
  // and with which it is sure to succeed, with fewer rows at a time and G's columns made by the
  // host.
  int64_t device_bytes = 0, device_bytes_min = 0;
};
// BuildWork::gathered of growth by so many entries, where columns of A have `mean` entries.
double GatheredByGrowth(double added, double mean, const FsaiOptions& options);
// FsaiCounts::work of growth from the diagonal. O(s k_max).
BuildWork WorkOfGrowth(int64_t n, int64_t nnz_a, const FsaiOptions& options);
// From the pattern alone, in bounded time and memory.
Result<FsaiCounts> EstimateFsai(const PatternView& a, const PatternView* initial,
                                const FsaiOptions& options, const Context& context);

}  // namespace spaid::kernels
