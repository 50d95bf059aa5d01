#include <optional>

#include "kernels/krylov/cuda/cg.h"
#include "kernels/krylov/cuda/solve.h"

namespace spaid::cuda {
namespace {

// z = M r where M is none or a diagonal: element `at` of r, in row i, times the diagonal.
template <bool kDiagonal>
__device__ double Preconditioned(const double* diagonal, const double* r, int64_t i, int64_t at) {
  return kDiagonal ? diagonal[i] * r[at] : r[at];
}

// rho of one column at the start of a recursion.
template <int kColumns, bool kDiagonal>
__global__ void __launch_bounds__(kSumThreads)
    StartKernel(int64_t n, int column, const double* diagonal, const double* r, SolveState* states,
                SumSpace space) {
  const bool wanted = Column<kColumns>() == column;
  double sums[kColumns][1] = {};
  ForOwn<kColumns>(wanted ? n : 0, [&](int64_t i, int64_t at, int slot) {
    sums[slot][0] = fma(r[at], Preconditioned<kDiagonal>(diagonal, r, i, at), sums[slot][0]);
  });
  SumGrid(sums, space, [&](const double(&total)[1]) {
    if (wanted) cg::TakeRho(states[column], total[0]);
  });
}

__global__ void ResumeKernel(SolveState* states) { cg::CheckRho(states[threadIdx.x]); }

// p = z + beta p. Where the iterate before the last is the best one, it is saved: x less alpha p.
template <int kColumns, bool kDiagonal>
struct Direction : Running<kColumns> {
  static __device__ constexpr bool EndsInSum() { return false; }

  int64_t n;
  const double *diagonal, *z, *x;
  double *p, *best;

  __device__ void Run() const {
    if (!this->Skip()) Body(this->space, n, diagonal, z, x, p, best, this->state());
  }

 private:
  static __device__ void Body(const SumSpace& space, int64_t n, const double* diagonal,
                              const double* __restrict__ z, const double* __restrict__ x,
                              double* __restrict__ p, double* __restrict__ best,
                              const SolveState& state) {
    const double beta = state.beta, alpha = state.alpha;
    const bool fresh = state.fresh != 0, save = state.save_best != 0;
    ForOwn<kColumns>(space, n, [&](int64_t i, int64_t at, int) {
      const double old = fresh ? 0 : p[at];
      if (save) best[at] = fma(-alpha, old, x[at]);
      p[at] = fma(beta, old, Preconditioned<kDiagonal>(diagonal, z, i, at));
    });
  }
};

// Saves the best iterate at the end of a segment, where no direction follows.
template <int kColumns>
__global__ void __launch_bounds__(kSumThreads)
    KeepKernel(int64_t n, const double* x, const double* p, double* best,
               const SolveState* states) {
  const SolveState& state = states[Column<kColumns>()];
  if (state.save_best == 0) return;
  const double alpha = state.alpha;
  ForOwn<kColumns>(n, [&](int64_t, int64_t at, int) { best[at] = fma(-alpha, p[at], x[at]); });
}

__global__ void KeptKernel(SolveState* states) { states[threadIdx.x].save_best = 0; }

// x += alpha p, r -= alpha q, with the sums rᵀr and, where M is a diagonal, rᵀz.
template <int kColumns, bool kDiagonal>
struct Step : Running<kColumns> {
  static __device__ constexpr bool EndsInSum() { return true; }

  int64_t n;
  bool is_explicit;
  const double *diagonal, *p, *q;
  double *x, *r;

  __device__ void Run() const {
    SolveState& state = this->state();
    const bool runs = !this->Skip();
    if (!AnyRuns<kColumns>(runs)) return;
    double sums[kColumns][2] = {};
    Body(this->space, runs ? n : 0, state.alpha, diagonal, p, q, x, r, sums);
    SumGrid(sums, this->space, [&](const double(&total)[2]) {
      if (!runs) return;
      RecordNorm(state, sqrt(total[0]));
      if (!is_explicit) cg::TakeRho(state, kDiagonal ? total[1] : total[0]);
    });
  }

