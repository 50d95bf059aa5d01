#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/krylov/noise.h"
#include "kernels/krylov/run.h"

namespace spaid::kernels::krylov {
namespace {

// A denominator has vanished where the cosine of its two vectors is under the rounding of a dot
// product.
constexpr double kVanished = std::numeric_limits<double>::epsilon() / 2;

class Bicgstab {
 public:
  explicit Bicgstab(Run& run)
      : run_(run),
        team_(run.team()),
        n_(static_cast<size_t>(run.team().n())),
        x_(run.system().x.data()),
        r_(n_),
        shadow_(n_),
        p_(n_),
        v_(n_),
        t_(n_),
        p_hat_store_(run.has_m() ? n_ : 0),
        s_hat_store_(run.has_m() ? n_ : 0) {}

  void Iterate() {
    if (!run_.Start(r_)) return;
    Begin();
    while (run_.MayIterate()) {
      switch (Step()) {
        case Next::kGoOn:
          break;
        case Next::kLeave:
          return;
        case Next::kTruth:  // the recursion has drifted; the true residual is in t
          std::swap(r_, t_);
          Begin();
          break;
        case Next::kBroken:
          if (!run_.RestartAfterBreakdown(r_, detail_)) return;
          ++round_;
          Begin();
          break;
      }
    }
  }

 private:
  // Shadow residual and direction from r. After a breakdown the shadow also gets a noise of the
  // size of r: with the same shadow the same breakdown would come back.
  void Begin() {
    double* rs = r_.data();
    double* shadow = shadow_.data();
    double* p = p_.data();
    const int round = round_;
    const double amplitude = round == 0 ? 0 : team_.Norm(r_) / std::sqrt(static_cast<double>(n_));
    const auto sums = team_.Sum<3>([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        p[i] = rs[i];
        shadow[i] = round == 0 ? rs[i] : rs[i] + amplitude * Noise(i, round);
      }
      return std::array<double, 3>{BlockDot(rs, shadow, begin, end),
                                   BlockDot(shadow, shadow, begin, end),
                                   BlockDot(rs, rs, begin, end)};
    });
    fresh_ = true;
    rho_ = sums[0];
    shadow_norm_ = std::sqrt(sums[1]);
    r_norm_ = std::sqrt(sums[2]);
  }

  Next Broken(const char* what) {
    detail_ = std::string(what) + " at iteration " + std::to_string(run_.iterations()) +
              " and restarts do not help; use GMRES or another preconditioner";
    return Next::kBroken;
  }

  Next NonFinite(const char* what) {
    run_.End(Outcome::kNonFinite, NotFinite(what, run_.iterations()));
    return Next::kLeave;
  }

  Next Verify(double norm) { return After(run_.Verify(norm, t_, r_)); }

  Next Step() {
    if (std::abs(rho_) <= kVanished * shadow_norm_ * r_norm_) return Broken("rho vanished");
    Array<double>& p_hat = run_.has_m() ? p_hat_store_ : p_;
    if (run_.has_m()) run_.ApplyM(p_, p_hat);
    run_.ApplyA(p_hat, v_);
    const double* v = v_.data();
    const double* shadow = shadow_.data();
    const auto pv = team_.Sum<2>([=](int64_t begin, int64_t end) {
      return std::array<double, 2>{BlockDot(shadow, v, begin, end), BlockDot(v, v, begin, end)};
    });
    if (!std::isfinite(pv[0]) || !std::isfinite(pv[1])) {
      // With p = r, a residual of ordinary size, A or M is at fault; later p has overflowed.
      if (fresh_) return NonFinite("A M r");
      return Broken("the direction p overflowed");
    }
    fresh_ = false;
    if (std::abs(pv[0]) <= kVanished * shadow_norm_ * std::sqrt(pv[1])) {
      return Broken("the denominator of alpha vanished");
    }
    const double alpha = rho_ / pv[0];

    double* r = r_.data();  // holds s until the end of the step
    const double ss = team_.Sum<1>([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) r[i] -= alpha * v[i];
      return std::array<double, 1>{BlockDot(r, r, begin, end)};
    })[0];
    if (!std::isfinite(ss)) return NonFinite("s");
    if (const double s_norm = std::sqrt(ss); s_norm <= run_.target()) {
      return HalfStep(alpha, p_hat, s_norm, nullptr);
    }

