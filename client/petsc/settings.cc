#include "client/petsc/settings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace spaid::petsc {
namespace {

using internal::OptionInfo;

// How an option is read; that of an enum by its name.
using Value = std::variant<bool, int64_t, double, std::string>;

template <class T>
constexpr bool kIsTime = false;
template <class Count, class Period>
constexpr bool kIsTime<std::chrono::duration<Count, Period>> = true;

// T of std::optional<T>.
template <class T>
struct Inner {
  using Type = T;
};
template <class T>
struct Inner<std::optional<T>> {
  using Type = T;
};

// All names of an enum.
template <class E>
std::vector<std::string> NamesOf() {
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) {
    const std::string_view name = Name(static_cast<E>(i));
    if (name != "unknown") names.emplace_back(name);
  }
  return names;
}

template <class T>
Value ToValue(const T& member) {
  if constexpr (std::is_same_v<T, bool>) {
    return member;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= sizeof(PetscInt)) {
    return int64_t{member};
  } else if constexpr (std::is_arithmetic_v<T>) {  // counts that a PetscInt does not hold, too
    return static_cast<double>(member);
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(Name(member));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return member;
  } else if constexpr (kIsTime<T>) {
    return std::chrono::duration<double>(member).count();
  } else {
    return ToValue(member.value_or(typename T::value_type{}));
  }
}

