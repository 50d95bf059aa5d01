#include "kernels/krylov/cuda/bicgstab.h"
#include "kernels/krylov/cuda/persistent_smem_block.h"

namespace spaid::cuda::bicgstab {
namespace {

enum Halo { kR, kP, kV, kD };
enum Product { kOfP, kOfS };

// The recursion of bicgstab.cu, with two differences in timing: s is summed together with t, so
// that a half step is noticed one product later; and x is updated after the residual is known.
template <int kRows>
__global__ void __launch_bounds__(kSmemThreads, 1)
    PersistentSmemKernel(SmemCsrRef a, SmemExchange space, int iterations, SolveState* there,
                         Vectors vectors) {
  __shared__ SolveState state;
  if (there->status != SegmentEnd::kRunning) return;
  if (threadIdx.x == 0) state = *there;
  PersistentBlock<kRows> block(a, space);
  OwnRows<kRows> x, r, p, v, t, shadow, d;
  block.Load(vectors.x, x);
  block.Load(vectors.r, r);
  block.Load(vectors.p, p);
  block.Load(vectors.v, v);
  block.Load(vectors.shadow, shadow);
  block.Load(vectors.diagonal, d);
  block.LoadHalo(vectors.r, kR);
  block.LoadHalo(vectors.p, kP);
  block.LoadHalo(vectors.v, kV);
  block.LoadHalo(vectors.diagonal, kD);
  for (int i = 0; i < iterations; ++i) {
    {
      const double beta = state.beta, omega = state.omega;
      const bool fresh = state.fresh != 0;
      const auto next = [&](double r_at, double p_at, double v_at) {
        return fresh ? p_at : fma(beta, fma(-omega, v_at, p_at), r_at);
      };
      block.ForOwn([&](int u, int32_t at) {
        p[u] = next(r[u], p[u], v[u]);
        block.x(at) = d[u] * p[u];
      });
      block.ForHalo([&](int32_t h) {
        const double own = next(block.halo(kR, h), block.halo(kP, h), block.halo(kV, h));
        block.halo(kP, h) = own;
        block.x_halo(h) = block.halo(kD, h) * own;
      });
    }
    block.Multiply(v);
    block.Publish(v, kOfP);
    double of_v[2] = {};
    block.ForOwn([&](int u, int32_t) {
      of_v[0] = fma(shadow[u], v[u], of_v[0]);
      of_v[1] = fma(v[u], v[u], of_v[1]);
    });
    block.SumGrid(of_v, [&](const double(&total)[2]) { TakeAlpha(state, total[0], total[1]); });
    if (state.status != SegmentEnd::kRunning) break;

    const double alpha = state.alpha;
    block.ForHalo([&](int32_t h) {
      const double v_at = block.halo(kV, h) = block.Published(kOfP, h);
      const double own = block.halo(kR, h) = fma(-alpha, v_at, block.halo(kR, h));
      block.x_halo(h) = block.halo(kD, h) * own;
    });
    double of_t[3] = {};  // tᵀs, tᵀt, sᵀs
    block.ForOwn([&](int u, int32_t at) {
      r[u] = fma(-alpha, v[u], r[u]);
      block.x(at) = d[u] * r[u];
      of_t[2] = fma(r[u], r[u], of_t[2]);
    });
    block.Multiply(t);
    block.Publish(t, kOfS);
    block.ForOwn([&](int u, int32_t) {
      of_t[0] = fma(t[u], r[u], of_t[0]);
      of_t[1] = fma(t[u], t[u], of_t[1]);
    });
    block.SumGrid(of_t, [&](const double(&total)[3]) {
      TakeHalfStep(state, total[2]);
      if (state.status == SegmentEnd::kRunning) TakeOmega(state, total[0], total[1]);
    });
    if (state.status != SegmentEnd::kRunning) break;

    const double omega = state.omega;
    double of_r[2] = {};
    block.ForOwn([&](int u, int32_t) {
      const double own = fma(-omega, t[u], r[u]);
      of_r[0] = fma(own, own, of_r[0]);
      of_r[1] = fma(shadow[u], own, of_r[1]);
    });
    block.ForHalo([&](int32_t h) {
      block.halo(kR, h) = fma(-omega, block.Published(kOfS, h), block.halo(kR, h));
    });
    block.SumGrid(of_r, [&](const double(&total)[2]) { TakeResidual(state, total[0], total[1]); });
    if (state.save_best != 0) block.Store(x, vectors.best);
    block.ForOwn([&](int u, int32_t) {
      x[u] = fma(omega, d[u] * r[u], fma(alpha, d[u] * p[u], x[u]));
      r[u] = fma(-omega, t[u], r[u]);
    });
    if (state.status != SegmentEnd::kRunning) break;
  }
  block.Store(x, vectors.x);
  block.Store(r, vectors.r);
  block.Store(p, vectors.p);
  block.Store(v, vectors.v);
  if (vectors.p_hat != nullptr && IsHalfStep(state.status)) {
    block.ForOwn([&](int u, int32_t) { p[u] *= d[u]; });
    block.Store(p, vectors.p_hat);
  }
  if (blockIdx.x != 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  state.save_best = 0;
  *there = state;
}

}  // namespace

void LaunchPersistentSmem(const Context& context, const SmemCsr& a, SmemExchangeBuffers& memory,
                          int iterations, SolveState* state, const Vectors& vectors) {
  WithRowsAThread(a, [&](auto rows) {
    constexpr int kBarriers = 3;  // an iteration
    LaunchSmemKernel(context, a, &PersistentSmemKernel<rows>, a.ref(),
                     memory.Next(kBarriers * iterations), iterations, state, vectors);
  });
}

}  // namespace spaid::cuda::bicgstab
