#include "client/load/mix.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

namespace spaid::load {
namespace {

constexpr int64_t kMaxTenants = 1000;

Error Wrong(const char* reason, std::string message) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = reason;
  error.message = std::move(message);
  return error;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string_view::npos) return parts;
    begin = comma + 1;
  }
}

template <class T>
bool Parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Weight(double weight) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), weight);
  return {text, end};
}

}  // namespace

Expected<Shares> ParseShares(std::string_view text) {
  Shares shares;
  for (const std::string_view part : Split(text)) {
    const size_t equals = part.find('=');
    const std::string name(part.substr(0, equals));
    double weight = 1;
    if (name.empty() ||
        (equals != std::string_view::npos && !Parse(part.substr(equals + 1), weight)) ||
        !std::isfinite(weight) || weight <= 0) {
      return Wrong("BAD_MIX", "\"" + std::string(part) +
                                  "\" is no share; write NAME or NAME=WEIGHT, the weight above 0, "
                                  "separated by commas");
    }
    if (std::any_of(shares.begin(), shares.end(), [&](const auto& s) { return s.first == name; })) {
      return Wrong("BAD_MIX", name + " is there twice; give it one weight");
    }
    shares.emplace_back(name, weight);
  }
  return shares;
}

Expected<std::vector<EngineShare>> ParseEngines(std::string_view text) {
  std::string dashes(text);
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  auto shares = ParseShares(dashes);
  if (!shares.ok()) return shares.error();
  std::vector<EngineShare> engines;
  for (const auto& [name, weight] : *shares) {
    const auto* found = std::find_if(std::begin(kEngines), std::end(kEngines),
                                     [&](const EngineTraits& e) { return e.name == name; });
    if (found == std::end(kEngines)) {
      std::string all;
      for (const EngineTraits& engine : kEngines) {
        all += (all.empty() ? "" : ", ") + std::string(engine.name);
      }
      return Wrong("BAD_MIX", "no engine is called " + name + "; there are " + all);
    }
    engines.emplace_back(found->engine, weight);
  }
  return engines;
}

std::string ToText(const Shares& shares) {
  std::string text;
  for (const auto& [name, weight] : shares) {
    text += (text.empty() ? "" : ",") + name + "=" + Weight(weight);
  }
  return text;
}

std::string ToText(const std::vector<EngineShare>& shares) {
  Shares named;
  for (const auto& [engine, weight] : shares) named.emplace_back(std::string(Name(engine)), weight);
  return ToText(named);
}

size_t Picker::Pick(double u) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), u * ends_.back());
  return std::min<size_t>(static_cast<size_t>(end - ends_.begin()), ends_.size() - 1);
}

Expected<std::vector<std::string>> ReadTokens(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const size_t end = line.find_first_of(" \t\r", begin);
    if (line.compare(begin, 7, "sha256:") == 0) {
      return Wrong("BAD_TOKENS_FILE", file + " has hashes of tokens; give the tokens themselves");
    }
    tokens.push_back(line.substr(begin, end - begin));
  }
  if (tokens.empty()) {
    return Wrong("BAD_TOKENS_FILE", file + " cannot be read, or has no line TOKEN NAME");
  }
  return tokens;
}

Expected<std::vector<std::string>> ParseTenants(std::string_view text) {
  std::vector<std::string> names;
  int64_t count = 0;
  if (Parse(text, count)) {
    if (count < 1 || count > kMaxTenants) {
      return Wrong("BAD_TENANTS", "tenants: a number from 1 to " + std::to_string(kMaxTenants) +
                                      ", or their names, not " + std::string(text));
    }
    for (int64_t k = 0; k < count; ++k) names.push_back("load-" + std::to_string(k));
    return names;
  }
  for (const std::string_view name : Split(text)) {
    if (name.empty()) return Wrong("BAD_TENANTS", "a tenant's name is empty");
    names.emplace_back(name);
  }
  return names;
}

}  // namespace spaid::load
