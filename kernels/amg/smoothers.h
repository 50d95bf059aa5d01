// The smoothers of a level, as set up; the cycle applies them.
//
//   Result<Smoother> s = MakeSmoother(kind, a_rows, symmetric, finest, options, kept, context);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// A step is this over the largest eigenvalue, or over a bound of it (1 of l1-Jacobi). With 4/3
// there it takes 8 to 22 percent more iterations; with 1.9 aFSAI took 40 where 1.5 took 11.
inline constexpr double kSmootherStep = 1.6;

// PatternOptions::keep_tau of static SPAI on a coarse A, which leaves out what is under a twentieth
// of its column's largest: columns are long there and cost their length squared, where the finest
// one may need each entry (mcfe).
inline constexpr double kCoarseTau = 0.95;

// By which a ρ(G A Gᵀ) that power steps have found from below is multiplied.
inline constexpr double kAboveFactored = 1.05;

// Returns β_1 … β_k of the polynomial of degree k (Lottes 2023, table of the optimal ones).
std::vector<double> ChebyshevCoefficients(int degree);

// x += S (r - A x) before the coarse level, x += Sᵀ (r - A x) behind it.
struct Smoother {
  SmootherKind kind = SmootherKind::kL1Jacobi;
  Array<double> diagonal;            // S of kL1Jacobi and kJacobi; D⁻¹ of kChebyshev
  double rho = 0;                    // of D⁻¹A, kChebyshev; of G A Gᵀ
  std::vector<double> coefficients;  // β of kChebyshev, one for each degree
  double omega = 1;                  // S = ω Gᵀ G
  SharedMatrix rows;                 // G, or M of kStaticSpai, by rows
  // Gᵀ, or Mᵀ where A is symmetric (else S itself stands for Sᵀ), by rows.
  SharedMatrix transposed;
};

// Results that a smoother owes to the pattern, and G's that grew to the first values.
struct KeptSmoother {
  SharedPattern g;  // by rows; null: none yet
  std::shared_ptr<const StaticSpaiPlan> spai;
  KeptTranspose transpose;  // of G
};

// The kind that kAuto is, by beta = max_i Σ_j |a_ij| / |a_ii|: kL1Jacobi up to 3; over it kAfsai
// where A is symmetric, else kStaticSpai.
SmootherKind ChooseSmoother(SmootherKind asked, bool symmetric, double beta);

// `a_rows` by rows; `symmetric` with a positive diagonal. Sources: l1-Jacobi: Baker, Falgout,
// Kolev, Yang, SISC 33 (2011); Chebyshev of the fourth kind, optimal: Lottes, NLAA 2023; FSAI:
// Isotton, Frigo, Spiezia, Janna, SISC 43 (2021). `finest`: `a_rows` is that of level 0. `kept`, of
// a matrix of this pattern, is brought up to date. Errors: those of the engine that makes G or M;
// stop statuses.
Result<Smoother> MakeSmoother(SmootherKind kind, const CscView& a_rows, bool symmetric, bool finest,
                              const AmgOptions& options, KeptSmoother& kept,
                              const Context& context);

}  // namespace spaid::kernels
