// Generates shell completion from the definition of the command line, so that it cannot lag behind
// it.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace spaid::cli {

// Returns the script for `shell`: bash, zsh or fish.
std::string CompletionScript(const CLI::App& app, std::string_view shell);

}  // namespace spaid::cli
