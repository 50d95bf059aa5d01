// Runs a program on a terminal of its own, with all three of its files on it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace spaid::cli {

struct TerminalRun {
  int exit_code = -1;  // -1: it did not exit by itself
  std::string output;  // as the terminal got it: lines end in "\r\n"
};

struct TerminalOptions {
  int columns = 100, rows = 40;
  // "NAME=VALUE", added; SPAID_*, NO_COLOR, TERM and the locale of the test's own are not passed.
  std::vector<std::string> environment = {"TERM=xterm", "LANG=C.UTF-8"};
  // Asked after all output; Ctrl-C is pressed once, when it first says true.
  std::function<bool(const std::string& output)> interrupt = {};
};
TerminalRun RunOnTerminal(const std::vector<std::string>& command, const TerminalOptions& options);

}  // namespace spaid::cli
