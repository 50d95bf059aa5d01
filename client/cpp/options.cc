#include "client/cpp/options.h"

#include <map>
#include <string_view>
#include <utility>

#include "proto/fields.h"
#include "spaid/v1/preconditioner_spec.pb.h"
#include "spaid/v1/solver.pb.h"

namespace spaid::internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

using Options = std::map<std::string, OptionInfo, std::less<>>;

Options OptionsOf(const Descriptor& type, const FieldDescriptor* message) {
  Options options;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.options().HasExtension(v1::option)) continue;
    const v1::Option& from = wire::OptionOf(field);
    OptionInfo info{.name = field.name(),
                    .flag = from.flag(),
                    .value = from.value(),
                    .help = from.help(),
                    .group = from.group(),
                    .above_min = from.above_min(),
                    .below_max = from.below_max(),
                    .choices = {},
                    .message = message,
                    .field = &field};
    if (info.group.empty() && message != nullptr) info.group = wire::OptionOf(*message).group();
    if (from.has_min()) info.min = from.min();
    if (from.has_max()) info.max = from.max();
    if (const auto* values = field.enum_type()) {
      for (int k = 1; k < values->value_count(); ++k) {
        info.choices.push_back(wire::Dashed(wire::ValueName(*values, k)));
      }
    }
    options.emplace(field.name(), std::move(info));
  }
  return options;
}

// By the name of the message in PreconditionerSpec.
const std::map<std::string, Options>& AllOptions() {
  static const auto* const all = [] {
    auto* map = new std::map<std::string, Options>;
    const Descriptor& spec = *v1::PreconditionerSpec::descriptor();
    map->emplace("", OptionsOf(spec, nullptr));
    for (int i = 0; i < spec.field_count(); ++i) {
      const FieldDescriptor* message = spec.field(i);
      if (message->message_type() == nullptr) continue;
      map->emplace(message->name(), OptionsOf(*message->message_type(), message));
    }
    return map;
  }();
  return *all;
}

const OptionInfo* Find(const Options& options, std::string_view name) {
  const auto found = options.find(name);
  return found == options.end() ? nullptr : &found->second;
}

}  // namespace

const std::vector<std::string>& SpecMessages() {
  static const auto* const names = [] {
    auto* list = new std::vector<std::string>{""};
    const Descriptor& spec = *v1::PreconditionerSpec::descriptor();
    for (int i = 0; i < spec.field_count(); ++i) {
      if (spec.field(i)->message_type() != nullptr) list->push_back(spec.field(i)->name());
    }
    return list;
  }();
  return *names;
}

const OptionInfo* FindOption(const std::string& message, const char* name,
                             std::optional<Engine> engine) {
  const OptionInfo* info = Find(AllOptions().at(message), name);
  if (info == nullptr || !engine) return info;
  const std::string_view reader = Name(*engine);
  const bool reads = info->message == nullptr || wire::Reads(*info->message, reader);
  return reads && wire::Reads(*info->field, reader) ? info : nullptr;
}

const OptionInfo* FindSolveOption(const char* name) {
  static const auto* const options =
      new Options(OptionsOf(*v1::SolveHeader::descriptor(), nullptr));
  return Find(*options, name);
}

const OptionInfo* FindReuseOption(const char* name) {
  static const auto* const options =
      new Options(OptionsOf(*v1::ReusePolicy::descriptor(), nullptr));
  return Find(*options, name);
}

}  // namespace spaid::internal