template <class T>
void FromValue(const Value& value, T* member) {
  if constexpr (std::is_same_v<T, bool>) {
    *member = std::get<bool>(value);
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= sizeof(PetscInt)) {
    *member = static_cast<T>(std::get<int64_t>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    *member = static_cast<T>(std::get<double>(value));
  } else if constexpr (std::is_enum_v<T>) {
    for (int i = 0; i < 64; ++i) {
      if (Name(static_cast<T>(i)) == std::get<std::string>(value)) *member = static_cast<T>(i);
    }
  } else if constexpr (std::is_same_v<T, std::string>) {
    *member = std::get<std::string>(value);
  } else if constexpr (kIsTime<T>) {
    *member = std::chrono::ceil<T>(std::chrono::duration<double>(std::get<double>(value)));
  } else {
    FromValue(value, &member->emplace());
  }
}

template <class T>
bool IsUnset(const T& member) {
  if constexpr (requires { member.has_value(); }) return !member.has_value();
  return false;
}

// One option, and the members that have it.
struct Entry {
  std::string help;
  std::vector<std::string> choices;
  Value value = false;
  double min = -HUGE_VAL, max = HUGE_VAL;
  bool above_min = false, below_max = false, unset = false;
  std::vector<std::function<void(const Value&)>> members;
};

class Table {
 public:
  // "-pc_spaid_"
  explicit Table(std::string start) : start_(std::move(start)) {}

  template <class T>
  void Add(const OptionInfo& info, T& member) {
    const std::string name = InPetscsWords(info.flag);
    auto [found, is_new] = entries_.try_emplace(name);
    Entry& entry = found->second;
    if (is_new) {
      order_.push_back(name);
      entry.help = InPetscsWords(info.help);
      entry.choices = info.choices;
      entry.value = ToValue(member);
      entry.min = info.min, entry.max = info.max;
      entry.above_min = info.above_min, entry.below_max = info.below_max;
      entry.unset = IsUnset(member);
      using Member = typename Inner<T>::Type;
      if constexpr (kIsTime<Member>) entry.min = 0, entry.above_min = true;
      if constexpr (std::is_enum_v<Member>) {
        if (entry.choices.empty()) entry.choices = NamesOf<Member>();
      }
    }
    entry.members.push_back([&member](const Value& value) { FromValue(value, &member); });
  }

  PetscErrorCode Read(PetscOptionItems* items) {
    PetscFunctionBegin;
    for (const std::string& name : order_) {
      Entry& entry = entries_.at(name);
      PetscBool given = PETSC_FALSE;
      PetscCall(ReadOne(items, name, &entry, &given));
      if (!given) continue;
      for (const auto& set : entry.members) set(entry.value);
    }
    PetscFunctionReturn(kOk);
  }

 private:
  // Flags in a text as PETSc has them: "-pc_spaid_k_max 3" of "--k-max=3".
  std::string InPetscsWords(const std::string& text) const {
    static const std::regex flag("--([a-z][a-z-]*)(=?)");
    std::string words;
    auto at = text.begin();
    for (std::sregex_iterator match(text.begin(), text.end(), flag), end; match != end; ++match) {
      words.append(at, text.begin() + match->position());
      std::string name = match->str(1);
      std::replace(name.begin(), name.end(), '-', '_');
      words += start_ + name + (match->length(2) > 0 ? " " : "");
      at = text.begin() + match->position() + match->length();
    }
    return words.append(at, text.end());
  }

  static PetscErrorCode ReadOne(PetscOptionItems* PetscOptionsObject, const std::string& name,
                                Entry* entry, PetscBool* given) {
    PetscFunctionBegin;
    const std::string help = entry->help + (entry->unset ? " (unset)" : "");
    if (!entry->choices.empty()) {
      PetscCall(ReadChoice(PetscOptionsObject, name, help, entry, given));
    } else if (auto* flag = std::get_if<bool>(&entry->value)) {
      PetscBool value = *flag ? PETSC_TRUE : PETSC_FALSE;
      PetscCall(PetscOptionsBool(name.c_str(), help.c_str(), "", value, &value, given));
      *flag = value == PETSC_TRUE;
    } else if (auto* count = std::get_if<int64_t>(&entry->value)) {
      auto value = static_cast<PetscInt>(*count);
      PetscCall(PetscOptionsInt(name.c_str(), help.c_str(), "", value, &value, given));
      *count = value;
      if (*given) PetscCall(CheckRange(name, *entry, static_cast<double>(value)));
    } else if (auto* real = std::get_if<double>(&entry->value)) {
      PetscReal value = *real;
      PetscCall(PetscOptionsReal(name.c_str(), help.c_str(), "", value, &value, given));
      *real = value;
      if (*given) PetscCall(CheckRange(name, *entry, value));
    } else {
      char value[PETSC_MAX_PATH_LEN] = "";
      PetscCall(PetscOptionsString(name.c_str(), help.c_str(), "",
                                   std::get<std::string>(entry->value).c_str(), value,
                                   sizeof(value), given));
      if (*given) entry->value = std::string(value);
    }
    PetscFunctionReturn(kOk);
  }

  static PetscErrorCode ReadChoice(PetscOptionItems* PetscOptionsObject, const std::string& name,
                                   const std::string& help, Entry* entry, PetscBool* given) {
    PetscFunctionBegin;
    std::vector<const char*> names;
    for (const std::string& choice : entry->choices) names.push_back(choice.c_str());
    PetscInt chosen = 0;
    PetscCall(PetscOptionsEList(name.c_str(), help.c_str(), "", names.data(),
                                static_cast<PetscInt>(names.size()),
                                std::get<std::string>(entry->value).c_str(), &chosen, given));
    if (*given) entry->value = entry->choices[static_cast<size_t>(chosen)];
    PetscFunctionReturn(kOk);
  }

  static PetscErrorCode CheckRange(const std::string& name, const Entry& entry, double value) {
    PetscFunctionBegin;
    const bool high = entry.below_max ? value < entry.max : value <= entry.max;
    const bool low = entry.above_min ? value > entry.min : value >= entry.min;
    PetscCheck(low && high, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "spaid: %s %g is out of range; it goes from %g%s to %g%s", name.c_str(), value,
               entry.min, entry.above_min ? " (excluded)" : "", entry.max,
               entry.below_max ? " (excluded)" : "");
    PetscFunctionReturn(kOk);
  }

  std::string start_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;
};

// An option that programs of PETSc have, and the contract has not.
OptionInfo Own(const char* flag, const char* help) {
  OptionInfo info = internal::PlainOption(flag, "", help, "");
  info.min = 0;
  return info;
}

// Options of the iteration, or what PETSc's own objects say: the last two are A's, and those of
// SNES and TS.
bool IsNotThePcs(std::string_view flag) {
  static constexpr std::string_view kFlags[] = {
      "--method",     "--rtol",        "--atol",           "--max-iterations",
      "--restart",    "--basis-bytes", "--shadow-vectors", "--token",
      "--null-space", "--reuse",       "--reuse-factor"};
  return std::find(std::begin(kFlags), std::end(kFlags), flag) != std::end(kFlags);
}

PetscErrorCode ReadToken(const std::string& path, std::string* token) {
  PetscFunctionBegin;
  std::ifstream file(path);
  PetscCheck(file >> *token, PETSC_COMM_SELF, PETSC_ERR_FILE_OPEN,
             "spaid: no token can be read from %s; -pc_spaid_token_file names a file that holds "
             "one, as the daemon's --tokens has it",
             path.c_str());
  PetscFunctionReturn(kOk);
}

// Handles have no files here.
PetscErrorCode CheckHandle(const char* option, const std::string& text, const char* cure) {
  PetscFunctionBegin;
  PetscCheck(text.empty() || text.starts_with("matrices/"), PETSC_COMM_SELF, PETSC_ERR_ARG_WRONG,
             "spaid: -pc_spaid_%s %s is no handle of the daemon (matrices/...); %s", option,
             text.c_str(), cure);
  PetscFunctionReturn(kOk);
}

}  // namespace