 private:
  static __device__ void Body(const SumSpace& space, int64_t n, double alpha,
                              const double* diagonal, const double* __restrict__ p,
                              const double* __restrict__ q, double* __restrict__ x,
                              double* __restrict__ r, double (&sums)[kColumns][2]) {
    ForOwn<kColumns>(space, n, [&](int64_t i, int64_t at, int slot) {
      x[at] = fma(alpha, p[at], x[at]);
      const double own = fma(-alpha, q[at], r[at]);
      r[at] = own;
      sums[slot][0] = fma(own, own, sums[slot][0]);
      if (kDiagonal) sums[slot][1] = fma(own * diagonal[i], own, sums[slot][1]);
    });
  }
};

// Hestenes, Stiefel 1952; preconditioned as Saad 2003, algorithm 9.1.
template <int kColumns>
class Cg final : public Solve {
 public:
  Cg(Context& context, const Operator& a, const Factors& m, const RightHandSides& rhs)
      : Solve(context, a, m, rhs),
        diagonal_(DiagonalOf(m.first)),
        is_explicit_(m.first != nullptr && diagonal_ == nullptr),
        smem_a_(SmemLayout(a, m.first)),
        p_(Vector()),
        q_(Vector()) {
    if (is_explicit_) z_ = Vector();
    if (smem_a_ != nullptr) exchange_.emplace(context, *smem_a_, n_);
  }

 private:
  void Start(int column, const SolveStart&) override {
    if (is_explicit_) return;  // the first product gives rho
    const auto kernel =
        diagonal_ != nullptr ? StartKernel<kColumns, true> : StartKernel<kColumns, false>;
    kernel<<<blocks(), kSumThreads, 0, context_.stream>>>(n_, column, diagonal_, r_.get(), states(),
                                                          sums());
    CheckLaunch("StartKernel");
  }

  void Resume() override {
    if (is_explicit_) return;
    ResumeKernel<<<1, kColumns, 0, context_.stream>>>(states());
    CheckLaunch("ResumeKernel");
  }

  // Calls use(steps...) with the steps of an iteration.
  template <class Use>
  auto WithSteps(const Use& use) const {
    const Running<kColumns> running{states(), sums()};
    const ProductStep product(a_, p_.get(), q_.get(),
                              ProductEnd<kColumns, 1>{running, p_.get(), Scalar::kCgAlpha});
    const auto with = [&](auto diagonal, const double* z, const auto&... before) {
      const Direction<kColumns, diagonal> direction{running,  n_,       diagonal_,  z,
                                                    x_.get(), p_.get(), best_.get()};
      const Step<kColumns, diagonal> step{running,  n_,       is_explicit_, diagonal_,
                                          p_.get(), q_.get(), x_.get(),     r_.get()};
      return use(before..., direction, product, step);
    };
    const ProductEnd<kColumns, 1> rho{running, r_.get(), Scalar::kCgRho};
    if (m_.then != nullptr) {
      return with(
          std::false_type{}, z_.get(),
          ProductStep(*m_.first, r_.get(), between_.get(), ProductEnd<kColumns, 0>{running}),
          ProductStep(*m_.then, between_.get(), z_.get(), rho));
    }
    if (is_explicit_) {
      return with(std::false_type{}, z_.get(), ProductStep(*m_.first, r_.get(), z_.get(), rho));
    }
    return diagonal_ != nullptr ? with(std::true_type{}, r_.get())
                                : with(std::false_type{}, r_.get());
  }

  void Iterate() override {
    WithSteps([this](const auto&... steps) { (LaunchStep(context_, blocks(), steps), ...); });
  }

  bool IteratePersistently(int iterations) override {
    if constexpr (kColumns == 1) {
      if (exchange_.has_value()) {
        cg::LaunchPersistentSmem(context_, *smem_a_, *exchange_, iterations, states(),
                                 {diagonal_, x_.get(), r_.get(), p_.get(), best_.get()});
        return true;
      }
      return WithSteps([&](const auto&... steps) {
        return LaunchPersistentSteps(context_, blocks(), iterations, states(), sums(), steps...);
      });
    }
    return false;
  }

  void Settle() override {
    KeepKernel<kColumns><<<blocks(), kSumThreads, 0, context_.stream>>>(n_, x_.get(), p_.get(),
                                                                        best_.get(), states());
    CheckLaunch("KeepKernel");
    KeptKernel<<<1, kColumns, 0, context_.stream>>>(states());
    CheckLaunch("KeptKernel");
  }

  Traffic traffic() const override { return Count(1, 9); }

  const double* const diagonal_;  // M's; null: M is none, or explicit
  const bool is_explicit_;
  const SmemCsr* const smem_a_;  // A within shared memory; null: it does not fit
  Buffer<double> p_, q_, z_;
  std::optional<SmemExchangeBuffers> exchange_;
};

}  // namespace

std::unique_ptr<Solve> MakeCg(Context& context, const Operator& a, const Factors& m,
                              const RightHandSides& rhs) {
  return WithColumns(rhs.columns, [&](auto columns) -> std::unique_ptr<Solve> {
    return std::make_unique<Cg<columns>>(context, a, m, rhs);
  });
}

}  // namespace spaid::cuda
