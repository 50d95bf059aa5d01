// Writes the command line that does again what a row of a report tells.
#pragma once

#include <string>
#include <string_view>

#include "client/cli/arguments.h"
#include "client/cli/comparison.h"

namespace spaid::cli {

// Returns `text` as one word of a POSIX shell.
std::string ShellWord(std::string_view text);

// Returns "spaidctl solve A.mtx --engine=… …" with every option that differs from its default, and
// those of the comparison. `spec` has the engine and its options; `method`: empty for the server's
// choice. The daemon's address and credentials are left to SPAID_ADDRESS and SPAID_TOKEN.
std::string SolveCommand(const CompareArgs& args, const PreconditionerSpec& spec,
                         std::optional<Method> method);

// Returns "--max-run=60", which SolveCommand leaves out; "" where there is no such limit.
std::string MaxRunFlag(const LimitArgs& limits);

}  // namespace spaid::cli
