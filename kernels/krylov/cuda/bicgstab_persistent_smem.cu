#include "kernels/krylov/cuda/bicgstab.h"
#include "kernels/krylov/cuda/persistent_smem_block.h"

namespace spaid::cuda::bicgstab {
namespace {

enum Halo { kR, kP, kV, kD };
enum Product { kOfP, kOfS };

// The same recursion as the phases, with two differences in when something is done: s is summed
// with t, so that a half step is seen one product later; and x takes its steps when the residual
// after them is known.
template <int kRows>
__global__ void __launch_bounds__(kChipThreads, 1)
    OnChipKernel(ChipRef a, ChipSpace space, int iterations, SolveState* there, Vectors vectors) {
  __shared__ SolveState state;
  if (there->status != SegmentEnd::kRunning) return;
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
  for (int i = 0; i < iterations; ++i) {
    {
      const double beta = state.beta, omega = state.omega;
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
    }
    chip.Multiply(v);
    chip.Tell(v, kOfP);
    double of_v[2] = {};
    chip.ForOwn([&](int u, int32_t) {
      of_v[0] = fma(shadow[u], v[u], of_v[0]);
      of_v[1] = fma(v[u], v[u], of_v[1]);
    });
    chip.Meet(of_v, [&](const double(&total)[2]) { TakeAlpha(state, total[0], total[1]); });
    if (state.status != SegmentEnd::kRunning) break;

    const double alpha = state.alpha;
    chip.ForHalo([&](int32_t h) {
      const double v_at = chip.halo(kV, h) = chip.Told(kOfP, h);
      const double own = chip.halo(kR, h) = fma(-alpha, v_at, chip.halo(kR, h));
      chip.x_halo(h) = chip.halo(kD, h) * own;
    });
    double of_t[3] = {};  // with s, itself; s with itself
    chip.ForOwn([&](int u, int32_t at) {
      r[u] = fma(-alpha, v[u], r[u]);
      chip.x(at) = d[u] * r[u];
      of_t[2] = fma(r[u], r[u], of_t[2]);
    });
    chip.Multiply(t);
    chip.Tell(t, kOfS);
    chip.ForOwn([&](int u, int32_t) {
      of_t[0] = fma(t[u], r[u], of_t[0]);
      of_t[1] = fma(t[u], t[u], of_t[1]);
    });
    chip.Meet(of_t, [&](const double(&total)[3]) {
      TakeHalfStep(state, total[2]);
      if (state.status == SegmentEnd::kRunning) TakeOmega(state, total[0], total[1]);
    });
    if (state.status != SegmentEnd::kRunning) break;

    const double omega = state.omega;
    double of_r[2] = {};
    chip.ForOwn([&](int u, int32_t) {
      const double own = fma(-omega, t[u], r[u]);
      of_r[0] = fma(own, own, of_r[0]);
      of_r[1] = fma(shadow[u], own, of_r[1]);
    });
    chip.ForHalo(
        [&](int32_t h) { chip.halo(kR, h) = fma(-omega, chip.Told(kOfS, h), chip.halo(kR, h)); });
    chip.Meet(of_r, [&](const double(&total)[2]) { TakeResidual(state, total[0], total[1]); });
    if (state.save_best != 0) chip.Store(x, vectors.best);
    chip.ForOwn([&](int u, int32_t) {
      x[u] = fma(omega, d[u] * r[u], fma(alpha, d[u] * p[u], x[u]));
      r[u] = fma(-omega, t[u], r[u]);
    });
    if (state.status != SegmentEnd::kRunning) break;
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
    constexpr int kMeetings = 3;  // of an iteration
    LaunchChip(context, a, &OnChipKernel<rows>, a.ref(), memory.Next(kMeetings * iterations),
               iterations, state, vectors);
  });
}

}  // namespace spaid::cuda::bicgstab
