// Defines the classes of jobs, by how soon somebody wants them.
#pragma once

#include <cstddef>
#include <string_view>

namespace spaid::server {

// The classes: somebody waits at a screen; a program waits; nobody waits.
enum class Priority { kInteractive, kNormal, kBulk };
inline constexpr size_t kPriorities = 3;
// The parts of the tenant's time that classes get while each has work; a class without work leaves
// its part to the others.
inline constexpr double kPriorityShares[kPriorities] = {16, 4, 1};

// Returns the name for logs and metrics: "interactive".
constexpr std::string_view PriorityName(Priority priority) {
  constexpr std::string_view kNames[kPriorities] = {"interactive", "normal", "bulk"};
  return kNames[static_cast<size_t>(priority)];
}

}  // namespace spaid::server
