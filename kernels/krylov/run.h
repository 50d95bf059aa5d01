// One right-hand side on its way through a method: what all methods share - history, progress,
// stops, the recomputed residual, restarts after drift, the best iterate, the outcome.
//
// A method iterates while MayIterate(), tells each residual of its recursion to Record(), and calls
// Verify() where that residual is under the target or a check is due. Only Verify() and Conclude()
// say CONVERGED, from a residual formed as b − A x.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/vectors.h"

namespace spaid::kernels::krylov {

struct System {
  const LinearOperator* a = nullptr;
  const LinearOperator* m = nullptr;  // may be null
  std::span<const double> b;
  std::span<const double> x0;  // empty: zero
  std::span<double> x;         // in: x0; out: the result
  double b_norm = 0;
  double target = 0;  // on ‖b − A x‖
  int32_t rhs = 0;
  const SolveOptions* options = nullptr;
  const Context* context = nullptr;
};

enum class Verdict {
  kEnd,       // the outcome is set: leave
  kContinue,  // recursion and truth agree: go on
  kRestart,   // they are apart: the scratch vector now holds b − A x, start again from it
};

class Run {
 public:
  Run(const System& system, Team* team, RhsResult* out)
      : system_(system), team_(*team), out_(*out) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const System& system() const { return system_; }
  Team& team() { return team_; }
  double target() const { return system_.target; }
  int64_t iterations() const { return out_.iterations; }

  void ApplyA(std::span<const double> v, std::span<double> y) const {
    system_.a->Apply(v, y, team_.threads());
  }
  bool has_m() const { return system_.m != nullptr; }
  void ApplyM(std::span<const double> v, std::span<double> y) const {
    system_.m->Apply(v, y, team_.threads());
  }

  // r = b − A x0, recorded as iteration 0. False: nothing to iterate, the outcome is set.
  bool Start(std::span<double> r);

  // r = b − A x; returns ‖r‖.
  double TrueResidual(std::span<const double> x, std::span<double> r);

  // False: stopped or out of iterations; the outcome is set.
  bool MayIterate();

  // Ends an iteration with residual norm `norm` of the recursion. `undo(best)` must write the
  // iterate before this one; it is called where that one was the best so far and this one is worse:
  // no copies while the residual falls. False: not finite; the outcome is set.
  template <class Undo>
  bool Record(double norm, const Undo& undo) {
    if (norm > previous_norm_ && previous_norm_ < best_norm_) {
      best_.resize(system_.x.size());
      undo(best_.data());
      best_norm_ = previous_norm_;
    }
    return RecordNorm(norm);
  }
  bool RecordNorm(double norm);
  // Keeps x, whose recomputed residual is `norm`, as the best so far (for methods without undo).
  void Keep(double norm);

  // True where `norm` of the recursion must be held against the truth now.
  bool VerifyDue(double norm) const;
  // Does so. `scratch` receives b − A x; `r` is the recursion's residual, overwritten on a drift.
  Verdict Verify(double norm, std::span<double> scratch, std::span<double> r);
  double last_true_norm() const { return last_true_norm_; }

  // x = the best iterate where one is kept that is better than the last: the way back from a
  // divergence so large that the recursion can no longer get below what was reached.
  void RestoreBest();
  // The recursion's residual has grown by 1/eps over the best: its rounding alone exceeds that.
  bool Diverged(double norm) const {
    return norm > std::min(best_norm_, initial_norm_) / std::numeric_limits<double>::epsilon();
  }

  // A denominator vanished: r = b − A x for a fresh start, or false where starting afresh has
  // stopped helping (outcome kBreakdown with `detail`).
  bool RestartAfterBreakdown(std::span<double> r, const std::string& detail);

  void End(Outcome outcome, std::string detail);
  bool ended() const { return ended_; }

  // After the method returned: puts the best of {last iterate, best iterate, x0} into x, with its
  // recomputed residual, and says CONVERGED if (and only if) that meets the target.
  void Conclude();

 private:
  void Report(double norm);

  System system_;
  Team& team_;
  RhsResult& out_;
  bool ended_ = false;
  double initial_norm_ = 0;
  double previous_norm_ = std::numeric_limits<double>::infinity();
  double best_norm_ = std::numeric_limits<double>::infinity();
  Array<double> best_;
  double last_true_norm_ = 0;
  double drift_norm_ = std::numeric_limits<double>::infinity();
  int drift_strikes_ = 0;
  double breakdown_norm_ = std::numeric_limits<double>::infinity();
  int breakdown_strikes_ = 0;
  int64_t history_stride_ = 1;
};

// The methods (krylov.h says which); each leaves with run.ended().
void RunCg(Run& run);        // Hestenes, Stiefel 1952; preconditioned as Saad 2003, algorithm 9.1
void RunBicgstab(Run& run);  // van der Vorst 1992, right-preconditioned
void RunGmres(Run& run);     // Saad, Schultz 1986; right-preconditioned, Saad 2003, algorithm 9.5

std::string Figure(double value);  // "1.23e-08"

}  // namespace spaid::kernels::krylov
