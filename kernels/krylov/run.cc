#include "kernels/krylov/run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace spaid::kernels::krylov {
namespace {

// A product every so many iterations (1 % of the work) buys the knowledge that the recursion is
// honest.
constexpr int64_t kVerifyEvery = 100;
// Recursion and truth are apart where the true residual is over this many times the recursion's.
constexpr double kApart = 2;
// A restart has helped where it brought the true residual down by this factor.
constexpr double kHelped = 0.5;
constexpr int kMaxStrikes = 3;
// Points of history kept; beyond, every second one goes and the stride doubles.
constexpr size_t kMaxHistory = 100000;

}  // namespace

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

double Team::Norm(std::span<const double> x) {
  const double sum = Dot(x, x);
  if (sum > 1e-280 && sum < 1e280) return std::sqrt(sum);
  double largest = 0;
  for (const double v : x) {
    if (!std::isfinite(v)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(v));
  }
  if (largest == 0) return 0;
  const int exponent = std::ilogb(largest);
  const double* xs = x.data();
  const double scaled = Sum<1>([=](int64_t begin, int64_t end) {
    double s = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double v = std::ldexp(xs[i], -exponent);
      s += v * v;
    }
    return std::array<double, 1>{s};
  })[0];
  return std::ldexp(std::sqrt(scaled), exponent);
}

double Run::TrueResidual(std::span<const double> x, std::span<double> r) {
  ApplyA(x, r);
  const double* b = system_.b.data();
  double* rs = r.data();
  team_.For([=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rs[i] = b[i] - rs[i];
  });
  return team_.Norm(r);
}

bool Run::Start(std::span<double> r) {
  if (system_.x0.empty()) {
    std::copy(system_.b.begin(), system_.b.end(), r.begin());
    initial_norm_ = system_.b_norm;
  } else {
    initial_norm_ = TrueResidual(system_.x, r);
  }
  previous_norm_ = last_true_norm_ = initial_norm_;
  Report(initial_norm_);
  if (!std::isfinite(initial_norm_)) {
    End(Outcome::kNonFinite, "the residual of the initial guess is not finite");
    return false;
  }
  if (initial_norm_ <= system_.target) {
    End(Outcome::kConverged, "");
    return false;
  }
  return true;
}

bool Run::MayIterate() {
  if (ended_) return false;
  switch (system_.context->stop.Poll()) {
    case StopReason::kNone:
      break;
    case StopReason::kCancelled:
      End(Outcome::kCancelled,
          "cancelled after " + std::to_string(out_.iterations) + " iterations");
      return false;
    case StopReason::kTimeLimit:
      End(Outcome::kTimeLimit, "the time limit came after " + std::to_string(out_.iterations) +
                                   " iterations; allow more time or use a stronger preconditioner");
      return false;
  }
  if (out_.iterations >= system_.options->max_iterations) {
    End(Outcome::kMaxIterations,
        "not converged after max_iterations = " + std::to_string(out_.iterations) +
            "; allow more, or use a stronger preconditioner");
    return false;
  }
  return true;
}

void Run::Report(double norm) {
  const ResidualPoint point{system_.rhs, static_cast<int32_t>(out_.iterations),
                            system_.b_norm > 0 ? norm / system_.b_norm : norm};
  if (system_.options->keep_history && out_.iterations % history_stride_ == 0) {
    if (out_.history.size() >= kMaxHistory) {
      size_t kept = 0;
      for (size_t i = 0; i < out_.history.size(); i += 2) out_.history[kept++] = out_.history[i];
      out_.history.resize(kept);
      history_stride_ *= 2;
    }
    if (out_.iterations % history_stride_ == 0) out_.history.push_back(point);
  }
  if (system_.context->progress != nullptr) system_.context->progress->OnResidual(point);
}

bool Run::RecordNorm(double norm) {
  ++out_.iterations;
  Report(norm);
  previous_norm_ = norm;
  if (std::isfinite(norm)) return true;
  End(Outcome::kNonFinite,
      "the residual is not finite at iteration " + std::to_string(out_.iterations) +
          ": the method diverged or the preconditioner overflows; rescale A or use another method");
  return false;
}

