#include "client/cpp/option_text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <type_traits>

#include "client/cpp/errors.h"

namespace spaid::internal {
namespace {

constexpr double kMaxSeconds = 1e9;

std::string Text(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), value).ptr};
}

// All of the text is the number.
template <class Number>
bool Read(std::string_view text, Number* to) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *to);
  return error == std::errc() && stopped == end;
}

// Each sets *to, or says what the text must be: "a whole number from 1 to 16".
using Wanted = std::optional<std::string>;

Wanted Parse(std::string_view text, const OptionInfo&, std::string* to) {
  *to = text;
  return std::nullopt;
}

Wanted Parse(std::string_view text, const OptionInfo&, bool* to) {
  if (text != "true" && text != "false") return "true or false";
  *to = text == "true";
  return std::nullopt;
}

// The values of T that have names; those of an engine begin at 1.
template <class T>
std::vector<T> Values() {
  std::vector<T> values;
  for (int i = 0; i == 0 || Name(static_cast<T>(i)) != "unknown"; ++i) {
    if (Name(static_cast<T>(i)) != "unknown") values.push_back(static_cast<T>(i));
  }
  return values;
}

template <class T>
requires std::is_enum_v<T> Wanted Parse(std::string_view text, const OptionInfo& info, T* to) {
  std::string choices;
  for (const T value : Values<T>()) {
    const std::string name(Name(value));
    const auto& some = info.choices;
    if (!some.empty() && std::find(some.begin(), some.end(), name) == some.end()) continue;
    if (name == text) {
      *to = value;
      return std::nullopt;
    }
    choices += (choices.empty() ? "" : ", ") + name;
  }
  return "one of " + choices;
}

template <class T>
requires std::is_integral_v<T> Wanted Parse(std::string_view text, const OptionInfo& info, T* to) {
  constexpr auto kMin = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kMax = static_cast<double>(std::numeric_limits<T>::max());
  T value = 0;
  if (Read(text, &value) && static_cast<double>(value) >= info.min &&
      static_cast<double>(value) <= info.max) {
    *to = value;
    return std::nullopt;
  }
  std::string wanted = "a whole number of at least " + Text(std::max(info.min, kMin));
  if (info.max < kMax) wanted += " and at most " + Text(info.max);
  return wanted;
}

Wanted Parse(std::string_view text, const OptionInfo& info, double* to) {
  double value = 0;
  if (Read(text, &value) && std::isfinite(value) &&
      (info.above_min ? value > info.min : value >= info.min) &&
      (info.below_max ? value < info.max : value <= info.max)) {
    *to = value;
    return std::nullopt;
  }
  std::string wanted = "a number";
  if (std::isfinite(info.min))
    wanted += (info.above_min ? " above " : " of at least ") + Text(info.min);
  if (std::isfinite(info.max))
    wanted += (info.below_max ? " and below " : " and at most ") + Text(info.max);
  return wanted;
}

template <class Period>
Wanted Parse(std::string_view text, const OptionInfo&, std::chrono::duration<int64_t, Period>* to) {
  double seconds = 0;
  if (!Read(text, &seconds) || !(seconds > 0 && seconds <= kMaxSeconds)) {
    return "a number of seconds above 0 and at most " + Text(kMaxSeconds);
  }
  // At least one: a limit of 0 would mean none.
  *to = std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
  return std::nullopt;
}

template <class T>
Wanted Parse(std::string_view text, const OptionInfo& info, std::optional<T>* to) {
  T value{};
  if (Wanted wanted = Parse(text, info, &value)) return wanted;
  *to = value;
  return std::nullopt;
}

Error Unknown(std::string_view name) {
  std::string known;
  for (const std::string& one : OptionNames()) known += (known.empty() ? "" : ", ") + one;
  return MakeError(Code::kInvalidArgument, "UNKNOWN_OPTION",
                   "there is no option '" + std::string(name) +
                       "'; they are spaidctl's flags without the dashes: " + known,
                   std::string(name));
}

}  // namespace

OptionInfo PlainOption(const char* flag, const char* value, const char* help, const char* group) {
  return {.name = flag, .flag = flag, .value = value, .help = help, .group = group, .choices = {}};
}

std::vector<std::string> OptionNames() {
  OptionSet set;
  std::set<std::string> names;
  VisitOptionSet(set,
                 [&](const OptionInfo& info, const auto&) { names.insert(info.flag.substr(2)); });
  return {names.begin(), names.end()};
}

std::optional<Error> SetOption(OptionSet& set, std::string_view name, std::string_view text) {
  OptionSet changed = set;
  std::optional<OptionInfo> first;  // whose range is that of the flag
  Wanted wanted;
  VisitOptionSet(changed, [&](const OptionInfo& info, auto& member) {
    if (std::string_view(info.flag).substr(2) != name || wanted) return;
    if (!first) first = info;
    wanted = Parse(text, *first, &member);
  });
  if (!first) return Unknown(name);
  if (wanted) {
    return MakeError(
        Code::kInvalidArgument, kBadOption,
        "option '" + std::string(name) + "' is '" + std::string(text) + "'; it must be " + *wanted,
        std::string(name));
  }
  set = std::move(changed);
  return std::nullopt;
}

}  // namespace spaid::internal
