// Parses the command line of spaid-load.
#pragma once

#include <optional>

#include "client/cli/arguments.h"
#include "client/load/options.h"

namespace spaid::load {

// Fills `options`; returns the exit code if there is nothing to run (--help, wrong usage).
std::optional<cli::ExitCode> ParseCommandLine(int argc, const char* const* argv,
                                              LoadOptions& options);

}  // namespace spaid::load
