// The options of the contract (proto/spaid/v1/options.proto), with the members of types.h's
// structs that hold them: for the wire, the command lines and JSON. Nothing of protobuf is needed
// to use it.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "spaid/client.h"

namespace google::protobuf {
class FieldDescriptor;
}

namespace spaid::internal {

// One option, as options.proto has it.
struct OptionInfo {
  std::string name;  // of the field
  std::string flag, value, help, group;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false, below_max = false;
  std::vector<std::string> choices;  // of an enum: "auto", "qr", …
  // In PreconditionerSpec; null: that has the field itself, or it is not a spec's.
  const google::protobuf::FieldDescriptor* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// The messages of PreconditionerSpec: "static_spai", "jacobi", …; and "" of its own fields.
const std::vector<std::string>& SpecMessages();
// Null: the message has no such option, or `engine` (where one is given) does not read it.
const OptionInfo* FindOption(const std::string& message, const char* name,
                             std::optional<Engine> engine);
// Fields of SolveHeader, and of its ReusePolicy.
const OptionInfo* FindSolveOption(const char* name);
const OptionInfo* FindReuseOption(const char* name);

// visit(info, member) for every option that `engine` reads; of nullopt for all options there are. A
// member that several messages have comes once for each. Thread-safe.
template <class Spec, class Visit>
void VisitOptions(Spec& spec, std::optional<Engine> engine, Visit&& visit) {
  for (const std::string& message : SpecMessages()) {
    const auto own = [&](const char* name, auto& member) {
      if (const OptionInfo* info = FindOption(message, name, engine)) visit(*info, member);
    };
    PreconditionerSpec::Fields(spec, [&](const char* name, auto& member) {
      using Member = std::remove_cvref_t<decltype(member)>;
      if constexpr (requires { Member::Fields(member, own); }) {
        if (message == name) Member::Fields(member, own);
      } else {
        own(name, member);
      }
    });
  }
}

}  // namespace spaid::internal
