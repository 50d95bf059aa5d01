// Flags for the options of the contract: names, ranges and help are those of
// proto/spaid/v1/options.proto, defaults those of the structs they fill.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

// For all options of all engines but those named; `spec` must outlive the app. --pattern is kept as
// it is given, in pattern_matrix: ResolveSpec makes a handle of it.
void AddEngineFlags(CLI::App* app, PreconditionerSpec& spec,
                    const std::set<std::string>& left_out = {});

// For the named options of the iteration ("--rtol"); empty: all.
void AddSolveFlags(CLI::App* app, SolveOptions& options, const std::set<std::string>& flags = {});

// For what becomes of a named preconditioner.
void AddReuseFlags(CLI::App* app, ReusePolicy& policy);

}  // namespace spaid::cli
