// The convergence test of one right-hand side, wherever its vectors are: history, progress, stops,
// drift of the recursion's residual from the true one, breakdowns, the best iterate, the outcome.
// Run (run.h) has the vectors on the host, CudaColumn (cuda/run.h) on a device.
//
// A method iterates while MayIterate() and tells each residual of its recursion to RecordNorm().
// Only judgements of a residual that was formed as b − A x say CONVERGED.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "kernels/krylov/krylov.h"

namespace spaid::kernels::krylov {

// The vectors of one right-hand side on the host.
struct System {
  std::span<const double> b;
  std::span<const double> x0;  // empty: zero
  std::span<double> x;         // in: x0; out: the result
};

struct Terms {
  double b_norm = 0;
  double target = 0;  // on ‖b − A x‖
  int32_t rhs = 0;
  const SolveOptions* options = nullptr;
  const Context* context = nullptr;
};

enum class Verdict {
  kEnd,       // the outcome is set: leave
  kContinue,  // recursion and truth agree: go on
  kRestart,   // they are apart: start again from b − A x
};

// The way on behind a step of a short recurrence.
enum class Next {
  kGoOn,
  kLeave,   // the outcome is set
  kTruth,   // start again from b − A x
  kBroken,  // a denominator vanished
};

inline Next After(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEnd:
      return Next::kLeave;
    case Verdict::kRestart:
      return Next::kTruth;
    case Verdict::kContinue:
      break;
  }
  return Next::kGoOn;
}

class Judge {
 public:
  Judge(const Terms& terms, RhsResult* out) : terms_(terms), out_(*out) {}
  virtual ~Judge() = default;
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  const SolveOptions& options() const { return *terms_.options; }
  double target() const { return terms_.target; }
  int64_t iterations() const { return out_.iterations; }

  // False: stopped or out of iterations; the outcome is set.
  bool MayIterate();

  // Ends an iteration with residual norm `norm` of the recursion. False: not finite; the outcome is
  // set.
  bool RecordNorm(double norm);

  // True where `norm` of the recursion must be held against the truth now.
  bool VerifyDue(double norm) const;
  // Iterations until that is due whatever the norm.
  int64_t UntilVerify() const;
  double last_true_norm() const { return last_true_norm_; }

  // GMRES, at the end of a cycle of at most `restart` columns: its residual is `norm` by the
  // recursion, and `truth` as recomputed. `exhausted`: the Krylov space is. False: there is no
  // further cycle; the outcome is set.
  bool NextCycle(double norm, double truth, bool exhausted, bool has_m, int64_t restart);

  // The recursion's residual has grown by 1/eps over the best: its rounding alone exceeds that.
  bool Diverged(double norm) const { return norm > DivergedAt(); }

  void End(Outcome outcome, std::string detail);
  bool ended() const { return ended_; }

  // After the method returned: puts the best of {last iterate, best iterate, x0} into x, with its
  // recomputed residual, and says CONVERGED if (and only if) that meets the target.
  void Conclude();

 protected:
  // ‖b − A x‖ of the last iterate, and of the best one, which is kept; x becomes that, or x0.
  virtual double TrueResidualOfLast() = 0;
  virtual double TrueResidualOfBest() = 0;
  virtual void UseBest() = 0;
  virtual void UseGuess() = 0;

  // ‖b − A x0‖, recorded as iteration 0. False: nothing to iterate, the outcome is set.
  bool Begin(double norm);
  // Compares the recursion's `norm` with the true one, which was just formed.
  Verdict Compare(double norm, double truth);
  // A denominator vanished at a true residual of `truth`. False: starting afresh has stopped
  // helping, or there is nothing left to do; the outcome is set (kBreakdown with `detail`).
  bool StartAfresh(double truth, const std::string& detail);

  double DivergedAt() const {
    return std::min(best_norm_, initial_norm_) / std::numeric_limits<double>::epsilon();
  }
  const Terms& terms() const { return terms_; }

  // Residual norms of the iterate before the last, and of the best one kept (infinite: none).
  double previous_norm_ = std::numeric_limits<double>::infinity();
  double best_norm_ = std::numeric_limits<double>::infinity();

 private:
  void Report(double norm);

  const Terms terms_;
  RhsResult& out_;
  bool ended_ = false;
  double initial_norm_ = 0;
  double last_true_norm_ = 0;
  double drift_norm_ = std::numeric_limits<double>::infinity();
  int drift_strikes_ = 0;
  double breakdown_norm_ = std::numeric_limits<double>::infinity();
  int breakdown_strikes_ = 0;
  int idle_cycles_ = 0;
  int64_t history_stride_ = 1;
};

std::string Figure(double value);  // "1.23e-08"

// Texts of several methods, on host and device.
std::string NotDefinite(const char* what, double value, int64_t iteration);
std::string NotFinite(const char* what, int64_t iteration);

}  // namespace spaid::kernels::krylov
