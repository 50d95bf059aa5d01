// Slow, obvious, dense references, written from the formulas. Nothing here is fast, nothing shares
// code with the kernels (only the matrix structs), so agreement means something.
//
//   oracle::Dense a = oracle::ToDense(view);
//   std::vector<double> m_k = oracle::SpaiColumn(a, k, {0, 3});
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::oracle {

using Vector = std::vector<double>;

// Column-major.
struct Dense {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> a;

  Dense() = default;
  Dense(int64_t r, int64_t c) : rows(r), cols(c), a(static_cast<size_t>(r * c), 0.0) {}
  double& operator()(int64_t i, int64_t j) { return a[static_cast<size_t>(i + j * rows)]; }
  double operator()(int64_t i, int64_t j) const { return a[static_cast<size_t>(i + j * rows)]; }
};

Dense Identity(int64_t n);
// Duplicates are summed.
Dense ToDense(const kernels::CscView& a);
// 1 where stored (also for stored zeros), else 0.
Dense ToDense(const kernels::PatternView& a);
// Small matrices written by rows.
Dense DenseOfRows(std::initializer_list<std::initializer_list<double>> rows);
// Entries that are not zero, canonical.
kernels::CscMatrix FromDense(const Dense& a);
inline kernels::CscMatrix FromRows(std::initializer_list<std::initializer_list<double>> rows) {
  return FromDense(DenseOfRows(rows));
}
kernels::Pattern PatternFromDense(const Dense& a);
Dense Transpose(const Dense& a);
Dense Multiply(const Dense& a, const Dense& b);
Vector Multiply(const Dense& a, const Vector& x);
double Norm(const Vector& x);
double Frobenius(const Dense& a);
// b − A x.
Vector Residual(const Dense& a, const Vector& x, const Vector& b);

// A basic solution of min ‖A x − b‖₂ by Householder QR with column pivoting (Businger, Golub 1965);
// columns whose pivot is under rcond × the first one get x_j = 0. `rank` may be null.
Vector LeastSquares(Dense a, Vector b, double rcond = 1e-13, int64_t* rank = nullptr);
// min ‖A x − b‖₂.
double LeastSquaresResidual(const Dense& a, const Vector& b, double rcond = 1e-13);
// A x = b by Gaussian elimination with partial pivoting; nothing where a pivot is exactly zero.
std::optional<Vector> LuSolve(Dense a, Vector b);

// Column k of the SPAI of `a` with pattern J: length n, zero outside J.
Vector SpaiColumn(const Dense& a, int64_t k, const std::vector<int64_t>& j_set);
// All columns; pattern.column(k) is J_k.
Dense Spai(const Dense& a, const kernels::PatternView& pattern);
// ‖A m_k − e_k‖₂ for every k, and ‖A M − E‖_F.
Vector SpaiResiduals(const Dense& a, const Dense& m);
double SpaiFrobenius(const Dense& a, const Dense& m);

// (E + |A|)^p as a boolean matrix product.
Dense PatternPower(const Dense& a, int p);

// FSAI of an SPD `a` [Bernaschi, Carrozzo, Franceschini, Janna 2019]: lower triangular G of rows
// (g̃, 1) / √ψ, A[P,P] g̃ = −A[P,i].
struct FsaiRow {
  std::vector<int64_t> pattern;  // P, ascending
  Vector g;                      // length n: row i of G
  Vector psi;                    // after 0, 1, ... steps
  // The least distance, relative to √(a_ii max a_jj), between the gradient of an index that was
  // taken and of one that was not, over all steps: where it is small, rounding decided.
  double margin = 0;
};
FsaiRow FsaiOn(const Dense& a, int64_t i, const std::vector<int64_t>& pattern);
// Grown by the definition: at most k_max steps of the s largest gradients, ties to the lower index,
// until ψ <= epsilon a_ii, or a step has lowered ψ by less than min_gain of it, or all gradients
// are zero up to `noise` √(a_ii a_jj).
FsaiRow FsaiGrown(const Dense& a, int64_t i, int k_max, int s, double epsilon, double noise,
                  const std::vector<int64_t>& start = {}, double min_gain = 0);

// Textbook Krylov methods on dense operands; `m` applies the preconditioner (null: none). Both stop
// where ‖r‖ of the recursion is under rtol ‖b‖. residuals[0] belongs to x = 0.
using Apply = std::function<Vector(const Vector&)>;
struct KrylovRun {
  Vector x;
  Vector residuals;  // ‖r‖₂ / ‖b‖₂ of the recursion
  bool converged = false;
};
// Hestenes, Stiefel 1952, with an SPD preconditioner (Saad, Iterative Methods, alg. 9.1).
KrylovRun Cg(const Dense& a, const Vector& b, const Apply& m, double rtol, int64_t max_iterations);
// van der Vorst 1992, right-preconditioned.
KrylovRun Bicgstab(const Dense& a, const Vector& b, const Apply& m, double rtol,
                   int64_t max_iterations);
// What full, right-preconditioned GMRES reaches after 0..steps steps: min ‖b − A M y‖ over the
// Krylov space, each by a dense least-squares problem, relative to ‖b‖.
Vector GmresResiduals(const Dense& a, const Vector& b, const Apply& m, int64_t steps);

}  // namespace spaid::oracle
