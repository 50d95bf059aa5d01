// How local problems are solved.
#pragma once

#include <cstdint>

namespace spaid::kernels {

//   kQr:   Householder QR of Â (n1 x n2).
//   kGram: Cholesky of the scaled ÂᵀÂ with corrected steps. QR rescues the columns whose scaled
//          pivot falls under `gram_pivot_limit`, whose Gram matrix shows itself too
//          ill-conditioned, or whose corrections do not die out.
//   kAuto: per column, whichever costs less by the measured model; accuracy as for kGram.
enum class LocalSolver : int32_t { kAuto, kQr, kGram };

// How many threads of a CUDA device share a column's problem on the QR path (Chu, Wang, Chen, Gao
// 2023). Speed alone: results agree to rounding. A CPU ignores it.
//   kConstant: S1, as many for all columns, by the longest one.
//   kVariable: S2, by each column's own length, columns sorted by it.
//   kPaper:    the paper's choice between the two, by the longest and the mean length.
//   kAuto:     whichever the measured model says is faster.
enum class ThreadStrategy : int32_t { kAuto, kConstant, kVariable, kPaper };

}  // namespace spaid::kernels
