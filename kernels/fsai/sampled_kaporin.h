// Kaporin's reduction by adaptive FSAI, estimated by a sample of rows.
#pragma once

#include "kernels/fsai/fsai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Returns exp(Σ ln(ψ_i / a_ii) / `rows`) over that many rows, grown by `options`: an estimate of
// FsaiQuality::kaporin, exact where A has no more rows. 1 tells that A, scaled to a diagonal of
// ones, is the unit matrix as far as G can see. `a`: square, canonical, symmetric but for rounding,
// with a positive diagonal, none of which is looked at. The same rows of all matrices of one size,
// and the same bits by any threads; 4 n bytes each of up to four. Thread-safe. Throws
// std::bad_alloc. Source: Kaporin, Numer. Linear
// Algebra Appl. 1 (1994) 179-210; [aFSAI] (fsai.h).
double SampledKaporin(const CscView& a, const FsaiOptions& options, int64_t rows, int threads = 1);

}  // namespace spaid::kernels
