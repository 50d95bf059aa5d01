#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/krylov/noise.h"
#include "kernels/krylov/run.h"

namespace spaid::kernels::krylov {
namespace {

constexpr int kMost = kMostShadowVectors;
// A denominator has vanished where the cosine of its two vectors is under the rounding of a dot
// product.
constexpr double kVanished = std::numeric_limits<double>::epsilon() / 2;
// omega minimises the residual; where that is at an angle to t whose cosine is less, omega is
// lengthened to what this cosine would give, without which the next spaces are rounding (Sleijpen,
// van der Vorst 1995). It is so never zero: skew matrices are no breakdown.
constexpr double kLeastCosine = 0.7;
// A shadow vector of which the ones before leave less is drawn anew, at most so often.
constexpr double kTooLittle = 1e-3;
constexpr int kDraws = 8;

// The bi-orthogonal variant: in a cycle, of the s vectors g = A M (…) of G each is orthogonal to
// the shadow vectors before its own, so that a small triangular system says how the next direction
// is combined. The last product of a cycle is the step by omega into the next, smaller space.
// Coefficients come from one block of dot products for each vector (Collignon, van Gijzen 2011).
class Idr {
 public:
  explicit Idr(Run& run)
      : run_(run),
        team_(run.team()),
        n_(static_cast<size_t>(run.team().n())),
        s_(static_cast<int>(std::min(run.options().shadow_vectors, run.team().n()))),
        x_(run.system().x.data()),
        r_(n_),
        t_(n_),
        z_(run.has_m() ? n_ : 0) {
    for (int k = 0; k < s_; ++k) {
      shadow_[k].resize(n_);
      u_[k].resize(n_);
      g_[k].resize(n_);
    }
  }

  void Iterate() {
    if (!run_.Start(r_)) return;
    DrawShadows();
    Begin();
    while (run_.MayIterate()) {
      switch (k_ < s_ ? InSpace() : ToNextSpace()) {
        case Next::kGoOn:
          break;
        case Next::kLeave:
          return;
        case Next::kTruth:  // the recursion has drifted; the true residual is in t
          std::swap(r_, t_);
          Begin();
          break;
        case Next::kBroken:  // with the same shadows the same breakdown would come back
          if (!run_.RestartAfterBreakdown(r_, detail_)) return;
          ++round_;
          DrawShadows();
          Begin();
          break;
      }
    }
  }

 private:
  using Small = std::array<double, kMost>;

