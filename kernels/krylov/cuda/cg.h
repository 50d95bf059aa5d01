// Shared by the two forms of CG on a device: fused steps (cg.cu), and a persistent kernel within
// shared memory (cg_persistent_smem.cu).
#pragma once

#include "kernels/krylov/cuda/persistent_smem.h"
#include "kernels/krylov/cuda/solve_state.h"

namespace spaid::cuda::cg {

// Scalars from the sums of an iteration. Each function is called by one thread.

__device__ inline void CheckRho(SolveState& state) {
  if (state.status != SegmentEnd::kRunning) return;  // checked when the next segment begins
  if (!isfinite(state.rho)) {
    state.status = SegmentEnd::kNonFiniteM;
  } else if (state.rho <= 0) {
    state.status = SegmentEnd::kIndefiniteM;
  }
  state.value = state.rho;
}

// rho = rᵀz, and beta.
__device__ inline void TakeRho(SolveState& state, double rho) {
  state.beta = state.fresh != 0 ? 0 : rho / state.rho;
  state.rho = rho;
  CheckRho(state);
}

// alpha from pq = pᵀA p, where the state is running.
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

// Vectors in the order of A's rows. `diagonal`: M; null: there is no M.
struct Vectors {
  const double* diagonal;
  double *x, *r, *p, *best;
};

// Launches `iterations` of CG, fewer where the state stops running. The best iterate is saved
// before x is updated, so that nothing remains to be settled.
void LaunchPersistentSmem(const Context& context, const SmemCsr& a, SmemExchangeBuffers& memory,
                          int iterations, SolveState* state, const Vectors& vectors);

}  // namespace spaid::cuda::cg
