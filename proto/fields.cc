#include "proto/fields.h"

#include <algorithm>

namespace spaid::wire {
namespace {

constexpr std::string_view kUnspecified = "UNSPECIFIED";

std::string Underscored(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return text;
}

}  // namespace

std::string_view ValueName(const EnumDescriptor& type, int index) {
  const size_t prefix = type.value(0)->name().size() - kUnspecified.size();
  return std::string_view(type.value(index)->name()).substr(prefix);
}

std::string ValueNames(const EnumDescriptor& type) {
  std::string names;
  for (int i = 1; i < type.value_count(); ++i) {
    names.append(i > 1 ? ", " : "").append(ValueName(type, i));
  }
  return names;
}

std::string Dashed(std::string_view value_name) {
  std::string text(value_name);
  for (char& c : text) c = c == '_' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

const FieldDescriptor* FindField(const Message& message, const char* name) {
  return message.GetDescriptor()->FindFieldByName(name);
}

const v1::Option& OptionOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::option);
}

bool Reads(const FieldDescriptor& field, std::string_view engine) {
  const auto& engines = OptionOf(field).engines();
  return engines.empty() ||
         std::find(engines.begin(), engines.end(), Underscored(engine)) != engines.end();
}

bool IsUnset(const Message& message, const FieldDescriptor& field) {
  return !message.GetReflection()->HasField(message, &field);
}

int EnumNumber(const EnumDescriptor& type, std::string_view name) {
  if (name == "unknown") return -1;
  const std::string value = Underscored(name);
  for (int i = 1; i < type.value_count(); ++i) {
    if (ValueName(type, i) == value) return type.value(i)->number();
  }
  return 0;
}

int64_t GetInteger(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? 1 : 0;
    default:
      return reflection.GetInt64(message, &field);
  }
}

double GetReal(const Message& message, const FieldDescriptor& field) {
  return message.GetReflection()->GetDouble(message, &field);
}

void SetInteger(Message* message, const FieldDescriptor& field, int64_t value) {
  const auto& reflection = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(message, &field, static_cast<int32_t>(value));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(message, &field, value != 0);
    default:
      return reflection.SetInt64(message, &field, value);
  }
}

void SetReal(Message* message, const FieldDescriptor& field, double value) {
  message->GetReflection()->SetDouble(message, &field, value);
}

void SetNanoseconds(Message* message, const FieldDescriptor& field, int64_t ns) {
  Message* duration = message->GetReflection()->MutableMessage(message, &field);
  SetInteger(duration, *FindField(*duration, "seconds"), ns / 1'000'000'000);
  SetInteger(duration, *FindField(*duration, "nanos"), ns % 1'000'000'000);
}

}  // namespace spaid::wire
