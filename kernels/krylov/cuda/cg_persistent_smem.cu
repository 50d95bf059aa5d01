#include "kernels/krylov/cuda/cg.h"
#include "kernels/krylov/cuda/persistent_smem_block.h"

namespace spaid::cuda::cg {
namespace {

enum Halo { kR, kP, kD };

// The recursion of cg.cu, but x is updated after the residual is known.
template <int kRows>
__global__ void __launch_bounds__(kSmemThreads, 1)
    PersistentSmemKernel(SmemCsrRef a, SmemExchange space, int iterations, SolveState* there,
                         Vectors vectors) {
  __shared__ SolveState state;
  if (there->status != SegmentEnd::kRunning) return;
  if (threadIdx.x == 0) state = *there;
  PersistentBlock<kRows> block(a, space);
  OwnRows<kRows> x, r, p, q, d;
  block.Load(vectors.x, x);
  block.Load(vectors.r, r);
  block.Load(vectors.p, p);
  block.Load(vectors.diagonal, d);
  block.LoadHalo(vectors.r, kR);
  block.LoadHalo(vectors.p, kP);
  block.LoadHalo(vectors.diagonal, kD);
  for (int i = 0; i < iterations; ++i) {
    const double beta = state.beta;
    const bool fresh = state.fresh != 0;
    const auto next = [&](double r_at, double p_at, double d_at) {
      return fma(beta, fresh ? 0 : p_at, d_at * r_at);
    };
    block.ForOwn([&](int u, int32_t at) { block.x(at) = p[u] = next(r[u], p[u], d[u]); });
    block.ForHalo([&](int32_t h) {
      block.x_halo(h) = block.halo(kP, h) =
          next(block.halo(kR, h), block.halo(kP, h), block.halo(kD, h));
    });
    block.Multiply(q);
    block.Publish(q, 0);
    double of_q[1] = {};
    block.ForOwn([&](int u, int32_t) { of_q[0] = fma(p[u], q[u], of_q[0]); });
    block.SumGrid(of_q, [&](const double(&total)[1]) { TakeAlpha(state, total[0]); });
    if (state.status != SegmentEnd::kRunning) break;

    const double alpha = state.alpha;
    double of_r[2] = {};
    block.ForOwn([&](int u, int32_t) {
      r[u] = fma(-alpha, q[u], r[u]);
      of_r[0] = fma(r[u], r[u], of_r[0]);
      of_r[1] = fma(r[u] * d[u], r[u], of_r[1]);
    });
    block.ForHalo([&](int32_t h) {
      block.halo(kR, h) = fma(-alpha, block.Published(0, h), block.halo(kR, h));
    });
    block.SumGrid(of_r, [&](const double(&total)[2]) {
      RecordNorm(state, sqrt(total[0]));
      TakeRho(state, total[1]);
    });
    if (state.save_best != 0) block.Store(x, vectors.best);
    block.ForOwn([&](int u, int32_t) { x[u] = fma(alpha, p[u], x[u]); });
    if (state.status != SegmentEnd::kRunning) break;
  }
  block.Store(x, vectors.x);
  block.Store(r, vectors.r);
  block.Store(p, vectors.p);
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
    constexpr int kBarriers = 2;  // an iteration
    LaunchSmemKernel(context, a, &PersistentSmemKernel<rows>, a.ref(),
                     memory.Next(kBarriers * iterations), iterations, state, vectors);
  });
}

}  // namespace spaid::cuda::cg
