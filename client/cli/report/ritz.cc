#include "client/cli/report/ritz.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kSettled = 1e-3;
// A rest of the new vector as small as this, beside the operator's largest column so far, is
// rounding.
constexpr double kInvariantRest = 1e-12;

// The orthonormal basis of a Krylov space as it grows, and the projection of the operator onto it.
class KrylovSpace {
 public:
  KrylovSpace(int64_t n, const RitzOptions& options)
      : options_(options), deadline_(std::chrono::steady_clock::now() + options.time_limit) {
    const int64_t wanted = std::min<int64_t>(n, options.steps);
    const int64_t room = options.basis_bytes / (static_cast<int64_t>(sizeof(double)) * n) - 1;
    limited_ = room < wanted;
    most_ = std::max<int64_t>(0, std::min(wanted, room));
    h_ = MatrixXd::Zero(most_ + 1, most_);
    if (most_ == 0) return;
    basis_.resize(n, most_);
    gallery::Uniform uniform(options.seed);
    for (int64_t i = 0; i < n; ++i) basis_(i, 0) = 2 * uniform() - 1;
    basis_.col(0).normalize();
  }

  void Grow(const Operator& op) {
    VectorXd w(basis_.rows());
    double scale = 0;
    while (steps_ < most_ && GoesOn()) {
      const auto v = basis_.col(steps_);
      op({v.data(), static_cast<size_t>(v.size())}, {w.data(), static_cast<size_t>(w.size())});
      const double norm = w.stableNorm();
      if (!std::isfinite(norm)) return End(RitzEnd::kNotFinite);
      scale = std::max(scale, norm);
      Orthogonalise(w);
      const double rest = w.stableNorm();
      ++steps_;
      if (rest <= kInvariantRest * scale) return End(RitzEnd::kInvariant);
      h_(steps_, steps_ - 1) = rest;
      if (steps_ < most_) basis_.col(steps_) = w / rest;
    }
    if (steps_ == most_ && limited_) end_ = RitzEnd::kMemory;
  }

  MatrixXd projection() const { return h_.topLeftCorner(steps_, steps_); }
  // The norm of what the last step left outside the space.
  double rest() const { return steps_ > 0 ? h_(steps_, steps_ - 1) : 0; }
  int64_t steps() const { return steps_; }
  RitzEnd end() const { return end_; }

 private:
  bool GoesOn() {
    if (options_.stop.stop_requested()) end_ = RitzEnd::kStopped;
    if (std::chrono::steady_clock::now() >= deadline_) end_ = RitzEnd::kTime;
    return end_ == RitzEnd::kSteps;
  }
  void End(RitzEnd end) { end_ = end; }

  void Orthogonalise(VectorXd& w) {
    const auto v = basis_.leftCols(steps_ + 1);
    for (int pass = 0; pass < 2; ++pass) {
      const VectorXd along = v.transpose() * w;
      w.noalias() -= v * along;
      h_.col(steps_).head(steps_ + 1) += along;
    }
  }

  const RitzOptions& options_;
  std::chrono::steady_clock::time_point deadline_;
  int64_t most_ = 0, steps_ = 0;
  bool limited_ = false;
  RitzEnd end_ = RitzEnd::kSteps;
  MatrixXd basis_, h_;
};

RitzValues Collect(const KrylovSpace& space, bool symmetric) {
  return {.values = {},
          .steps = static_cast<int>(space.steps()),
          .symmetric = symmetric,
          .end = space.end()};
}

// `last`: the last entries of the projection's eigenvectors, of norm 1.
template <class Values, class Last>
void SetValues(RitzValues& ritz, const Values& values, const Last& last, double rest) {
  for (int64_t i = 0; i < values.size(); ++i) {
    const std::complex<double> value = values(i);
    ritz.values.push_back({value, rest * std::abs(last(i)) <= kSettled * std::abs(value)});
  }
  std::stable_sort(ritz.values.begin(), ritz.values.end(), [](const auto& a, const auto& b) {
    return std::abs(a.value) < std::abs(b.value);
  });
}

template <class Solver>
RitzValues Solve(const KrylovSpace& space, const MatrixXd& h, bool symmetric) {
  RitzValues ritz = Collect(space, symmetric);
  if (h.size() == 0) return ritz;
  Solver solver;
  if (!h.allFinite() || solver.compute(h).info() != Eigen::Success) {
    ritz.end = RitzEnd::kNotFinite;
    return ritz;
  }
  SetValues(ritz, solver.eigenvalues(), solver.eigenvectors().row(h.rows() - 1), space.rest());
  return ritz;
}

}  // namespace

RitzValues Lanczos(const Operator& op, int64_t n, const RitzOptions& options) {
  KrylovSpace space(n, options);
  space.Grow(op);
  const MatrixXd h = space.projection();
  // Off the three diagonals there is rounding alone.
  MatrixXd t = MatrixXd::Zero(h.rows(), h.cols());
  for (int64_t i = 0; i < h.rows(); ++i) {
    t(i, i) = h(i, i);
    if (i > 0) t(i, i - 1) = t(i - 1, i) = h(i, i - 1);
  }
  return Solve<Eigen::SelfAdjointEigenSolver<MatrixXd>>(space, t, true);
}

RitzValues Arnoldi(const Operator& op, int64_t n, const RitzOptions& options) {
  KrylovSpace space(n, options);
  space.Grow(op);
  return Solve<Eigen::EigenSolver<MatrixXd>>(space, space.projection(), false);
}

}  // namespace spaid::cli
