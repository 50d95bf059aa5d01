#include "client/cli/option_flags.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/cli/options.h"
#include "client/cpp/options.h"

namespace spaid::cli {
namespace {

using internal::OptionInfo;

template <class T>
void Assign(const std::string& text, T* to) {
  if constexpr (std::is_enum_v<T>) {
    for (int i = 0; Name(static_cast<T>(i)) != "unknown"; ++i) {
      if (Name(static_cast<T>(i)) == text) *to = static_cast<T>(i);
    }
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    double seconds = 0;
    CLI::detail::lexical_cast(text, seconds);
    *to = std::chrono::milliseconds(std::max<int64_t>(1, std::llround(seconds * 1000)));
  } else if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>) {
    Assign(text, &to->emplace());
  } else {
    CLI::detail::lexical_cast(text, *to);
  }
}

template <class T>
std::string DefaultText(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(Name(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return CLI::detail::to_string(value);
  } else {
    return "";  // nothing, or empty
  }
}

template <class T>
void CheckRange(CLI::Option* option, const OptionInfo& info) {
  if (!info.choices.empty()) {
    option->check(CLI::IsMember(info.choices));
  } else if constexpr (std::is_same_v<T, std::optional<std::chrono::nanoseconds>>) {
    option->check(Positive());
  } else if constexpr (std::is_integral_v<T>) {
    constexpr T kMax = std::numeric_limits<T>::max();
    option->check(Whole(static_cast<int64_t>(info.min), info.max < static_cast<double>(kMax)
                                                            ? static_cast<int64_t>(info.max)
                                                            : int64_t{kMax}));
  } else if (std::isfinite(info.min)) {
    option->check(Within(info.min, info.above_min, info.max, info.below_max));
  }
}

// Adds a flag with the first member that has it; the others are set with it.
class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(app) {}

  template <class T>
  void Add(const OptionInfo& info, T& member) {
    Flag& flag = flags_[info.flag];
    if (!flag.setters) {
      flag.setters = std::make_shared<std::vector<Setter>>();
      const auto set_all = [setters = flag.setters](const std::string& text) {
        for (const Setter& set : *setters) set(text);
      };
      if constexpr (std::is_same_v<T, bool>) {
        flag.option = app_->add_flag_function(
            info.flag, [set_all](int64_t count) { set_all(count > 0 ? "true" : "false"); },
            info.help);
      } else {
        flag.option = app_->add_option_function<std::string>(info.flag, set_all, info.help);
        CheckRange<T>(flag.option, info);
        if (!info.value.empty()) flag.option->type_name(info.value);
      }
      if (!info.group.empty()) flag.option->group(info.group);
    }
    flag.setters->push_back([&member](const std::string& text) { Assign(text, &member); });
    if (std::is_same_v<T, bool>) return;
    const std::string text = DefaultText(member);
    const std::string before = flag.option->get_default_str();
    if (before.empty()) {
      flag.option->default_str(text);
    } else if (text != before) {
      flag.option->default_str(before + ", " + text);
    }
  }

 private:
  using Setter = std::function<void(const std::string&)>;
  struct Flag {
    CLI::Option* option = nullptr;
    std::shared_ptr<std::vector<Setter>> setters;
  };

  CLI::App* app_;
  std::map<std::string, Flag> flags_;
};

}  // namespace

void AddEngineFlags(CLI::App* app, PreconditionerSpec& spec,
                    const std::set<std::string>& left_out) {
  Flags flags(app);
  internal::VisitOptions(spec, std::nullopt, [&](const OptionInfo& info, auto& member) {
    if (!left_out.contains(info.flag)) flags.Add(info, member);
  });
}

void AddSolveFlags(CLI::App* app, SolveOptions& options, const std::set<std::string>& wanted) {
  Flags flags(app);
  SolveOptions::Fields(options, [&](const char* name, auto& member) {
    const OptionInfo& info = *internal::FindSolveOption(name);
    if (wanted.empty() || wanted.contains(info.flag)) flags.Add(info, member);
  });
}

void AddReuseFlags(CLI::App* app, ReusePolicy& policy) {
  Flags flags(app);
  ReusePolicy::Fields(policy, [&](const char* name, auto& member) {
    flags.Add(*internal::FindReuseOption(name), member);
  });
}

}  // namespace spaid::cli
