#include "kernels/krylov/cuda/cg.h"
#include "kernels/krylov/cuda/persistent_smem_block.h"

namespace spaid::cuda::cg {
namespace {

enum Halo { kR, kP, kD };

// The same recursion as the phases, but that x takes its step when the residual after it is known.
template <int kRows>
__global__ void __launch_bounds__(kChipThreads, 1)
    OnChipKernel(ChipRef a, ChipSpace space, int iterations, SolveState* there, Vectors vectors) {
  __shared__ SolveState state;
  if (there->status != SegmentEnd::kRunning) return;
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
  for (int i = 0; i < iterations; ++i) {
    const double beta = state.beta;
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
    chip.Tell(q, 0);
    double of_q[1] = {};
    chip.ForOwn([&](int u, int32_t) { of_q[0] = fma(p[u], q[u], of_q[0]); });
    chip.Meet(of_q, [&](const double(&total)[1]) { TakeAlpha(state, total[0]); });
    if (state.status != SegmentEnd::kRunning) break;

    const double alpha = state.alpha;
    double of_r[2] = {};
    chip.ForOwn([&](int u, int32_t) {
      r[u] = fma(-alpha, q[u], r[u]);
      of_r[0] = fma(r[u], r[u], of_r[0]);
      of_r[1] = fma(r[u] * d[u], r[u], of_r[1]);
    });
    chip.ForHalo(
        [&](int32_t h) { chip.halo(kR, h) = fma(-alpha, chip.Told(0, h), chip.halo(kR, h)); });
    chip.Meet(of_r, [&](const double(&total)[2]) {
      RecordNorm(state, sqrt(total[0]));
      TakeRho(state, total[1]);
    });
    if (state.save_best != 0) chip.Store(x, vectors.best);
    chip.ForOwn([&](int u, int32_t) { x[u] = fma(alpha, p[u], x[u]); });
    if (state.status != SegmentEnd::kRunning) break;
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
    constexpr int kMeetings = 2;  // of an iteration
    LaunchChip(context, a, &OnChipKernel<rows>, a.ref(), memory.Next(kMeetings * iterations),
               iterations, state, vectors);
  });
}

}  // namespace spaid::cuda::cg
