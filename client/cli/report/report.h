// Holds what a report tells, as it was gathered.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/comparison.h"
#include "client/cli/report/pattern.h"
#include "client/cli/report/ritz.h"

namespace spaid::cli {

// The spectrum of A, or of A with one M, or why there is none.
struct Spectrum {
  std::string name = {};  // of the preconditioner
  bool of_a = false;
  std::string operator_name = {};
  RitzValues ritz = {};
  std::string left_out = {};  // why nothing was computed; empty: it was
};

// How AUTO solved the same system.
struct AutoRun {
  PreconditionerSpec spec;
  std::optional<SolveResult> solved;
  std::optional<Error> error;
};

// Borrows the arguments, the system and the rows.
struct Report {
  const CompareArgs& args;
  const ComparedSystem& system;
  const ComparedRows& rows;
  PatternRaster raster;
  PatternLengths lengths;
  AutoRun auto_run = {};
  RitzOptions ritz_options = {};
  std::vector<Spectrum> spectra = {};
  std::string client_version = {};
  std::chrono::system_clock::time_point made = {};
};

// Returns the page: one HTML file that is well-formed XML, too, without scripts, which fetches
// nothing. Below 1 MB for any matrix and any number of rows. Texts of the server and of the user
// are escaped and shortened.
std::string PageOf(const Report& report);

}  // namespace spaid::cli
