// Shows the progress of a solve on stderr: as ProgressReporter does, and on a terminal the residual
// as it falls.
#pragma once

#include <chrono>
#include <cstdio>
#include <vector>

#include "client/cli/progress.h"
#include "client/cli/residual_track.h"
#include "client/cli/terminal.h"

namespace spaid::cli {

// Draws a chart (residual_chart.h) if the terminal takes escape sequences, shows UTF-8 and has
// room; else one line. It draws at most ten times a second; the last drawing stays.
class SolveProgress {
 public:
  // `targets`: the relative residual asked for, per right-hand side; empty: not known.
  SolveProgress(ProgressReporter::Mode mode, FILE* stream, std::vector<double> targets, bool color)
      : reporter_(mode, stream, targets.empty() ? 0 : targets.front()),
        lines_(stream),
        track_(std::move(targets)),
        mode_(mode),
        stream_(stream),
        color_(color) {}
  ~SolveProgress() { Finish(); }
  SolveProgress(const SolveProgress&) = delete;
  SolveProgress& operator=(const SolveProgress&) = delete;

  void Report(const Progress& progress);
  // Draws the residuals that have not been drawn yet and leaves the drawing standing; removes the
  // bar.
  void Finish();

 private:
  void Draw(bool last);
  void LeaveStanding();

  ProgressReporter reporter_;
  LiveLines lines_;
  ResidualTrack track_;
  ProgressReporter::Mode mode_;
  FILE* stream_;
  bool color_;
  bool finished_ = false;  // all residuals of this attempt are drawn
  std::chrono::steady_clock::time_point last_draw_ = {};
};

}  // namespace spaid::cli
