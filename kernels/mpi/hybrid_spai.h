// HybridSPAI: static SPAI (kernels/static_spai) of a matrix over several ranks. Columns of M are
// split by predicted work; a rank fetches the columns of A that its own ones need, numbers them
// anew in their order, and computes with them as one machine does. M has the same bits on any
// number of ranks: those of PlanStaticSpai and BuildStaticSpai on the CPU (Chu, Wang, Chen, Gao
// 2023, the MPI program).
//
//   Result<HybridSpaiPlan> plan = PlanHybridSpai(a, nullptr, options, context);
//   Result<HybridSpaiResult> m = BuildHybridSpai(*plan, a, context);
//   KSPSetOperators(ksp, a.rows.get(), m->rows.get());
//
// All functions are collective, with the same options on all ranks. Errors and stops of any rank
// are those of all; context.stop and context.progress may be set on one of them alone, and count
// the columns of all. Errors inside PETSc or MPI, and memory that runs out while ranks exchange
// what they have, end the program on all ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels::mpi {

struct HybridSpaiOptions {
  // row_match is refused (INVALID_ARGUMENT/BAD_ROW_MATCH): its matching is one of the whole matrix.
  // max_nnz bounds the whole M, and on its way there the part of each rank.
  StaticSpaiOptions spai;
  // Bytes that a rank fetches from others for a plan and its build, at most; 0: a quarter of the
  // memory that it may use, shared with the ranks on the same host.
  int64_t halo_bytes = 0;
};

// Holds all that depends on the patterns alone, and, with keep_tau, on A's values. Serves builds of
// other values otherwise. Not thread-safe: as all here, collective.
class [[gnu::visibility("default")]] HybridSpaiPlan {
 public:
  struct State;
  explicit HybridSpaiPlan(std::unique_ptr<State> state);
  ~HybridSpaiPlan();
  HybridSpaiPlan(HybridSpaiPlan &&) noexcept;
  HybridSpaiPlan& operator=(HybridSpaiPlan&&) noexcept;

  int64_t nnz_m() const;         // of the whole M, before a post-filter
  int64_t columns_here() const;  // columns of M that this rank computes
  int64_t halo_bytes() const;    // that this rank fetches, values included
  int64_t bytes() const;         // that the plan holds on this rank
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct HybridSpaiResult {
  MatOwner rows;  // M, as A's rows are spread
  // The columns of M that this rank has computed, [i] being column here[i] of M, ascending.
  Array<int32_t> here;
  CscMatrix columns;
  StaticSpaiQuality quality;  // of the whole M, on all ranks
};

// `user_pattern`: the columns that this rank owns, or null on all ranks. Errors: those of
// PlanStaticSpai; INVALID_ARGUMENT/BAD_ROW_MATCH, /BAD_HALO_BYTES, /OPTIONS_DIFFER;
// RESOURCE_EXHAUSTED/HALO_TOO_LARGE before more is fetched than allowed.
[[gnu::visibility("default")]] Result<HybridSpaiPlan> PlanHybridSpai(
    const SpreadMatrix& a, const SpreadPattern* user_pattern, const HybridSpaiOptions& options,
    const Context& context);

// `a` must have the plan's pattern (INVALID_ARGUMENT/PLAN_MISMATCH). Quality is summed up on rank
// 0, which takes 24 bytes a column of the whole M for it.
[[gnu::visibility("default")]] Result<HybridSpaiResult> BuildHybridSpai(const HybridSpaiPlan& plan,
                                                                        const SpreadMatrix& a,
                                                                        const Context& context);

}  // namespace spaid::kernels::mpi
