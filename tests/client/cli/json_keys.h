// The keys of a JSON object, for tests that hold them to a golden list.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace spaid::cli {

// Adds "path.key type" for every value in `value`; the elements of an array share "path[]".
inline void AddKeys(const std::string& path, const nlohmann::json& value,
                    std::set<std::string>* lines) {
  if (value.is_object()) {
    if (value.empty()) lines->insert(path + " object");
    for (const auto& [key, item] : value.items()) AddKeys(path + "." + key, item, lines);
  } else if (value.is_array()) {
    if (value.empty()) lines->insert(path + " array");
    for (const auto& item : value) AddKeys(path + "[]", item, lines);
  } else {
    const bool whole = value.is_number_integer();
    lines->insert(path + " " + (whole ? "integer" : value.type_name()));
  }
}

inline std::string Lines(const std::set<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace spaid::cli