  // Orthonormal vectors of noise.
  void DrawShadows() {
    for (int k = 0; k < s_; ++k) {
      double* p = shadow_[k].data();
      for (int draw = 0; draw < kDraws; ++draw) {
        const int seed = (round_ * kMost + k) * kDraws + draw;
        double pp = team_.Sum<1>([=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) p[i] = Noise(i, seed);
          return std::array<double, 1>{BlockDot(p, p, begin, end)};
        })[0];
        const double before = std::sqrt(pp);
        for (int twice = 0; twice < 2; ++twice) {
          for (int j = 0; j < k; ++j) {
            const double* earlier = shadow_[j].data();
            const double dot = team_.Dot(shadow_[k], shadow_[j]);
            pp = team_.Sum<1>([=](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) p[i] -= dot * earlier[i];
              return std::array<double, 1>{BlockDot(p, p, begin, end)};
            })[0];
          }
        }
        const double norm = std::sqrt(pp);
        if (norm == 0) continue;
        team_.For([=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) p[i] /= norm;
        });
        if (norm > kTooLittle * before) break;
      }
    }
  }

  // Starts from r, without spaces of its past.
  void Begin() {
    for (int k = 0; k < s_; ++k) {
      double *u = u_[k].data(), *g = g_[k].data();
      team_.For([=](int64_t begin, int64_t end) {
        std::fill(u + begin, u + end, 0.0);
        std::fill(g + begin, g + end, 0.0);
      });
      m_[k].fill(0);
      m_[k][k] = 1;
    }
    omega_ = 1;
    k_ = 0;
    fresh_ = true;
    const Pointers p = Of(shadow_);
    const int s = s_;
    const double* r = r_.data();
    const auto sums = team_.Sum<kMost + 1>(
        [=](int64_t begin, int64_t end) { return Dots(p, 0, s, r, begin, end); });
    TakeResidual(sums);
  }

  using Vectors = std::array<Array<double>, kMost>;
  using Pointers = std::array<double*, kMost>;
  static Pointers Of(Vectors& vectors) {
    Pointers pointers{};
    for (int k = 0; k < kMost; ++k) pointers[k] = vectors[k].data();
    return pointers;
  }

  // Gives p·v for shadow vectors [from, to), and v·v last.
  static std::array<double, kMost + 1> Dots(const Pointers& p, int from, int to, const double* v,
                                            int64_t begin, int64_t end) {
    std::array<double, kMost + 1> sums{};
    for (int i = from; i < to; ++i) sums[i] = BlockDot(p[i], v, begin, end);
    sums[kMost] = BlockDot(v, v, begin, end);
    return sums;
  }

  void TakeResidual(const std::array<double, kMost + 1>& sums) {
    for (int i = 0; i < s_; ++i) f_[i] = sums[i];
    r_norm_ = std::sqrt(sums[kMost]);
  }

  Next Broken(const char* what) {
    detail_ = std::string(what) + " at iteration " + std::to_string(run_.iterations()) +
              " and restarts do not help; use GMRES or another preconditioner";
    return Next::kBroken;
  }

  Next NotFiniteOr(const char* later) {
    // With r of ordinary size, A or M is at fault; later a direction has overflowed.
    if (!fresh_) return Broken(later);
    run_.End(Outcome::kNonFinite, NotFinite("A M r", run_.iterations()));
    return Next::kLeave;
  }

  // After a step that Record() has taken.
  Next Examine() {
    if (run_.Diverged(r_norm_)) {
      run_.RestoreBest();
      return Broken("the residual grew by 1/eps over the best");
    }
    if (!run_.VerifyDue(r_norm_)) return Next::kGoOn;
    return After(run_.Verify(r_norm_, t_, r_));
  }

  // u_k = omega M (r − G c) + U c, by those columns of G and U that this cycle has not renewed: c
  // makes r − G c orthogonal to the shadow vectors from k on.
  void Direction(int k) {
    Small c{};
    for (int i = k; i < s_; ++i) {
      double rest = f_[i];
      for (int j = k; j < i; ++j) rest -= m_[i][j] * c[j];
      c[i] = rest / m_[i][i];
    }
    const Pointers u = Of(u_), g = Of(g_);
    const int s = s_;
    const double omega = omega_;
    const double* r = r_.data();
    const bool has_m = run_.has_m();
    double *t = t_.data(), *own = u_[k].data();
    team_.For([=](int64_t begin, int64_t end) {
      std::copy(r + begin, r + end, t + begin);
      for (int j = k; j < s; ++j) {
        const double factor = c[j];
        const double* gj = g[j];
        for (int64_t i = begin; i < end; ++i) t[i] -= factor * gj[i];
      }
      if (!has_m) Combine(c, k, s, u, omega, t, own, begin, end);
    });
    if (!has_m) return;
    run_.ApplyM(t_, z_);
    const double* z = z_.data();
    team_.For([=](int64_t begin, int64_t end) { Combine(c, k, s, u, omega, z, own, begin, end); });
  }

  // own = u_k = omega v + c_k u_k + … + c_(s−1) u_(s−1), on a block.
  static void Combine(const Small& c, int k, int s, const Pointers& u, double omega,
                      const double* v, double* own, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) own[i] = omega * v[i] + c[k] * own[i];
    for (int j = k + 1; j < s; ++j) {
      const double factor = c[j];
      const double* uj = u[j];
      for (int64_t i = begin; i < end; ++i) own[i] += factor * uj[i];
    }
  }

  // One of the s products of a cycle.
  Next InSpace() {
    const int k = k_;
    Direction(k);
    run_.ApplyA(u_[k], g_[k]);
    const Pointers p = Of(shadow_), u = Of(u_), g = Of(g_);
    const int s = s_;
    // First the shadow vectors before its own, to which it is made orthogonal; then the others.
    auto sums = team_.Sum<kMost + 1>(
        [=](int64_t begin, int64_t end) { return Dots(p, 0, k > 0 ? k : s, g[k], begin, end); });
    if (k > 0) {
      Small a{};
      for (int i = 0; i < k; ++i) {
        double rest = sums[i];
        for (int j = 0; j < i; ++j) rest -= m_[i][j] * a[j];
        a[i] = rest / m_[i][i];
      }
      sums = team_.Sum<kMost + 1>([=](int64_t begin, int64_t end) {
        for (int j = 0; j < k; ++j) {
          const double factor = a[j];
          const double *gj = g[j], *uj = u[j];
          double *gk = g[k], *uk = u[k];
          for (int64_t i = begin; i < end; ++i) gk[i] -= factor * gj[i];
          for (int64_t i = begin; i < end; ++i) uk[i] -= factor * uj[i];
        }
        return Dots(p, k, s, g[k], begin, end);
      });
    }
    const double g_norm = std::sqrt(sums[kMost]);
    if (!std::isfinite(g_norm)) return NotFiniteOr("a direction overflowed");
    fresh_ = false;
    if (std::abs(sums[k]) <= kVanished * g_norm) return Broken("the denominator of beta vanished");
    for (int i = k; i < s_; ++i) m_[i][k] = sums[i];
    const double beta = f_[k] / m_[k][k];
    if (!std::isfinite(beta)) return Broken("beta overflowed");

    double *r = r_.data(), *x = x_;
    const double *gk = g[k], *uk = u[k];
    const double rr = team_.Sum<1>([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) x[i] += beta * uk[i];
      for (int64_t i = begin; i < end; ++i) r[i] -= beta * gk[i];
      return std::array<double, 1>{BlockDot(r, r, begin, end)};
    })[0];
    r_norm_ = std::sqrt(rr);
    for (int i = k + 1; i < s_; ++i) f_[i] -= beta * m_[i][k];
    f_[k] = 0;
    ++k_;
    if (!run_.Record(r_norm_, [=, this](double* previous) {
          team_.For([=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) previous[i] = x[i] - beta * uk[i];
          });
        })) {
      return Next::kLeave;
    }
    return Examine();
  }

  // The last product of a cycle.
  Next ToNextSpace() {
    const bool has_m = run_.has_m();
    Array<double>& z_now = has_m ? z_ : r_;
    if (has_m) run_.ApplyM(r_, z_);
    run_.ApplyA(z_now, t_);
    double *r = r_.data(), *x = x_;
    const double *t = t_.data(), *z = z_now.data();
    const auto dots = team_.Sum<3>([=](int64_t begin, int64_t end) {
      return std::array<double, 3>{BlockDot(t, r, begin, end), BlockDot(t, t, begin, end),
                                   BlockDot(r, r, begin, end)};
    });
    const double t_norm = std::sqrt(dots[1]), r_norm = std::sqrt(dots[2]);
    if (!std::isfinite(t_norm)) return NotFiniteOr("A M r overflowed");
    if (t_norm == 0) return Broken("A M r vanished");
    const double cosine = dots[0] / (t_norm * r_norm);
    const double omega =
        (std::abs(cosine) < kLeastCosine ? std::copysign(kLeastCosine, cosine) : cosine) * r_norm /
        t_norm;
    if (!std::isfinite(omega) || omega == 0) return Broken("omega overflowed or vanished");
    const Pointers p = Of(shadow_);
    const int s = s_;
    const auto sums = team_.Sum<kMost + 1>([=](int64_t begin, int64_t end) {
      // Without a preconditioner z is r itself: x first.
      for (int64_t i = begin; i < end; ++i) x[i] += omega * z[i];
      for (int64_t i = begin; i < end; ++i) r[i] -= omega * t[i];
      return Dots(p, 0, s, r, begin, end);
    });
    TakeResidual(sums);
    omega_ = omega;
    k_ = 0;
    if (!run_.Record(r_norm_, [=, this](double* previous) {
          team_.For([=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              previous[i] = x[i] - omega * (has_m ? z[i] : r[i] + omega * t[i]);
            }
          });
        })) {
      return Next::kLeave;
    }
    return Examine();
  }

  Run& run_;
  Team& team_;
  size_t n_;
  int s_;
  double* x_;
  Array<double> r_, t_, z_;
  Vectors shadow_, u_, g_;        // g = A u
  std::array<Small, kMost> m_{};  // m_[i][k] = p_i·g_k for i >= k: the triangular system
  Small f_{};                     // p_i·r
  double omega_ = 1, r_norm_ = 0;
  int k_ = 0;      // products of this cycle so far
  int round_ = 0;  // breakdowns
  bool fresh_ = true;
  std::string detail_;
};

}  // namespace

void RunIdr(Run& run) { Idr(run).Iterate(); }

}  // namespace spaid::kernels::krylov
