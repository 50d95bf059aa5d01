#include <cmath>
#include <optional>

#include "kernels/krylov/cuda/bicgstab.h"
#include "kernels/krylov/cuda/solve.h"

namespace spaid::cuda {
namespace {

using bicgstab::IsHalfStep;

// A number in [-1, 1), a function of (i, round) alone: the same as in kernels/krylov/bicgstab.cc.
__device__ double Noise(int64_t i, int round) {
  uint64_t h = static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(round + 1);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
  h ^= h >> 31;
  return static_cast<double>(h >> 11) * 0x1.0p-52 - 1.0;
}

// Sets shadow residual and direction of one column from r. `hat` not null: M p for a diagonal M.
template <int kColumns>
__global__ void __launch_bounds__(kSumThreads)
    StartKernel(int64_t n, int column, int round, double amplitude, const double* __restrict__ r,
                const double* __restrict__ diagonal, double* __restrict__ shadow,
                double* __restrict__ p, double* __restrict__ hat, SolveState* states,
                SumSpace space) {
  const bool wanted = Column<kColumns>() == column;
  double sums[kColumns][3] = {};
  ForOwn<kColumns>(wanted ? n : 0, [&](int64_t i, int64_t at, int slot) {
    const double own = r[at], s = round == 0 ? own : fma(amplitude, Noise(i, round), own);
    p[at] = own;
    shadow[at] = s;
    if (hat != nullptr) hat[at] = diagonal[i] * own;
    sums[slot][0] = fma(own, s, sums[slot][0]);
    sums[slot][1] = fma(s, s, sums[slot][1]);
    sums[slot][2] = fma(own, own, sums[slot][2]);
  });
  SumGrid(sums, space, [&](const double(&total)[3]) {
    if (!wanted) return;
    SolveState& state = states[column];
    state.rho = total[0];
    state.shadow_norm = sqrt(total[1]);
    state.r_norm = sqrt(total[2]);
  });
}

// Before the first iteration of a segment: checks beta, which the previous segment left.
__global__ void ResumeKernel(SolveState* states) {
  SolveState& state = states[threadIdx.x];
  if (state.status == SegmentEnd::kRunning && state.fresh == 0 && !isfinite(state.beta)) {
    state.status = SegmentEnd::kNonFiniteBeta;
  }
}

// r becomes s = r − alpha v. `hat` not null: M s for a diagonal M.
template <int kColumns>
struct Half : Running<kColumns> {
  static __device__ constexpr bool EndsInSum() { return true; }

  int64_t n;
  const double *v, *diagonal;
  double *r, *hat;

  __device__ void Run() const {
    SolveState& state = this->state();
    const bool runs = !this->Skip();
    if (!AnyRuns<kColumns>(runs)) return;
    double sums[kColumns][1] = {};
    Body(this->space, runs ? n : 0, state.alpha, v, diagonal, r, hat, sums);
    SumGrid(sums, this->space, [&](const double(&total)[1]) {
      if (runs) bicgstab::TakeHalfStep(state, total[0]);
    });
  }

 private:
  static __device__ void Body(const SumSpace& space, int64_t n, double alpha,
                              const double* __restrict__ v, const double* __restrict__ diagonal,
                              double* __restrict__ r, double* __restrict__ hat,
                              double (&sums)[kColumns][1]) {
    ForOwn<kColumns>(space, n, [&](int64_t i, int64_t at, int slot) {
      const double s = fma(-alpha, v[at], r[at]);
      r[at] = s;
      if (hat != nullptr) hat[at] = diagonal[i] * s;
      sums[slot][0] = fma(s, s, sums[slot][0]);
    });
  }
};

// x += alpha M p + omega M s, r = s − omega t, with r's sums.
template <int kColumns>
struct Full : Running<kColumns> {
  static __device__ constexpr bool EndsInSum() { return true; }

  int64_t n;
  const double *p_hat, *s_hat, *t, *shadow;
  double *x, *r;

  __device__ void Run() const {
    SolveState& s = this->state();
    const bool runs = !this->Skip();
    if (!AnyRuns<kColumns>(runs)) return;
    double sums[kColumns][2] = {};
    Body(this->space, runs ? n : 0, s, p_hat, s_hat, t, shadow, x, r, sums);
    SumGrid(sums, this->space, [&](const double(&total)[2]) {
      if (runs) bicgstab::TakeResidual(s, total[0], total[1]);
    });
  }

