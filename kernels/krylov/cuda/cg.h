// What the two forms of CG on a device share: launches of phases (cg.cu), and one launch on
// the chip for some iterations (cg_persistent_smem.cu).
#pragma once

#include "kernels/krylov/cuda/fused_steps.h"
#include "kernels/krylov/cuda/persistent_smem.h"

namespace spaid::cuda::cg {

// What follows from the sums of an iteration; each by one thread.

__device__ inline void CheckRho(SolveState& state) {
  if (state.status != SegmentEnd::kRunning) return;  // looked at where the next segment begins
  if (!isfinite(state.rho)) {
    state.status = SegmentEnd::kNonFiniteM;
  } else if (state.rho <= 0) {
    state.status = SegmentEnd::kIndefiniteM;
  }
  state.value = state.rho;
}

// rho = rᵀz, and beta from it.
__device__ inline void TakeRho(SolveState& state, double rho) {
  state.beta = state.fresh != 0 ? 0 : rho / state.rho;
  state.rho = rho;
  CheckRho(state);
}

// pᵀA p, where the state is running.
__device__ inline void TakeAlpha(SolveState& state, double pq) {
  state.fresh = state.save_best = 0;
  state.value = pq;
  if (!isfinite(pq)) {
    state.status = SegmentEnd::kNonFiniteA;
  } else if (pq <= 0) {
    state.status = SegmentEnd::kIndefiniteA;
  } else {
    state.alpha = state.rho / pq;
  }
}

// By rows. `diagonal` of M; null: M is none.
struct Vectors {
  const double* diagonal;
  double *x, *r, *p, *best;
};

// `iterations` of them, or as many as the state goes through. The best iterate is kept when it is
// left, so that nothing remains to be settled.
void LaunchOnChip(const Context& context, const ChipRows& a, ChipMemory& memory, int iterations,
                  SolveState* state, const Vectors& vectors);

}  // namespace spaid::cuda::cg