    Array<double>& s_hat = run_.has_m() ? s_hat_store_ : r_;
    if (run_.has_m()) run_.ApplyM(r_, s_hat);
    run_.ApplyA(s_hat, t_);
    const double* t = t_.data();
    const auto ts = team_.Sum<2>([=](int64_t begin, int64_t end) {
      return std::array<double, 2>{BlockDot(t, r, begin, end), BlockDot(t, t, begin, end)};
    });
    if (!std::isfinite(ts[0]) || !std::isfinite(ts[1])) return NonFinite("A M s");
    if (std::abs(ts[0]) <= kVanished * std::sqrt(ts[1]) * std::sqrt(ss)) {
      return HalfStep(alpha, p_hat, std::sqrt(ss), "omega vanished");
    }
    const double omega = ts[0] / ts[1];
    return FullStep(alpha, omega, p_hat, s_hat);
  }

  // x takes alpha only; r holds s. `broken`: what broke after it; null: s is under the target.
  Next HalfStep(double alpha, const Array<double>& p_hat, double s_norm, const char* broken) {
    const double* ph = p_hat.data();
    double* x = x_;
    team_.For([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) x[i] += alpha * ph[i];
    });
    if (!run_.Record(s_norm, [this, alpha, ph, x](double* previous) {
          team_.For([=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) previous[i] = x[i] - alpha * ph[i];
          });
        })) {
      return Next::kLeave;
    }
    if (broken != nullptr) return Broken(broken);
    const Next next = Verify(s_norm);
    if (next != Next::kGoOn) return next;
    // Truth a little above the target, s a little under it: go on from the truth (it is in t).
    return Next::kTruth;
  }

  Next FullStep(double alpha, double omega, const Array<double>& p_hat,
                const Array<double>& s_hat) {
    const double* ph = p_hat.data();
    const double* sh = s_hat.data();
    const double* shadow = shadow_.data();
    const double* t = t_.data();
    double* r = r_.data();
    double* x = x_;
    const auto sums = team_.Sum<2>([=](int64_t begin, int64_t end) {
      // Without a preconditioner sh is r itself: x first.
      for (int64_t i = begin; i < end; ++i) x[i] += alpha * ph[i] + omega * sh[i];
      for (int64_t i = begin; i < end; ++i) r[i] -= omega * t[i];
      return std::array<double, 2>{BlockDot(r, r, begin, end), BlockDot(shadow, r, begin, end)};
    });
    r_norm_ = std::sqrt(sums[0]);
    const bool s_is_gone = !run_.has_m();  // r + omega t is s again
    if (!run_.Record(r_norm_, [=, this](double* previous) {
          team_.For([=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const double s = s_is_gone ? r[i] + omega * t[i] : sh[i];
              previous[i] = x[i] - (alpha * ph[i] + omega * s);
            }
          });
        })) {
      return Next::kLeave;
    }
    if (run_.Diverged(r_norm_)) {
      run_.RestoreBest();
      return Broken("the residual grew by 1/eps over the best");
    }
    const double rho_new = sums[1];
    const double beta = (rho_new / rho_) * (alpha / omega);
    if (run_.VerifyDue(r_norm_)) {
      const Next next = Verify(r_norm_);
      if (next != Next::kGoOn) return next;
    }
    if (!std::isfinite(beta)) return NonFinite("beta");
    const double* v = v_.data();
    double* p = p_.data();
    team_.For([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) p[i] = r[i] + beta * (p[i] - omega * v[i]);
    });
    rho_ = rho_new;
    return Next::kGoOn;
  }

  Run& run_;
  Team& team_;
  size_t n_;
  double* x_;
  Array<double> r_, shadow_, p_, v_, t_, p_hat_store_, s_hat_store_;
  double rho_ = 0, shadow_norm_ = 0, r_norm_ = 0;
  int round_ = 0;
  bool fresh_ = true;  // p is r
  std::string detail_;
};

}  // namespace

void RunBicgstab(Run& run) { Bicgstab(run).Iterate(); }

}  // namespace spaid::kernels::krylov
