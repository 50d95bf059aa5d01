// One row of an adaptive FSAI: from the diagonal, or a given pattern, step by step. Internal to
// this room, to kernels/dynamic_spai, whose columns grow as such rows do (GrowthRules), to
// kernels/mpi, and to their tests.
//
// There are two ways. Many steps (row_growth.cc): what each costs is kept small in three ways. A
// column r of A that joins P̄ is walked once: its rows become *slots*, and its values a column of a
// dense block over the slots, so that the gradient y = (A g̃ + a_i) over all candidates is brought
// up to date by one product of that block with the change of g̃, without look-ups. The local systems
// are not solved again: with A-conjugate directions d_m (the rows of W, the inverse of the Cholesky
// factor of A[P̄,P̄] but for scaling) one more index p is d = e_p − Σ_m (d_mᵀ A e_p / δ_m) d_m, δ =
// dᵀ A d, g̃ += α d, α = −y_p / δ, since y vanishes on P̄, and ψ −= y_p² / δ. And the last step looks
// at no candidates.
//
// Few steps of several entries (block_growth.cc): those of a step join together, at most eight at a
// time, each a lane of a vector in which A[P̄, new] becomes rows of L of A[P̄,P̄] = L D Lᵀ. The
// entries of a column that joins are listed, by slots too, and the gradient is summed from these
// lists anew in each step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/fsai/fsai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct GrowthRules {
  // As FsaiOptions has them. `k_max` that of Grow, on which it depends how rows are grown: the same
  // bits want the same.
  int k_max = 30;
  int s = 1;
  double epsilon = 1e-3;
  double min_gain = 0;
  bool fp32 = false;
  // Row i is that of a least-squares problem, min ‖Â m − e‖² with ÂᵀÂ = A, of columns of unit
  // length, and A(:, i) = −Âᵀe; A has columns, but no rows, of such i. ψ is ‖r‖² then: one that
  // falls to rounding, 16 u, counts as that, and the row has converged; an index that would lower
  // it by less is not added. There are no values of G: those of entries are of no use.
  bool least_squares = false;
  int64_t max_entries = INT64_MAX;  // a row, beside those that it begins with
};
GrowthRules RulesOf(const FsaiOptions& options);
bool GrowsByBlocks(const GrowthRules& rules);  // few steps of several entries

// The result of a row beside its entries.
struct RowOutcome {
  int64_t steps = 0;     // steps that added an entry
  bool not_spd = false;  // least squares: the columns of Â that it asks for are dependent
  bool converged = false;
  double psi_ratio = 1;  // ψ_i / a_ii
  double flops = 0;
};

struct RowEntry {
  int32_t index;
  double value;
};

// Not thread-safe: one for each thread, of 4 n bytes (n rows of A) and what its largest row takes.
class RowGrower {
 public:
  virtual ~RowGrower() = default;
  // Row i of G with at most `k_max` steps, the diagonal last (least squares: without it), indices
  // ascending: `entries` is overwritten. `start`: the initial pattern, below i, in the order in
  // which it joins. `ratios` receives ψ / a_ii after
  // 0, 1, ... steps and is as long as the row took steps, and one more. Throws std::bad_alloc; what
  // it holds is no longer of use then.
  virtual RowOutcome Grow(int64_t i, std::span<const int32_t> start, int k_max,
                          std::vector<RowEntry>& entries, std::vector<double>& ratios) = 0;
};

// A column as growth reads it, rows ascending.
struct GrowthColumn {
  std::span<const int32_t> rows;
  std::span<const double> values;
};

// A matrix whose columns are made when they are asked for, with ones in its diagonal.
class GrowthColumns {
 public:
  virtual ~GrowthColumns() = default;
  virtual int64_t n_rows() const = 0;
  // Column j, of use until the row has been grown that asked for it.
  virtual GrowthColumn Column(int64_t j) = 0;
};

// Columns that a part of a matrix lacks, told as a row asks for them. One for each grower.
struct LackedColumns {
  // For each column that may join; 0: it is elsewhere, and the part has its diagonal entry alone.
  std::span<const uint8_t> here;
  std::vector<int32_t> asked;  // of those, in the growth of a row, which is none of the whole then
};

// x to 24 bits: a float's value, of any exponent.
double RoundToFloat(double x);

// `a`: symmetric but for rounding, canonical; `diagonal`: one for each column, all positive;
// `lacked`: where `a` is a part, else null. All of them are borrowed.
std::unique_ptr<RowGrower> MakeRowGrower(const CscView& a, std::span<const double> diagonal,
                                         const GrowthRules& rules, LackedColumns* lacked = nullptr);
// The same rows of a matrix that is made column by column. Borrowed; Grow throws what that throws.
std::unique_ptr<RowGrower> MakeRowGrower(GrowthColumns& a, const GrowthRules& rules);

}  // namespace spaid::kernels
