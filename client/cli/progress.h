// Shows progress on stderr: a bar that redraws itself on a terminal, a few plain lines in a pipe.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

class ProgressReporter {
 public:
  enum class Mode { kNone, kLines, kBar, kPlainBar };
  // Returns a bar if `stream` is a terminal; a plain one uses no escape sequences.
  static Mode ModeFor(bool silent, FILE* stream);

  // `rtol` scales the bar of a solve: the residual's way from 1 to it, by decades. 0: none known.
  ProgressReporter(Mode mode, FILE* stream, double rtol = 0)
      : mode_(mode), stream_(stream), rtol_(rtol) {}
  ~ProgressReporter() { Clear(); }
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  void Report(const Progress& progress);
  // Removes the bar from the screen.
  void Clear();
  // Shows a line of the caller's in place of the bar; on a terminal only. At once: the caller
  // bounds the rate.
  void ShowLine(const std::string& text);
  // Leaves the bar on the screen; later output begins below it.
  void Leave();
  // Sets words shown before all later progress: which of several solves this is.
  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }

 private:
  void Show(const std::string& key, const std::string& news, double fraction);
  // Replaces the line by `text`.
  void Draw(std::string text);

  Mode mode_;
  FILE* stream_;
  double rtol_;
  std::string prefix_;
  std::string last_key_;  // key of the line shown last; a pipe gets one line per key
  bool drawn_ = false;
  size_t drawn_size_ = 0;  // characters that kPlainBar has to overwrite
  std::chrono::steady_clock::time_point last_draw_ = {};
};

}  // namespace spaid::cli
