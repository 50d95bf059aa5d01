// Solves with B = D_r A Q D_c in place of A: chooses the scaling and carries matrices, vectors and
// approximate inverses there and back.
//
//   auto s = ChooseScaling(a, diagnosis, ScalingMode::kAuto, context);
//   auto b = ScaledMatrix(a, *s, context);       // M' ≈ B⁻¹, B x' = D_r rhs, x = Q D_c x'
//   auto m = UnscaledInverse(m_of_b, *s, context);  // M = Q D_c M' D_r ≈ A⁻¹
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/equilibrate.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

enum class ScalingMode { kNone, kEquilibrate, kMatching, kAuto };

// Factors are powers of two, so that B has the digits of A, and a solution of one those of the
// other; only what leaves the range of fp64 is rounded.
struct Scaling {
  ScalingMode kind = ScalingMode::kNone;  // what was done; not kAuto
  Array<double> row;                      // D_r; empty: the identity, as is all else
  Array<double> column;                   // D_c, by the places of B's columns
  // Q: column of A at each place of B; empty: the identity.
  Array<int32_t> column_of_row;
  ScaledNorms norms;  // of B when it was chosen
  // A is structurally singular: these were paired in ascending order, no entry is where they meet.
  Occurrence unmatched_rows, unmatched_columns;
  // kAuto wanted a matching, which took too long: equilibrated instead.
  bool matching_too_long = false;

  bool identity() const { return row.empty() && column_of_row.empty(); }
  int64_t bytes() const {
    return static_cast<int64_t>((row.size() + column.size()) * sizeof(double) +
                                column_of_row.size() * sizeof(int32_t));
  }
};

// kEquilibrate: equilibrate.h, with D_r = D_c where A is numerically symmetric. kMatching:
// product_matching.h, with the factors rounded to powers of two: diagonal entries of B are within
// [1/2, 2], all others at most 2; symmetry is lost. kAuto:
// - matching where A is not numerically symmetric and an entry of the diagonal is zero or missing,
//   or more than 1 % of the columns have one below 2^-10 of their largest (ScaledNorms), after
//   equilibration;
// - else equilibration where norms of rows, or of columns, differ by more than 2^4: factors of
//   powers of two leave about that much;
// - else nothing, so that a matrix that is well scaled keeps its bits.
// `a`: square, canonical; `d`: of it. The same for any number of threads. Scratch: that of either
// header. Errors: stop statuses; in mode kMatching those of MaximumProductMatching.
Result<Scaling> ChooseScaling(const CscView& a, const Diagnosis& d, ScalingMode mode,
                              const Context& context);

// Whether a scaling made for other values of the pattern still does for those of `a`: of B, neither
// the spread of row norms nor that of column norms is over 2^10 times what it was, and no more than
// 1 % of all columns have become weak ones (ScaledNorms). One scan. Errors: stop statuses.
Result<bool> StillScales(const CscView& a, const Scaling& s, const Context& context);

// B; columns are in order, as A's are. Threads as in `context`. Errors: stop statuses.
Result<CscMatrix> ScaledMatrix(const CscView& a, const Scaling& s, const Context& context);
// Its values alone, in the order of ScaledMatrix; `a` has the pattern that that had. `values`: nnz,
// not those of `a` unless Q is the identity. Errors: stop statuses.
Status ScaledValues(const CscView& a, const Scaling& s, std::span<double> values,
                    const Context& context);

// D_r b, for one right-hand side of A. `out`: n; may be `b`.
void ScaleRhs(const Scaling& s, std::span<const double> b, std::span<double> out);
// x = Q D_c x', from a solution of B to that of A. `out`: n; apart from `x`.
void UnscaleSolution(const Scaling& s, std::span<const double> x, std::span<double> out);
// x' = D_c⁻¹ Qᵀ x: a guess for A becomes one for B. `out`: n; apart from `x`.
void ScaleGuess(const Scaling& s, std::span<const double> x, std::span<double> out);

// M = Q D_c M' D_r of M' ≈ B⁻¹; square, canonical, with as many entries. Errors:
// FAILED_PRECONDITION/INVERSE_OUT_OF_RANGE with the first column that has an entry beyond the range
// of fp64; stop statuses.
Result<CscMatrix> UnscaledInverse(const CscView& m, const Scaling& s, const Context& context);

}  // namespace spaid::kernels