 private:
  static __device__ void Body(const SumSpace& space, int64_t n, const SolveState& state,
                              const double* __restrict__ p_hat, const double* s_hat,
                              const double* __restrict__ t, const double* __restrict__ shadow,
                              double* __restrict__ x, double* r, double (&sums)[kColumns][2]) {
    const double alpha = state.alpha, omega = state.omega;
    ForOwn<kColumns>(space, n, [&](int64_t, int64_t at, int slot) {
      // Without a preconditioner s_hat is r itself: x first.
      x[at] = fma(omega, s_hat[at], fma(alpha, p_hat[at], x[at]));
      const double own = fma(-omega, t[at], r[at]);
      r[at] = own;
      sums[slot][0] = fma(own, own, sums[slot][0]);
      sums[slot][1] = fma(shadow[at], own, sums[slot][1]);
    });
  }
};

// The vectors of a finished iteration, from which the iterate before it can be had. Without M p_hat
// is p, and s_hat null: s is r + omega t.
struct FinishedIteration {
  const double *x, *r, *t, *p_hat, *s_hat;
  __device__ double Before(int64_t at, double alpha, double omega) const {
    const double s = s_hat != nullptr ? s_hat[at] : fma(omega, t[at], r[at]);
    return fma(-alpha, p_hat[at], fma(-omega, s, x[at]));
  }
};

// p = r + beta (p − omega v), and, where M is a diagonal, M p. Where the iterate before the last is
// the best one, it is saved.
template <int kColumns>
struct Direction : Running<kColumns> {
  static __device__ constexpr bool EndsInSum() { return false; }

  int64_t n;
  FinishedIteration finished;
  const double *v, *diagonal;
  double *p, *hat, *best;

  __device__ void Run() const {
    const SolveState& state = this->state();
    if (this->Skip() || state.fresh != 0) return;
    Body(this->space, n, finished, v, diagonal, p, hat, best, state);
  }

 private:
  static __device__ void Body(const SumSpace& space, int64_t n, const FinishedIteration& finished,
                              const double* __restrict__ v, const double* diagonal, double* p,
                              double* hat, double* __restrict__ best, const SolveState& state) {
    const double alpha = state.alpha, beta = state.beta, omega = state.omega;
    const bool save = state.save_best != 0;
    ForOwn<kColumns>(space, n, [&](int64_t i, int64_t at, int) {
      if (save) best[at] = finished.Before(at, alpha, omega);
      const double own = fma(beta, fma(-omega, v[at], p[at]), finished.r[at]);
      p[at] = own;
      if (hat != nullptr) hat[at] = diagonal[i] * own;
    });
  }
};

// At the end of a segment: counts a half step as an iteration; its status stays.
__global__ void RecordHalfStepKernel(SolveState* states) {
  SolveState& state = states[threadIdx.x];
  const SegmentEnd status = state.status;
  if (!IsHalfStep(status)) return;
  RecordNorm(state, state.s_norm);
  state.status = status;
}

// Then, as no direction follows: x takes the half step, and the iterate before the last is saved
// where it is the best.
template <int kColumns>
__global__ void __launch_bounds__(kSumThreads)
    SettleKernel(int64_t n, FinishedIteration finished, double* x, double* best,
                 const SolveState* states) {
  const SolveState& state = states[Column<kColumns>()];
  const bool save = state.save_best != 0, half_step = IsHalfStep(state.status);
  if (!save && !half_step) return;
  const double alpha = state.alpha, omega = state.omega;
  ForOwn<kColumns>(n, [&](int64_t, int64_t at, int) {
    if (save) best[at] = half_step ? x[at] : finished.Before(at, alpha, omega);
    if (half_step) x[at] = fma(alpha, finished.p_hat[at], x[at]);
  });
}

__global__ void SettledKernel(SolveState* states) { states[threadIdx.x].save_best = 0; }

// van der Vorst 1992, right-preconditioned.
template <int kColumns>
class Bicgstab final : public Solve {
 public:
  Bicgstab(Context& context, const Operator& a, const Factors& m, const RightHandSides& rhs)
      : Solve(context, a, m, rhs),
        diagonal_(DiagonalOf(m.first)),
        smem_a_(SmemLayout(a, m.first)),
        shadow_(Vector()),
        p_(Vector()),
        v_(Vector()),
        t_(smem_a_ == nullptr ? Vector() : Buffer<double>()) {
    if (m.first != nullptr) {
      p_hat_ = Vector();
      if (smem_a_ == nullptr) s_hat_ = Vector();
    }
    if (smem_a_ != nullptr) exchange_.emplace(context, *smem_a_, n_);
  }

 private:
  void Start(int column, const SolveStart& start) override {
    const double amplitude = start.round == 0 ? 0 : start.norm / std::sqrt(static_cast<double>(n_));
    StartKernel<kColumns><<<blocks(), kSumThreads, 0, context_.stream>>>(
        n_, column, start.round, amplitude, r_.get(), diagonal_, shadow_.get(), p_.get(),
        hat(p_hat_), states(), sums());
    CheckLaunch("StartKernel");
  }

