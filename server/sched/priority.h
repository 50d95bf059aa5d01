// Classes of jobs, by how soon somebody wants them.
#pragma once

#include <cstddef>
#include <string_view>

namespace spaid::server {

// Somebody waits at a screen; a program waits; nobody does.
enum class Priority { kInteractive, kNormal, kBulk };
inline constexpr size_t kPriorities = 3;
// Shares of the tenant's time while each class has work; the others take the share of one that has
// none.
inline constexpr double kPriorityShares[kPriorities] = {16, 4, 1};

// In logs and metrics: "interactive".
constexpr std::string_view PriorityName(Priority priority) {
  constexpr std::string_view kNames[kPriorities] = {"interactive", "normal", "bulk"};
  return kNames[static_cast<size_t>(priority)];
}

}  // namespace spaid::server
