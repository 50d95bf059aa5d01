// One right-hand side of a solve on the host: its vectors, the operations on them that all methods
// share, and its judge.
//
// A method iterates while MayIterate(), tells each residual of its recursion to Record(), and calls
// Verify() where that residual is under the target or a check is due.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/krylov/judge.h"
#include "kernels/krylov/null_space.h"
#include "kernels/krylov/vectors.h"

namespace spaid::kernels::krylov {

class Run final : public Judge {
 public:
  // `m` may be null.
  Run(const LinearOperator& a, const LinearOperator* m, const System& system, const Terms& terms,
      Team* team, RhsResult* out)
      : Judge(terms, out), a_(a), m_(m), system_(system), team_(*team) {}

  // As Judge's, after other solves' turns where this one's turn is over.
  bool MayIterate();

  const System& system() const { return system_; }
  Team& team() { return team_; }

  // y = A v, without what rounding leaves of it along the left null vectors.
  void ApplyA(std::span<const double> v, std::span<double> y) const {
    a_.Apply(v, y, team_.threads());
    if (const NullSpace* const space = options().null_space; space != nullptr) {
      space->RemoveLeft(y, &team_);
    }
  }
  bool has_m() const { return m_ != nullptr; }
  // y = M v; with a null space y = P M Q v, where P and Q take out what is along its right and left
  // vectors.
  void ApplyM(std::span<const double> v, std::span<double> y) {
    const NullSpace* const space = options().null_space;
    if (space == nullptr) return m_->Apply(v, y, team_.threads());
    reached_.assign(v.begin(), v.end());
    space->RemoveLeft(reached_, &team_);
    m_->Apply(reached_, y, team_.threads());
    space->RemoveRight(y, &team_);
  }

  // r = b − A x0, recorded as iteration 0. False: nothing to iterate, the outcome is set.
  bool Start(std::span<double> r);

  // r = b − A x; returns ‖r‖.
  double TrueResidual(std::span<const double> x, std::span<double> r);
  double check_ms() const { return check_ms_; }  // time of TrueResidual
  double pause_ms() const { return pause_ms_; }  // time of others' turns

  // RecordNorm, with the best iterate kept: `undo(best)` must write the iterate before this one; it
  // is called where that one was the best so far and this one is worse: no copies while the
  // residual falls.
  template <class Undo>
  bool Record(double norm, const Undo& undo) {
    if (norm > previous_norm_ && previous_norm_ < best_norm_) {
      best_.resize(system_.x.size());
      undo(best_.data());
      best_norm_ = previous_norm_;
    }
    return RecordNorm(norm);
  }
  // Keeps x, whose recomputed residual is `norm`, as the best so far (for methods without undo).
  void Keep(double norm);

  // Compares `norm` of the recursion with the true one. `scratch` receives b − A x; `r` is the
  // recursion's residual, overwritten on a drift.
  Verdict Verify(double norm, std::span<double> scratch, std::span<double> r);

  // NextCycle, with b − A x in `scratch`; `r` is overwritten on a drift.
  bool EndCycle(double norm, std::span<double> scratch, std::span<double> r, bool exhausted,
                int64_t restart);

  // x = the best iterate where one is kept that is better than the last: the way back from a
  // divergence so large that the recursion can no longer get below what was reached.
  void RestoreBest();

  // A denominator vanished: r = b − A x for a fresh start, or false where starting afresh has
  // stopped helping (outcome kBreakdown with `detail`).
  bool RestartAfterBreakdown(std::span<double> r, const std::string& detail);

 private:
  double TrueResidualOfLast() override;
  double TrueResidualOfBest() override;
  void UseBest() override;
  void UseGuess() override;

  const LinearOperator& a_;
  const LinearOperator* const m_;
  const System system_;
  Team& team_;
  Array<double> best_;
  Array<double> reached_;  // scratch of ApplyM
  std::span<double> spare_;
  double check_ms_ = 0, pause_ms_ = 0;
};

// The methods (krylov.h says which); each leaves with run.ended().
void RunCg(Run& run);        // Hestenes, Stiefel 1952; preconditioned as Saad 2003, algorithm 9.1
void RunBicgstab(Run& run);  // van der Vorst 1992, right-preconditioned
void RunMinres(Run& run);    // Paige, Saunders 1975; M as Greenbaum 1997, algorithm 4
void RunIdr(Run& run);       // van Gijzen, Sonneveld 2011 (ACM TOMS algorithm 913)
void RunGmres(Run& run);     // Saad, Schultz 1986; right-preconditioned, Saad 2003, algorithm 9.5

}  // namespace spaid::kernels::krylov
