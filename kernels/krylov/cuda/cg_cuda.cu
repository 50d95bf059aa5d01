#include "kernels/krylov/cuda/solve_cuda.h"

namespace spaid::cuda {
namespace {

// z = M r where M is not explicit: element i of r, or that times the diagonal.
template <bool kDiagonal>
__device__ double Preconditioned(const double* diagonal, const double* r, int64_t i) {
  return kDiagonal ? diagonal[i] * r[i] : r[i];
}

__device__ void CheckRho(SolveState& state) {
  if (state.status != kSpaidCudaSolveRunning) return;  // looked at where the next segment begins
  if (!isfinite(state.rho)) {
    state.status = kSpaidCudaSolveNonFiniteM;
  } else if (state.rho <= 0) {
    state.status = kSpaidCudaSolveIndefiniteM;
  }
  state.value = state.rho;
}

// rho = rᵀz, and beta from it.
__device__ void TakeRho(SolveState& state, double rho) {
  state.beta = state.fresh != 0 ? 0 : rho / state.rho;
  state.rho = rho;
  CheckRho(state);
}

template <bool kDiagonal>
__global__ void __launch_bounds__(kSumThreads)
    StartKernel(int64_t n, const double* diagonal, const double* r, SolveState* state,
                SumSpace space) {
  double sums[1] = {};
  ForOwn(n, [&](int64_t i) { sums[0] += r[i] * Preconditioned<kDiagonal>(diagonal, r, i); });
  SumGrid(sums, space, [&](const double(&total)[1]) { TakeRho(*state, total[0]); });
}

__global__ void ResumeKernel(SolveState* state) { CheckRho(*state); }

// The sum rᵀz beside z = M r.
struct ResidualProduct {
  static constexpr int kSums = 1;
  const double* r;
  SolveState* state;
  SumSpace space;

  __device__ bool Skip() const { return state->status != kSpaidCudaSolveRunning; }
  __device__ void Row(int64_t i, double z, double (&sums)[1]) const { sums[0] += r[i] * z; }
  __device__ void Finish(double (&sums)[1]) const {
    SumGrid(sums, space, [this](const double(&total)[1]) { TakeRho(*state, total[0]); });
  }
};

// p = z + beta p. Where the iterate before the last is the best one, it is kept: x has moved by
// alpha p since.
template <bool kDiagonal>
__global__ void __launch_bounds__(kSumThreads)
    DirectionKernel(int64_t n, const double* diagonal, const double* __restrict__ z,
                    const double* __restrict__ x, double* __restrict__ p, double* __restrict__ best,
                    const SolveState* state) {
  if (state->status != kSpaidCudaSolveRunning) return;
  const double beta = state->beta, alpha = state->alpha;
  const bool fresh = state->fresh != 0, save = state->save_best != 0;
  ForOwn(n, [&](int64_t i) {
    const double old = fresh ? 0 : p[i];
    if (save) best[i] = x[i] - alpha * old;
    p[i] = Preconditioned<kDiagonal>(diagonal, z, i) + beta * old;
  });
}

// The same at the end of a segment, where no direction follows.
__global__ void __launch_bounds__(kSumThreads)
    KeepKernel(int64_t n, const double* x, const double* p, double* best, const SolveState* state) {
  if (state->save_best == 0) return;
  const double alpha = state->alpha;
  ForOwn(n, [&](int64_t i) { best[i] = x[i] - alpha * p[i]; });
}

__global__ void KeptKernel(SolveState* state) { state->save_best = 0; }

// The sum pᵀq beside q = A p, and alpha from it.
struct DirectionProduct {
  static constexpr int kSums = 1;
  const double* p;
  SolveState* state;
  SumSpace space;

