// Defines options common to the client programs: checks of values, choices by name, the server and
// its credentials, the look of the output.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/arguments.h"

namespace spaid::cli {

template <class E>
using Choice = std::pair<std::string, E>;

// Returns the enumerators with the client library's spelling.
template <class E>
std::vector<Choice<E>> Choices(std::initializer_list<E> values) {
  std::vector<Choice<E>> choices;
  for (const E value : values) choices.emplace_back(std::string(Name(value)), value);
  return choices;
}

template <class E>
CLI::Option* AddChoice(CLI::App* app, const std::string& name, E& value, const std::string& help,
                       const std::vector<E>& values) {
  std::vector<Choice<E>> choices;
  for (const E v : values) choices.emplace_back(std::string(Name(v)), v);
  std::vector<std::string> names;
  for (const auto& [text, unused] : choices) names.push_back(text);
  return app
      ->add_option_function<std::string>(
          name,
          [&value, choices](const std::string& text) {
            for (const auto& [name_of, v] : choices) {
              if (name_of == text) value = v;
            }
          },
          help)
      ->check(CLI::IsMember(names))
      ->default_str(std::string(Name(value)));
}

// Check numbers; NaN fails them all.
CLI::Validator Number(const std::string& range, std::function<bool(double)> good);
CLI::Validator Positive();
CLI::Validator NotNegative();
CLI::Validator Fraction();  // 0 to 1
// From min to max, either of them excluded where it says so; max may be infinite.
CLI::Validator Within(double min, bool above_min, double max, bool below_max);
CLI::Validator Whole(int64_t low, int64_t high);
// Checks that a file can be read; adds nothing to the help, which says FILE already.
CLI::Validator ReadableFile();

// Adds --address, --tls-..., --token, --tenant; SPAID_ADDRESS and SPAID_TOKEN.
void AddServer(CLI::App& app, ClientOptions& client);
// Adds --quiet and --color.
void AddLooks(CLI::App& app, GlobalArgs& args);

}  // namespace spaid::cli
