// When a solve is worth going on with, where a stronger preconditioner stands behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

// Watches the residuals of a solve, passes them on, and stops the solve where the next rung is
// expected to end sooner: from its first look on, and whenever iterations have doubled since, the
// end must be in sight: within kPatience times as many more, or those that are not worth the next
// rung, and within its budget. It is foretold by what the last half of the iterations brought, and
// how much more that is than what the quarter before it did: twice as much where residuals fall
// steadily, less where they fall ever more slowly, as on large meshes. Where A is not symmetric
// residuals leap, and tell no such thing: they count as steady.
class StallWatch final : public ProgressSink {
 public:
  static constexpr int64_t kLeastLook = 50;
  static constexpr double kPatience = 3;
  // Twice the iterations are taken to bring at least so many times what they brought.
  static constexpr double kLeastGrowth = 1.4;

  // When a solve is judged first, after so many iterations (0: never), and how many that are still
  // to come are let pass in any case.
  struct Look {
    int64_t first = 0;
    double let_pass = 0;
  };

  // The right-hand sides of the watched solve, each as the caller numbers it, with the iterations
  // that it has behind it and the share of ‖b‖ that its residuals are relative to. Empty: the
  // caller's own, from the start.
  struct Numbering {
    std::vector<int32_t> rhs;
    std::vector<int64_t> before;
    std::vector<double> unit;
  };

  // `symmetric`: A is. `rtol`: of the watched solve. `first_look`: asked for by the solving thread
  // when the end is not in sight after kLeastLook iterations, or twice, four times as many; null:
  // the solve is never stopped. `budget`: iterations that it may take. `next`:
  // borrowed; may be null. `stop`: of the whole ladder.
  StallWatch(bool symmetric, double rtol, std::function<Look()> first_look, int64_t budget,
             ProgressSink* next, const StopToken& stop, Numbering numbering = {});

  StopToken token() const { return own_.token(); }
  bool stalled() const { return stalled_; }

  void OnProgress(Stage stage, int64_t done, int64_t total) override;
  void OnResidual(const ResidualPoint& point) override;

 private:
  const bool symmetric_;
  const double rtol_;
  std::function<Look()> ask_first_look_;  // null once it was asked
  Look first_look_;
  const double budget_;
  ProgressSink* const next_;
  const Numbering numbering_;
  StopSource own_;
  bool stalled_ = false;
  // Iterations that are still to come.
  double Foretold(int64_t iteration) const;
  double BestUntil(int64_t iteration) const;
  bool InSight(int64_t iteration) const;

  int32_t rhs_ = -1;
  int64_t look_ = kLeastLook;  // of those before it was asked, too
  // Residuals that were less than all before them: iteration and residual.
  std::vector<std::pair<int64_t, double>> best_;
};

}  // namespace spaid::kernels
