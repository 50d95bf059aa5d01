#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/krylov/run.h"

namespace spaid::kernels::krylov {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
// The Krylov space is exhausted where so little of A M v is left beside the vectors before it.
constexpr double kExhausted = 10 * kEps;
// A has no inverse on the Krylov space where a diagonal entry of R is so small beside |T|.
constexpr double kSingular = 100 * kEps;

// With V the Lanczos vectors of A in the inner product of M, V₁ = r₀ / β₁, and T tridiagonal:
// A M V = V T, and x − x₀ = M V y makes ‖β₁e₁ − T y‖ the least. R = Q T is formed row by row, and
// W = M V R⁻¹ takes three vectors. The residual goes along, so that its 2-norm is known as well:
// rₖ = sₖ² rₖ₋₁ − cₖ φₖ vₖ₊₁.
class Minres {
 public:
  explicit Minres(Run& run)
      : run_(run),
        team_(run.team()),
        n_(static_cast<size_t>(run.team().n())),
        x_(run.system().x.data()),
        r_(n_),
        v_(n_),
        v_old_(n_),
        p_(n_),
        w1_(n_),
        w2_(n_),
        q_(run.has_m() ? n_ : 0),
        z_(run.has_m() ? n_ : 0) {}

  void Iterate() {
    if (!run_.Start(r_)) return;
    if (!Begin()) return;
    while (run_.MayIterate()) {
      switch (Step()) {
        case Next::kGoOn:
          break;
        case Next::kLeave:
          return;
        case Next::kTruth:  // the recursion has drifted; the true residual is in p
          std::swap(r_, p_);
          if (!Begin()) return;
          break;
        case Next::kBroken:
          if (!run_.RestartAfterBreakdown(r_, detail_)) return;
          if (!Begin()) return;
          break;
      }
    }
  }

 private:
  // False where the preconditioner is seen not to be positive definite by `square` = vᵀMv, v not
  // zero: ended.
  bool Definite(double square, const char* what) {
    if (!std::isfinite(square)) {
      run_.End(Outcome::kNonFinite,
               std::string(what) + " is not finite: the preconditioner overflows");
      return false;
    }
    if (square > 0) return true;
    const std::string text = std::string("the preconditioner is not positive definite: ") + what;
    run_.End(Outcome::kIndefinite, NotDefinite(text.c_str(), square, run_.iterations()));
    return false;
  }

  // The first Lanczos vector, from r. False: ended.
  bool Begin() {
    double square = 0;
    if (run_.has_m()) {
      run_.ApplyM(r_, q_);
      square = team_.Dot(r_, q_);
    } else {
      square = team_.Dot(r_, r_);
    }
    if (!Definite(square, "rᵀMr")) return false;
    const double beta = std::sqrt(square);
    const double* r = r_.data();
    double *v = v_.data(), *v_old = v_old_.data(), *w1 = w1_.data(), *w2 = w2_.data();
    double* q = run_.has_m() ? q_.data() : nullptr;
    team_.For([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) v[i] = r[i] / beta;
      if (q != nullptr) {
        for (int64_t i = begin; i < end; ++i) q[i] /= beta;
      }
      std::fill(v_old + begin, v_old + end, 0.0);
      std::fill(w1 + begin, w1 + end, 0.0);
      std::fill(w2 + begin, w2 + end, 0.0);
    });
    phi_bar_ = beta;
    beta_ = delta_bar_ = epsilon_ = s_ = 0;
    c_ = -1;
    return true;
  }

  Next NonFinite(const char* what) {
    run_.End(Outcome::kNonFinite, NotFinite(what, run_.iterations()));
    return Next::kLeave;
  }