  __device__ bool Skip() const { return state->status != kSpaidCudaSolveRunning; }
  __device__ void Row(int64_t i, double q, double (&sums)[1]) const { sums[0] += p[i] * q; }
  __device__ void Finish(double (&sums)[1]) const {
    SumGrid(sums, space, [this](const double(&total)[1]) {
      state->fresh = state->save_best = 0;
      const double pq = state->value = total[0];
      if (!isfinite(pq)) {
        state->status = kSpaidCudaSolveNonFiniteA;
      } else if (pq <= 0) {
        state->status = kSpaidCudaSolveIndefiniteA;
      } else {
        state->alpha = state->rho / pq;
      }
    });
  }
};

// x += alpha p, r -= alpha q, and the sums rᵀr and, where M is a diagonal, rᵀz.
template <bool kDiagonal>
__global__ void __launch_bounds__(kSumThreads)
    StepKernel(int64_t n, bool is_explicit, const double* diagonal, const double* __restrict__ p,
               const double* __restrict__ q, double* __restrict__ x, double* __restrict__ r,
               SolveState* state, SumSpace space) {
  if (state->status != kSpaidCudaSolveRunning) return;
  const double alpha = state->alpha;
  double sums[2] = {};
  ForOwn(n, [&](int64_t i) {
    x[i] += alpha * p[i];
    const double own = r[i] - alpha * q[i];
    r[i] = own;
    sums[0] += own * own;
    if (kDiagonal) sums[1] += own * diagonal[i] * own;
  });
  SumGrid(sums, space, [&](const double(&total)[2]) {
    RecordNorm(*state, sqrt(total[0]));
    if (!is_explicit) TakeRho(*state, kDiagonal ? total[1] : total[0]);
  });
}

// Hestenes, Stiefel 1952; preconditioned as Saad 2003, algorithm 9.1.
class Cg final : public Solve {
 public:
  Cg(Context& context, const Operator& a, const Operator* m, const double* b, const double* x0)
      : Solve(context, a, m, b, x0),
        diagonal_(DiagonalOf(m)),
        is_explicit_(m != nullptr && diagonal_ == nullptr),
        p_(Vector()),
        q_(Vector()) {
    if (is_explicit_) z_ = Vector();
  }

 private:
  void Start(const SpaidCudaSolveStart&) override {
    if (is_explicit_) return;  // the first product gives rho
    const auto kernel = diagonal_ != nullptr ? StartKernel<true> : StartKernel<false>;
    kernel<<<blocks(), kSumThreads, 0, context_.stream>>>(n_, diagonal_, r_.get(), state(), sums());
    CheckLaunch("StartKernel");
  }

  void Resume() override {
    if (is_explicit_) return;
    ResumeKernel<<<1, 1, 0, context_.stream>>>(state());
    CheckLaunch("ResumeKernel");
  }

  void Iterate() override {
    if (is_explicit_) {
      Product(context_, *m_, r_.get(), z_.get(), ResidualProduct{r_.get(), state(), sums()});
    }
    const double* const z = is_explicit_ ? z_.get() : r_.get();
    const auto direction = diagonal_ != nullptr ? DirectionKernel<true> : DirectionKernel<false>;
    direction<<<blocks(), kSumThreads, 0, context_.stream>>>(n_, diagonal_, z, x_.get(), p_.get(),
                                                             best_.get(), state());
    CheckLaunch("DirectionKernel");
    Product(context_, a_, p_.get(), q_.get(), DirectionProduct{p_.get(), state(), sums()});
    const auto step = diagonal_ != nullptr ? StepKernel<true> : StepKernel<false>;
    step<<<blocks(), kSumThreads, 0, context_.stream>>>(
        n_, is_explicit_, diagonal_, p_.get(), q_.get(), x_.get(), r_.get(), state(), sums());
    CheckLaunch("StepKernel");
  }

  void Settle() override {
    KeepKernel<<<blocks(), kSumThreads, 0, context_.stream>>>(n_, x_.get(), p_.get(), best_.get(),
                                                              state());
    CheckLaunch("KeepKernel");
    KeptKernel<<<1, 1, 0, context_.stream>>>(state());
    CheckLaunch("KeptKernel");
  }

  int64_t bytes_per_iteration() const override {
    const int64_t products = BytesPerProduct(a_) + (m_ != nullptr ? BytesPerProduct(*m_) : 0);
    return products + 8 * n_ * 9;
  }

  const double* const diagonal_;  // of M; null: M is none, or explicit
  const bool is_explicit_;
  Buffer<double> p_, q_, z_;
};

}  // namespace

std::unique_ptr<Solve> MakeCg(Context& context, const Operator& a, const Operator* m,
                              const double* b, const double* x0) {
  return std::make_unique<Cg>(context, a, m, b, x0);
}

}  // namespace spaid::cuda
