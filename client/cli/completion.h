// Shell completion, generated from the command line's own tree, so that it cannot lag behind it.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace spaid::cli {

// `shell`: bash, zsh or fish.
std::string CompletionScript(const CLI::App& app, std::string_view shell);

}  // namespace spaid::cli
