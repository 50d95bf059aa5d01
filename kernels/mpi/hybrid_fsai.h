// FSAI over several ranks: each computes the rows of G that it owns, as kernels/fsai does on one
// machine, by the columns of A that these rows read: of static FSAI a principal submatrix, of
// adaptive FSAI what growth asks for, in rounds (spread_growth.h).
//
//   Result<HybridFsaiResult> g = BuildHybridFsai(a, nullptr, options, context);
//   SolveSpread(a, g->m.get(), b, x, {.method = Method::kCg}, context);
//
// The rows are those of BuildFsai, bit for bit (static FSAI: where A is positive definite). All is
// collective, as in hybrid_spai.h, and errors and stops are told in the same way.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/fsai/fsai.h"
#include "kernels/mpi/spread_matrix.h"

namespace spaid::kernels::mpi {

struct HybridFsaiOptions {
  FsaiOptions fsai;        // adaptive with a time_budget is refused
  int64_t halo_bytes = 0;  // as HybridSpaiOptions has it
};

struct HybridFsaiResult {
  MatOwner g;       // the rows of G, as A's are spread
  MatOwner m;       // multiplies by GᵀG; borrows g
  CscMatrix rows;   // the rows of G that this rank owns, by columns as FsaiResult::g_rows
  int64_t nnz = 0;  // of the whole G
  // That of the whole M, on all ranks; Kaporin numbers to rounding those of one machine,
  // copied_rows those that repeat one of their own rank.
  FsaiQuality quality;
  int64_t halo_bytes = 0;  // that this rank has fetched
  int64_t rounds = 0;      // of growth, the same on all ranks
};

// `user_rows`: patterns of the rows that this rank owns, as columns, from which rows grow where
// they do; indices over the diagonal are left out; null on all ranks: options decide. Errors: those
// of BuildFsai; INVALID_ARGUMENT/NOT_SPREAD (time_budget), /BAD_HALO_BYTES, /OPTIONS_DIFFER;
// RESOURCE_EXHAUSTED/HALO_TOO_LARGE before more is fetched than allowed.
[[gnu::visibility("default")]] Result<HybridFsaiResult> BuildHybridFsai(
    const SpreadMatrix& a, const SpreadPattern* user_rows, const HybridFsaiOptions& options,
    const Context& context);

// GᵀG of a G whose rows are spread, as a matrix that multiplies. Borrows it.
MatOwner MakeFactored(Mat g);

}  // namespace spaid::kernels::mpi
