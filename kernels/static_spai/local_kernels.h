// The inner loops of static SPAI's local solvers, compiled for several instruction sets. Blocks of
// W right-hand sides are stored together: x[q * W + w].
#pragma once

#include <cstdint>

#include "kernels/static_spai/local_problem.h"

namespace spaid::kernels {

// b += ÂᵀÂ, lower triangle; `b` column-major with leading dimension ld (a multiple of 8), 64-byte
// aligned. Entries above the diagonal inside the 8 x 8 diagonal blocks stay finite, no more. Needs
// the row form. `scratch`: GramScratch(n_cols) doubles, 64-byte aligned.
void AccumulateGram(const LocalProblem& problem, int64_t ld, double* b, double* scratch);
int64_t GramScratch(int64_t n_cols);

// b = ÂᵀÂ (lower triangle) for n_cols <= 32, from dense rows: `rows` (n_rows x PadToLanes(n_cols),
// row-major, 64-byte aligned) receives Â. Columns of `b` from n_cols to PadToLanes(n_cols) become
// zero. Needs the column form only.
void SmallGram(const LocalProblem& problem, int64_t ld, double* b, double* rows);

// r += Â x for W right-hand sides, W in {1, 4, 8}; by columns for W = 1, else by rows.
void MultiplyAdd(const LocalProblem& problem, int width, const double* x, double* r);

// g := −Âᵀ r.
void NegativeTransposeMultiply(const LocalProblem& problem, int width, const double* r, double* g);

// squared[w] = Σ_i r_iw².
void SquaredNorms(int64_t n_rows, int width, const double* r, double* squared);

}  // namespace spaid::kernels
