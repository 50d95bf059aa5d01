#include "kernels/krylov/judge.h"

#include <cmath>
#include <cstdio>
#include <utility>

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
// A cycle of GMRES that brings the true residual down by less than this brings nothing.
constexpr double kNoProgress = 1e-12;
constexpr int kMaxIdleCycles = 2;
// Points of history kept; beyond, every second one goes and the stride doubles.
constexpr size_t kMaxHistory = 100000;

}  // namespace

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string NotDefinite(const char* what, double value, int64_t iteration) {
  return std::string(what) + " = " + Figure(value) + " at iteration " + std::to_string(iteration) +
         "; use BiCGSTAB or GMRES";
}

std::string NotFinite(const char* what, int64_t iteration) {
  return std::string(what) + " is not finite at iteration " + std::to_string(iteration) +
         "; rescale A or use another preconditioner";
}

bool Judge::Begin(double norm) {
  initial_norm_ = previous_norm_ = last_true_norm_ = norm;
  Report(norm);
  if (!std::isfinite(norm)) {
    End(Outcome::kNonFinite, "the residual of the initial guess is not finite");
    return false;
  }
  if (norm <= terms_.target) {
    End(Outcome::kConverged, "");
    return false;
  }
  return true;
}

bool Judge::MayIterate() {
  if (ended_) return false;
  switch (terms_.context->stop.Poll()) {
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
  if (out_.iterations >= terms_.options->max_iterations) {
    End(Outcome::kMaxIterations,
        "not converged after max_iterations = " + std::to_string(out_.iterations) +
            "; allow more, or use a stronger preconditioner");
    return false;
  }
  return true;
}

void Judge::Report(double norm) {
  const ResidualPoint point{terms_.rhs, static_cast<int32_t>(out_.iterations),
                            terms_.b_norm > 0 ? norm / terms_.b_norm : norm};
  if (terms_.options->keep_history && out_.iterations % history_stride_ == 0) {
    if (out_.history.size() >= kMaxHistory) {
      size_t kept = 0;
      for (size_t i = 0; i < out_.history.size(); i += 2) out_.history[kept++] = out_.history[i];
      out_.history.resize(kept);
      history_stride_ *= 2;
    }
    if (out_.iterations % history_stride_ == 0) out_.history.push_back(point);
  }
  if (terms_.context->progress != nullptr) terms_.context->progress->OnResidual(point);
}

bool Judge::RecordNorm(double norm) {
  ++out_.iterations;
  Report(norm);
  previous_norm_ = norm;
  if (std::isfinite(norm)) return true;
  End(Outcome::kNonFinite,
      "the residual is not finite at iteration " + std::to_string(out_.iterations) +
          ": the method diverged or the preconditioner overflows; rescale A or use another method");
  return false;
}

bool Judge::VerifyDue(double norm) const {
  return norm <= terms_.target || out_.iterations % kVerifyEvery == 0;
}

int64_t Judge::UntilVerify() const { return kVerifyEvery - out_.iterations % kVerifyEvery; }

Verdict Judge::Compare(double norm, double truth) {
  last_true_norm_ = truth;
  if (!std::isfinite(truth)) {
    End(Outcome::kNonFinite,
        "the recomputed residual is not finite at iteration " + std::to_string(out_.iterations));
    return Verdict::kEnd;
  }
  if (truth <= terms_.target) {
    End(Outcome::kConverged, "");
    return Verdict::kEnd;
  }
  if (truth <= kApart * norm) return Verdict::kContinue;
  if (truth > kHelped * drift_norm_) {
    if (++drift_strikes_ >= kMaxStrikes) {
      End(Outcome::kStagnated,
          "at iteration " + std::to_string(out_.iterations) +
              " the recursion has the residual at " + Figure(norm / terms_.b_norm) +
              ", the recomputed one is " + Figure(truth / terms_.b_norm) +
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
    best_norm_ = TrueResidualOfBest();
    if (!(best_norm_ < truth)) best_norm_ = std::numeric_limits<double>::infinity();
  }
  previous_norm_ = truth;
  return Verdict::kRestart;
}

bool Judge::StartAfresh(double truth, const std::string& detail) {
  last_true_norm_ = truth;
  if (!std::isfinite(truth)) {
    End(Outcome::kNonFinite, "the recomputed residual is not finite after a breakdown");
    return false;
  }
  if (truth <= terms_.target) {
    End(Outcome::kConverged, "");
    return false;
  }
  breakdown_strikes_ = truth > kHelped * breakdown_norm_ ? breakdown_strikes_ + 1 : 0;
  if (breakdown_strikes_ >= kMaxStrikes) {
    End(Outcome::kBreakdown, detail);
    return false;
  }
  breakdown_norm_ = std::min(breakdown_norm_, truth);
  previous_norm_ = truth;
  return true;
}

bool Judge::NextCycle(double norm, double truth, bool exhausted, bool has_m, int64_t restart) {
  const double before = last_true_norm_;
  if (Compare(norm, truth) == Verdict::kEnd) return false;
  if (exhausted && truth > 0.5 * before) {
    End(Outcome::kBreakdown, "the Krylov space is exhausted at iteration " +
                                 std::to_string(out_.iterations) + " and holds no solution: A" +
                                 (has_m ? " or the preconditioner" : "") + " is singular");
    return false;
  }
  idle_cycles_ = truth > (1 - kNoProgress) * before ? idle_cycles_ + 1 : 0;
  if (idle_cycles_ >= kMaxIdleCycles) {
    End(Outcome::kStagnated, "cycles of restart = " + std::to_string(restart) +
                                 " no longer lower the residual; raise restart or use a stronger "
                                 "preconditioner");
    return false;
  }
  return true;
}

void Judge::End(Outcome outcome, std::string detail) {
  if (ended_) return;
  ended_ = true;
  out_.outcome = outcome;
  out_.detail = std::move(detail);
}

void Judge::Conclude() {
  double norm = out_.iterations == 0 ? initial_norm_ : TrueResidualOfLast();
  if (out_.outcome != Outcome::kConverged) {
    if (std::isfinite(best_norm_)) {
      const double best = TrueResidualOfBest();
      if (!(norm <= best)) {
        UseBest();
        norm = best;
      }
    }
    if (!(norm <= initial_norm_)) {
      UseGuess();
      norm = initial_norm_;
    }
    // A stop or a breakdown may hit an iterate that is good enough.
    if (norm <= terms_.target) {
      out_.outcome = Outcome::kConverged;
      out_.detail.clear();
    }
  }
  out_.true_residual = norm;
  out_.true_relative_residual = norm / terms_.b_norm;
}

}  // namespace spaid::kernels::krylov
