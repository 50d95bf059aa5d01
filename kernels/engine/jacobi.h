// Jacobi and block Jacobi: M = the inverses of A's diagonal entries, or of the blocks on its
// diagonal, with the quality figures of any other engine.
#pragma once

#include "kernels/base/build_work.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/build_result.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct JacobiResult {
  CscMatrix m;  // diagonal, or of full blocks on the diagonal
  Quality quality;
};

// `a`: square, canonical, with values. O(nnz). Errors: FAILED_PRECONDITION/ZERO_DIAGONAL (index:
// the first column whose diagonal is zero, not stored, or too small to invert); stop statuses.
Result<JacobiResult> BuildJacobi(const CscView& a, const Context& context);

// Blocks of `block_size` rows and columns from the first on, the last one smaller where n is no
// multiple (2 .. kMaxBlockSize). M has each block whole, zeros stored too; where a block of A is
// symmetric, M's is, to the last bit. O(block_size (nnz + block_size n)). Errors:
// FAILED_PRECONDITION/SINGULAR_BLOCK (index: the first block that is singular, or so nearly that
// its inverse has no correct digit (InvertInPlace), or whose inverse leaves the range of fp64);
// stop statuses.
Result<JacobiResult> BuildBlockJacobi(const CscView& a, int block_size, const Context& context);

// The work of BuildJacobi, for its rates (EngineTraits).
BuildWork WorkOfJacobi(const PatternView& a);

// Quality of both: of `norms`, ‖A m_k − e_k‖₂ of each column, all finite or infinite.
Quality JacobiQuality(const CscView& a, const Array<double>& norms, int64_t nnz_m,
                      const Context& context);

// Entries of block Jacobi's M.
int64_t BlockJacobiEntries(int64_t n, int block_size);

// Diagonal entries of square canonical `a` that BuildJacobi would refuse: a binary search a column.
Occurrence UninvertibleDiagonal(const CscView& a);

}  // namespace spaid::kernels
