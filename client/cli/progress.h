// Progress on stderr: a bar that redraws itself on a terminal, a few plain lines in a pipe.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

class ProgressReporter {
 public:
  enum class Mode { kNone, kLines, kBar };
  // A bar if `stream` is a terminal.
  static Mode ModeFor(bool silent, FILE* stream);

  // `rtol` scales the bar of a solve: the residual's way from 1 to it, by decades. 0: none known.
  ProgressReporter(Mode mode, FILE* stream, double rtol = 0)
      : mode_(mode), stream_(stream), rtol_(rtol) {}
  ~ProgressReporter() { Clear(); }
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  void Report(const Progress& progress);
  // Takes the bar off the screen.
  void Clear();
  // Words before everything that follows: which of several solves this is.
  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }

 private:
  void Show(const std::string& key, const std::string& line, double fraction);

  Mode mode_;
  FILE* stream_;
  double rtol_;
  std::string prefix_;
  std::string last_key_;  // of the line shown last; a pipe gets one line for each
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_draw_ = {};
};

}  // namespace spaid::cli
