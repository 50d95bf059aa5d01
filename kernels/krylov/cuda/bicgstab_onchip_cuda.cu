#include "kernels/krylov/cuda/bicgstab_cuda.h"

namespace spaid::cuda::bicgstab {
namespace {

enum Halo { kR, kP, kV, kD };
enum Step { kDirection, kHalf, kFull, kSteps };

// The same recursion as the phases, with two differences in when something is done: s is summed
// with t, so that a half step is seen one product later; and x takes its steps when the residual
// after them is known.
template <int kRows>
__global__ void __launch_bounds__(kChipThreads, 1)
    OnChipKernel(ChipRef a, ChipSpace space, int iterations, SolveState* there, Vectors vectors) {
  __shared__ SolveState state;
  if (there->status != kSpaidCudaSolveRunning) return;
  if (threadIdx.x == 0) state = *there;
  Chip<kRows> chip(a, space);
  ChipOwn<kRows> x, r, p, v, t, shadow, d;
  chip.Load(vectors.x, x);
  chip.Load(vectors.r, r);
  chip.Load(vectors.p, p);
  chip.Load(vectors.v, v);
  chip.Load(vectors.shadow, shadow);
  chip.Load(vectors.diagonal, d);
  chip.LoadHalo(vectors.r, kR);
  chip.LoadHalo(vectors.p, kP);
  chip.LoadHalo(vectors.v, kV);
  chip.LoadHalo(vectors.diagonal, kD);
  int step = kDirection;
  while (iterations > 0) {
    double sums[kChipSums] = {};
    const double alpha = state.alpha, beta = state.beta, omega = state.omega;
    if (step == kDirection) {
      const bool fresh = state.fresh != 0;
      const auto next = [&](double r_at, double p_at, double v_at) {
        return fresh ? p_at : fma(beta, fma(-omega, v_at, p_at), r_at);
      };
      chip.ForOwn([&](int u, int32_t at) {
        p[u] = next(r[u], p[u], v[u]);
        chip.x(at) = d[u] * p[u];
      });
      chip.ForHalo([&](int32_t h) {
        const double own = next(chip.halo(kR, h), chip.halo(kP, h), chip.halo(kV, h));
        chip.halo(kP, h) = own;
        chip.x_halo(h) = chip.halo(kD, h) * own;
      });
    } else if (step == kHalf) {
      chip.ForHalo([&](int32_t h) {
        const double v_at = chip.x_halo(h), own = fma(-alpha, v_at, chip.halo(kR, h));
        chip.halo(kV, h) = v_at;
        chip.halo(kR, h) = own;
        chip.x_halo(h) = chip.halo(kD, h) * own;
      });
      chip.ForOwn([&](int u, int32_t at) {
        r[u] = fma(-alpha, v[u], r[u]);
        chip.x(at) = d[u] * r[u];
        sums[2] = fma(r[u], r[u], sums[2]);
      });
    } else {
      chip.ForHalo(
          [&](int32_t h) { chip.halo(kR, h) = fma(-omega, chip.x_halo(h), chip.halo(kR, h)); });
      chip.ForOwn([&](int u, int32_t) {
        const double own = fma(-omega, t[u], r[u]);
        sums[0] = fma(own, own, sums[0]);
        sums[1] = fma(shadow[u], own, sums[1]);
      });
    }
    if (step != kFull) {
      chip.Multiply(t);
      chip.TellAll(t, step);
      chip.ForOwn([&](int u, int32_t) {
        if (step == kDirection) v[u] = t[u];
        sums[0] = fma(step == kDirection ? shadow[u] : r[u], t[u], sums[0]);
        sums[1] = fma(t[u], t[u], sums[1]);
      });
    }
    chip.Meet(sums, step != kFull ? step : -1, [&](const double(&total)[kChipSums]) {
      if (step == kDirection) {
        TakeAlpha(state, total[0], total[1]);
      } else if (step == kHalf) {
        TakeHalfStep(state, total[2]);
        if (state.status == kSpaidCudaSolveRunning) TakeOmega(state, total[0], total[1]);
      } else {
        TakeResidual(state, total[0], total[1]);
      }
    });
    if (step == kFull) {
      if (state.save_best != 0) chip.Store(x, vectors.best);
      chip.ForOwn([&](int u, int32_t) {
        x[u] = fma(omega, d[u] * r[u], fma(alpha, d[u] * p[u], x[u]));
        r[u] = fma(-omega, t[u], r[u]);
      });
      --iterations;
    }
    if (state.status != kSpaidCudaSolveRunning) break;
    step = (step + 1) % kSteps;
  }
  chip.Store(x, vectors.x);
  chip.Store(r, vectors.r);
  chip.Store(p, vectors.p);
  chip.Store(v, vectors.v);
  if (vectors.p_hat != nullptr && IsHalfStep(state.status)) {
    chip.ForOwn([&](int u, int32_t) { p[u] *= d[u]; });
    chip.Store(p, vectors.p_hat);
  }
  if (blockIdx.x != 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  state.save_best = 0;
  *there = state;
}

}  // namespace

void LaunchOnChip(const Context& context, const ChipRows& a, ChipMemory& memory, int iterations,
                  SolveState* state, const Vectors& vectors) {
  WithChipRows(a, [&](auto rows) {
    LaunchChip(context, a, &OnChipKernel<rows>, a.ref(), memory.Next(kSteps * iterations),
               iterations, state, vectors);
  });
}

}  // namespace spaid::cuda::bicgstab
