// The scalars of a solve on a device, one set a column. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/krylov/cuda/segment.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {

// Iterations of a segment, at most.
inline constexpr int kMostIterations = 128;

struct SolveState {
  SegmentEnd status;
  int32_t iteration;  // iterations done in this segment
  int32_t limit;      // iterations of this segment, at most
  int32_t fresh;      // the direction is to be set from the residual alone
  int32_t save_best;  // the next kernel that updates x saves the iterate before it as the best
  double target;
  double previous_norm, best_norm;  // residual of the previous iterate, of the saved best one
  double diverged_at;
  double value;  // the scalar that led to the status
  double rho;    // CG: rᵀz. BiCGSTAB: the shadow residual's product with r
  double alpha, beta, omega;
  double r_norm, shadow_norm, s_norm;
  double norms[kMostIterations];  // the recursion's residual, by iteration
};

// Counts an iteration that ended with this residual norm, and sets the status where the segment
// ends. Called by one thread.
__device__ inline void CountIteration(SolveState& state, double norm) {
  state.previous_norm = norm;
  state.norms[state.iteration++] = norm;
  if (!isfinite(norm)) {
    state.status = SegmentEnd::kNonFinite;
  } else if (norm <= state.target) {
    state.status = SegmentEnd::kUnderTarget;
  } else if (state.iteration >= state.limit) {
    state.status = SegmentEnd::kPaused;
  }
}

// The same, and has the previous iterate saved where it is the best so far and this one is worse.
__device__ inline void RecordNorm(SolveState& state, double norm) {
  if (norm > state.previous_norm && state.previous_norm < state.best_norm) {
    state.save_best = 1;
    state.best_norm = state.previous_norm;
  }
  CountIteration(state, norm);
}

// Base of epilogues and steps: the state of the thread's column, and the memory for sums.
template <int kColumns>
struct Running {
  static constexpr int kOf = kColumns;

  SolveState* states;
  SumSpace space;

  __device__ SolveState& state() const { return states[Column<kColumns>()]; }
  __device__ bool Skip() const { return state().status != SegmentEnd::kRunning; }
  __device__ Running& running() { return *this; }
};

}  // namespace spaid::cuda
