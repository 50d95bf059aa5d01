// What the two forms of BiCGSTAB on a device share: launches of phases (bicgstab.cu), and
// one launch on the chip for some iterations (bicgstab_persistent_smem.cu).
#pragma once

#include <cfloat>

#include "kernels/krylov/cuda/fused_steps.h"
#include "kernels/krylov/cuda/persistent_smem.h"

namespace spaid::cuda::bicgstab {

// What follows from the sums of an iteration; each by one thread, where the state is running.
//
// A denominator has vanished where the cosine of its two vectors is under the rounding of a dot
// product.
inline constexpr double kVanished = DBL_EPSILON / 2;

// The products of v = A M p with the shadow residual and itself.
__device__ inline void TakeAlpha(SolveState& s, double shadow_v, double v_v) {
  const bool fresh = s.fresh != 0;
  s.save_best = 0;
  if (fabs(s.rho) <= kVanished * s.shadow_norm * s.r_norm) {
    s.status = SegmentEnd::kRhoVanished;
  } else if (!isfinite(shadow_v) || !isfinite(v_v)) {
    // From p = r, a residual of ordinary size, it is A or M; later it is p that ran away.
    s.status = fresh ? SegmentEnd::kNonFiniteAMr : SegmentEnd::kPOverflowed;
  } else if (fabs(shadow_v) <= kVanished * s.shadow_norm * sqrt(v_v)) {
    s.status = SegmentEnd::kAlphaVanished;
  } else {
    s.alpha = s.rho / shadow_v;
  }
  s.fresh = 0;
}

// s's with itself.
__device__ inline void TakeHalfStep(SolveState& state, double s_s) {
  state.s_norm = sqrt(s_s);
  if (!isfinite(s_s)) {
    state.status = SegmentEnd::kNonFiniteS;
  } else if (state.s_norm <= state.target) {
    state.status = SegmentEnd::kHalfStep;
  }
}

// Those of t = A M s with s and itself.
__device__ inline void TakeOmega(SolveState& state, double t_s, double t_t) {
  if (!isfinite(t_s) || !isfinite(t_t)) {
    state.status = SegmentEnd::kNonFiniteAMs;
  } else if (fabs(t_s) <= kVanished * sqrt(t_t) * state.s_norm) {
    state.status = SegmentEnd::kOmegaVanished;
  } else {
    state.omega = t_s / t_t;
  }
}

// Those of r with itself and the shadow residual.
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

// By rows. `diagonal` of M, and p_hat = M p, which is written where a half step ends the launch;
// both null: M is none.
struct Vectors {
  const double *shadow, *diagonal;
  double *x, *r, *p, *v, *p_hat, *best;
};

// `iterations` of them, or as many as the state goes through. The best iterate is kept when it is
// left, so that nothing remains to be settled but a half step.
void LaunchOnChip(const Context& context, const ChipRows& a, ChipMemory& memory, int iterations,
                  SolveState* state, const Vectors& vectors);

}  // namespace spaid::cuda::bicgstab
