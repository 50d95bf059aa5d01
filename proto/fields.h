// Reads and writes the fields of a message by their names, for structs that list their members (see
// Fields in client/cpp/spaid/types.h), and tells what spaid/v1/options.proto says of a field.
// Pure; thread-safe.
//
// Enums of the message and of the struct are matched by name: MAX_ITERATIONS and "max-iterations".
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "spaid/v1/options.pb.h"

namespace spaid::wire {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The name of an enum's value without the enum's own: "STATIC_SPAI".
std::string_view ValueName(const EnumDescriptor& type, int index);
// "AUTO, QR, GRAM": all but UNSPECIFIED.
std::string ValueNames(const EnumDescriptor& type);
// "static-spai" of "STATIC_SPAI".
std::string Dashed(std::string_view value_name);

// Null: the message has no such field.
const FieldDescriptor* FindField(const Message& message, const char* name);
const v1::Option& OptionOf(const FieldDescriptor& field);
// Whether `engine` ("static-spai") reads the field, which is one of a message that it reads, or
// such a message itself.
bool Reads(const FieldDescriptor& field, std::string_view engine);
// Whether the request says nothing of an option, which then has its default.
bool IsUnset(const Message& message, const FieldDescriptor& field);

// How a struct's enum is named; to be specialised where Name(E) is not found by its argument.
template <class E>
struct EnumNames {
  static std::string_view Of(E value) { return Name(value); }
};

// The struct's enum begins at 0 or 1, without gaps. Empty: a number that one of the two does not
// know.
template <class E>
std::optional<E> EnumFrom(const EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  if (value == nullptr) return std::nullopt;
  const std::string name = Dashed(ValueName(type, value->index()));
  for (int i = 0;; ++i) {
    const std::string_view candidate = EnumNames<E>::Of(static_cast<E>(i));
    if (candidate == name) return static_cast<E>(i);
    if (candidate == "unknown" && i > 0) return std::nullopt;
  }
}
// -1: a value without a name, which the other side refuses by its field. 0: one that the wire does
// not have.
int EnumNumber(const EnumDescriptor& type, std::string_view name);

template <class E>
int EnumNumber(const EnumDescriptor& type, E value) {
  return EnumNumber(type, EnumNames<E>::Of(value));
}

// Numbers of any type the field may have.
int64_t GetInteger(const Message& message, const FieldDescriptor& field);
double GetReal(const Message& message, const FieldDescriptor& field);
void SetInteger(Message* message, const FieldDescriptor& field, int64_t value);
void SetReal(Message* message, const FieldDescriptor& field, double value);
// For google.protobuf.Duration.
void SetNanoseconds(Message* message, const FieldDescriptor& field, int64_t ns);

// {count, first}, of a message with fields of these names.
template <class T>
concept Counted = requires(T t) {
  { t.count } -> std::convertible_to<int64_t>;
  { t.first } -> std::convertible_to<int64_t>;
};

// Structs with Fields, of a repeated message with fields of these names.
template <class T>
concept ListOfStructs = requires(T t) {
  t.emplace_back();
  T::value_type::Fields(t.front(), [](const char*, auto&) {});
};

// Unset fields stay as they are, where the field is an option. False: an enum's unknown number.
template <class T>
bool Get(const Message& message, const FieldDescriptor& field, T* to) {
  const auto& reflection = *message.GetReflection();
  if (field.options().HasExtension(v1::option) && IsUnset(message, field)) return true;
  if constexpr (std::is_enum_v<T>) {
    const int number = reflection.GetEnumValue(message, &field);
    const std::optional<T> value = EnumFrom<T>(*field.enum_type(), number);
    if (value) *to = *value;
    return value.has_value();
  } else if constexpr (std::floating_point<T>) {
    *to = GetReal(message, field);
  } else if constexpr (std::integral<T>) {
    *to = static_cast<T>(GetInteger(message, field));
  } else if constexpr (std::same_as<T, std::string>) {
    *to = field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM
              ? Dashed(ValueName(*field.enum_type(), reflection.GetEnum(message, &field)->index()))
              : reflection.GetString(message, &field);
  } else if constexpr (std::same_as<T, std::vector<double>>) {
    const auto values = reflection.GetRepeatedFieldRef<double>(message, &field);
    to->assign(values.begin(), values.end());
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    const auto values = reflection.GetRepeatedFieldRef<std::string>(message, &field);
    to->assign(values.begin(), values.end());
  } else if constexpr (ListOfStructs<T>) {
    to->clear();
    for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
      const Message& from = reflection.GetRepeatedMessage(message, &field, k);
      auto& item = to->emplace_back();
      T::value_type::Fields(item, [&from](const char* name, auto& member) {
        Get(from, *FindField(from, name), &member);
      });
    }
  } else if constexpr (Counted<T>) {
    const Message& counted = reflection.GetMessage(message, &field);
    to->count = GetInteger(counted, *FindField(counted, "count"));
    to->first = to->count != 0 ? GetInteger(counted, *FindField(counted, "first")) : -1;
  } else {  // an optional number, or what the caller has a Get of
    typename T::value_type value{};
    if (!Get(message, field, &value)) return false;
    *to = std::move(value);
  }
  return true;
}

template <class T>
void Set(Message* message, const FieldDescriptor& field, const T& from) {
  const auto& reflection = *message->GetReflection();
  if constexpr (std::is_enum_v<T>) {
    reflection.SetEnumValue(message, &field, EnumNumber(*field.enum_type(), from));
  } else if constexpr (std::floating_point<T>) {
    SetReal(message, field, from);
  } else if constexpr (std::integral<T>) {
    SetInteger(message, field, from);
  } else if constexpr (std::same_as<T, std::string>) {
    reflection.SetString(message, &field, from);
  } else if constexpr (std::same_as<T, std::chrono::nanoseconds>) {
    SetNanoseconds(message, field, from.count());
  } else if constexpr (Counted<T>) {
    Message* counted = reflection.MutableMessage(message, &field);
    SetInteger(counted, *FindField(*counted, "count"), from.count);
    SetInteger(counted, *FindField(*counted, "first"), from.first);
  } else if constexpr (requires { from.has_value(); }) {
    if (from) Set(message, field, *from);
  } else {
    for (const auto& value : from) {
      if constexpr (std::same_as<std::decay_t<decltype(value)>, std::string>) {
        reflection.AddString(message, &field, value);
      } else if constexpr (requires { value.Figures([](const char*, const auto&) {}); }) {
        Message* to = reflection.AddMessage(message, &field);
        value.Figures(
            [to](const char* name, const auto& figure) { Set(to, *FindField(*to, name), figure); });
      } else {
        reflection.AddDouble(message, &field, value);
      }
    }
  }
}

}  // namespace spaid::wire
