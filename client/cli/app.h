// The command line of spaidctl: one CLI11 tree that parses, helps, and is walked for completion.
#pragma once

#include <memory>

#include "client/cli/arguments.h"

namespace CLI {
class App;
}

namespace spaid::cli {

// `arguments` receives what is parsed and must outlive the tree.
std::unique_ptr<CLI::App> MakeApp(Arguments& arguments);

// Parses; on --help or wrong usage prints what there is to say and gives the exit code to leave
// with.
std::optional<ExitCode> Parse(CLI::App& app, int argc, const char* const* argv);

// Returns the version of spaidctl.
std::string_view Version();

}  // namespace spaid::cli