std::string_view Name(Parallel value) {
  switch (value) {
    case Parallel::kGather:
      return "gather";
    case Parallel::kError:
      return "error";
  }
  return "unknown";
}

PcSettings::PcSettings() {
  if (const char* address = std::getenv("SPAID_ADDRESS")) options.client.address = address;
  if (const char* token = std::getenv("SPAID_TOKEN")) options.client.token = token;
}

PetscErrorCode SetFromOptions(PetscOptionItems* items, PcSettings* settings) {
  PetscFunctionBegin;
  Table table("-pc_spaid_");
  std::string token_file;
  internal::VisitOptionSet(settings->options, [&](const OptionInfo& info, auto& member) {
    if (!IsNotThePcs(info.flag)) table.Add(info, member);
  });
  table.Add(Own("--token-file", "File with the bearer token; else $SPAID_TOKEN"), token_file);
  table.Add(Own("--reuse-factor",
                "Keep M for other values while solves take at most this many times the "
                "iterations of its first one; 0: build M anew"),
            settings->reuse_factor);
  table.Add(Own("--parallel", "Several ranks: gather A to one, or refuse"), settings->parallel);
  table.Add(Own("--gather-limit", "Bytes of A that one rank takes from the others"),
            settings->gather_bytes);
  PetscCall(table.Read(items));
  const PreconditionerSpec& spec = settings->options.solve.spec;
  PetscCall(CheckHandle("pattern", spec.pattern_matrix,
                        "upload the pattern first: spaidctl upload --pattern-only FILE"));
  PetscCall(CheckHandle("near_null_space", spec.amg.near_null_space,
                        "attach the vectors to the matrix: MatSetNearNullSpace"));
  PetscCall(CheckHandle("coordinates", spec.amg.coordinates, "call PCSetCoordinates"));
  if (!token_file.empty()) PetscCall(ReadToken(token_file, &settings->options.client.token));
  PetscFunctionReturn(kOk);
}

PetscErrorCode SetFromOptions(PetscOptionItems* items, SolveOptions* options) {
  PetscFunctionBegin;
  Table table("-ksp_spaid_");
  SolveOptions::Fields(*options, [&](const char* name, auto& member) {
    const std::string_view field = name;
    // Those are the KSP's own, and the last one the PC's.
    if (field == "rtol" || field == "atol" || field == "max_iterations") return;
    if (field == "preconditioner_storage") return;
    table.Add(*internal::FindSolveOption(name), member);
  });
  PetscCall(table.Read(items));
  PetscFunctionReturn(kOk);
}

}  // namespace spaid::petsc
