// The inner loops of lane_solver.h: eight local problems of one structure, one in each lane of a
// vector. `v`: the values of Â by the places of the structure. Lower triangles are packed by rows:
// (i, j) is at i (i + 1) / 2 + j. Blocks of right-hand sides are stored together, x[q * width + t],
// 1 <= width <= kMaxLaneWidth. Internal to this room.
#pragma once

#include <cstdint>

#include "kernels/dense/simd.h"
#include "kernels/static_spai/structure.h"

namespace spaid::kernels {

inline constexpr int kMaxLaneWidth = 4;

constexpr int64_t PackedSize(int64_t n) { return n * (n + 1) / 2; }

// v = Â D: column q of lane w is at values[starts[q * 8 + w]], scaled by scales[q].
void LoadLanes(const Structure& structure, const double* values, const int64_t* starts,
               const Vec8* scales, Vec8* v);

// b = ÂᵀÂ.
void LaneGram(const Structure& structure, const Vec8* v, Vec8* b);

// In place b = L Lᵀ; inverse[q] = 1 / L_qq (the diagonal of `b` is left as it was at that step).
// `pivot`: the smallest scaled pivot, `determinant` their product, as CholeskyFactor says. Lanes
// with a pivot that is not over limit times its diagonal are set in `failed` (all bits), and hold
// no factor.
void LaneCholesky(int64_t n, double limit, Vec8* b, Vec8* inverse, Vec8* pivot, Vec8* determinant,
                  Mask8* failed);

// x := (L Lᵀ)⁻¹ x.
void LaneSolve(int64_t n, int width, const Vec8* l, const Vec8* inverse, Vec8* x);

// For right-hand sides e_k of the targets first, ..., first + width - 1: squared[t] = ‖Âx − e‖²,
// fit[t] = (Âx)_k.
void LaneResidual(const Structure& structure, int first, int width, const Vec8* v, const Vec8* x,
                  Vec8* squared, Vec8* fit);

// g = Âᵀ(e − Âx) for the same targets.
void LaneGradient(const Structure& structure, int first, int width, const Vec8* v, const Vec8* x,
                  Vec8* g);

}  // namespace spaid::kernels