  Next Step() {
    const bool has_m = run_.has_m();
    const Array<double>& q_now = has_m ? q_ : v_;
    run_.ApplyA(q_now, p_);
    const double* q = q_now.data();
    double* p = p_.data();
    const auto first = team_.Sum<2>([=](int64_t begin, int64_t end) {
      return std::array<double, 2>{BlockDot(q, p, begin, end), BlockDot(p, p, begin, end)};
    });
    const double alpha = first[0];
    if (!std::isfinite(alpha) || !std::isfinite(first[1])) return NonFinite("A M v");
    const double *v = v_.data(), *v_old = v_old_.data();
    const double beta_old = beta_;
    const double pp = team_.Sum<1>([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) p[i] -= alpha * v[i] + beta_old * v_old[i];
      return std::array<double, 1>{BlockDot(p, p, begin, end)};
    })[0];
    const bool exhausted = std::sqrt(pp) <= kExhausted * std::sqrt(first[1]);
    double beta = 0;
    if (!exhausted) {
      double square = pp;
      if (has_m) {
        run_.ApplyM(p_, z_);
        square = team_.Dot(p_, z_);
      }
      if (!Definite(square, "vᵀMv")) return Next::kLeave;
      beta = std::sqrt(square);
    }

    // Row k of R, the rotation that ends it, and the right-hand side.
    const double epsilon = epsilon_;
    const double delta = c_ * delta_bar_ + s_ * alpha;
    const double gamma_bar = s_ * delta_bar_ - c_ * alpha;
    epsilon_ = s_ * beta;
    delta_bar_ = -c_ * beta;
    const double gamma = std::hypot(gamma_bar, beta);
    largest_ = std::max(largest_, std::hypot(alpha, std::hypot(beta, beta_old)));
    if (!std::isfinite(gamma)) return NonFinite("A M v");
    if (gamma <= kSingular * largest_) {
      detail_ = "A is singular on the Krylov space at iteration " +
                std::to_string(run_.iterations()) +
                ", which holds no solution, and restarts do not help";
      return Next::kBroken;
    }
    c_ = gamma_bar / gamma;
    s_ = beta / gamma;
    const double phi = c_ * phi_bar_;
    const double from_p = phi_bar_ * c_ / gamma;  // = cₖ φₖ / βₖ₊₁
    phi_bar_ *= s_;
    return Update(beta, {epsilon, delta, gamma}, phi, from_p);
  }

  // The part of row k of R that column k of W needs.
  struct Row {
    double epsilon, delta, gamma;
  };

  Next Update(double beta, const Row& row, double phi, double from_p) {
    const bool has_m = run_.has_m();
    const double kept = s_ * s_, divisor = beta > 0 ? beta : 1;
    double *p = p_.data(), *z = z_.data(), *r = r_.data(), *x = x_, *w = w1_.data();
    const double *w2 = w2_.data(), *q = has_m ? q_.data() : v_.data();
    const double rr = team_.Sum<1>([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        w[i] = (q[i] - row.epsilon * w[i] - row.delta * w2[i]) / row.gamma;
        x[i] += phi * w[i];
      }
      for (int64_t i = begin; i < end; ++i) r[i] = kept * r[i] - from_p * p[i];
      for (int64_t i = begin; i < end; ++i) p[i] /= divisor;
      if (has_m) {
        for (int64_t i = begin; i < end; ++i) z[i] /= divisor;
      }
      return std::array<double, 1>{BlockDot(r, r, begin, end)};
    })[0];
    beta_ = beta;
    std::swap(w1_, w2_);
    std::swap(v_old_, v_);
    std::swap(v_, p_);  // p is the vector before the last now: scratch
    if (has_m) std::swap(q_, z_);
    const double norm = std::sqrt(rr);
    if (!run_.Record(norm, [=, this](double* previous) {
          team_.For([=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) previous[i] = x[i] - phi * w[i];
          });
        })) {
      return Next::kLeave;
    }
    // An exhausted space has no further vector: what is left is decided by the truth.
    if (beta > 0 && !run_.VerifyDue(norm)) return Next::kGoOn;
    const Next next = After(run_.Verify(norm, p_, r_));
    return next == Next::kGoOn && !(beta > 0) ? Next::kTruth : next;
  }

  Run& run_;
  Team& team_;
  size_t n_;
  double* x_;
  Array<double> r_, v_, v_old_, p_, w1_, w2_;  // p: A q, then the next v; w1, w2: columns of W
  Array<double> q_, z_;                        // M v and M p; without M v is its own
  double beta_ = 0, delta_bar_ = 0, epsilon_ = 0, c_ = -1, s_ = 0, phi_bar_ = 0;
  double largest_ = 0;  // the largest row of T so far, for |A M|
  std::string detail_;
};

}  // namespace

void RunMinres(Run& run) { Minres(run).Iterate(); }

}  // namespace spaid::kernels::krylov
