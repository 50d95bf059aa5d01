#include "client/cli/report/repeat.h"

#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <type_traits>

#include "client/cpp/options.h"

namespace spaid::cli {
namespace {

std::string ValueText(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// As the flag takes it; empty: no flag.
template <class T>
std::string ValueOf(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    return ValueText(std::chrono::duration<double>(value).count());
  } else if constexpr (requires { value.has_value(); }) {
    return value ? ValueOf(*value) : "";
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "";
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(Name(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return ValueText(value);
  } else {
    return std::to_string(value);
  }
}

std::string Flag(const std::string& name, const std::string& value, bool is_switch) {
  return " " + (is_switch ? name : name + "=" + ShellWord(value));
}

// The engine's options by flag, those alone that the user may have set.
std::map<std::string, std::string> EngineFlags(const PreconditionerSpec& spec) {
  std::map<std::string, std::string> values, flags;
  const PreconditionerSpec plain;
  internal::VisitOptions(plain, spec.engine, [&](const auto& option, const auto& value) {
    values[option.flag] = ValueOf(value);
  });
  internal::VisitOptions(spec, spec.engine, [&](const auto& option, const auto& value) {
    const std::string text = ValueOf(value);
    if (text.empty() || text == values[option.flag]) return;
    flags[option.flag] =
        Flag(option.flag, text, std::is_same_v<std::decay_t<decltype(value)>, bool>);
  });
  return flags;
}

}  // namespace

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=+,@%-";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string SolveCommand(const CompareArgs& args, const PreconditionerSpec& spec,
                         std::optional<Method> method) {
  std::string text = "spaidctl solve " + ShellWord(args.matrix.matrix);
  if (args.matrix.sum_duplicates) text += " --sum-duplicates";
  text += " --engine=" + std::string(Name(spec.engine));
  PreconditionerSpec named = spec;
  named.pattern_matrix = args.engine.pattern_matrix;  // files, not their handles
  named.amg.near_null_space = args.engine.amg.near_null_space;
  named.amg.coordinates = args.engine.amg.coordinates;
  for (const auto& [name, flag] : EngineFlags(named)) text += flag;
  if (method) text += " --method=" + std::string(Name(*method));
  text += " --rhs=" + ShellWord(args.rhs);
  if (args.rhs == "random") text += " --seed=" + std::to_string(args.seed);
  SolveOptions options = args.options, plain;
  std::map<std::string, std::string> defaults;
  SolveOptions::Fields(
      plain, [&](const char* name, const auto& value) { defaults[name] = ValueOf(value); });
  SolveOptions::Fields(options, [&](const char* name, const auto& value) {
    const std::string value_text = ValueOf(value);
    if (std::string_view(name) == "method" || value_text == defaults[name]) return;
    text += Flag(internal::FindSolveOption(name)->flag, value_text, false);
  });
  return text;
}

std::string MaxRunFlag(const LimitArgs& limits) {
  return limits.max_run_s ? "--max-run=" + ValueText(*limits.max_run_s) : "";
}

}  // namespace spaid::cli
