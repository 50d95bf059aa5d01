// Dynamic SPAI over several ranks: each grows the pattern of the columns of M that it owns, as
// kernels/dynamic_spai does on one machine; HybridSPAI makes the numbers on it.
//
//   Result<HybridDynamicPattern> grown = GrowHybridDynamicSpai(a, nullptr, options, context);
//   Result<HybridSpaiPlan> plan =
//       PlanHybridSpai(a, &grown->m, {.spai = NumbersOf(options.dynamic)}, context);
//   Result<HybridSpaiResult> m = BuildHybridSpai(*plan, a, context);
//
// AᵀA is spread by columns, each made by the rank that owns it; columns of others come when growth
// asks for them (spread_growth.h). M has the bits of one machine. All is collective, as in
// hybrid_spai.h, and errors and stops are told in the same way.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/mpi/spread_matrix.h"

namespace spaid::kernels::mpi {

struct HybridDynamicOptions {
  DynamicSpaiOptions dynamic;
  int64_t halo_bytes = 0;  // as HybridSpaiOptions has it: for growth alone
  // Entries of AᵀA that a rank makes, at most; 0: as many as a half of the memory holds that it may
  // use, shared with the ranks on the same host.
  int64_t gram_entries = 0;
};

struct HybridDynamicPattern {
  SpreadPattern m;
  // That of the whole M, on all ranks; residuals to rounding those of one machine, copied_columns
  // those that repeat one of their own rank.
  DynamicSpaiQuality quality;
  int64_t halo_bytes = 0;  // that this rank has fetched
  int64_t rounds = 0;      // of growth, the same on all ranks
};

// `initial`: columns that this rank owns, or null on all ranks. Errors: those of GrowDynamicSpai,
// GRAM_TOO_LARGE by gram_entries; INVALID_ARGUMENT/BAD_HALO_BYTES, /OPTIONS_DIFFER;
// RESOURCE_EXHAUSTED/HALO_TOO_LARGE before more is fetched than allowed.
[[gnu::visibility("default")]] Result<HybridDynamicPattern> GrowHybridDynamicSpai(
    const SpreadMatrix& a, const SpreadPattern* initial, const HybridDynamicOptions& options,
    const Context& context);

}  // namespace spaid::kernels::mpi
