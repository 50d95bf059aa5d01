// Shared by the two forms of BiCGSTAB on a device: fused steps (bicgstab.cu), and a persistent
// kernel within shared memory (bicgstab_persistent_smem.cu).
#pragma once

#include <cfloat>

#include "kernels/krylov/cuda/persistent_smem.h"
#include "kernels/krylov/cuda/solve_state.h"

namespace spaid::cuda::bicgstab {

// Scalars from the sums of an iteration. Each function is called by one thread, where the state is
// running.
//
// A denominator has vanished where the cosine of its two vectors is below the rounding of a dot
// product.
inline constexpr double kVanished = DBL_EPSILON / 2;

// alpha from the products of v = A M p with the shadow residual and with itself.
__device__ inline void TakeAlpha(SolveState& s, double shadow_v, double v_v) {
  const bool fresh = s.fresh != 0;
  s.save_best = 0;
  if (fabs(s.rho) <= kVanished * s.shadow_norm * s.r_norm) {
    s.status = SegmentEnd::kRhoVanished;
  } else if (!isfinite(shadow_v) || !isfinite(v_v)) {
    // With p = r, a residual of ordinary size, A or M is at fault; later p has overflowed.
    s.status = fresh ? SegmentEnd::kNonFiniteAMr : SegmentEnd::kPOverflowed;
  } else if (fabs(shadow_v) <= kVanished * s.shadow_norm * sqrt(v_v)) {
    s.status = SegmentEnd::kAlphaVanished;
  } else {
    s.alpha = s.rho / shadow_v;
  }
  s.fresh = 0;
}

// The norm of s from its product with itself: a half step may end the solve.
__device__ inline void TakeHalfStep(SolveState& state, double s_s) {
  state.s_norm = sqrt(s_s);
  if (!isfinite(s_s)) {
    state.status = SegmentEnd::kNonFiniteS;
  } else if (state.s_norm <= state.target) {
    state.status = SegmentEnd::kHalfStep;
  }
}

// omega from the products of t = A M s with s and with itself.
__device__ inline void TakeOmega(SolveState& state, double t_s, double t_t) {
  if (!isfinite(t_s) || !isfinite(t_t)) {
    state.status = SegmentEnd::kNonFiniteAMs;
  } else if (fabs(t_s) <= kVanished * sqrt(t_t) * state.s_norm) {
    state.status = SegmentEnd::kOmegaVanished;
  } else {
    state.omega = t_s / t_t;
  }
}

// beta and rho from the products of r with itself and with the shadow residual.
__device__ inline void TakeResidual(SolveState& s, double r_r, double shadow_r) {
  s.r_norm = sqrt(r_r);
  s.beta = (shadow_r / s.rho) * (s.alpha / s.omega);
  s.rho = shadow_r;
  RecordNorm(s, s.r_norm);
  if (s.status == SegmentEnd::kNonFinite) return;
  if (s.r_norm > s.diverged_at || s.r_norm > s.best_norm / DBL_EPSILON) {
    s.status = SegmentEnd::kDiverged;
  } else if (s.status == SegmentEnd::kRunning && !isfinite(s.beta)) {
    s.status = SegmentEnd::kNonFiniteBeta;
  }
}

__device__ inline bool IsHalfStep(SegmentEnd status) {
  return status == SegmentEnd::kHalfStep || status == SegmentEnd::kOmegaVanished;
}

// Vectors in the order of A's rows. `diagonal`: M; p_hat = M p, which is written where a half step
// ends the launch. Both null: there is no M.
struct Vectors {
  const double *shadow, *diagonal;
  double *x, *r, *p, *v, *p_hat, *best;
};

// Launches `iterations` of BiCGSTAB, fewer where the state stops running. The best iterate is saved
// before x is updated, so that only a half step remains to be settled.
void LaunchPersistentSmem(const Context& context, const SmemCsr& a, SmemExchangeBuffers& memory,
                          int iterations, SolveState* state, const Vectors& vectors);

}  // namespace spaid::cuda::bicgstab
