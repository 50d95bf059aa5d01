#include "kernels/krylov/cuda/cg_cuda.h"

namespace spaid::cuda::cg {
namespace {

enum Halo { kR, kP, kD };
enum Step { kDirection, kStep, kSteps };

// The same recursion as the phases, but that x takes its step when the residual after it is known.
template <int kRows>
__global__ void __launch_bounds__(kChipThreads, 1)
    OnChipKernel(ChipRef a, ChipSpace space, int iterations, SolveState* there, Vectors vectors) {
  __shared__ SolveState state;
  if (there->status != kSpaidCudaSolveRunning) return;
  if (threadIdx.x == 0) state = *there;
  Chip<kRows> chip(a, space);
  ChipOwn<kRows> x, r, p, q, d;
  chip.Load(vectors.x, x);
  chip.Load(vectors.r, r);
  chip.Load(vectors.p, p);
  chip.Load(vectors.diagonal, d);
  chip.LoadHalo(vectors.r, kR);
  chip.LoadHalo(vectors.p, kP);
  chip.LoadHalo(vectors.diagonal, kD);
  int step = kDirection;
  while (iterations > 0) {
    double sums[kChipSums] = {};
    const double alpha = state.alpha, beta = state.beta;
    if (step == kDirection) {
      const bool fresh = state.fresh != 0;
      const auto next = [&](double r_at, double p_at, double d_at) {
        return fma(beta, fresh ? 0 : p_at, d_at * r_at);
      };
      chip.ForOwn([&](int u, int32_t at) { chip.x(at) = p[u] = next(r[u], p[u], d[u]); });
      chip.ForHalo([&](int32_t h) {
        chip.x_halo(h) = chip.halo(kP, h) =
            next(chip.halo(kR, h), chip.halo(kP, h), chip.halo(kD, h));
      });
      chip.Multiply(q);
      chip.TellAll(q, 0);
      chip.ForOwn([&](int u, int32_t) { sums[0] = fma(p[u], q[u], sums[0]); });
    } else {
      chip.ForHalo(
          [&](int32_t h) { chip.halo(kR, h) = fma(-alpha, chip.x_halo(h), chip.halo(kR, h)); });
      chip.ForOwn([&](int u, int32_t) {
        r[u] = fma(-alpha, q[u], r[u]);
        sums[0] = fma(r[u], r[u], sums[0]);
        sums[1] = fma(r[u] * d[u], r[u], sums[1]);
      });
    }
    chip.Meet(sums, step == kDirection ? 0 : -1, [&](const double(&total)[kChipSums]) {
      if (step == kDirection) {
        TakeAlpha(state, total[0]);
      } else {
        RecordNorm(state, sqrt(total[0]));
        TakeRho(state, total[1]);
      }
    });
    if (step == kStep) {
      if (state.save_best != 0) chip.Store(x, vectors.best);
      chip.ForOwn([&](int u, int32_t) { x[u] = fma(alpha, p[u], x[u]); });
      --iterations;
    }
    if (state.status != kSpaidCudaSolveRunning) break;
    step = (step + 1) % kSteps;
  }
  chip.Store(x, vectors.x);
  chip.Store(r, vectors.r);
  chip.Store(p, vectors.p);
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

}  // namespace spaid::cuda::cg
