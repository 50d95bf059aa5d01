#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/krylov/run.h"

namespace spaid::kernels::krylov {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
// Orthogonalise again where more than this share of the vector was cancelled (Daniel, Gragg,
// Kaufman, Stewart 1976).
constexpr double kReorthogonalise = 0.7071;

class Gmres {
 public:
  explicit Gmres(Run& run)
      : run_(run),
        team_(run.team()),
        n_(static_cast<size_t>(run.team().n())),
        restart_(RestartLength(run.options(), run.team().n())),
        r_(n_),
        u_(n_),
        z_(run.has_m() ? n_ : 0) {}

  void Iterate() {
    if (!run_.Start(r_)) return;
    double beta = run_.last_true_norm();
    while (run_.MayIterate()) {
      run_.Keep(beta);
      const Cycle cycle = Arnoldi(beta);
      if (!cycle.finite) return;
      if (!Update(cycle)) return;
      beta = run_.last_true_norm();
    }
  }

 private:
  struct Cycle {
    int64_t columns = 0;     // columns of the basis that the update uses
    bool finite = true;      // false: ended
    bool invariant = false;  // the Krylov space is exhausted
    bool singular = false;   // ... and A M has no inverse on it
  };

  // w -= h_0 v_0 + ... + h_k v_k by modified Gram-Schmidt; adds to `h`, returns ‖w‖. One pass
  // through memory per vector: each subtraction also forms the next dot product.
  double Orthogonalise(int64_t k, double* w, std::vector<double>& h) {
    double dot = team_.Dot({w, n_}, Basis(0));
    for (int64_t i = 0; i <= k; ++i) {
      h[i] += dot;
      const double* vi = Basis(i).data();
      const double* next = i < k ? Basis(i + 1).data() : w;
      const double factor = dot;
      dot = team_.Sum<1>([=](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) w[e] -= factor * vi[e];
        return std::array<double, 1>{BlockDot(w, next, begin, end)};
      })[0];
    }
    return std::sqrt(dot);
  }

  // The team's memory, which right-hand sides use one after the other.
  std::span<double> Basis(int64_t k) { return team_.Basis(static_cast<size_t>(k)); }

  void ScaleInto(const double* from, double divisor, double* to) const {
    team_.For([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] / divisor;
    });
  }

  Cycle Arnoldi(double beta) {
    Cycle cycle;
    ScaleInto(r_.data(), beta, Basis(0).data());
    g_.assign(1, beta);
    hessenberg_.clear();
    rotations_.clear();
    double largest = 0;  // |R_jj|
    while (cycle.columns < restart_) {
      // The first iteration of a cycle was asked for by the caller.
      if (cycle.columns > 0 && !run_.MayIterate()) break;
      const int64_t k = cycle.columns;
      std::span<const double> z = Basis(k);
      if (run_.has_m()) {
        run_.ApplyM(Basis(k), z_);
        z = z_;
      }
      double* w = Basis(k + 1).data();
      run_.ApplyA(z, Basis(k + 1));
      std::vector<double> h(static_cast<size_t>(k) + 2, 0.0);
      const double before = team_.Norm(Basis(k + 1));
      double after = Orthogonalise(k, w, h);
      if (after < kReorthogonalise * before) after = Orthogonalise(k, w, h);
      if (!std::isfinite(before) || !std::isfinite(after)) {
        run_.End(Outcome::kNonFinite, NotFinite("A M v", run_.iterations()));
        if (k > 0) AddUpdate(cycle.columns);
        cycle.finite = false;
        return cycle;
      }
      cycle.invariant = after <= 10 * kEps * before;
      h[k + 1] = cycle.invariant ? 0 : after;
      RotateColumn(h);
      largest = std::max(largest, std::abs(h[k]));
      if (cycle.invariant && std::abs(h[k]) <= 100 * kEps * std::max(largest, before)) {
        cycle.singular = true;
        g_.pop_back();  // the column is not used: the residual does not change
        g_.back() = last_g_;
        run_.RecordNorm(std::abs(last_g_));
        return cycle;
      }
      hessenberg_.push_back(std::move(h));
      ++cycle.columns;
      const double norm = std::abs(g_.back());
      if (!run_.RecordNorm(norm)) {
        cycle.finite = false;
        return cycle;
      }
      if (norm <= run_.target() || cycle.invariant) break;
      ScaleInto(w, after, w);
    }
    return cycle;
  }

  // Applies the earlier rotations to the new column, makes its own, turns g.
  void RotateColumn(std::vector<double>& h) {
    const size_t k = h.size() - 2;
    for (size_t i = 0; i < k; ++i) {
      const auto [c, s] = rotations_[i];
      const double upper = c * h[i] + s * h[i + 1];
      h[i + 1] = -s * h[i] + c * h[i + 1];
      h[i] = upper;
    }
    const double length = std::hypot(h[k], h[k + 1]);
    const double c = length == 0 ? 1 : h[k] / length;
    const double s = length == 0 ? 0 : h[k + 1] / length;
    rotations_.emplace_back(c, s);
    h[k] = length;
    h[k + 1] = 0;
    last_g_ = g_[k];
    g_.push_back(-s * g_[k]);
    g_[k] *= c;
  }

  // x += M V y with R y = g over `columns` columns.
  void AddUpdate(int64_t columns) {
    std::vector<double> y(g_.begin(), g_.begin() + columns);
    for (int64_t j = columns - 1; j >= 0; --j) {
      y[j] /= hessenberg_[j][j];
      for (int64_t i = 0; i < j; ++i) y[i] -= hessenberg_[j][i] * y[j];
    }
    std::vector<const double*> basis;
    for (int64_t j = 0; j < columns; ++j) basis.push_back(Basis(j).data());
    double* u = u_.data();
    team_.For([u, columns, &basis, &y](int64_t begin, int64_t end) {
      std::fill(u + begin, u + end, 0.0);
      for (int64_t j = 0; j < columns; ++j) {
        const double* vj = basis[j];
        for (int64_t i = begin; i < end; ++i) u[i] += y[j] * vj[i];
      }
    });
    if (run_.has_m()) {
      run_.ApplyM(u_, z_);
      std::swap(u_, z_);
    }
    const double* add = u_.data();
    double* x = run_.system().x.data();
    team_.For([=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) x[i] += add[i];
    });
  }

  // Ends a cycle: new x, true residual into r. False: ended.
  bool Update(const Cycle& cycle) {
    if (cycle.columns > 0) AddUpdate(cycle.columns);
    if (run_.ended()) return false;  // Conclude() recomputes the residual
    return run_.EndCycle(std::abs(g_.back()), r_, u_, cycle.invariant, restart_);
  }

  Run& run_;
  Team& team_;
  size_t n_;
  int64_t restart_;
  Array<double> r_, u_, z_;
  std::vector<std::vector<double>> hessenberg_;  // R by columns, after the rotations
  std::vector<std::pair<double, double>> rotations_;
  std::vector<double> g_;
  double last_g_ = 0;
};

}  // namespace

void RunGmres(Run& run) { Gmres(run).Iterate(); }

}  // namespace spaid::kernels::krylov
