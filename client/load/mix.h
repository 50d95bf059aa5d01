// Parses weighted choices such as "poisson:16=3,p27:10=1" and "jacobi=4,static-spai", and picks
// from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cpp/spaid/client.h"

namespace spaid::load {

// Names and weights, in the order given; at least one, weights above 0, no name twice.
using Shares = std::vector<std::pair<std::string, double>>;
using EngineShare = std::pair<Engine, double>;

// Parses NAME or NAME=WEIGHT, separated by commas; a name alone weighs 1. Error:
// INVALID_ARGUMENT/BAD_MIX.
Expected<Shares> ParseShares(std::string_view text);
// Parses the same form with engines for names; static_spai is static-spai.
Expected<std::vector<EngineShare>> ParseEngines(std::string_view text);
std::string ToText(const Shares& shares);
std::string ToText(const std::vector<EngineShare>& shares);

// Picks by weight. Thread-safe.
class Picker {
 public:
  template <class Share>
  explicit Picker(const std::vector<Share>& shares) {
    for (const auto& [unused, weight] : shares) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + weight);
    }
  }
  // Maps `u` in [0, 1) to an index of the shares.
  size_t Pick(double u) const;

 private:
  std::vector<double> ends_;  // sums of the weights up to and with each
};

// Reads the tokens from a file of lines TOKEN NAME, as the daemon's --tokens takes; '#' begins a
// comment line. Errors: INVALID_ARGUMENT/BAD_TOKENS_FILE.
Expected<std::vector<std::string>> ReadTokens(const std::string& file);

// Parses tenants: "4" is load-0 .. load-3; "a,b" is a and b. Error: INVALID_ARGUMENT/BAD_TENANTS.
Expected<std::vector<std::string>> ParseTenants(std::string_view text);

}  // namespace spaid::load