  void Resume() override {
    ResumeKernel<<<1, kColumns, 0, context_.stream>>>(states());
    CheckLaunch("ResumeKernel");
  }

  // Calls use(steps...) with the steps of an iteration.
  template <class Use>
  auto WithSteps(const Use& use) const {
    const Running<kColumns> running{states(), sums()};
    const Direction<kColumns> direction{running,   n_,       finished(),  v_.get(),
                                        diagonal_, p_.get(), hat(p_hat_), best_.get()};
    const ProductStep first(
        a_, p_hat(), v_.get(),
        ProductEnd<kColumns, 2>{running, shadow_.get(), Scalar::kBicgstabAlpha});
    const Half<kColumns> half{running, n_, v_.get(), diagonal_, r_.get(), hat(s_hat_)};
    const ProductStep second(a_, s_hat(), t_.get(),
                             ProductEnd<kColumns, 2>{running, r_.get(), Scalar::kBicgstabOmega});
    const Full<kColumns> full{running,       n_,       p_hat(), s_hat(), t_.get(),
                              shadow_.get(), x_.get(), r_.get()};
    // With a diagonal M the steps themselves write M p and M s.
    if (!has_m() || diagonal_ != nullptr) return use(direction, first, half, second, full);
    const ProductEnd<kColumns, 0> plain{running};
    double* const between = between_.get();
    if (m_.then != nullptr) {
      return use(direction, ProductStep(*m_.first, p_.get(), between, plain),
                 ProductStep(*m_.then, between, p_hat_.get(), plain), first, half,
                 ProductStep(*m_.first, r_.get(), between, plain),
                 ProductStep(*m_.then, between, s_hat_.get(), plain), second, full);
    }
    return use(direction, ProductStep(*m_.first, p_.get(), p_hat_.get(), plain), first, half,
               ProductStep(*m_.first, r_.get(), s_hat_.get(), plain), second, full);
  }

  void Iterate() override {
    WithSteps([this](const auto&... steps) { (LaunchStep(context_, blocks(), steps), ...); });
  }

  bool IteratePersistently(int iterations) override {
    if constexpr (kColumns == 1) {
      if (exchange_.has_value()) {
        bicgstab::LaunchPersistentSmem(context_, *smem_a_, *exchange_, iterations, states(),
                                       {shadow_.get(), diagonal_, x_.get(), r_.get(), p_.get(),
                                        v_.get(), hat(p_hat_), best_.get()});
        return true;
      }
      return WithSteps([&](const auto&... steps) {
        return LaunchPersistentSteps(context_, blocks(), iterations, states(), sums(), steps...);
      });
    }
    return false;
  }

  void Settle() override {
    RecordHalfStepKernel<<<1, kColumns, 0, context_.stream>>>(states());
    CheckLaunch("RecordHalfStepKernel");
    SettleKernel<kColumns><<<blocks(), kSumThreads, 0, context_.stream>>>(n_, finished(), x_.get(),
                                                                          best_.get(), states());
    CheckLaunch("SettleKernel");
    SettledKernel<<<1, kColumns, 0, context_.stream>>>(states());
    CheckLaunch("SettledKernel");
  }

  Traffic traffic() const override { return Count(2, has_m() ? 20 : 16); }

  double* hat(const Buffer<double>& of) const { return diagonal_ != nullptr ? of.get() : nullptr; }
  bool has_m() const { return m_.first != nullptr; }
  const double* p_hat() const { return has_m() ? p_hat_.get() : p_.get(); }
  const double* s_hat() const { return has_m() ? s_hat_.get() : r_.get(); }
  FinishedIteration finished() const {
    return {x_.get(), r_.get(), t_.get(), p_hat(), has_m() ? s_hat_.get() : nullptr};
  }

  const double* const diagonal_;  // M's; null: M is none, or explicit
  const SmemCsr* const smem_a_;   // A within shared memory; null: it does not fit
  Buffer<double> shadow_, p_, v_, t_, p_hat_, s_hat_;
  std::optional<SmemExchangeBuffers> exchange_;
};

}  // namespace

std::unique_ptr<Solve> MakeBicgstab(Context& context, const Operator& a, const Factors& m,
                                    const RightHandSides& rhs) {
  return WithColumns(rhs.columns, [&](auto columns) -> std::unique_ptr<Solve> {
    return std::make_unique<Bicgstab<columns>>(context, a, m, rhs);
  });
}

}  // namespace spaid::cuda