void Run::Keep(double norm) {
  if (!(norm < best_norm_)) return;
  best_.assign(system_.x.begin(), system_.x.end());
  best_norm_ = norm;
}

bool Run::VerifyDue(double norm) const {
  return norm <= system_.target || out_.iterations % kVerifyEvery == 0;
}

Verdict Run::Verify(double norm, std::span<double> scratch, std::span<double> r) {
  const double truth = TrueResidual(system_.x, scratch);
  last_true_norm_ = truth;
  if (!std::isfinite(truth)) {
    End(Outcome::kNonFinite,
        "the recomputed residual is not finite at iteration " + std::to_string(out_.iterations));
    return Verdict::kEnd;
  }
  if (truth <= system_.target) {
    End(Outcome::kConverged, "");
    return Verdict::kEnd;
  }
  if (truth <= kApart * norm) return Verdict::kContinue;
  if (truth > kHelped * drift_norm_) {
    if (++drift_strikes_ >= kMaxStrikes) {
      End(Outcome::kStagnated,
          "at iteration " + std::to_string(out_.iterations) +
              " the recursion has the residual at " + Figure(norm / system_.b_norm) +
              ", the recomputed one is " + Figure(truth / system_.b_norm) +
              " and restarts no longer lower it: what fp64 attains for this matrix and "
              "preconditioner; ask for less, or rescale A");
      return Verdict::kEnd;
    }
  } else {
    drift_strikes_ = 0;
  }
  drift_norm_ = std::min(drift_norm_, truth);
  // Norms noted since the last restart were the recursion's: the best iterate must be judged anew.
  if (std::isfinite(best_norm_)) {
    best_norm_ = TrueResidual(best_, r);
    if (!(best_norm_ < truth)) best_norm_ = std::numeric_limits<double>::infinity();
  }
  previous_norm_ = truth;
  return Verdict::kRestart;
}

void Run::RestoreBest() {
  if (best_norm_ < previous_norm_) std::copy(best_.begin(), best_.end(), system_.x.begin());
}

bool Run::RestartAfterBreakdown(std::span<double> r, const std::string& detail) {
  const double truth = TrueResidual(system_.x, r);
  last_true_norm_ = truth;
  if (!std::isfinite(truth)) {
    End(Outcome::kNonFinite, "the recomputed residual is not finite after a breakdown");
    return false;
  }
  if (truth <= system_.target) {
    End(Outcome::kConverged, "");
    return false;
  }
  if (truth > kHelped * breakdown_norm_) {
    ++breakdown_strikes_;
  } else {
    breakdown_strikes_ = 0;
  }
  if (breakdown_strikes_ >= kMaxStrikes) {
    End(Outcome::kBreakdown, detail);
    return false;
  }
  breakdown_norm_ = std::min(breakdown_norm_, truth);
  previous_norm_ = truth;
  return true;
}

void Run::End(Outcome outcome, std::string detail) {
  if (ended_) return;
  ended_ = true;
  out_.outcome = outcome;
  out_.detail = std::move(detail);
}

void Run::Conclude() {
  const auto n = system_.x.size();
  Array<double> scratch(n);
  double norm = out_.iterations == 0 ? initial_norm_ : TrueResidual(system_.x, scratch);
  if (out_.outcome != Outcome::kConverged) {
    if (std::isfinite(best_norm_)) {
      const double best = TrueResidual(best_, scratch);
      if (!(norm <= best)) {
        std::copy(best_.begin(), best_.end(), system_.x.begin());
        norm = best;
      }
    }
    if (!(norm <= initial_norm_)) {
      if (system_.x0.empty()) {
        std::fill(system_.x.begin(), system_.x.end(), 0.0);
      } else {
        std::copy(system_.x0.begin(), system_.x0.end(), system_.x.begin());
      }
      norm = initial_norm_;
    }
    // A stop or a breakdown may hit an iterate that is good enough.
    if (norm <= system_.target) {
      out_.outcome = Outcome::kConverged;
      out_.detail.clear();
    }
  }
  out_.true_residual = norm;
  out_.true_relative_residual = norm / system_.b_norm;
}

}  // namespace spaid::kernels::krylov
